"""Search for the degree-2 products of features with the largest scores, without computing the product columns.

The kernel ``(gamma x'z + r)^2`` is the inner product of the coordinates ``r``, ``sqrt(2 gamma r) x_j``, ``gamma x_j^2`` and ``sqrt(2) gamma
x_i x_j``. With ``G = X' diag(u) X`` their correlations with a dual vector are ``r sum(u)``, ``sqrt(2 gamma r) c_j``, ``gamma G_jj`` and
``sqrt(2) gamma G_ij``, respectively (Algorithm 5 of Tan, Tsang and Wang, JMLR 15, 2014; docs/theory/fgm.md, "Degree-2 coordinates"). The
constant coordinate is never selected.

Coordinates are identified by pairs of int64: ``(j, -1)`` linear, ``(j, j)`` square, ``(i, j)`` with ``i < j`` product. The total order is
``(-key, first, second)``, so kinds need no rank of their own.

Reproducibility: ``G_jk = sum_i u_i (x_ij x_ik)`` over ascending rows in float64, with every operation rounded. All methods here (compact
head, fallback by column, dense) return these numbers, whatever the stripes, tasks and bounds. The order ``(u_i x_ij) x_ik`` would not be
symmetric in its columns. Products with two copies of a column would then differ in their last bits, and rounding would decide between them
instead of the lower id.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, Entry
from ..jit import compiled
from .views import Columns, SparseView, TopB, checked_dual, flat, merge_top, shape, top_b, view

MAX_FEATURES = 2**31  # Two feature ids share one int64 inside the heaps.


class TooManyProducts(ValueError):
    """The search would form more products than its budget allows: too few features are rare, or scores too small, for screening to help."""


class TopPairs(NamedTuple):
    """The B best coordinates, sorted by ``(-key, first, second)``: ids int64 ``(b, 2)``, positive keys ``(b,)``, signed correlations."""

    ids: Array
    keys: Array
    values: Array


@dataclass(frozen=True)
class PairMap:
    """Parameters of the kernel ``(gamma x'z + r)^2``, with r = ``coef0``, and the factors of its coordinates; r = 0 gives no linear
    coordinates.
    """

    gamma: float = 1.0
    coef0: float = 1.0

    def __post_init__(self) -> None:
        if not (self.gamma > 0 and math.isfinite(self.gamma)):
            raise ValueError(f"gamma is {self.gamma}; it must be positive and finite")
        if not (self.coef0 >= 0 and math.isfinite(self.coef0)):
            raise ValueError(f"coef0 is {self.coef0}; it must be finite and not negative, otherwise the feature map is not real-valued")

    @property
    def linear(self) -> float:
        """Factor of ``x_j``."""
        return math.sqrt(2.0 * self.gamma * self.coef0)

    @property
    def square(self) -> float:
        """Factor of ``x_j^2``."""
        return self.gamma

    @property
    def product(self) -> float:
        """Factor of ``x_i x_j``."""
        return math.sqrt(2.0) * self.gamma


DENSE_GAIN = 100  # A dense matrix product forms about so many more products in a second than a sparse search.


@dataclass(frozen=True)
class PairLimits:
    """Limits of a search.

    * ``head_start``: number of most frequent features whose products give the first threshold.
    * ``max_head``: largest number of features whose products are held in one triangular array (67 MB for 4,096 features; beyond about
      2,000 features the array does not fit in the cache).
    * ``budget``: number of products that may be formed for the features that survive screening but do not fit in this array; 1e8 to 4e8
      products take one second. For dense data the budget is ``DENSE_GAIN`` times as large.
    """

    head_start: int = 256
    max_head: int = 4096
    budget: int = 200_000_000_000


def encode(ids: Array) -> Array:
    """Return one int64 per pair; the codes sort like ``(first, second)``. Raises ValueError if a feature id does not fit in 31 bits."""
    ids = np.asarray(ids, np.int64).reshape(-1, 2)
    if ids.size and int(ids.max()) >= MAX_FEATURES - 1:
        raise ValueError(f"feature {int(ids.max())} is out of range; products support at most 2**31 - 1 features")
    return (ids[:, 0] << 32) | (ids[:, 1] + 1)


def decode(codes: Array) -> Array:
    """Return the ``(k, 2)`` pairs of codes made by :func:`encode`."""
    codes = np.asarray(codes, np.int64)
    return np.stack((codes >> 32, (codes & 0xFFFFFFFF) - 1), axis=1)


def as_pairs(top: TopB) -> TopPairs:
    """Convert a list of the best codes to a list of the best pairs."""
    return TopPairs(decode(top.ids), top.keys, top.values)


def merge_top_pairs(tops: Sequence[TopPairs], B: int) -> TopPairs:
    """Merge partial results over disjoint coordinates; order and grouping do not change the list."""
    return as_pairs(merge_top([TopB(encode(top.ids), top.keys, top.values) for top in tops], B))


def by_frequency(features: Array, counts: Array) -> Array:
    """Return features sorted by frequency: those with most non-zeros in the whole data set first, ties by id."""
    return np.asarray(features, np.int64)[np.lexsort((features, -np.asarray(counts, np.int64)))]


def most_frequent(counts: Array, K: int) -> Array:
    """Return the K most frequent features, most frequent first, given the non-zeros of each feature; features without any are excluded."""
    counts = np.asarray(counts)
    if counts.size >= MAX_FEATURES:
        raise ValueError(f"the data has {counts.size} features; products support fewer than 2**31")
    K = min(K, int(np.count_nonzero(counts)))
    min_count = np.partition(counts, counts.size - K)[counts.size - K] if K else 1
    leading = np.flatnonzero(counts >= min_count)
    return by_frequency(leading, counts[leading])[:K]


@compiled
def _row_max_sparse(values: Array, rows: Array, out: Array) -> None:
    for p in range(values.size):
        out[rows[p]] = max(out[rows[p]], abs(np.float64(values[p])))


def row_max_abs(X: Columns) -> Array:
    """Return ``max_j |x_ij|`` of each row of a block, float64 ``(n,)``; merge the results of several blocks with ``numpy.maximum``."""
    if isinstance(X, np.ndarray):
        return np.maximum(X.max(axis=1, initial=0.0), -X.min(axis=1, initial=0.0)).astype(np.float64)
    block, out = view(X), np.zeros(shape(X)[0])
    if isinstance(block, SparseView):
        _row_max_sparse(block.values, block.rows, out)
    return out


class PairBounds(NamedTuple):
    """Result of one pass over a stripe for a dual vector.

    * ``bound``, float64 ``(k,)``: p_j >= ``|G_jk|`` for every k, including rounding.
    * ``linear``, float64 ``(k,)``: ``c_j``, bit-identical to :func:`~gramplane.kernels.features.scores.correlations`.
    * ``square``, float64 ``(k,)``: ``G_jj``.
    """

    bound: Array
    linear: Array
    square: Array


@compiled
def _bounds_sparse(values: Array, rows: Array, starts: Array, u: Array, weight: Array, p: Array, c: Array, g: Array) -> None:
    for j in range(c.size):
        linear, square, bound = 0.0, 0.0, 0.0
        for q in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            i = rows[q]
            x = np.float64(values[q])
            linear += x * u[i]
            square += u[i] * (x * x)
            bound += abs(x) * weight[i]
        p[j], c[j], g[j] = bound, linear, square


def row_weight(u: Array, row_max: Array) -> Array:
    """Return ``|u_i| max_k |x_ik|`` of each row, an input of :func:`pair_bounds`; compute it once per dual vector."""
    with np.errstate(over="ignore"):
        return np.abs(np.asarray(u, np.float64)) * row_max


def pair_bounds(X: sp.csc_array, u: Array, weight: Array) -> PairBounds:
    """Return bounds of all products, linear terms and squares of a sparse stripe in one pass.

    ``|G_jk| <= p_j = sum_i |u_i| |x_ij| max_k |x_ik|`` (docs/theory/fgm.md, "Degree-2 coordinates").

    ``X``: ``(n, k)`` stripe; ``weight``: ``(n,)`` from :func:`row_weight`, over all stripes.
    """
    n, k = shape(X)
    block, out = view(X), PairBounds(np.zeros(k), np.zeros(k), np.zeros(k))
    if not isinstance(block, SparseView):
        raise ValueError("pair_bounds needs sparse columns; use dense_pairs for a dense block")
    _bounds_sparse(*block, checked_dual(u, n), checked_dual(weight, n, "weight"), *out)
    # p_j is itself a rounded sum, and so is what it bounds: one rounding per row and product each.
    np.multiply(out.bound, 1.0 + (6 * n + 64) * 2.0**-53, out=out.bound)
    return out


def survivors(bound: Array, pair_map: PairMap, threshold: float) -> Array:
    """Return the columns that can be part of a product whose key reaches ``threshold`` (ties included), ascending."""
    return np.flatnonzero((bound > 0.0) & (bound * (pair_map.product * (1.0 + 2.0**-50)) >= threshold))


def coordinate_top(bounds: PairBounds, features: Array | int, pair_map: PairMap, B: int, *, threshold: float = 0.0) -> TopPairs:
    """Return the best linear and square coordinates of a stripe.

    ``features`` are int64 ``(k,)`` feature ids, or the id of the first column. ``threshold`` is a valid lower bound of the B-th key over
    all coordinates; smaller keys are skipped.
    """
    ids = np.arange(bounds.linear.size) + features if isinstance(features, int) else np.asarray(features, np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        linear, square = pair_map.linear * bounds.linear, pair_map.square * bounds.square
    return as_pairs(merge_top([_single_top(linear, ids, None, B, threshold), _single_top(square, ids, ids, B, threshold)], B))


def _single_top(values: Array, first: Array, second: Array | None, B: int, threshold: float) -> TopB:
    keys = np.abs(values)
    # Names are made for candidates only; what is not a number must stay one, to be refused.
    passing = np.flatnonzero(~(keys < threshold) & (keys != 0.0))
    names = np.stack((first[passing], np.full(passing.size, -1) if second is None else second[passing]), axis=1)
    return top_b(keys[passing], values[passing], B, encode(names), threshold=threshold)


def pair_columns(X: Columns, features: Array, ids: Array, pair_map: PairMap) -> Columns:
    """Return the columns of chosen coordinates, float64 ``(n, q)``, from the columns ``(n, k)`` of the sorted distinct ``features``.

    Coordinates ``ids``, int64 ``(q, 2)``, become ``sqrt(2 gamma r) x_j``, ``gamma x_j^2`` or ``sqrt(2) gamma x_i x_j``. A product of two
    sparse columns is non-zero only in rows where both are non-zero. Raises ValueError if a coordinate needs a feature that is not among
    ``features``.
    """
    ids = np.asarray(ids, np.int64).reshape(-1, 2)
    first, second = _positions(features, ids[:, 0]), _positions(features, np.maximum(ids[:, 1], ids[:, 0]))
    linear, square = ids[:, 1] == -1, ids[:, 1] == ids[:, 0]
    factor = np.where(linear, pair_map.linear, np.where(square, pair_map.square, pair_map.product))
    if isinstance(X, np.ndarray):
        return np.asfortranarray(X[:, first].astype(np.float64) * np.where(linear, 1.0, X[:, second].astype(np.float64)) * factor)
    return _sparse_products(X, first, second, linear, factor)


def _positions(features: Array, names: Array) -> Array:
    positions = np.searchsorted(features, names)
    missing = np.flatnonzero(np.take(features, positions, mode="clip") != names) if len(features) else np.arange(len(names))
    if missing.size:
        raise ValueError(f"ids: coordinate {missing[0]} needs feature {names[missing[0]]}, which is missing from features")
    return positions


@compiled
def _intersect(values: Array, rows: Array, a: Entry, a_end: Entry, b: Entry, b_end: Entry, out_values: Array, out_rows: Array) -> int:
    """Write the product of two sparse columns; return its number of entries."""
    size = 0
    while a < a_end and b < b_end:
        if rows[a] == rows[b]:
            out_values[size] = np.float64(values[a]) * values[b]
            out_rows[size] = rows[a]
            size += 1
            a += 1
            b += 1
        elif rows[a] < rows[b]:
            a += 1
        else:
            b += 1
    return size


def _sparse_products(X: sp.csc_array, first: Array, second: Array, linear: Array, factor: Array) -> sp.csc_array:
    block = view(X)
    assert isinstance(block, SparseView)
    starts = block.starts.astype(np.int64)
    values, rows = [np.zeros(0)], [np.zeros(0, np.int32)]
    for a, b, alone, f in zip(first, second, linear, factor, strict=True):
        lo, hi = starts[a], starts[a + 1]
        column, at = block.values[lo:hi].astype(np.float64), flat(X.indices[lo:hi]).astype(np.int32)
        if not alone:
            out, out_rows = np.empty(hi - lo), np.empty(hi - lo, np.int32)
            size = _intersect(block.values, block.rows, lo, hi, starts[b], starts[b + 1], out, out_rows)
            column, at = out[:size], out_rows[:size]
        values.append(column * f)
        rows.append(at)
    indptr = np.cumsum([part.size for part in values]).astype(np.int32)
    return sp.csc_array((np.concatenate(values), np.concatenate(rows), indptr), shape=(shape(X)[0], len(first)))
