"""Caches of rows of a column-major array that dual vectors need repeatedly.

Near a solution few rows have a non-zero dual variable, mostly the same rows in each round. In a column-major array, these rows are in
different cache lines: a pass over 500 of 4,096 rows reads nearly all lines. Contiguous copies of the rows are read at memory or cache
speed; results are bit-identical (:mod:`gramplane.kernels.features.scores`).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from ..jit import blas_threads, compiled, one_thread
from .scores import accumulate, correlations_many
from .views import dense_view, shape, sparse_view

FEW = 0.5  # Share of rows with a dual variable up to which they are copied.
MOST_BYTES = 32 << 20  # of copied rows, of all their columns


class RowsAtHand:
    """Computes correlations of the columns of one dense array with successive stacks of dual vectors. The array may be one part of a matrix
    with at most ``width`` columns in total.
    """

    def __init__(self, X: Array, width: int) -> None:
        self._X, self._view = X, dense_view(X)
        self._most = 0 if self._view.column_step == 1 else int(min(FEW * len(X), MOST_BYTES // (width * X.itemsize)))
        self._forget()

    def _forget(self) -> None:
        self._count, self._place, self._rows = 0, np.full(len(self._X), -1), np.empty((0, shape(self._X)[1]), self._view.flat.dtype)

    def correlations(self, duals: FloatArray) -> FloatArray:
        """Return ``duals @ X``, ``(m, k)``, bit-identical to :func:`~gramplane.kernels.features.scores.correlations_many`."""
        asked = np.flatnonzero(duals.any(axis=0)) if self._most else np.zeros(0, np.int64)
        if not 0 < len(asked) <= self._most:
            return correlations_many(self._X, duals)
        new = asked[self._place[asked] < 0]
        if self._count + len(new) > self._most:
            self._forget()
            new = asked
        self._copy(new)
        places = self._place[asked]
        own = np.zeros((len(duals), self._count))
        own[:, places] = duals[:, asked]
        sums = np.zeros((len(duals), self._rows.shape[1]))
        accumulate(sums, self._rows[: self._count], own, places)
        return sums

    def _copy(self, new: Array) -> None:
        first, self._count = self._count, self._count + len(new)
        if self._count > len(self._rows):
            rows = np.empty((min(self._most, self._count + self._count // 4), self._rows.shape[1]), self._rows.dtype)
            rows[:first] = self._rows[:first]
            self._rows = rows
        self._place[new] = np.arange(first, self._count)
        _copy_rows(self._view.flat, self._view.column_step, new.view(np.uint64), self._rows[first : self._count])


@compiled
def _copy_rows(x: Array, step: int, rows: Array, out: Array) -> None:
    # Eight columns at a time: so many numbers are written side by side, while as many lines of memory are waited for together.
    for low in range(0, out.shape[1], 8):
        high = min(low + 8, out.shape[1])
        for t in range(rows.size):
            for j in range(low, high):
                out[t, j] = x[np.uint64(j) * np.uint64(step) + rows[t]]


# Sparse columns collected in row form: columns are only ever added on the right, so every row stays sorted.


class RowForm(NamedTuple):
    """A sparse matrix by rows: row i is ``columns[starts[i]:starts[i + 1]]``, ascending, with the same range of ``values``."""

    starts: Array
    columns: Array
    values: Array
    width: int

    @classmethod
    def empty(cls, n_rows: int) -> RowForm:
        """Return a matrix without columns."""
        return cls(np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0)

    def with_columns(self, X: sp.csc_array) -> RowForm:
        """Return the matrix with the columns of ``X``, ``(n, k)``, appended on the right; values get the wider of both types."""
        block = sparse_view(X)
        dtype = np.result_type(self.values, block.values)
        size = len(self.values) + int(block.starts[-1])
        made = RowForm(np.empty_like(self.starts), np.empty(size, np.int32), np.empty(size, dtype), self.width + len(block.starts) - 1)
        old, new = (values.astype(dtype, copy=False) for values in (self.values, block.values))
        _append((self.starts, self.columns, old), (new, block.rows, block.starts), self.width, tuple(made[:3]))
        return made

    def matrix(self) -> sp.csr_array:
        """Return a SciPy matrix that shares the arrays ``columns`` and ``values``."""
        matrix = sp.csr_array((self.values, self.columns, self.starts), shape=(len(self.starts) - 1, self.width))
        # Spares SciPy a pass over the indices.
        matrix.has_sorted_indices = True
        return matrix


@compiled
def _append(old: tuple[Array, ...], new: tuple[Array, ...], width: int, out: tuple[Array, ...]) -> None:
    starts, columns, values = old
    new_values, new_rows, new_starts = new
    out_starts, out_columns, out_values = out
    n = starts.size - 1
    # How many entries each row gets, then where its next one goes.
    ahead = np.zeros(n, np.int64)
    for p in range(new_starts[0], new_starts[new_starts.size - 1]):
        ahead[new_rows[p]] += 1
    at = np.int64(0)
    for i in range(n):
        out_starts[i] = at
        for k in range(starts[i], starts[i + 1]):
            out_columns[at] = columns[k]
            out_values[at] = values[k]
            at += 1
        added = ahead[i]
        ahead[i] = at
        at += added
    out_starts[n] = at
    for j in range(new_starts.size - 1):
        for p in range(new_starts[j], new_starts[j + 1]):
            i = new_rows[p]
            out_columns[ahead[i]] = width + j
            out_values[ahead[i]] = new_values[p]
            ahead[i] += 1


# Products of many dense rows with few vectors, in blocks of rows: their bits follow from the numbers and their shapes alone.
#
# BLAS divides a product among its threads, and another number of them may round otherwise. Blocks are cut by the shape of the rows and each
# is multiplied by one BLAS thread; how many are multiplied at once, and by whom, changes nothing.

BLOCK_VALUES = 1 << 20
"""Number of values in a block of rows, 8 MB: large enough to be worth a thread, small enough to stay in the cache while its values are
converted.
"""

MIN_THREADED_BLOCKS = 4  # Blocks from which on threads are worth their start.


def row_edges(n: int, d: int) -> list[int]:
    """Return the rows at which blocks of ``(n, d)`` rows begin, followed by n."""
    return [*range(0, n, max(64, BLOCK_VALUES // max(d, 1) // 64 * 64)), n]


def row_product(X: Array, vectors: Array) -> Array:
    """Return ``X @ vectors.T``, float64 ``(n, m)``, with as many threads as BLAS has outside of
    :func:`gramplane.kernels.jit.one_thread`.
    """
    right = np.ascontiguousarray(vectors.T, dtype=np.float64)
    out = np.empty((len(X), right.shape[1]))
    spans = [slice(*span) for span in pairwise(row_edges(*X.shape))]

    threads = min(blas_threads(), len(spans)) if len(spans) >= MIN_THREADED_BLOCKS else 1

    def multiply(first: int) -> None:
        with one_thread():
            for span in spans[first::threads]:
                # BLAS sums rows that lie one after another in another order than columns that do: the same rows have the same bits.
                np.matmul(np.ascontiguousarray(X[span]), right, out=out[span])

    with one_thread():
        if threads == 1:
            multiply(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(multiply, range(threads)))
    return out
