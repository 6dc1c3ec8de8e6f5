"""Sums over Gram matrices by pairs of tasks: forms A_q[s, t] = beta_s' K_q[s, t] beta_t, and weighted sums with a weight per pair.

    K[i, l] = sum_q W_q[c_i, c_l] K_q[i, l]        c_i the task of row i

Banks and block pairs give bit-identical results. The entries in a band of 128 rows and a tile of 128 columns contribute one number for each
pair of tasks; the number is rounded to a multiple of a unit before it is added (:mod:`gramplane.kernels.bank.products`). Loops are faster
if the rows of a task are contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .loops import BAND, add_rows_at, mirror_band
from .products import ROUNDING_SHIFT, UNIT_BITS

Span = tuple[int, int]
Tasks = tuple[IntArray, FloatArray]  # Tasks of some rows, and beta.
Pair = tuple[FloatArray, FloatArray]

STRIP_COLUMNS = 512  # Columns combined at a time: their weights of four kernels stay in the first-level cache.


class TaskSums(NamedTuple):
    """Contributions to A_q, ``(k, T, T)`` each, that can be added in any order.

    ``square`` holds the contributions of the squares on the diagonal, ``right`` those of the entries to their right.
    """

    square: FloatArray
    right: FloatArray

    def __add__(self, other: TaskSums) -> TaskSums:  # type: ignore[override]
        """Return the sum of both contributions, which is exact."""
        return TaskSums(self.square + other.square, self.right + other.right)

    def total(self) -> FloatArray:
        """Return the forms ``(k, T, T)``, exactly symmetric."""
        square, right = (part + part.transpose(0, 2, 1) for part in self)
        return 0.5 * square + right


def bank_task_sums(values: Array, bands: IntArray, beta: FloatArray, codes: IntArray, units: FloatArray) -> TaskSums:
    """Return the sums of a bank's entries ``(k, entries)``; other arguments as in :func:`block_task_sums`."""
    sums = np.zeros(units.shape), np.zeros(units.shape)
    for band, (at, stride) in enumerate(bands):
        first = band * BAND
        rows = codes[first : first + BAND], beta[first : first + BAND]
        add_task_sums(values, at, stride, True, _order_by_task(*rows), rows, (codes[first:], beta[first:]), units, sums)
    return TaskSums(*sums)


def combine_task_bands(values: Array, bands: IntArray, weights: FloatArray, codes: IntArray, out: Array) -> None:
    """Write the weighted sum of a bank's entries ``(k, entries)`` to ``out`` ``(n, n)``, both triangles."""
    used, chosen = used_weights(weights)
    for band, (at, stride) in enumerate(bands):
        first = band * BAND
        band_codes = codes[first : first + BAND]
        rows = (np.argsort(band_codes, kind="stable"), band_codes, codes[first:])
        combine_task_rows(values, at, stride, used, chosen, *rows, out.reshape(-1), first * len(out) + first, len(out))
        mirror_band(out, first, len(band_codes))


def block_task_sums(block: Array, rows: Span, cols: Span, beta: FloatArray, codes: IntArray, units: FloatArray) -> TaskSums:
    """Return the contributions of a block pair ``(k, rows, columns)`` of raw entries to the forms.

    The ranges ``rows`` and ``cols`` begin at multiples of 128. ``beta`` and the tasks ``codes`` cover all n rows; ``units``, ``(k, T, T)``,
    come from :func:`task_units`.
    """
    flat = np.ascontiguousarray(block).reshape(len(block), -1)
    width, diagonal = cols[1] - cols[0], rows == cols
    sums = np.zeros(units.shape), np.zeros(units.shape)
    for first in range(rows[0], rows[1], BAND):
        top = slice(first, min(first + BAND, rows[1]))
        left = first if diagonal else cols[0]
        at = (first - rows[0]) * width + left - cols[0]
        band_rows, beyond = (codes[top], beta[top]), (codes[left : cols[1]], beta[left : cols[1]])
        add_task_sums(flat, at, width, diagonal, _order_by_task(*band_rows), band_rows, beyond, units, sums)
    return TaskSums(*sums)


