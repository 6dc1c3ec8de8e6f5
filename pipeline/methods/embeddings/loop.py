"""Embeddings as loops: coloured maximum variance unfolding, minimum volume embedding, structure preserving embedding.

A step is one Newton step of the first, one convex problem of the second, one round of cutting planes of the third; the state holds
the best kernel so far, so that a run that is cut short still has a map. See :mod:`gramplane.kernels.spectral.embeddings`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.spectral.embeddings import (
    CAP,
    EmbeddingState,
    Neighbourhood,
    class_factor,
    colored_problem,
    colored_step,
    fresh,
    label_target,
    neighbourhood,
    structure_of,
    structure_step,
    value_factor,
    volume_step,
)
from ....kernels.spectral.neighbors import Nearest, nearest_rows, neighbour_graph
from ....storage import DataError
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import ColoredMVUConfig, EmbeddingConfig, MVEConfig, SPEConfig

UNLABELLED = -1


@dataclass(frozen=True)
class Labels:
    """What is known of the rows beside their features.

    Attributes
    ----------
    codes
        ``(n,)`` class of each row, -1 where there is none; no entry for real targets.
    classes
        The labels, in order; ``None`` for real targets.
    values
        ``(n,)`` real targets, NaN where there is none.
    held_out
        ``(n,)`` rows whose label the fit must not see, or ``None``.
    """

    codes: np.ndarray
    classes: tuple[Any, ...] | None
    values: np.ndarray | None = None
    held_out: np.ndarray | None = None

    def factor(self) -> np.ndarray:
        """Return Y of the rows whose label may be seen.

        Raises
        ------
        DataError
            Fewer than two classes, or no two different values, are left.
        """
        hidden = np.zeros(self.size, dtype=bool) if self.held_out is None else self.held_out
        if self.classes is None:
            assert self.values is not None
            seen = np.where(hidden, np.nan, self.values)
            if len(np.unique(seen[np.isfinite(seen)])) < 2:
                raise DataError("y: all labelled rows have the same value; colored-mvu needs values that differ")
            return value_factor(seen)
        seen = np.where(hidden, UNLABELLED, self.codes)
        if len(np.unique(seen[seen >= 0])) < 2:
            raise DataError(f"y: labelled rows are of {len(np.unique(seen[seen >= 0]))} class; colored-mvu needs at least two")
        return class_factor(seen, len(self.classes))

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.codes) if self.values is None else len(self.values)


def labels_of(y: Any, held_out: np.ndarray | None = None) -> Labels:
    """Return labels from any target: classes, or real numbers; ``None`` and NaN, and -1 among integers, stand for no label.

    -1 and +1 alone are two classes.

    Raises
    ------
    ValueError
        No row has a label.
    """
    y = np.asarray(y)
    if y.dtype.kind == "f" and np.any(np.isfinite(y) & (y != np.round(y))):
        return Labels(np.zeros(0, np.int64), None, y.astype(np.float64), held_out)
    missing = np.array([value is None or value != value for value in y.tolist()], dtype=bool)
    if y.dtype.kind in "iu" or (y.dtype.kind == "f" and not missing.all()):
        numbers = np.unique(y[~missing])
        if not np.array_equal(numbers, [-1, 1]):
            missing |= np.where(missing, 0, y) == UNLABELLED
    if missing.all():
        raise ValueError("y: no row has a label; None, NaN and -1 stand for rows without one")
    classes, found = np.unique(y[~missing], return_inverse=True)
    codes = np.full(len(y), UNLABELLED, np.int64)
    codes[~missing] = found
    return Labels(codes, tuple(classes.tolist()), None, held_out)


def near_of(config: EmbeddingConfig, rows: Any) -> Neighbourhood:
    """Return the neighbour graph of a fit.

    Raises
    ------
    DataError
        Fewer than three rows, or no edge.
    """
    n = rows.shape[0]
    if n < 3:
        raise DataError(f"n_samples={n}: an embedding needs at least 3 rows")
    nearest = nearest_rows(rows, min(config.n_neighbors, n - 1))
    i, j = sp.triu(neighbour_graph(nearest.ids, config.graph), 1, format="coo").coords
    if not len(i):
        raise DataError(f"graph={config.graph!r}: no two rows are neighbours of each other; take more neighbours, or graph='union'")
    i, j = i.astype(np.int64), j.astype(np.int64)
    return neighbourhood(rows, i, j, edge_squares(nearest, i, j), config.n_components)


def edge_squares(nearest: Nearest, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the squared distances of edges from the lists of neighbours that hold them, at one end or at both."""
    n = len(nearest.ids)
    keys = (np.arange(n)[:, None] * n + nearest.ids).ravel()
    order = np.argsort(keys, kind="stable")
    keys, squares = keys[order], nearest.squares.ravel()[order]
    out = np.empty(len(i))
    for rows, cols in ((i, j), (j, i)):
        place = np.minimum(np.searchsorted(keys, rows * n + cols), len(keys) - 1)
        there = keys[place] == rows * n + cols
        out[there] = squares[place[there]]
    return out


