"""The problem of an embedding: the neighbour graph, the labels, and quantities that are computed once.

A step is one Newton step of coloured maximum variance unfolding, one convex problem of minimum volume embedding, or one cutting-plane
round of structure preserving embedding. The state holds the best kernel so far, so that an interrupted run still has a map. See
:mod:`gramplane.kernels.spectral.embeddings`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

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
    label_target,
    structure_problem,
    structure_step,
    violation_unit,
    volume_step,
)
from ....kernels.spectral.neighbors import Nearest, neighbour_graph
from ....kernels.spectral.newton import MAX_NEWTON_ROWS
from ....storage import BlockStore, DataError, MemoryBlocks
from ...core.memory import Item, driver_plan, total_bytes
from ...core.resources import Resources
from ...grams.eigen_blocks import worker_engine
from ...grams.eigen_plan import EigenPlan
from ...grams.neighbours import nearest_neighbours, plan_distances, plan_neighbours, squared_distances
from ...passes.blocks import Blocks
from ...records.data_set import Reads
from .config import EmbeddingConfig, MVEConfig, SPEConfig
from .labels import Labels
from .rows_pass import MAX_SCATTER_COLUMNS, WHOLE_ROWS, TriplesPass, geometry_bytes, row_geometry, triples_pass

Edges = tuple[np.ndarray, np.ndarray]  # rows and columns, rows < columns
TakeStep = Callable[..., EmbeddingState]

N_MATRICES = 6  # matrices of all rows that a decomposition holds


@dataclass(frozen=True)
class EmbeddingInputs(Reads):
    """Rows, their labels, and a given graph."""

    data: BlockStore | MemoryBlocks
    labels: Labels | None
    edges: np.ndarray | None = None  # (m, 2) of a graph in place of that of nearest neighbours
    label_matrix: np.ndarray | None = None  # (n, n) kernel of the labels
    label_file: str = ""  # that it was read from


def build_graph(config: EmbeddingConfig, data: Blocks, resources: Resources, given: Edges | None = None) -> Neighbourhood:
    """Return the graph of a fit: the nearest-neighbour graph, unless edges are given. Raises DataError if there is no edge."""
    n = data.n_rows
    if given is None:
        nearest = nearest_neighbours(data, resources, min(config.n_neighbors, n - 1))
        i, j = sp.triu(neighbour_graph(nearest.ids, config.graph), 1, format="coo").coords
        if not len(i):
            raise DataError(f"graph={config.graph!r}: no two rows are neighbours of each other; raise n_neighbors, or set graph='union'")
        i, j = i.astype(np.int64), j.astype(np.int64)
        squares = edge_squares(nearest, i, j)
    else:
        i, j = given
        squares = squared_distances(data, resources, i, j)
    norm2, directions = row_geometry(data, resources, directions_of(config))
    return build_neighbourhood(n, i, j, squares, norm2, directions)


def directions_of(config: EmbeddingConfig) -> int:
    """Return the number of leading directions of the rows with which a map is initialised."""
    return config.n_components if isinstance(config, MVEConfig) else 0


def edge_squares(nearest: Nearest, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the squared distances of edges. The distance of an edge is read from the neighbour list of either row, if this list contains
    the other row.
    """
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
    """Constants of a fit: the graph, the upper bound of tr K^2, and the plan of the eigensolver."""

    config: EmbeddingConfig
    graph: Neighbourhood
    B: float
    solver: Solver
    resources: Resources
    label_factor: np.ndarray | None

    @property
    def violation_cost(self) -> float:
        """The cost C of a structure preserving embedding, with ``"auto"`` replaced by its value; NaN for the other embeddings."""
        if not isinstance(self.config, SPEConfig):
            return np.nan
        return violation_unit(self.graph, self.solver) if self.config.C == "auto" else float(self.config.C)

    @cached_property
    def structure(self) -> StructureProblem:
        """The problem of a structure preserving embedding with C = 1; steps replace C by its value."""
        return replace(structure_problem(self.graph, 1.0, self.B, self.solver), find_worst=TriplesPass(self.resources))

    @cached_property
    def step(self) -> TakeStep:
        """Function that takes one step."""
        config, limits = self.config, {"tol": self.config.tol, "max_iter": self.config.max_iter}
        if isinstance(config, SPEConfig):
            return partial(self._structure_step, **limits)
        C = float(config.C)
        if isinstance(config, MVEConfig):
            return partial(volume_step, self.graph, count=config.n_components, C=C, B=self.B, solver=self.solver, **limits)
        assert self.label_factor is not None
        return partial(colored_step, colored_problem(self.graph, label_target(self.label_factor), C, self.B, self.solver), **limits)

    def _structure_step(self, state: EmbeddingState, *, tol: float, max_iter: int) -> EmbeddingState:
        return structure_step(replace(self.structure, C=float(state.violation_cost)), state, tol=tol, max_iter=max_iter)


