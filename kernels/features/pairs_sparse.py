"""Products of sparse features with the largest scores: a compact head, screening by bounds, and a fallback by column.

Method: docs/theory/fgm.md, "Degree-2 coordinates". Features are ordered by frequency; those that survive screening are nearly the first
ones in this order. The head, the products among the K most frequent features, is a triangle of ``4 K^2`` bytes, which the row-wise outer
product fills at cache speed. Definitions, total order and reproducibility are as in :mod:`gramplane.kernels.features.pairs`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, Entry
from ..jit import compiled
from .pairs import PairMap, TopPairs, as_pairs
from .views import Heap, checked_dual, flat, offer, shape, sparse_view

BLOCK_ENTRIES = 1 << 15  # Entries turned from columns to rows at a time: their 320 KB stay in the second cache.


@compiled
def _expected(rows: Array, begins: Array, ends: Array, u: Array, done: int, seen: Array) -> Entry:
    """Return the number of pairs of entries that share a row with u != 0, where the later of the two columns is ``done`` or beyond.
    ``seen`` is int32 (n,), zero.
    """
    total = 0
    for k in range(begins.size):
        for p in range(np.uint64(begins[k]), np.uint64(ends[k])):
            i = rows[p]
            if u[i] != 0.0:
                if k >= done:
                    total += np.int64(seen[i])
                seen[i] += 1
    return total


@compiled
def _gather(
    values: Array, rows: Array, ends: Array, u: Array, lo: int, hi: int, at: Array, begin: Array, column: Array, value: Array
) -> None:
    """Transpose the rows lo .. hi - 1: write their entries row by row, columns ascending. ``at`` points to each column's next entry."""
    next_entry = begin[: hi - lo].copy()
    for k in range(ends.size):
        p = at[k]
        while p < ends[k] and rows[p] < hi:
            i = np.int64(rows[p])
            if u[i] != 0.0:
                q = next_entry[i - lo]
                column[q] = k
                value[q] = values[p]
                next_entry[i - lo] = q + 1
            p += 1
        at[k] = p


@compiled
def _count(rows: Array, ends: Array, u: Array, lo: int, hi: int, at: Array, begin: Array) -> int:
    """Fill ``begin`` with the start of each row's entries; return the number of entries."""
    begin[:] = 0
    for k in range(ends.size):
        p = at[k]
        while p < ends[k] and rows[p] < hi:
            i = np.int64(rows[p])
            if u[i] != 0.0:
                begin[i - lo + 1] += 1
            p += 1
    for i in range(hi - lo):
        begin[i + 1] += begin[i]
    return begin[hi - lo]


