"""The whole search for the best degree-2 coordinates of data in memory: bounds, head, screening, fallback.

A distributed caller runs the same steps on stripes: :func:`~.pairs_sparse.head_pairs` on the most frequent features gives a threshold; one
pass of :func:`~.pairs.pair_bounds` gives linear and square coordinates and the survivors; their columns go through
:func:`~.pairs_sparse.head_pairs` once more, or :func:`~.pairs_sparse.fallback_pairs` by ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .column_stats import column_stats
from .columns import Columns, checked_dual, shape
from .pairs import (
    PairMap,
    TooManyProducts,
    TopPairs,
    by_frequency,
    coordinate_top,
    merge_top_pairs,
    most_frequent,
    pair_bounds,
    row_max_abs,
    row_weight,
    survivors,
)
from .pairs_dense import dense_bounds, dense_pairs
from .pairs_sparse import expected_products, fallback_pairs, head_pairs

Array = np.ndarray

STRIPE = 1 << 16
"""Columns whose bounds are held at a time."""


DENSE_GAIN = 100
"""A dense matrix product forms about so many more products in a second than a sparse search."""


@dataclass(frozen=True)
class PairLimits:
    """What a search may take.

    Attributes
    ----------
    head_start
        Most frequent features whose products give the first threshold.
    max_head
        Features of the widest triangle (67 MB at 4,096; beyond about 2,000 it leaves the cache).
    budget
        Products a search may form; 1e8 to 4e8 are formed in a second.
    """

    head_start: int = 256
    max_head: int = 4096
    budget: int = 200_000_000_000


class PairStats(NamedTuple):
    """What the searches on one data set share.

    Attributes
    ----------
    counts
        ``(n_features,)`` non-zeros.
    row_max
        float64 ``(n_samples,)`` largest ``|x_ij|`` of each row.
    """

    counts: Array
    row_max: Array


@dataclass(frozen=True)
class PairReport:
    """How a search went.

    Attributes
    ----------
    threshold
        B-th key after the head start, the basis of the screening.
    n_survivors
        Features whose bound reached it.
    head
        Features of the widest triangle.
    n_fallback
        Survivors searched column by column.
    products
        Products of the survivors, those of the head start excepted (an upper bound where the fallback screens further).
    """

    threshold: float
    n_survivors: int
    head: int
    n_fallback: int
    products: int


def pair_stats(X: Columns) -> PairStats:
    """Return the statistics of a data set that its pair searches share."""
    return PairStats(column_stats(X).counts, row_max_abs(X))


def _stripe(X: sp.csc_array, begin: int, end: int) -> sp.csc_array:
    """Return consecutive columns without a copy of their entries."""
    lo, hi = int(X.indptr[begin]), int(X.indptr[end])
    return sp.csc_array((X.data[lo:hi], X.indices[lo:hi], X.indptr[begin : end + 1] - lo), shape=(shape(X)[0], end - begin), copy=False)


def _bar(top: TopPairs, B: int) -> float:
    """Return the B-th key, 0 while there are fewer."""
    return float(top.keys[B - 1]) if top.keys.size >= B else 0.0


class _Screen(NamedTuple):
    """After the pass over all columns: best coordinates so far, and survivors by frequency with their bounds."""

    best: TopPairs
    ids: Array
    bound: Array

    def again(self, pair_map: PairMap, B: int) -> _Screen:
        """Screen the survivors with the threshold of the best found since."""
        kept = survivors(self.bound, pair_map, _bar(self.best, B))
        return _Screen(self.best, self.ids[kept], self.bound[kept])


def _screen(X: sp.csc_array, u: Array, stats: PairStats, pair_map: PairMap, B: int, best: TopPairs) -> _Screen:
    weight, d = row_weight(u, stats.row_max), shape(X)[1]
    ids, bound = [np.zeros(0, np.int64)], [np.zeros(0)]
    for begin in range(0, d, STRIPE):
        bounds = pair_bounds(_stripe(X, begin, min(begin + STRIPE, d)), u, weight)
        best = merge_top_pairs([best, coordinate_top(bounds, begin, pair_map, B, threshold=_bar(best, B))], B)
        alive = survivors(bounds.bound, pair_map, _bar(best, B))
        ids.append(alive + begin)
        bound.append(bounds.bound[alive])
    found, limits = np.concatenate(ids), np.concatenate(bound)
    order = np.searchsorted(found, by_frequency(found, stats.counts[found]))
    return _Screen(best, found[order], limits[order]).again(pair_map, B)


def _fallback(X: sp.csc_array, u: Array, pair_map: PairMap, B: int, screen: _Screen, searched: Array) -> tuple[TopPairs, int]:
    screen = screen.again(pair_map, B)
    done = int(np.isin(screen.ids, searched).sum())
    where, threshold = (done, screen.ids.size), _bar(screen.best, B)
    found = fallback_pairs(X, u, screen.ids, pair_map, B, where, columns=screen.ids, bound=screen.bound, threshold=threshold)
    return merge_top_pairs([screen.best, found], B), screen.ids.size - done


def _sparse_search(
    X: sp.csc_array, u: Array, pair_map: PairMap, B: int, stats: PairStats, limits: PairLimits
) -> tuple[TopPairs, PairReport]:
    leading = most_frequent(stats.counts, limits.head_start)
    best = head_pairs(X, u, leading, pair_map, B, columns=leading)
    threshold = _bar(best, B)
    screen = _screen(X, u, stats, pair_map, B, best)
    done = int(np.isin(screen.ids, leading).sum())
    products = expected_products(X, u, columns=screen.ids, done=done)
    if products > limits.budget:
        raise TooManyProducts(
            f"{screen.ids.size} of {shape(X)[1]} features survive the screening and form {products:.3g} products; the budget is "
            f"{limits.budget:.3g}. Features of equal frequency and size defeat the screening: drop rare features or raise the budget"
        )
    head = screen.ids[: max(limits.max_head, done)]
    found = head_pairs(X, u, head, pair_map, B, columns=head, done=done, threshold=_bar(screen.best, B))
    best, left = merge_top_pairs([screen.best, found], B), 0
    if screen.ids.size > head.size:
        best, left = _fallback(X, u, pair_map, B, screen._replace(best=best), head)
    return best, PairReport(threshold, screen.ids.size, max(leading.size, head.size), left, products)


def _dense_search(X: Array, u: Array, pair_map: PairMap, B: int, limits: PairLimits) -> tuple[TopPairs, PairReport]:
    n, m = shape(X)
    products, budget = n * m * (m - 1) // 2, DENSE_GAIN * limits.budget
    if products > budget:
        raise TooManyProducts(f"{m} dense features form {products:.3g} products; the budget is {budget:.3g}")
    best = coordinate_top(dense_bounds(X, u), 0, pair_map, B)
    found = dense_pairs(X, u, np.arange(m), pair_map, B, threshold=_bar(best, B))
    return merge_top_pairs([best, found], B), PairReport(_bar(best, B), m, m, 0, products)


def select_pairs(
    X: Columns, u: Array, pair_map: PairMap, B: int, stats: PairStats | None = None, *, limits: PairLimits | None = None
) -> tuple[TopPairs, PairReport]:
    """Return the B coordinates of the degree-2 map with the largest ``|z'u|``, exactly.

    Parameters
    ----------
    X
        ``(n, d)`` features, dense or CSC.
    u
        ``(n,)`` dual vector.
    pair_map
        Kernel ``(gamma x'z + r)^2``.
    B
        How many; fewer are returned if fewer have a non-zero score.
    stats
        Of this X, if sparse; computed if not given.
    limits
        Sizes and budget. ``head_start`` may be set to the head of the last report: no effect on the result.

    Returns
    -------
    TopPairs
        Ordered by ``(-key, first, second)``.
    PairReport
        Survivors and products.

    Raises
    ------
    TooManyProducts
        If the survivors form more products than the budget.
    ValueError
        If shapes disagree, ``u`` is not finite or a score overflows.
    """
    u = checked_dual(u, shape(X)[0])
    limits = limits or PairLimits()
    if isinstance(X, np.ndarray):
        return _dense_search(X, u, pair_map, B, limits)
    return _sparse_search(X, u, pair_map, B, pair_stats(X) if stats is None else stats, limits)