def combine_block_tasks(block: Array, rows: Span, cols: Span, weights: FloatArray, codes: IntArray) -> Array:
    """Return ``sum_q W_q[c_i, c_l] K_q[i, l]`` of a block pair, in the block's type."""
    return combine_entry_tasks(block, weights, codes[slice(*rows)], codes[slice(*cols)])


def combine_entry_tasks(block: Array, weights: FloatArray, left: IntArray, right: IntArray) -> Array:
    """Return ``sum_q W_q[c_i, c_l] K_q[i, l]`` for any entries ``(k, rows, columns)``, given the tasks of their rows and columns."""
    used, chosen = used_weights(weights)
    flat, width = np.ascontiguousarray(block).reshape(len(block), -1), len(right)
    out = np.empty((len(left), width), block.dtype)
    combine_task_rows(flat, 0, width, used, chosen, np.argsort(left, kind="stable"), left, right, out.reshape(-1), 0, width)
    return out


def check_codes(codes: ArrayLike, n: int, n_tasks: int) -> IntArray:
    """Return the task of each row. Raises ValueError unless there are n of them, from 0 to T - 1."""
    tasks = np.ascontiguousarray(codes, dtype=np.int64)
    if tasks.shape != (n,) or (n and not (tasks.min() >= 0 and tasks.max() < n_tasks)):
        raise ValueError(f"codes: shape {tasks.shape}, must be ({n},), with task numbers from 0 to {n_tasks - 1}")
    return tasks


def check_weights(weights: ArrayLike, k: int) -> FloatArray:
    """Return the weights of pairs of tasks. Raises ValueError unless they are finite, ``(k, T, T)`` and symmetric in the tasks."""
    values = np.ascontiguousarray(weights, dtype=np.float64)
    if values.ndim != 3 or values.shape[0] != k or values.shape[1] != values.shape[2]:
        raise ValueError(f"weights: shape {values.shape}, must be ({k}, T, T)")
    if not np.isfinite(values).all():
        raise ValueError("weights: must be finite")
    if not np.array_equal(values, values.transpose(0, 2, 1)):
        raise ValueError("weights: must be symmetric in the tasks, W_q[s, t] = W_q[t, s]")
    return values


