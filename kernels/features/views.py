"""Column blocks as flat vectors, the form that compiled loops read.

Compiled functions take only one-dimensional writeable arrays. A read-only memory map, a strip of a wider array and either memory order
therefore run the same machine code, without a copy and without a second compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from ..jit import compiled

Columns = np.ndarray | sp.csc_array
"""``(n_samples, k)`` block of columns: dense, or CSC with ascending rows in each column and no duplicates."""


class SparseView(NamedTuple):
    """CSC columns.

    * ``values``: float32 or float64.
    * ``rows``: uint32.
    * ``starts``: uint32 ``(k + 1,)``, where each column begins.
    """

    values: Array
    rows: Array
    starts: Array


class DenseView(NamedTuple):
    """Dense columns: entry ``(i, j)`` is ``flat[i * row_step + j * column_step]``; one of the two steps is 1."""

    flat: Array
    row_step: int
    column_step: int


class _Alias:
    """The memory of an array, presented as a flat vector. It is declared writeable but never written."""

    def __init__(self, array: Array, size: int) -> None:
        self._owner = array
        self.__array_interface__ = {"shape": (size,), "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3}


def alias(array: Array, size: int) -> Array:
    """Return ``size`` numbers, from the first one of an array on, as a flat vector that counts as writeable but must not be written.

    numba treats read-only arrays, such as those from a cluster or a memory map, as another type and would compile again for them.
    """
    return np.asarray(_Alias(array, size))


def flat(array: Array) -> Array:
    """Return a contiguous array as a one-dimensional writeable alias of the same memory."""
    if array.ndim == 1 and array.flags.writeable and array.flags.c_contiguous and array.flags.aligned:
        return array
    return alias(np.ascontiguousarray(array), array.size)


def shape(X: Columns | sp.csr_array) -> tuple[int, int]:
    """Return ``(n_samples, k)``. Raises TypeError if ``X`` is not two-dimensional."""
    dimensions = getattr(X, "shape", None)
    if dimensions is None or len(dimensions) != 2:
        raise TypeError(f"X has shape {dimensions}; a block of columns must have two dimensions")
    return int(dimensions[0]), int(dimensions[1])


def view(X: Columns) -> SparseView | DenseView:
    """Return the flat vectors of a block. Raises TypeError if it is a sparse matrix in another form than CSC."""
    if isinstance(X, np.ndarray):
        return dense_view(X)
    if not sp.issparse(X) or X.format != "csc":
        raise TypeError(f"X is {getattr(X, 'format', type(X).__name__)}; a block of columns must be an ndarray or a CSC matrix")
    return sparse_view(X)


def _native(array: Array) -> Array:
    """Return values in native byte order: float32 and float64 keep their type, all others become float64."""
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative:
        return array
    return array.astype(np.float32 if array.dtype == np.float32 else np.float64)


def _unsigned(index: Array, name: str) -> Array:
    """Return indices as uint32, which needs no sign test in the inner loop."""
    if index.dtype == np.int32:
        return flat(index).view(np.uint32)
    if index.size and int(index[-1] if name == "indptr" else index.max()) > np.iinfo(np.uint32).max:
        raise ValueError(f"X.{name} needs more than 32 bits; split the matrix into narrower blocks of columns")
    return index.astype(np.uint32)


def sparse_view(X: sp.csc_array) -> SparseView:
    """Return the flat vectors of a CSC block. Raises ValueError if an index does not fit in 32 bits."""
    return SparseView(flat(_native(X.data)), _unsigned(X.indices, "indices"), _unsigned(X.indptr, "indptr"))


def dense_view(X: Array) -> DenseView:
    """Return a dense block as a flat vector with two steps; a block is copied only if it is contiguous in neither direction."""
    X = _native(X)
    (n, k), item = shape(X), X.itemsize
    if X.size == 0:
        return DenseView(np.zeros(0, X.dtype), max(k, 1), 1)
    down, across = X.strides[0], X.strides[1]
    if n == 1:
        down = item * k if across == item else item
    if k == 1:
        across = item * n if down == item else item
    usable = X.flags.aligned and min(down, across) == item and max(down, across) % item == 0
    if not usable or max(down, across) < item * (k if across == item else n):
        X = np.ascontiguousarray(X)
        down, across = item * k, item
    return DenseView(alias(X, ((n - 1) * down + (k - 1) * across) // item + 1), down // item, across // item)


def checked_dual(u: Array, n_samples: int, name: str = "u") -> Array:
    """Return a dual vector, or a stack of dual vectors (one per row), as contiguous float64. Raises ValueError if the length or an entry is
    invalid.
    """
    out = np.ascontiguousarray(u, dtype=np.float64)
    if out.shape[-1:] != (n_samples,):
        raise ValueError(f"{name} has shape {out.shape}; its last dimension must match the {n_samples} rows of X")
    if not np.isfinite(out).all():
        row = int(np.argmin(np.isfinite(out).reshape(-1, n_samples).all(axis=0)))
        raise ValueError(f"{name}[{row}] is not finite; a dual vector must be finite")
    return out if out.flags.writeable else out.copy()


# Statistics of columns that selection needs: counts, bounds of sums, and which are constant.


def constant_columns(X: Columns) -> Array:
    """Return the columns of ``X``, ``(n, k)``, whose entries are all equal and not zero, as ascending int64.

    The check is cheap: a column is dropped as soon as two entries differ, and a sparse column with a zero does not qualify.
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
    """Return the number of non-zeros of each column, uint32 ``(k,)``."""
    counts, block = np.zeros(shape(X)[1], np.uint32), view(X)
    if not isinstance(block, SparseView):
        return np.count_nonzero(np.asarray(X), axis=0).astype(np.uint32)
    if counts.size:
        _sparse_counts(block.values, block.starts, counts)
    return counts


