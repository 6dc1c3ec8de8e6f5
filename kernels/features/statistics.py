"""Statistics of columns that selection and scaling need: counts, sums, extremes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array
from ..jit import compiled
from .views import Columns, SparseView, shape, view


class ColumnStats(NamedTuple):
    """Per column, over all ``n`` entries, zeros included. ``counts``: uint32 ``(k,)`` non-zeros; ``norm1``: float32 ``(k,)`` upper bounds
    of ``sum_i |x_ij|``: rounded up, never below the exact sum; ``sumsq``: float64 ``(k,)`` ``sum_i x_ij^2``, rows ascending; ``minimum``,
    ``maximum``: float64 ``(k,)`` extremes.
    """

    counts: Array
    norm1: Array
    sumsq: Array
    minimum: Array
    maximum: Array


@compiled
def _sparse_stats(values: Array, starts: Array, n: int, counts: Array, sums: Array, squares: Array, low: Array, high: Array) -> None:
    for j in range(counts.size):
        first, last = np.uint64(starts[j]), np.uint64(starts[j + 1])
        partly_zero = last - first < np.uint64(n)
        low[j] = 0.0 if partly_zero else np.inf
        high[j] = 0.0 if partly_zero else -np.inf
        for p in range(first, last):
            x = np.float64(values[p])
            counts[j] += x != 0.0
            sums[j] += abs(x)
            squares[j] += x * x
            low[j] = min(low[j], x)
            high[j] = max(high[j], x)


@compiled
def _dense_stats(
    x: Array, row_step: int, column_step: int, n: int, counts: Array, sums: Array, squares: Array, low: Array, high: Array
) -> None:
    low[:] = np.inf
    high[:] = -np.inf
    # Narrow strips, rows outermost: each sum runs over ascending rows in both memory orders, and both are read line by line.
    for begin in range(0, counts.size, 16):
        for i in range(n):
            for j in range(begin, min(begin + 16, counts.size)):
                v = np.float64(x[i * row_step + j * column_step])
                counts[j] += v != 0.0
                sums[j] += abs(v)
                squares[j] += v * v
                low[j] = min(low[j], v)
                high[j] = max(high[j], v)


def constant_columns(X: Columns) -> Array:
    """Return the columns of ``X``, ``(n, k)``, whose entries are all equal and not zero, int64 ascending. Costs little: a column leaves as
    soon as two entries differ, and a sparse one with a zero is none.
    """
    n, k = shape(X)
    if not n or not k:
        return np.zeros(0, np.int64)
    if isinstance(X, np.ndarray):
        return _constant_dense(X, n)
    full = np.flatnonzero(np.diff(X.indptr) == n)
    values = [X.data[X.indptr[j] : X.indptr[j + 1]] for j in full]
    return np.array([j for j, x in zip(full, values, strict=True) if x[0] != 0 and np.all(x == x[0])], np.int64)


def _constant_dense(X: Array, n: int) -> Array:
    alive = np.flatnonzero((X[0] == X[-1]) & (X[0] != 0))
    lo, rows = 1, 1
    while lo < n and alive.size:
        alive = alive[np.all(X[lo : lo + rows, alive] == X[0, alive], axis=0)]
        lo, rows = lo + rows, min(2 * rows, 1024)
    return alive.astype(np.int64)


def _growth(n: int) -> float:
    # One part in 2^23 covers the rounding to float32, the other factor that of the float64 sum.
    return (1.0 + (n + 2) * 2.0**-53) * (1.0 + 2.0**-23)


@compiled
def _sparse_norm1(values: Array, starts: Array, grow: float, bounds: Array) -> None:
    for j in range(bounds.size):
        total = 0.0
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            total += abs(np.float64(values[p]))
        bounds[j] = np.float32(total * grow) + np.float32(2.0**-126) * np.float32(total > 0.0)


def column_norm1(X: Columns) -> Array:
    """Return the ``norm1`` of :func:`column_stats` alone, bit for bit: all that scoring needs, at a third of the time."""
    n, k = shape(X)
    block = view(X)
    if not isinstance(block, SparseView):
        return column_stats(X).norm1
    bounds = np.zeros(k, np.float32)
    if k:
        _sparse_norm1(block.values, block.starts, _growth(n), bounds)
    return bounds


@compiled
def _sparse_counts(values: Array, starts: Array, counts: Array) -> None:
    for j in range(counts.size):
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            counts[j] += values[p] != 0.0


def column_counts(X: Columns) -> Array:
    """Return the ``counts`` of :func:`column_stats` alone: of millions of columns the other tables take eight times the memory."""
    counts, block = np.zeros(shape(X)[1], np.uint32), view(X)
    if not isinstance(block, SparseView):
        return np.count_nonzero(np.asarray(X), axis=0).astype(np.uint32)
    if counts.size:
        _sparse_counts(block.values, block.starts, counts)
    return counts


def column_stats(X: Columns) -> ColumnStats:
    """Return the statistics of a block of columns with at least one row."""
    n, k = shape(X)
    if n == 0:
        raise ValueError("X has no rows; a column's extremes need at least one")
    counts, block = np.zeros(k, np.uint32), view(X)
    out = tuple(np.zeros(k) for _ in range(4))
    if k and isinstance(block, SparseView):
        _sparse_stats(block.values, block.starts, n, counts, *out)
    elif k and not isinstance(block, SparseView):
        _dense_stats(*block, n, counts, *out)
    sums, squares, low, high = out
    upper = sums * _growth(n)
    # Float32 numbers not below the exact sums; the added number covers the loss of precision below the normal range of float32.
    with np.errstate(over="ignore"):
        norm1 = upper.astype(np.float32) + np.float32(2.0**-126) * (sums > 0.0)
    return ColumnStats(counts, norm1, squares, low, high)