@compiled
def _outer_products(begin: Array, column: Array, value: Array, u: Array, lo: int, done: int, triangle: Array) -> None:
    """Add ``u_i (x_ij x_ik)`` to the triangle, for each row i and all columns j >= done and k < j. The triangle starts with the products of
    column ``done``; those of column j start ``j (j - 1) / 2 - done (done - 1) / 2`` entries later.
    """
    origin = np.uint64(done * (done - 1) // 2)
    for row in range(begin.size - 1):
        first, last, ui = np.uint64(begin[row]), np.uint64(begin[row + 1]), u[lo + row]
        for t in range(first, last):
            j = np.uint64(column[t])
            if j < np.uint64(done):
                continue
            x = value[t]
            base = (j * (j - np.uint64(1))) // np.uint64(2) - origin
            for s in range(first, t):
                triangle[base + column[s]] += ui * (x * value[s])


@compiled
def _head(values: Array, rows: Array, begins: Array, ends: Array, u: Array, height: int, done: int, triangle: Array) -> None:
    """Add the products of all rows to the triangle, ``height`` rows at a time, so that the transposed entries stay in the cache."""
    n = u.size
    at = begins.copy()
    begin = np.zeros(height + 1, np.int64)
    column, value = np.empty(0, np.uint16), np.empty(0)
    for lo in range(0, n, height):
        hi = min(lo + height, n)
        size = _count(rows, ends, u, lo, hi, at, begin)
        if size > column.size:
            column, value = np.empty(2 * size, np.uint16), np.empty(2 * size)
        _gather(values, rows, ends, u, lo, hi, at, begin, column, value)
        _outer_products(begin[: hi - lo + 1], column, value, u, lo, done, triangle)


@compiled
def _push(g: float, factor: float, a: int, b: int, bar: float, size: int, hk: Array, hi: Array, hv: Array) -> tuple[int, float]:
    """Offer the product (a, b) with correlation ``factor * g`` to the heap. Return the heap's size and the new threshold, which is -1 if
    the correlation is not finite.
    """
    value = factor * g
    key = abs(value)
    if key < bar:
        return size, bar
    if not key < np.inf:
        return size, -1.0
    size = offer(hk, hi, hv, size, key, (min(a, b) << 32) | (max(a, b) + 1), value)
    return size, max(bar, hk[0]) if size == hk.size else bar


@compiled
def _scan_triangle(triangle: Array, done: int, ids: Array, factor: float, threshold: float, hk: Array, hi: Array, hv: Array) -> int:
    """Push the entries of a triangle onto the heap; return the heap's size, or -1 if an entry is not finite."""
    size, at = int(np.int64(0)), 0
    bar = max(threshold, 5e-324)
    for j in range(max(done, 1), ids.size):
        for k in range(j):
            g = triangle[at]
            at += 1
            if not factor * abs(g) < bar:
                size, bar = _push(g, factor, ids[j], ids[k], bar, size, hk, hi, hv)
                if bar < 0.0:
                    return -1
    return size


@compiled
def _by_column(
    part: tuple[Array, ...], u: Array, turned: tuple[Array, ...], span: tuple[int, int], bound: Array, ids: Array, factor: float,
    threshold: float, sums: Array, hk: Array, hi: Array, hv: Array,
) -> int:  # fmt: skip
    """Compute products by Gustavson's algorithm: for each column j, the sums for all columns k < j are accumulated together; ``sums`` is
    zero before and after.
    """
    values, rows, begins, ends = part
    row_begin, column, value = turned
    size = int(np.int64(0))
    bar = max(threshold, 5e-324)
    for j in range(span[0], span[1]):
        if bound.size and bound[j] * factor * (1.0 + 2.0**-50) < bar:
            continue
        work = 0
        for p in range(np.uint64(begins[j]), np.uint64(ends[j])):
            i = rows[p]
            if u[i] == 0.0:
                continue
            x = np.float64(values[p])
            q = np.uint64(row_begin[i])
            while column[q] < np.uint32(j):
                sums[column[q]] += u[i] * (x * value[q])
                q += np.uint64(1)
            work += np.int64(q) - row_begin[i]
        if 4 * work >= j:
            for k in range(j):
                if not factor * abs(sums[k]) < bar and bar >= 0.0:
                    size, bar = _push(sums[k], factor, ids[j], ids[k], bar, size, hk, hi, hv)
                sums[k] = 0.0
        else:
            for p in range(np.uint64(begins[j]), np.uint64(ends[j])):
                i = rows[p]
                if u[i] == 0.0:
                    continue
                q = np.uint64(row_begin[i])
                while column[q] < np.uint32(j):
                    k = np.int64(column[q])
                    if not factor * abs(sums[k]) < bar and bar >= 0.0:
                        size, bar = _push(sums[k], factor, ids[j], ids[k], bar, size, hk, hi, hv)
                    sums[k] = 0.0
                    q += np.uint64(1)
        if bar < 0.0:
            return -1
    return size


class _Slices(NamedTuple):
    """Chosen columns of a CSC block, in the order of choice. Column k has the entries ``begins[k]`` to ``ends[k]``."""

    values: Array
    rows: Array
    begins: Array
    ends: Array


def _slices(X: sp.csc_array, columns: Array | None) -> _Slices:
    block = sparse_view(X)
    chosen = np.arange(shape(X)[1]) if columns is None else np.asarray(columns, np.int64)
    return _Slices(block.values, block.rows, block.starts[chosen].astype(np.int64), block.starts[chosen + 1].astype(np.int64))


def _named(ids: Array, count: int) -> Array:
    ids = flat(np.ascontiguousarray(ids, dtype=np.int64))
    if ids.size != count:
        raise ValueError(f"ids has {ids.size} entries; it must name each of the {count} columns")
    return ids


def _finished(heap: Heap, size: int) -> TopPairs:
    if size < 0:
        raise ValueError("the score of a product of two features is not finite: products of values overflow float64")
    return as_pairs(heap.top(size))


def expected_products(X: sp.csc_array, u: Array, *, columns: Array | None = None, done: int = 0) -> int:
    """Return the number of products that :func:`head_pairs` or :func:`fallback_pairs` would form with the same arguments."""
    u = checked_dual(u, shape(X)[0])
    part = _slices(X, columns)
    return int(_expected(part.rows, part.begins, part.ends, u, done, np.zeros(u.size, np.int32)))


def head_pairs(
    X: sp.csc_array, u: Array, ids: Array, pair_map: PairMap, B: int, *, columns: Array | None = None, done: int = 0, threshold: float = 0.0
) -> TopPairs:
    """Return the B best products among K <= 65,536 columns, by row-wise outer products into a triangle of K^2 / 2 float64.

    Parameters
    ----------
    X, u
        CSC block with the columns, and ``(n,)`` dual vector.
    ids
        int64 ``(K,)`` feature ids. Starting with the most frequent is fastest; any order gives the same result.
    columns
        ``(K,)`` positions of the features' columns in X [default: all columns in order].
    done
        Skip the products among the first ``done`` columns, which were searched before.
    threshold
        A valid lower bound of the B-th key; smaller keys are skipped.
    """
    n, heap, part = shape(X)[0], Heap.empty(B), _slices(X, columns)
    u, K = checked_dual(u, n), part.begins.size
    names = _named(ids, K)
    if K > 1 << 16:
        raise ValueError(f"head_pairs was called with {K} columns; it takes at most 65536")
    triangle = np.zeros((K * (K - 1) - done * (done - 1)) // 2 if done < K else 0)
    per_row = int((part.ends - part.begins).sum()) / max(n, 1)
    height = int(min(max(BLOCK_ENTRIES / max(per_row, 1e-9), 64), 1 << 16, max(n, 1)))
    if triangle.size:
        _head(*part, u, height, done, triangle)
    return _finished(heap, _scan_triangle(triangle, done, names, pair_map.product, float(threshold), *heap))


def fallback_pairs(
    X: sp.csc_array, u: Array, ids: Array, pair_map: PairMap, B: int, column_range: tuple[int, int], *, columns: Array | None = None,
    bound: Array | None = None, threshold: float = 0.0,
) -> TopPairs:  # fmt: skip
    """Return the B best products of a column in ``column_range`` with a column before it, column by column, for any number of columns.

    ``column_range`` are positions ``[lo, hi)``; disjoint ranges can be computed anywhere and merged in any order. ``bound``, ``(K,)``, are
    the :func:`~gramplane.kernels.features.pairs.pair_bounds` of the columns; a column whose bound falls strictly below the growing B-th key
    is skipped. Other arguments are as in :func:`head_pairs`. Memory: a copy of the columns by row (8 to 12 bytes per non-zero) and K sums.
    """
    heap, part = Heap.empty(B), _slices(X, columns)
    u, K = checked_dual(u, shape(X)[0]), part.begins.size
    names, bounds = _named(ids, K), np.zeros(0) if bound is None else np.ascontiguousarray(bound, dtype=np.float64)
    begin = np.zeros(u.size + 1, np.int64)
    size = _count(part.rows, part.ends, u, 0, u.size, part.begins, begin)
    column, value = np.empty(size, np.uint32), np.empty(size, part.values.dtype)
    _gather(part.values, part.rows, part.ends, u, 0, u.size, part.begins.copy(), begin, column, value)
    span, turned = (int(column_range[0]), int(column_range[1])), (begin, column, value)
    size = _by_column(tuple(part), u, turned, span, bounds, names, pair_map.product, float(threshold), np.zeros(K), *heap)
    return _finished(heap, size)
