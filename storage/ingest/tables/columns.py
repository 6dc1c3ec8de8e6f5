"""Compiled passes over entries: counting, partition into buckets, counting sort.

A value travels as one (float32) or two (float64) int32 words, so that one compiled form serves both types.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from .._jit import compiled

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@compiled
def count_columns(cols: Ints, table: npt.NDArray[np.uint32]) -> None:
    """Add the entries of every column to ``table``."""
    for col in cols:
        table[col] += np.uint32(1)


@compiled
def _bucket(col: int, cells: Ints, bits: int, edges: Longs) -> int:
    """Bucket of a column: by table for the cell of 2^bits columns it is in, by bisection where edges fall inside the cell."""
    cell = col >> bits
    lo, hi = cells[cell], cells[cell + 1]
    while lo < hi:
        mid = (lo + hi + 1) >> 1
        if edges[mid] <= col:
            lo = mid
        else:
            hi = mid - 1
    return lo


@compiled
def partition(
    lengths: Ints, cols: Ints, words: Ints, first_row: int, shift: int, cells: Ints, bits: int, edges: Longs, ends: Longs, records: Ints
) -> None:
    """Sort entries stably by bucket.

    Parameters
    ----------
    lengths : int32 array (n_rows,)
        Entries of every row.
    cols, words : int32 arrays (nnz,) and (nnz, w)
        Column, plus ``shift``, and value of every entry.
    first_row : int
        Number of the first row.
    cells, bits, edges : arrays
        Buckets by column (see `_bucket`).
    ends : int64 array (n_buckets,)
        Out: where each bucket ends in ``records``.
    records : int32 array (nnz, 2 + w)
        Out: (column, row, value words), bucket after bucket.
    """
    width, buckets = words.shape[1], np.empty(cols.size, np.int32)
    ends[:] = 0
    for k in range(cols.size):
        b = _bucket(cols[k] - shift, cells, bits, edges)
        # Kept, because looking it up again costs more than reading it back.
        buckets[k] = b
        ends[b] += 1
    total = 0
    for b in range(ends.size):
        total, ends[b] = total + ends[b], total
    k = 0
    for i in range(lengths.size):
        for _ in range(lengths[i]):
            b = buckets[k]
            place = ends[b]
            records[place, 0] = cols[k] - shift
            records[place, 1] = first_row + i
            records[place, 2] = words[k, 0]
            if width == 2:
                records[place, 3] = words[k, 1]
            ends[b] = place + 1
            k += 1


@compiled
def scatter(records: Ints, base: int, cursor: Longs, rows: Ints, words: Ints) -> bool:
    """Put records at their column's cursor and move it on; False if a column is out of range or runs over the arrays.

    Records of a column come in row order, so rows come out ascending.
    """
    width = words.shape[1]
    for k in range(records.shape[0]):
        col = records[k, 0] - base
        if col < 0 or col >= cursor.size or cursor[col] >= rows.size:
            return False
        place = cursor[col]
        rows[place] = records[k, 1]
        words[place, 0] = records[k, 2]
        if width == 2:
            words[place, 1] = records[k, 3]
        cursor[col] = place + 1
    return True


@compiled
def column_sums(
    values: npt.NDArray[Any], ends: Ints, n_rows: int, norm1: Floats, sumsq: Floats, low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> None:
    """Fill the sums of |x| and of x^2 and the extremes of sparse columns, each over its entries in row order; all four begin as zeros."""
    first = 0
    for j in range(norm1.size):
        last = ends[j + 1]
        if first < last:
            # An entry that is not stored is a zero, and takes part in the extremes.
            least = most = values[first] if last - first == n_rows else values[first] * 0
            size, square = 0.0, 0.0
            for p in range(np.uint64(first), np.uint64(last)):
                x = np.float64(values[p])
                size += abs(x)
                square += x * x
                least, most = min(least, values[p]), max(most, values[p])
            norm1[j], sumsq[j], low[j], high[j] = size, square, least, most
        first = last


@compiled
def row_squares(lengths: Ints, values: Floats, out: Floats) -> None:
    """Sum of squares of every sparse row."""
    k = 0
    for i in range(lengths.size):
        total = 0.0
        for _ in range(lengths[i]):
            total += values[k] * values[k]
            k += 1
        out[i] = total
