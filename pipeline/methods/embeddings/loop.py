"""Embeddings as loops: coloured maximum variance unfolding, minimum volume embedding, structure preserving embedding.

A step is one Newton step of the first, one convex problem of the second, one round of cutting planes of the third; the state holds
the best kernel so far, so that a run that is cut short still has a map. See :mod:`gramplane.kernels.spectral.embeddings`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import scipy.sparse as sp

from ....kernels.spectral.embeddings import (
    DEFAULT_CAP_RATIO,
    EmbeddingState,
    Neighbourhood,
    Solver,
    StructureProblem,
    build_neighbourhood,
    colored_problem,
    colored_step,
    initial_state,
    label_target,
    structure_problem,
    structure_step,
    violation_unit,
    volume_step,
)
from ....kernels.spectral.neighbors import Nearest, neighbour_graph
from ....storage import DataError
from ...core.result import Step
from ...grams.eigen_blocks import worker_engine
from ...grams.neighbours import nearest_neighbours, squared_distances
from ...records.context import RunContext
from .config import EmbeddingConfig, MVEConfig, SPEConfig
from .rows_pass import TriplesPass, row_geometry

Edges = tuple[np.ndarray, np.ndarray]  # rows and columns, rows < columns
TakeStep = Callable[..., EmbeddingState]


def build_graph(config: EmbeddingConfig, ctx: RunContext, given: Edges | None = None) -> Neighbourhood:
    """Return the graph of a fit on ``ctx.data``: of nearest neighbours, unless its edges are given. Raises DataError: no edge."""
    n = ctx.data.n_rows
    if given is None:
        nearest = nearest_neighbours(ctx, min(config.n_neighbors, n - 1))
        i, j = sp.triu(neighbour_graph(nearest.ids, config.graph), 1, format="coo").coords
        if not len(i):
            raise DataError(f"graph={config.graph!r}: no two rows are neighbours of each other; take more neighbours, or graph='union'")
        i, j = i.astype(np.int64), j.astype(np.int64)
        squares = edge_squares(nearest, i, j)
    else:
        i, j = given
        squares = squared_distances(ctx, i, j)
    norm2, directions = row_geometry(ctx, directions_of(config))
    return build_neighbourhood(n, i, j, squares, norm2, directions)


def directions_of(config: EmbeddingConfig) -> int:
    """Return how many leading directions of the rows a map begins with."""
    return config.n_components if isinstance(config, MVEConfig) else 0


def edge_squares(nearest: Nearest, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the squared distances of edges from the lists of neighbours that hold them, at one end or at both."""
    n = len(nearest.ids)
    keys = (np.arange(n)[:, None] * n + nearest.ids).ravel()
    order = np.argsort(keys, kind="stable")
    keys, squares = keys[order], nearest.squares.ravel()[order]
    out = np.empty(len(i))
    for rows, cols in ((i, j), (j, i)):
        position = np.minimum(np.searchsorted(keys, rows * n + cols), len(keys) - 1)
        is_listed = keys[position] == rows * n + cols
        out[is_listed] = squares[position[is_listed]]
    return out


@dataclass(frozen=True)
class Setting:
    """What a fit works on: the graph, the cap, what the eigensolver may use."""

    config: EmbeddingConfig
    graph: Neighbourhood
    B: float
    solver: Solver
    ctx: RunContext
    label_factor: np.ndarray | None

    @cached_property
    def violation_unit(self) -> float:
        """The unit of C that :func:`gramplane.kernels.spectral.embeddings.violation_unit` returns."""
        return violation_unit(self.graph, self.solver)

    def violation_cost(self) -> float:
        """Return C of a structure preserving embedding, as the problem is written; NaN of the others, which have no such cost."""
        if not isinstance(self.config, SPEConfig):
            return np.nan
        return self.violation_unit if self.config.C == "auto" else float(self.config.C)

    @cached_property
    def structure(self) -> StructureProblem:
        """The problem of a structure preserving embedding, but for its C."""
        return replace(structure_problem(self.graph, 1.0, self.B, self.solver), find_worst=TriplesPass(self.ctx))

    @cached_property
    def step(self) -> TakeStep:
        """The function that takes a step."""
        config, limits = self.config, {"tol": self.config.tol, "max_iter": self.config.max_iter}
        if isinstance(config, SPEConfig):
            return partial(self._structure_step, **limits)
        C = float(config.C)
        if isinstance(config, MVEConfig):
            return partial(volume_step, self.graph, count=config.n_components, C=C, B=self.B, solver=self.solver, **limits)
        assert self.label_factor is not None
        return partial(colored_step, colored_problem(self.graph, label_target(self.label_factor), C, self.B, self.solver), **limits)

    def cost_of(self, state: EmbeddingState) -> float:
        """Return C of a state; a run of a version whose C was in units of ``violation_unit`` goes on with it."""
        if np.isfinite(state.violation_cost):
            return float(state.violation_cost)
        return self.violation_unit * (1.0 if self.config.C == "auto" else float(self.config.C))

    def _structure_step(self, state: EmbeddingState, *, tol: float, max_iter: int) -> EmbeddingState:
        return structure_step(replace(self.structure, C=self.cost_of(state)), state, tol=tol, max_iter=max_iter)


class EmbeddingLoop:
    """One of the three embeddings on a graph; the type of its parameters says which, and only the coloured one has a factor of a label
    kernel, ``(n, r)``. ``given`` are the edges in place of those of nearest neighbours, ``memory`` the bytes the eigensolver may hold here.
    """

    state_type = EmbeddingState

    def __init__(self, config: EmbeddingConfig, given: Edges | None, label_factor: np.ndarray | None, memory: int) -> None:
        self.config, self.given, self._label_factor, self._memory = config, given, label_factor, memory
        self._setting: Setting | None = None

    @property
    def target_columns(self) -> int:
        """Columns of the low rank part of the matrix that is decomposed: a factor of the label kernel, or directions of a map."""
        return directions_of(self.config) if self._label_factor is None else self._label_factor.shape[1]

    def setting(self, ctx: RunContext) -> Setting:
        """Return graph, cap and solver: a function of data and parameters, made when first asked for."""
        if self._setting is None:
            graph = build_graph(self.config, ctx, self.given)
            solver = Solver(self._memory, worker_engine(ctx, graph.n, self._memory, keeps_blocks=True))
            # Rows that are all alike, or none at all, leave the size of the map open.
            default = DEFAULT_CAP_RATIO * graph.energy if graph.energy > 0 else float(graph.n)
            B = default if self.config.B is None else self.config.B
            self._setting = Setting(self.config, graph, B, solver, ctx, self._label_factor)
        return self._setting

    def init(self, ctx: RunContext) -> EmbeddingState:
        """Return the state before the first step."""
        setting, is_volume = self.setting(ctx), isinstance(self.config, MVEConfig)
        size = 0 if isinstance(self.config, SPEConfig) else setting.graph.terms.size
        directions = setting.graph.directions if is_volume else None
        return initial_state(setting.graph.n, size, directions, setting.violation_cost())

    def step(self, state: EmbeddingState, ctx: RunContext) -> Step[EmbeddingState]:
        """Take one step."""
        new = self.setting(ctx).step(state)
        certificate = {"objective": new.upper, "gap": new.gap, "relative_gap": new.relative_gap, "decompositions": new.evaluations}
        kernel = {"rank": len(new.spectrum), "map_share": new.share(self.config.n_components)}
        triples = {"n_triples": len(new.triples), "worst_violation": new.worst} if isinstance(self.config, SPEConfig) else {}
        return Step(new, {**certificate, **kernel, **triples})
