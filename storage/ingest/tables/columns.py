"""Compiled passes over entries: counting, partition into buckets, counting sort.

A value is moved as int32 words (one for float32, two for float64), so that one compiled version serves both types.
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
    """Add the number of entries of every column to ``table``."""
    for col in cols:
        table[col] += np.uint32(1)


@compile_kernel
def _find_bucket(col: int, cells: Ints, bits: int, edges: Longs) -> int:
    """Return the bucket of a column. A table gives it for the cell of 2^bits columns that contains the column; if bucket edges lie inside
    the cell, bisection finds it.
    """
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
    """Sort entries stably by bucket.

    * ``lengths`` (n_rows,): the number of entries per row.
    * ``cols`` (nnz,), ``words`` (nnz, w): column and value of each entry; ``shift`` is added to the column.
    * ``cells``, ``bits``, ``edges``: the buckets by column (see `_find_bucket`).
    * ``ends`` (n_buckets,), output: where each bucket ends in ``records``.
    * ``records`` (nnz, 2 + w), output: (column, row, value words), bucket after bucket.
    """
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
    """Write each record at the cursor of its column and advance the cursor. Return False if a column is out of range or exceeds the arrays.

    Records of a column come in row order, so rows are ascending.
    """
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
def column_sums(values: npt.NDArray[Any], ends: Ints, norm1: Floats, sumsq: Floats, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> None:
    """Add entries of sparse columns, in row order, to the sums of |x| and x^2 of their columns, and update the columns' smallest and
    largest values.
    """
    first = 0
    for j in range(norm1.size):
        last = ends[j + 1]
        if first < last:
            smallest, largest, size, square = low[j], high[j], norm1[j], sumsq[j]
            for p in range(np.uint64(first), np.uint64(last)):
                x = np.float64(values[p])
                size += abs(x)
                square += x * x
                smallest, largest = min(smallest, values[p]), max(largest, values[p])
            norm1[j], sumsq[j], low[j], high[j] = size, square, smallest, largest
        first = last


@compile_kernel
def sparse_linear(values: npt.NDArray[Any], rows: Ints, ends: Ints, weights: Floats, linear: Floats, present: Floats) -> None:
    """For each sparse column, add the weighted values of its entries to ``linear`` and their weights to ``present``; ``weights`` is
    (n_rows,), or empty if all are 1.
    """
    plain = not weights.size
    for j in range(linear.size):
        total, there = linear[j], present[j]
        for p in range(np.uint64(ends[j]), np.uint64(ends[j + 1])):
            weight = 1.0 if plain else weights[rows[p]]
            total += weight * values[p]
            there += weight
        linear[j], present[j] = total, there


@compile_kernel
def sparse_squares(values: npt.NDArray[Any], rows: Ints, ends: Ints, weights: Floats, mean: Floats, square: Floats) -> None:
    """For each sparse column, add the weighted squared deviations of its entries from ``mean`` to ``square``; ``weights`` as in
    `sparse_linear`.
    """
    plain = not weights.size
    for j in range(mean.size):
        total = square[j]
        for p in range(np.uint64(ends[j]), np.uint64(ends[j + 1])):
            deviation = values[p] - mean[j]
            total += (1.0 if plain else weights[rows[p]]) * (deviation * deviation)
        square[j] = total


_WIDE = 16  # columns of a strip; the sums of a strip lie together, so that they stay in the registers of four rows
_TALL = 32  # rows of a strip that are copied together where memory runs down the columns
_STRIPS = 256  # strips that are read together where memory runs along the rows
_SUMS = 8  # sums of a column: the first value, the extremes, and the sums that `dense_tables` names


@compile_kernel
def _add(x: float, weight: float, sums: tuple[float, float, float, float, float]) -> tuple[float, float, float, float, float]:
    first, low, high, linear, square = sums
    deviation = x - first
    share = weight * deviation
    return first, (x if x < low else low), (x if x > high else high), linear + share, square + share * deviation


@compile_kernel
def _add_rows(rows: Floats, sums: Floats, a: float, b: float, c: float, d: float) -> None:
    """Add four rows, with weights a to d, to the sums of a strip of columns: extremes and sums of deviations."""
    for j in range(_WIDE):
        held = sums[j], sums[_WIDE + j], sums[2 * _WIDE + j], sums[3 * _WIDE + j], sums[4 * _WIDE + j]
        held = _add(rows[_WIDE + j], b, _add(rows[j], a, held))
        held = _add(rows[3 * _WIDE + j], d, _add(rows[2 * _WIDE + j], c, held))
        _, sums[_WIDE + j], sums[2 * _WIDE + j], sums[3 * _WIDE + j], sums[4 * _WIDE + j] = held


@compile_kernel
def _add_sizes(rows: Floats, n_rows: int, sums: Floats) -> None:
    """Add rows to the sums of a strip of columns: the counts, the sums of |x| and the sums of x^2. Missing values are ignored."""
    for i in range(n_rows):
        row = rows[i * _WIDE : (i + 1) * _WIDE]
        for j in range(_WIDE):
            x = row[j] if row[j] == row[j] else 0.0
            sums[5 * _WIDE + j] += np.float64(x != 0.0)
            sums[6 * _WIDE + j] += abs(x)
            sums[7 * _WIDE + j] += x * x


@compile_kernel
def _copy_strip(x: npt.NDArray[Any], starts: Longs, across: int, width: int, rows: Floats) -> None:
    if across == 1:
        for i in range(starts.size):
            source, line = x[starts[i] : starts[i] + width], rows[i * _WIDE : (i + 1) * _WIDE]
            for j in range(width):
                line[j] = source[j]
    else:
        for j in range(width):
            for i in range(starts.size):
                rows[i * _WIDE + j] = x[starts[i] + j * across]


@compile_kernel
def dense_tables(x: npt.NDArray[Any], starts: Longs, n_rows: int, across: int, weights: Floats, sizes: bool, out: Floats) -> None:
    """Add some rows to the sums of dense columns, ``out`` (8, k), in one pass over the data.

    The rows of ``out`` are:

    * the first value f, which the caller sets;
    * the smallest and the largest value;
    * the sums of ``w (x - f)`` and of ``w (x - f)^2``;
    * if ``sizes``, the number of non-zeros, and the sums of ``|x|`` and of ``x^2``.

    Each sum runs over its rows in order. Its bits therefore do not depend on the memory order, on the other columns, or on the division of
    the rows.

    ``x`` (m,) holds the values, row i of column j at ``starts[i] + j * across``. ``starts`` and ``weights`` are padded to a multiple of
    four rows by the first row with weight 0.
    """
    n_cols = out.shape[1]
    n_strips = (n_cols + _WIDE - 1) // _WIDE
    # Along the rows all columns are read before the next rows, down the columns one strip after the other.
    tall, together = (4, min(n_strips, _STRIPS)) if across == 1 else (_TALL, 1)
    rows, sums = np.zeros(tall * _WIDE), np.zeros((together, _SUMS * _WIDE))
    for first in range(0, n_strips, together):
        here = min(together, n_strips - first)
        for s in range(here):
            begin = (first + s) * _WIDE
            for m in range(_SUMS):
                for j in range(min(_WIDE, n_cols - begin)):
                    sums[s, m * _WIDE + j] = out[m, begin + j]
        for i in range(0, starts.size, tall):
            for s in range(here):
                begin = (first + s) * _WIDE
                _copy_strip(x[begin * across :], starts[i : i + tall], across, min(_WIDE, n_cols - begin), rows)
                for r in range(0, min(tall, starts.size - i), 4):
                    w = weights[i + r : i + r + 4]
                    _add_rows(rows[r * _WIDE : (r + 4) * _WIDE], sums[s], w[0], w[1], w[2], w[3])
                if sizes:
                    _add_sizes(rows, min(tall, n_rows - i), sums[s])
        for s in range(here):
            begin = (first + s) * _WIDE
            for m in range(_SUMS):
                for j in range(min(_WIDE, n_cols - begin)):
                    out[m, begin + j] = sums[s, m * _WIDE + j]


@compile_kernel
def gather_columns(x: npt.NDArray[Any], width: int, columns: npt.NDArray[np.uint64], out: npt.NDArray[Any]) -> None:
    """Copy columns of a matrix, whose rows have ``width`` numbers, to the rows of ``out``; four rows are read at a time to overlap memory
    accesses.
    """
    for low in range(0, out.shape[1], 4):
        high = min(low + 4, out.shape[1])
        for k in range(columns.size):
            for i in range(low, high):
                out[k, i] = x[np.uint64(i) * np.uint64(width) + columns[k]]


@compile_kernel
def mix_words(
    words: npt.NDArray[Any], lines: int, width: int, step: int, exponent: np.uint64, one: np.uint64, lanes: npt.NDArray[np.uint64]
) -> np.uint64:
    """Mix ``lines`` lines of ``width`` words, which begin ``step`` words apart, into the 32 uint64 numbers ``lanes``. A change of any
    single word always changes the result.

    Returns the bits that are set in any ``(word & exponent) + one``: if the exponent bits of a float are all ones (NaN or infinity), the
    addition carries.
    """
    carries, whole = np.zeros(32, np.uint64), width // 32 * 32
    for i in range(lines):
        for first in range(i * step, i * step + whole, 32):
            line = words[first : first + 32]
            for k in range(32):
                word = np.uint64(line[k])
                carries[k] |= (word & exponent) + one
                mixed = lanes[k] + word
                mixed ^= mixed >> np.uint64(29)
                lanes[k] = mixed + (mixed << np.uint64(3))
        for k in range(width - whole):
            word = np.uint64(words[i * step + whole + k])
            carries[k] |= (word & exponent) + one
            mixed = lanes[k] + word
            mixed ^= mixed >> np.uint64(29)
            lanes[k] = mixed + (mixed << np.uint64(3))
    seen = np.uint64(0)
    for k in range(32):
        seen |= carries[k]
    return seen


@compile_kernel
def row_squares(lengths: Ints, values: Floats, out: Floats) -> None:
    """Write the sum of squares of each sparse row."""
    k = 0
    for i in range(lengths.size):
        total = 0.0
        for _ in range(lengths[i]):
            total += values[k] * values[k]
            k += 1
        out[i] = total
