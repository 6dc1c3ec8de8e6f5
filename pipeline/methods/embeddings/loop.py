"""Embeddings as loops: coloured maximum variance unfolding, minimum volume embedding, structure preserving embedding.

A step is one Newton step of the first, one convex problem of the second, one round of cutting planes of the third; the state holds
the best kernel so far, so that a run that is cut short still has a map. See :mod:`gramplane.kernels.spectral.embeddings`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.spectral.embeddings import (
    DEFAULT_CAP_RATIO,
    EmbeddingState,
    Neighbourhood,
    build_neighbourhood,
    colored_problem,
    colored_step,
    initial_state,
    label_target,
    structure_problem,
    structure_step,
    volume_step,
)
from ....kernels.spectral.neighbors import Nearest, nearest_rows, neighbour_graph
from ....storage import DataError
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import ColoredMVUConfig, EmbeddingConfig, MVEConfig, SPEConfig
from .labels import Labels


def build_graph(config: EmbeddingConfig, rows: Any) -> Neighbourhood:
    """Return the neighbour graph of a fit on ``(n, n_features)`` rows. Raises DataError: fewer than three rows, or no edge."""
    n = rows.shape[0]
    if n < 3:
        raise DataError(f"n_samples={n}: an embedding needs at least 3 rows")
    nearest = nearest_rows(rows, min(config.n_neighbors, n - 1))
    i, j = sp.triu(neighbour_graph(nearest.ids, config.graph), 1, format="coo").coords
    if not len(i):
        raise DataError(f"graph={config.graph!r}: no two rows are neighbours of each other; take more neighbours, or graph='union'")
    i, j = i.astype(np.int64), j.astype(np.int64)
    return build_neighbourhood(rows, i, j, edge_squares(nearest, i, j), config.n_components)


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


class EmbeddingLoop:
    """One of the three embeddings on a neighbour graph; the type of its parameters says which, and only the coloured one reads labels."""

    state_type = EmbeddingState

    def __init__(self, config: EmbeddingConfig, graph: Neighbourhood, labels: Labels | None) -> None:
        self.config, self.graph = config, graph
        self.B = DEFAULT_CAP_RATIO * graph.energy if config.B is None else config.B
        if isinstance(config, MVEConfig):
            step = partial(volume_step, graph, count=config.n_components, C=config.C, B=self.B)
        elif isinstance(config, ColoredMVUConfig):
            assert labels is not None
            step = partial(colored_step, colored_problem(graph, label_target(labels.factor()), config.C, self.B))
        else:
            step = partial(structure_step, structure_problem(graph, config.C, self.B))
        self._take_step = partial(step, tol=config.tol, max_iter=config.max_iter)

    def init(self, ctx: RunContext) -> EmbeddingState:
        """Return the state before the first step."""
        size = 0 if isinstance(self.config, SPEConfig) else self.graph.terms.size
        return initial_state(self.graph.n, size, self.graph.directions if isinstance(self.config, MVEConfig) else None)

    def step(self, state: EmbeddingState, ctx: RunContext) -> Step[EmbeddingState]:
        """Take one step."""
        new = self._take_step(state)
        certificate = {"objective": new.upper, "gap": new.gap, "relative_gap": new.relative_gap, "decompositions": new.evaluations}
        kernel = {"rank": len(new.spectrum), "map_share": new.share(self.config.n_components)}
        triples = {"n_triples": len(new.triples), "worst_violation": new.worst} if isinstance(self.config, SPEConfig) else {}
        return Step(new, {**certificate, **kernel, **triples})
