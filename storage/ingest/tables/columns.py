"""Compiled passes over entries: counting, partition into buckets, counting sort.

A value travels as one (float32) or two (float64) int32 words, so that one compiled form serves both types.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from .._jit import compile_kernel

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@compile_kernel
def count_columns(cols: Ints, table: npt.NDArray[np.uint32]) -> None:
    """Add the entries of every column to ``table``."""
    for col in cols:
        table[col] += np.uint32(1)


@compile_kernel
def _find_bucket(col: int, cells: Ints, bits: int, edges: Longs) -> int:
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


@compile_kernel
def partition_entries(
    lengths: Ints, cols: Ints, words: Ints, first_row: int, shift: int, cells: Ints, bits: int, edges: Longs, ends: Longs, records: Ints
) -> None:
    """Sort entries stably by bucket. ``lengths`` (n_rows,): entries of every row; ``cols`` (nnz,), ``words`` (nnz, w): column, plus
    ``shift``, and value of every entry; ``cells``, ``bits``, ``edges``: buckets by column (see `_find_bucket`); out: ``ends`` (n_buckets,),
    where each bucket ends in ``records`` (nnz, 2 + w), the (column, row, value words), bucket after bucket."""
    width, buckets = words.shape[1], np.empty(cols.size, np.int32)
    ends[:] = 0
    for k in range(cols.size):
        b = _find_bucket(cols[k] - shift, cells, bits, edges)
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
            slot = ends[b]
            records[slot, 0] = cols[k] - shift
            records[slot, 1] = first_row + i
            records[slot, 2] = words[k, 0]
            if width == 2:
                records[slot, 3] = words[k, 1]
            ends[b] = slot + 1
            k += 1


@compile_kernel
def scatter_records(records: Ints, base: int, cursor: Longs, rows: Ints, words: Ints) -> bool:
    """Put records at their column's cursor and move it on; False if a column is out of range or runs over the arrays. Records of a column
    come in row order, so rows come out ascending."""
    width = words.shape[1]
    for k in range(records.shape[0]):
        col = records[k, 0] - base
        if col < 0 or col >= cursor.size or cursor[col] >= rows.size:
            return False
        slot = cursor[col]
        rows[slot] = records[k, 1]
        words[slot, 0] = records[k, 2]
        if width == 2:
            words[slot, 1] = records[k, 3]
        cursor[col] = slot + 1
    return True


@compile_kernel
def column_sums(
    values: npt.NDArray[Any], ends: Ints, n_rows: int, norm1: Floats, sumsq: Floats, low: npt.NDArray[Any], high: npt.NDArray[Any]
) -> None:
    """Fill the sums of |x| and of x^2 and the extremes of sparse columns, each over its entries in row order; all four begin as zeros."""
    first = 0
    for j in range(norm1.size):
        last = ends[j + 1]
        if first < last:
            # An entry that is not stored is a zero, and takes part in the extremes.
            smallest = largest = values[first] if last - first == n_rows else values[first] * 0
            size, square = 0.0, 0.0
            for p in range(np.uint64(first), np.uint64(last)):
                x = np.float64(values[p])
                size += abs(x)
                square += x * x
                smallest, largest = min(smallest, values[p]), max(largest, values[p])
            norm1[j], sumsq[j], low[j], high[j] = size, square, smallest, largest
        first = last


@compile_kernel
def row_squares(lengths: Ints, values: Floats, out: Floats) -> None:
    """Sum of squares of every sparse row."""
    k = 0
    for i in range(lengths.size):
        total = 0.0
        for _ in range(lengths[i]):
            total += values[k] * values[k]
            k += 1
        out[i] = total