@dataclass(eq=False)
class EmbeddingProblem:
    """Problem of one of the three embeddings; the type of its parameters decides which."""

    config: EmbeddingConfig
    inputs: EmbeddingInputs
    given: Edges | None  # edges in place of those of nearest neighbours
    planned: Resources  # where it was made: what decides the passes
    label_factor: np.ndarray | None = None  # (n, r) of the label kernel of a coloured one
    _setting: Setting | None = None

    @property
    def data(self) -> BlockStore | MemoryBlocks:
        """Data of the training rows."""
        return self.inputs.data

    def setting(self, resources: Resources) -> Setting:
        """Return graph, bound and solver. They follow from data and parameters, and are computed at the first access."""
        if self._setting is None:
            graph, memory = build_graph(self.config, self.data, resources, self.given), self._solver_memory
            solver = Solver(memory, worker_engine(resources, graph.n, memory, keeps_blocks=True))
            # Rows that are all alike, or none at all, leave the size of the map open.
            default = DEFAULT_CAP_RATIO * graph.energy if graph.energy > 0 else float(graph.n)
            B = default if self.config.B is None else self.config.B
            self._setting = Setting(self.config, graph, B, solver, resources, self.label_factor)
        return self._setting

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Passes over rows, and memory of the driver. The rank of K is not known in advance, so the bytes of the eigensolver are a lower
        bound.
        """
        data, n, given, solver = self.data, self.data.n_rows, self.given, self._solver
        search = plan_neighbours(data, min(self.config.n_neighbors, n - 1)) if given is None else plan_distances(data, *given)
        # Of a task on triples where K has as many eigenvalues as rows.
        triples = triples_pass(n, n, 2 * self._n_edges).memory_bound if isinstance(self.config, SPEConfig) else 0
        step = max(search["task_bytes"], geometry_bytes(data, directions_of(self.config)), triples)
        return {
            **search,
            **driver_plan(self.driver_items),
            **({} if solver is None else solver.describe(total_bytes(self._others_items))),
            **({"task_bytes": step} if solver is None else solver.task_figures(step)),
            "iterations_at_most": self.config.max_iter,
            "graph": self.config.graph if given is None else "given",
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        rows, solver = "neighbours" if self.given is None else "distances along the graph", self._solver
        triples = ("the most violated triple of every row",) if isinstance(self.config, SPEConfig) else ()
        return (rows, "size and directions of the rows", *triples, *(() if solver is None else solver.work()))

    @property
    def driver_items(self) -> tuple[Item, ...]:
        """Memory items of the driver: the graph, and either the decomposition of matrices of all rows, or the smallest need of the
        eigensolver.
        """
        n, solver = self.data.n_rows, self._solver
        if solver is not None:
            return (solver.least_item(), *self._others_items)
        matrices = "matrices of a decomposition", 8 * N_MATRICES * n * n
        along = "eigenvectors along the edges of the graph", 8 * n * (0 if isinstance(self.config, SPEConfig) else self._n_edges)
        return (matrices, along, *self._others_items)

    @property
    def _others_items(self) -> tuple[Item, ...]:
        """Memory of the driver apart from the decomposition."""
        n, d = self.data.n_rows, self.data.n_cols
        neighbours = 0 if self.given is not None else min(self.config.n_neighbors, n - 1)
        items = [("graph of neighbours", 200 * n * neighbours + 100 * self._n_edges)]
        if self.inputs.label_matrix is not None:
            items.append(("kernel of the labels that is given, and its decomposition", 32 * n * n))
        if n > WHOLE_ROWS and self.data.meta.kind != "sparse" and d <= MAX_SCATTER_COLUMNS:
            items.append(("scatter matrix of the rows, or directions of an iteration", 24 * d * d))
        return tuple(items)

    @property
    def _n_edges(self) -> int:
        """Upper bound of the number of edges of the graph."""
        n = self.data.n_rows
        return n * min(self.config.n_neighbors, n - 1) if self.inputs.edges is None else len(self.inputs.edges)

    @property
    def _solver_memory(self) -> int:
        return self.planned.driver_memory - total_bytes(self._others_items)

    @property
    def _solver(self) -> EigenPlan | None:
        """Plan of the iterative eigensolver; None if whole ``(n, n)`` matrices are decomposed instead."""
        n = self.data.n_rows
        if n <= MAX_NEWTON_ROWS or isinstance(self.config, SPEConfig):
            return None
        # The low rank part of the matrix that is decomposed: a factor of the label kernel, or directions of a map.
        factor = directions_of(self.config) if self.label_factor is None else self.label_factor.shape[1]
        here, entries = self.planned.executor.kind == "sync", n + 2 * self._n_edges
        return EigenPlan(n, n, entries, eigenpairs_item, self._solver_memory, here=here, factor=factor, adds=True)


def eigenpairs_item(n: int, columns: float, rank: float) -> Item:
    """Return the memory item of the eigenpairs of n rows and of the eigensolver's block of columns. The number of eigenpairs is not known
    in advance.
    """
    return "eigenpairs, here one", int(n * (8 * columns + 32 * rank) + 40 * columns**2)