# The B best of many candidates by a total order: bounded heap, threshold scan, merge of partial lists.
#
# Candidates are ordered by ``(-key, id)``. The order is total, so local lists merged in any tree give the list of the whole (near the
# optimum ties are structural, so the rule matters: docs/theory/fgm.md, "Scores and the column skip rule").


class TopB(NamedTuple):
    """The B best candidates, sorted by ``(-key, id)``.

    * ``ids``, int64 ``(b,)`` with ``b <= B``: global ids.
    * ``keys``, float64 ``(b,)``, all positive: ``|c_j|`` for features, the score itself for groups and expanded features.
    * ``values``, float64 ``(b,)``: the signed ``c_j`` for features, otherwise equal to the keys.
    """

    ids: Array
    keys: Array
    values: Array


@compiled
def offer(keys: Array, ids: Array, values: Array, size: int, key: float, identity: int, value: float) -> int:
    """Offer a candidate to a bounded heap; return the new size. The root of the heap is the worst candidate by (-key, id)."""
    if size < keys.size:
        at = size
        while at > 0:
            up = (at - 1) >> 1
            if keys[up] < key or (keys[up] == key and ids[up] > identity):
                break
            keys[at], ids[at], values[at] = keys[up], ids[up], values[up]
            at = up
        keys[at], ids[at], values[at] = key, identity, value
        return size + 1
    if key < keys[0] or (key == keys[0] and identity > ids[0]):
        return size
    at = 0
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and (keys[down + 1] < keys[down] or (keys[down + 1] == keys[down] and ids[down + 1] > ids[down])):
            down += 1
        if key < keys[down] or (key == keys[down] and identity > ids[down]):
            break
        keys[at], ids[at], values[at] = keys[down], ids[down], values[down]
        at = down
    keys[at], ids[at], values[at] = key, identity, value
    return size


class Heap(NamedTuple):
    """Storage of a bounded heap (see :func:`offer`)."""

    keys: Array
    ids: Array
    values: Array

    @classmethod
    def empty(cls, size: int) -> Heap:
        """Return an empty heap for ``size`` candidates, at least one."""
        if size < 1:
            raise ValueError(f"B = {size}; it must be at least 1")
        return cls(np.zeros(size), np.zeros(size, np.int64), np.zeros(size))

    def top(self, size: int) -> TopB:
        """Return the first ``size`` entries of the heap, sorted by (-key, id)."""
        order = np.lexsort((self.ids[:size], -self.keys[:size]))
        return TopB(self.ids[:size][order], self.keys[:size][order], self.values[:size][order])


@compiled
def _scan(keys: Array, values: Array, ids: Array, offset: int, threshold: float, hk: Array, hi: Array, hv: Array) -> tuple[int, int]:
    """Return the heap size, and the position of a key that is not finite (or -1)."""
    size = int(np.int64(0))
    bar = max(threshold, 5e-324)
    for j in range(keys.size):
        key = keys[j]
        if key < bar:
            continue
        if not key < np.inf:
            return size, j
        size = offer(hk, hi, hv, size, key, ids[j] if ids.size else offset + j, values[j])
        if size == hk.size:
            bar = max(bar, hk[0])
    return size, -1


def refuse(identity: int) -> None:
    """Raise ValueError for a candidate whose score is not finite."""
    raise ValueError(f"the score of candidate {identity} is not finite: its column times the dual vector overflows float64")


def top_b(keys: Array, values: Array, B: int, ids_or_offset: Array | int = 0, *, threshold: float = 0.0) -> TopB:
    """Return the B largest keys in the total order ``(-key, id)``; keys that are zero or below the threshold are left out.

    ``keys`` and ``values``, ``(k,)``, are the order keys (>= 0) and the values to report with them. ``ids_or_offset`` are int64 ``(k,)``
    ids, or the id of the first candidate. Raises ValueError if B < 1 or a key is NaN or infinite.
    """
    heap, listed = Heap.empty(B), isinstance(ids_or_offset, np.ndarray)
    ids = np.ascontiguousarray(ids_or_offset, dtype=np.int64) if listed else np.zeros(0, np.int64)
    offset = 0 if listed else int(ids_or_offset)
    key_vector, value_vector = (flat(np.ascontiguousarray(a, dtype=np.float64)) for a in (keys, values))
    size, bad = _scan(key_vector, value_vector, flat(ids), offset, float(threshold), *heap)
    if bad >= 0:
        refuse(int(ids[bad]) if listed else offset + bad)
    return heap.top(size)


def merge_top(tops: Sequence[TopB], B: int) -> TopB:
    """Merge partial results over disjoint candidates. The operation is associative and commutative, because the order is total."""
    if not tops:
        return TopB(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    ids, keys, values = (np.concatenate(parts) for parts in zip(*tops, strict=True))
    order = np.lexsort((ids, -keys))[:B]
    return TopB(ids[order], keys[order], values[order])
