"""Statistics of columns that selection needs: counts, bounds of sums, and which are constant."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from ..jit import compiled
from .views import Columns, SparseView, shape, sparse_view, view


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


def column_norm1(X: sp.csc_array) -> Array:
    """Return float32 ``(k,)`` upper bounds of ``sum_i |x_ij|``: rounded up, never below the exact sum."""
    n, k = shape(X)
    block, bounds = sparse_view(X), np.zeros(k, np.float32)
    if k:
        _sparse_norm1(block.values, block.starts, _growth(n), bounds)
    return bounds


@compiled
def _sparse_counts(values: Array, starts: Array, counts: Array) -> None:
    for j in range(counts.size):
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            counts[j] += values[p] != 0.0


def column_counts(X: Columns) -> Array:
    """Return uint32 ``(k,)`` numbers of non-zeros."""
    counts, block = np.zeros(shape(X)[1], np.uint32), view(X)
    if not isinstance(block, SparseView):
        return np.count_nonzero(np.asarray(X), axis=0).astype(np.uint32)
    if counts.size:
        _sparse_counts(block.values, block.starts, counts)
    return counts