def used_weights(weights: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the kernels with a non-zero weight, and their weights."""
    used = np.flatnonzero((weights != 0).any(axis=(1, 2)))
    return used, np.ascontiguousarray(weights[used])


def task_units(tops: FloatArray, beta: FloatArray, codes: IntArray, n_tasks: int) -> FloatArray:
    """Return the units to which contributions are rounded, (k, T, T): 2^-50 times a power of two above
    ``max_i K_ii ||beta_s||_1 ||beta_t||_1``.
    """
    norms = np.asarray(np.bincount(codes, np.abs(beta), n_tasks), np.float64)
    norm_powers, top = _powers_of_two(norms), _powers_of_two(tops)
    # Powers of two multiply exactly, and the same for (s, t) and (t, s).
    return np.maximum(top[:, None, None] * (norm_powers[:, None] * norm_powers[None, :]), 2.0**-900) * 2.0**-UNIT_BITS


def _powers_of_two(values: FloatArray) -> FloatArray:
    return np.where(values > 0, 2.0 ** np.ceil(np.log2(np.where(values > 0, values, 1.0))), 0.0)


def _order_by_task(codes: IntArray, beta: FloatArray) -> IntArray:
    """Return the rows with non-zero beta, task by task."""
    order = np.argsort(codes, kind="stable")
    return order[beta[order] != 0.0]


@compiled
def _tasks_of_tiles(codes: IntArray, n_tasks: int) -> tuple[IntArray, IntArray]:
    """Return two arrays, ``present`` and ``ends``: the tasks that occur in the tile of columns beginning at column f are
    ``present[f : ends[f // BAND]]``, without repetition.
    """
    present, ends, seen = np.empty(codes.size, np.int64), np.empty(codes.size // BAND + 1, np.int64), np.full(n_tasks, -1)
    for first in range(0, codes.size, BAND):
        end = first
        for k in range(first, min(first + BAND, codes.size)):
            if seen[codes[k]] != first:
                seen[codes[k]] = first
                present[end] = codes[k]
                end += 1
        ends[first // BAND] = end
    return present, ends


@compiled
def add_task_sums(
    values: Array, at: int, stride: int, on_diagonal: bool, order: IntArray, rows: Tasks, cols: Tasks, units: FloatArray, sums: Pair
) -> None:
    """Add the contributions of one band of rows of all kernels to the sums.

    Row r of the band of kernel q begins at values[q, at + r * stride]; in a band on the diagonal the first tile is the square there.
    ``order`` lists the rows to read, task by task. ``rows`` holds the task and the beta of each row, ``cols`` those of each column.
    ``sums`` are the sums of the square and of the entries to its right.
    """
    left_codes, left = rows
    right_codes, right = cols
    square, off_square = sums
    width = right.size
    part, shares = np.empty(width), np.zeros(units.shape[1])
    present, ends = _tasks_of_tiles(right_codes, units.shape[1])
    for q in range(len(values)):
        lo = int(np.int64(0))
        while lo < order.size:
            s = left_codes[order[lo]]
            hi = lo + 1
            while hi < order.size and left_codes[order[hi]] == s:
                hi += 1
            part[:] = 0.0
            add_rows_at(part, values[q], at, stride, order[lo:hi], left)
            lo = hi
            for first in range(0, width, BAND):
                into = square if on_diagonal and first == 0 else off_square
                last = min(first + BAND, width)
                for k in range(first, last):
                    shares[right_codes[k]] += part[k] * right[k]
                for at_task in range(first, ends[first // BAND]):
                    t = present[at_task]
                    big = ROUNDING_SHIFT * units[q, s, t]
                    into[q, s, t] += (shares[t] + big) - big
                    shares[t] = 0.0


@compiled
def combine_task_rows(
    values: Array, at: int, stride: int, used: IntArray, weights: FloatArray, order: IntArray, left: IntArray, right: IntArray, out: Array,
    out_at: int, out_stride: int,
) -> None:  # fmt: skip
    """Write the weighted sum of some rows to out[out_at + r * out_stride :], one strip of columns at a time.

    Row r of kernel q begins at values[q, at + r * stride]. ``used``, ``(u,)``, lists the kernels with a non-zero weight, and ``weights``,
    ``(u, T, T)``, their weights. ``order`` lists the rows, task by task; ``left`` holds the tasks of the rows, ``right`` those of the
    columns.
    """
    expanded, total = np.empty((used.size, STRIP_COLUMNS)), np.empty(STRIP_COLUMNS)
    whole = used.size - used.size % 4
    for lo in range(0, right.size, STRIP_COLUMNS):
        size = min(STRIP_COLUMNS, right.size - lo)
        task = -1
        for r in order:
            if left[r] != task:
                task = left[r]
                for q in range(used.size):
                    for k in range(size):
                        expanded[q, k] = weights[q, task, right[lo + k]]
            start = at + r * stride + lo
            total[:size] = 0.0
            for q in range(0, whole, 4):
                a, b = values[used[q], start : start + size], values[used[q + 1], start : start + size]
                c, d = values[used[q + 2], start : start + size], values[used[q + 3], start : start + size]
                e, f, g, h = expanded[q], expanded[q + 1], expanded[q + 2], expanded[q + 3]
                for k in range(size):
                    total[k] += (e[k] * np.float64(a[k]) + f[k] * np.float64(b[k])) + (g[k] * np.float64(c[k]) + h[k] * np.float64(d[k]))
            for q in range(whole, used.size):
                row, factor = values[used[q], start : start + size], expanded[q]
                for k in range(size):
                    total[k] += factor[k] * np.float64(row[k])
            into = out_at + r * out_stride + lo
            for k in range(size):
                out[into + k] = total[k]