def remarks_of(config: EmbeddingConfig, near: Neighbourhood) -> list[str]:
    """Return what the user should know of the graph."""
    parts, alone = near.components()
    found = []
    if parts > 1:
        others = f", {alone} of them single rows," if alone else ""
        found.append(
            f"the neighbour graph has {parts} components{others} which nothing but the cap holds together: take more than "
            f"n_neighbors={config.n_neighbors}" + ("" if config.graph == "union" else ", or graph='union'")
        )
    if config.n_neighbors >= near.n:
        found.append(f"n_neighbors={config.n_neighbors} exceeds the {near.n - 1} other rows")
    return found


class EmbeddingLoop:
    """One of the three embeddings on a neighbour graph.

    Parameters
    ----------
    config
        Parameters; their type says which.
    near
        The graph.
    labels
        Of coloured maximum variance unfolding; others do not look at them.
    """

    state_type = EmbeddingState

    def __init__(self, config: Any, near: Neighbourhood, labels: Labels | None) -> None:
        self.config, self.near, self.labels = config, near, labels
        self.B = CAP * near.energy if config.B is None else config.B
        self._step = self._steps()

    def _steps(self) -> Callable[[EmbeddingState], EmbeddingState]:
        config, near = self.config, self.near
        limits = {"tol": config.tol, "max_iter": config.max_iter}
        if isinstance(config, MVEConfig):
            return partial(volume_step, near, count=config.n_components, C=config.C, B=self.B, **limits)
        if isinstance(config, ColoredMVUConfig):
            assert self.labels is not None
            return partial(colored_step, colored_problem(near, label_target(self.labels.factor()), config.C, self.B), **limits)
        return partial(structure_step, structure_of(near, config.C, self.B), **limits)

    def init(self, ctx: RunContext) -> EmbeddingState:
        """Return the state before the first step."""
        size = 0 if isinstance(self.config, SPEConfig) else self.near.terms.size
        return fresh(self.near.n, size, self.near.directions if isinstance(self.config, MVEConfig) else None)

    def step(self, state: EmbeddingState, ctx: RunContext) -> Step[EmbeddingState]:
        """Take one step."""
        new = self._step(state)
        metrics = {
            "objective": new.upper,
            "gap": new.gap,
            "relative_gap": new.relative_gap,
            "decompositions": new.evaluations,
            "rank": len(new.spectrum),
            "map_share": new.share(self.config.n_components),
        }
        extra = {"n_triples": len(new.triples), "worst_violation": new.worst} if isinstance(self.config, SPEConfig) else {}
        return Step(new, {**metrics, **extra})

    def coordinates(self, state: EmbeddingState) -> np.ndarray:
        """Return the map, ``(n, n_components)``, in units of the features."""
        return state.coordinates(self.config.n_components, self.near.unit)


def neighbour_accuracy(points: np.ndarray, codes: np.ndarray, known: np.ndarray, asked: np.ndarray, k: int) -> float:
    """Return the share of rows in ``asked`` told right by the majority of their ``k`` nearest others in ``known``, on the map.

    Parameters
    ----------
    points
        ``(n, d)`` coordinates.
    codes
        ``(n,)`` classes.
    known, asked
        ``(n,)`` masks.
    k
        Voters; of classes with equal votes the first wins.
    """
    ids = np.flatnonzero(known)
    right, total = 0, 0
    for row in np.flatnonzero(asked):
        others = ids[ids != row]
        if not len(others):
            continue
        squares = np.sum((points[others] - points[row]) ** 2, axis=1)
        votes = codes[others[np.argsort(squares, kind="stable")[:k]]]
        right += int(np.bincount(votes).argmax() == codes[row])
        total += 1
    return right / total if total else float("nan")
