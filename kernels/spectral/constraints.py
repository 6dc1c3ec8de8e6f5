"""Pairs of rows that belong together or apart: reading, checking, selecting them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from ..arrays import FloatArray, IntArray


@dataclass(frozen=True)
class PairConstraints:
    """Unordered pairs of n rows, each once, ordered, ``rows < cols``; the sign is +1.0 if they belong together, else -1.0."""

    n: int
    rows: IntArray
    cols: IntArray
    signs: FloatArray

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.rows)

    @property
    def counts(self) -> IntArray:
        """Pairs of every row, ``(n,)``."""
        return np.bincount(np.concatenate([self.rows, self.cols]), minlength=self.n)

    def triples(self) -> IntArray:
        """Return ``(m, 3)`` rows i, j, sign."""
        return np.stack([self.rows, self.cols, self.signs.astype(np.int64)], axis=1)

    def only(self, chosen: NDArray[np.bool_]) -> PairConstraints:
        """Return some of the pairs."""
        return PairConstraints(self.n, self.rows[chosen], self.cols[chosen], self.signs[chosen])


def pair_constraints(pairs: object, n: int) -> PairConstraints:
    """Return constraints on n rows from a sparse ``(n, n)`` matrix with entries +1 and -1, symmetric or one triangle, or from triples ``(i,
    j, +1 or -1)``, ``(m, 3)``; a pair that is repeated with one sign is one pair. Raises ValueError: no pair at all, another shape, a sign
    that is neither +1 nor -1, a row outside the data, a row paired with itself, or a pair with both signs.
    """
    i, j, signs = _read_entries(pairs, n)
    if not len(i):
        raise ValueError("constraints: no pair is given; at least one is needed")
    bad = np.flatnonzero((signs != 1) & (signs != -1))
    if len(bad):
        e = bad[0]
        raise ValueError(f"constraints: the pair ({i[e]}, {j[e]}) has the sign {signs[e]:g}; must be +1 (together) or -1 (apart)")
    low, high = np.minimum(i, j), np.maximum(i, j)
    out = np.flatnonzero((low < 0) | (high >= n))
    if len(out):
        e = out[0]
        raise ValueError(f"constraints: the pair ({i[e]}, {j[e]}) names a row outside 0 ... {n - 1}")
    loops = np.flatnonzero(low == high)
    if len(loops):
        raise ValueError(f"constraints: the pair ({i[loops[0]]}, {i[loops[0]]}) pairs a row with itself")
    keys, first = np.unique(low * np.int64(n) + high, return_index=True)
    against = np.flatnonzero(signs != signs[first][np.searchsorted(keys, low * np.int64(n) + high)])
    if len(against):
        e = against[0]
        raise ValueError(f"constraints: the pair ({low[e]}, {high[e]}) is given with both signs")
    return PairConstraints(n, keys // n, keys % n, signs[first])


def _read_entries(pairs: Any, n: int) -> tuple[IntArray, IntArray, FloatArray]:
    if sp.issparse(pairs):
        if pairs.shape != (n, n):
            raise ValueError(f"constraints: a matrix of shape {pairs.shape}; must be ({n}, {n}), one row and column per row of X")
        matrix = pairs.tocoo()
        there = matrix.data != 0
        return matrix.row[there].astype(np.int64), matrix.col[there].astype(np.int64), matrix.data[there].astype(np.float64)
    if pairs is None:
        raise ValueError("constraints: none are given; must be a sparse matrix of +1 and -1, or triples (i, j, +1 or -1)")
    try:
        triples = np.asarray(pairs if isinstance(pairs, np.ndarray) else list(pairs), dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("constraints: must be a sparse matrix of +1 and -1, or triples (i, j, +1 or -1) of numbers") from None
    if not triples.size and triples.ndim < 3:
        triples = np.zeros((0, 3))
    if triples.ndim != 2 or triples.shape[1] != 3:
        raise ValueError(f"constraints: an array of shape {triples.shape}; must be triples (m, 3) of i, j and +1 or -1, or a sparse matrix")
    places = triples[:, :2]
    whole = np.isfinite(places) & (places == np.round(places))
    if not whole.all():
        e = int(np.flatnonzero(~whole.all(axis=1))[0])
        raise ValueError(f"constraints: triple {e} names the rows {places[e].tolist()}; must be whole numbers")
    far = np.clip(places, -1.0, float(n)).astype(np.int64)
    return far[:, 0], far[:, 1], triples[:, 2]


MAX_CLOSURE_PAIRS = 20_000_000  # Pairs a closure may have; more would take gigabytes.


def close_pairs(constraints: PairConstraints) -> PairConstraints:
    """Return all pairs that some imply. Belonging together is an equivalence, whose parts are the rows linked by such pairs; where one pair
    of rows of two parts is apart, all are. Raises ValueError: a pair that is apart within a part, or more pairs than ``MAX_CLOSURE_PAIRS``.
    """
    n, together = constraints.n, constraints.signs > 0
    i, j = constraints.rows[together], constraints.cols[together]
    part = connected_components(sp.coo_array((np.ones(len(i)), (i, j)), shape=(n, n)), directed=False)[1].astype(np.int64)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(part.max() + 2))
    separate = constraints.only(~together)
    _refuse_torn(separate, part)
    keys = np.minimum(part[separate.rows], part[separate.cols]) * np.int64(n) + np.maximum(part[separate.rows], part[separate.cols])
    keys = np.unique(np.concatenate([keys, np.unique(part[i]) * np.int64(n + 1)]))
    sizes = np.diff(ends)
    total = int(np.sum(sizes[keys // n] * sizes[keys % n]))
    if total > MAX_CLOSURE_PAIRS:
        raise ValueError(f"closure=True: the constraints imply about {total:,} pairs; at most {MAX_CLOSURE_PAIRS:,} are allowed")
    parts = np.split(order, ends[1:-1])
    groups = [_pairs_between(parts[a], parts[b], a == b) for a, b in zip(keys // n, keys % n, strict=True)]
    low, high, signs = (np.concatenate(column) for column in zip(*groups, strict=True))
    sorting = np.lexsort((high, low))
    return PairConstraints(n, low[sorting], high[sorting], signs[sorting])


def _refuse_torn(separate: PairConstraints, part: IntArray) -> None:
    torn = np.flatnonzero(part[separate.rows] == part[separate.cols])
    if len(torn):
        e = torn[0]
        raise ValueError(
            f"constraints: rows {separate.rows[e]} and {separate.cols[e]} are apart, but pairs that belong together link them; "
            "closure=True cannot hold both"
        )


def _pairs_between(left: IntArray, right: IntArray, is_one_part: bool) -> tuple[IntArray, IntArray, FloatArray]:
    places = np.triu_indices(len(left), 1) if is_one_part else np.indices((len(left), len(right))).reshape(2, -1)
    a, b = left[places[0]], right[places[1]]
    return np.minimum(a, b), np.maximum(a, b), np.full(len(a), 1.0 if is_one_part else -1.0)


def margins(constraints: PairConstraints, entries: FloatArray) -> FloatArray:
    r"""Return how sure a kernel is of every row: :math:`| \frac{1}{l_i} \sum_j T_{ij} k_{ij} |`, infinite without a pair (l_i = 0).

    T are the constraints, ``entries`` ``(m,)`` the kernel at the pairs.
    """
    signed = constraints.signs * entries
    totals = np.bincount(constraints.rows, signed, constraints.n) + np.bincount(constraints.cols, signed, constraints.n)
    counts = constraints.counts
    return np.where(counts > 0, np.abs(totals) / np.maximum(counts, 1), np.inf)


def select_uncertain_pairs(constraints: PairConstraints, entries: FloatArray, n_select: int) -> PairConstraints:
    """Return the pairs of the ``n_select`` rows with the least margins (Zhuang, thesis, 2011, section 3.4); ties by row."""
    confidence = margins(constraints, entries)
    order = np.lexsort((np.arange(constraints.n), confidence))[:n_select]
    chosen = np.zeros(constraints.n, dtype=bool)
    chosen[order] = np.isfinite(confidence[order])
    return constraints.only(chosen[constraints.rows] | chosen[constraints.cols])


def select_random_pairs(constraints: PairConstraints, size: int, rng: np.random.Generator) -> PairConstraints:
    """Return ``size`` of the pairs, drawn at random."""
    chosen = np.zeros(constraints.size, dtype=bool)
    chosen[rng.permutation(constraints.size)[:size]] = True
    return constraints.only(chosen)
