"""Compiled loops over Gram matrices in memory; :class:`gramplane.kernels.bank.bank.PackedBank` explains their layouts."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled

BAND = 128  # Rows of a band.
STRIP_ENTRIES = 4096  # Entries combined at a time: their float64 sums stay in the first-level cache.


def count_packed(n: int) -> int:
    """Return the number of packed entries of one matrix with n rows."""
    whole, left = divmod(n, BAND)
    # Bands of 128 rows and n, n - 128, ... columns, then a square of the rows left.
    return BAND * (whole * n - BAND * whole * (whole - 1) // 2) + left * left


def packed_bands(n: int) -> IntArray:
    """Return the first entry and row stride of each band of packed triangles, (bands, 2)."""
    return np.array([(count_packed(n) - count_packed(n - first), n - first) for first in range(0, n, BAND)])


def square_bands(n: int) -> IntArray:
    """Return the first entry and row stride of each band of whole matrices, (bands, 2); entries to the left of the bands are skipped."""
    return np.array([(first * n + first, n) for first in range(0, n, BAND)])


@compiled
def combine_bands(values: Array, n: int, bands: IntArray, used: IntArray, weights: FloatArray, out: Array, mirrored: bool) -> None:
    """Write ``sum_q weights[q] * K[used[q]]`` to the bands of ``out`` (n, n); if ``mirrored``, also write the entries below the bands."""
    total = np.empty(max(n, STRIP_ENTRIES))
    for band in range(len(bands)):
        first, at, stride = band * BAND, bands[band, 0], bands[band, 1]
        width = n - first
        rows = min(BAND, width)
        step = max(1, STRIP_ENTRIES // width)
        for start in range(0, rows, step):
            taken = min(step, rows - start)
            part = total[: taken * width]
            part[:] = 0.0
            # Rows without a gap between them are one long row.
            lines = 1 if stride == width else taken
            _add_kernels(part, lines, values, at + start * stride, stride, used, weights)
            for r in range(taken):
                to, row = out[first + start + r, first:], part[r * width : (r + 1) * width]
                # A loop: assigning slices would compile the messages of errors about shapes.
                for k in range(width):
                    to[k] = row[k]
        if mirrored:
            mirror_band(out, first, rows)


@compiled
def _add_kernels(out: FloatArray, rows: int, values: Array, at: int, stride: int, used: IntArray, weights: FloatArray) -> None:
    """Add weighted entries, four kernels per pass, to consecutive rows of ``out``. Row r of kernel q begins at ``values[q, at + r *
    stride]``.
    """
    size = out.size // rows
    whole = used.size - used.size % 4
    for at_kernel in range(0, whole, 4):
        i, j, m, h = used[at_kernel], used[at_kernel + 1], used[at_kernel + 2], used[at_kernel + 3]
        p, q, r, s = weights[at_kernel], weights[at_kernel + 1], weights[at_kernel + 2], weights[at_kernel + 3]
        for row in range(rows):
            start, part = at + row * stride, out[row * size : (row + 1) * size]
            a, b = values[i, start : start + size], values[j, start : start + size]
            c, d = values[m, start : start + size], values[h, start : start + size]
            for k in range(size):
                part[k] += (p * np.float64(a[k]) + q * np.float64(b[k])) + (r * np.float64(c[k]) + s * np.float64(d[k]))
    for at_kernel in range(whole, used.size):
        weight = weights[at_kernel]
        for row in range(rows):
            start, part = at + row * stride, out[row * size : (row + 1) * size]
            e = values[used[at_kernel], start : start + size]
            for k in range(size):
                part[k] += weight * np.float64(e[k])


@compiled
def mirror_band(out: Array, first: int, rows: int) -> None:
    """Write the transpose of the part of a band to the right of its square to the rows below the band, in tiles that stay in the cache."""
    n = len(out)
    for left in range(first + rows, n, 32):
        for top in range(first, first + rows, 32):
            for j in range(left, min(left + 32, n)):
                for i in range(top, min(top + 32, first + rows)):
                    out[j, i] = out[i, j]


@compiled
def add_rows_at(out: FloatArray, values: Array, at: int, stride: int, rows: IntArray, weights: FloatArray) -> None:
    """Add the weighted rows, ``weights[r]`` times the row at ``values[at + r * stride :]`` for each r in ``rows``, to ``out``. Four rows
    are added per pass, in float64.
    """
    size = out.size
    whole = rows.size - rows.size % 4
    for p in range(0, whole, 4):
        i, j, k, h = rows[p], rows[p + 1], rows[p + 2], rows[p + 3]
        a, b = values[at + i * stride : at + i * stride + size], values[at + j * stride : at + j * stride + size]
        c, d = values[at + k * stride : at + k * stride + size], values[at + h * stride : at + h * stride + size]
        x, y, z, w = weights[i], weights[j], weights[k], weights[h]
        for m in range(size):
            out[m] += (x * np.float64(a[m]) + y * np.float64(b[m])) + (z * np.float64(c[m]) + w * np.float64(d[m]))
    for p in range(whole, rows.size):
        i = rows[p]
        e, x = values[at + i * stride : at + i * stride + size], weights[i]
        for m in range(size):
            out[m] += x * np.float64(e[m])


@compiled
def list_nonzero(vector: FloatArray, out: IntArray) -> int:
    """Write the positions of the non-zeros among the first BAND entries of ``vector`` to ``out``; return their number. (numba takes four
    times as long to compile NumPy's function for this.)
    """
    count = 0
    for k in range(min(vector.size, BAND)):
        if vector[k] != 0.0:
            out[count] = k
            count += 1
    return count


@compiled
def sum_forms(values: Array, n: int, bands: IntArray, chosen: IntArray, betas: FloatArray, out: FloatArray) -> None:
    """Add beta' R beta of the raw matrices R to ``out`` (len(chosen), len(betas)), reading only rows where beta is not zero."""
    total, support = np.empty(n), np.empty(BAND, np.int64)
    for q in range(chosen.size):
        entries = values[chosen[q]]
        for band in range(len(bands)):
            first, at, stride = band * BAND, bands[band, 0], bands[band, 1]
            for m in range(len(betas)):
                beta = betas[m, first:]
                count = list_nonzero(beta, support)
                if count:
                    part = total[: beta.size]
                    part[:] = 0.0
                    add_rows_at(part, entries, at, stride, support[:count], beta)
                    out[q, m] = _add_tiles(out[q, m], part, beta)


@compiled
def _add_tiles(total: float, part: FloatArray, beta: FloatArray) -> float:
    """Return ``total + part @ beta``, tile by tile. Tiles after the first count twice because they also represent their mirror images."""
    for lo in range(0, beta.size, BAND):
        tile = _tile_product(part, beta, lo)
        total += tile if lo == 0 else 2.0 * tile
    return total


@compiled(inline=True)
def _tile_product(part: FloatArray, beta: FloatArray, lo: int) -> float:
    total = 0.0
    for k in range(lo, min(lo + BAND, beta.size)):
        total += part[k] * beta[k]
    return total


@compiled
def sum_tiles(block: Array, on_diagonal: bool, left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Write the contribution of each tile of a C-ordered block (k, rows, columns) to the quadratic forms, bit-identical to `sum_forms`.

    ``left`` (m, rows) and ``right`` (m, columns) are the vectors at the rows and columns of the block; ``out`` is (k, m, row tiles, column
    tiles). Edges of the block must be multiples of BAND, except at the ends of the matrix.
    """
    height, width = block.shape[1:]
    total, support = np.empty(width), np.empty(BAND, np.int64)
    for q in range(block.shape[0]):
        entries = block[q].reshape(height * width)
        for band in range(out.shape[2]):
            top = band * BAND
            first = top if on_diagonal else 0
            for m in range(len(left)):
                count = list_nonzero(left[m, top:], support)
                if count:
                    part = total[: width - first]
                    part[:] = 0.0
                    add_rows_at(part, entries, top * width + first, width, support[:count], left[m, top : top + BAND])
                    for lo in range(0, part.size, BAND):
                        twice = lo > 0 or not on_diagonal
                        out[q, m, band, (first + lo) // BAND] = _tile_product(part, right[m, first:], lo) * (2.0 if twice else 1.0)


@compiled
def combine_block(block: Array, used: IntArray, weights: FloatArray, out: FloatArray) -> None:
    """Add ``sum_q weights[q] * K[used[q]]`` to ``out`` (rows * columns), bit-identical to `combine_bands`."""
    step = 4096
    flat = block.reshape((block.shape[0], block.shape[1] * block.shape[2]))
    for at in range(0, out.size, step):
        _add_kernels(out[at : at + step], 1, flat, at, step, used, weights)


@compiled
def weight_entries(
    flat: Array, at: int, stride: int, first: int, rows: IntArray, weights: FloatArray, on_diagonal: bool, out: FloatArray
) -> None:
    """Write the contribution of each tile of a band to ``sum_ij K_q[i, j] weights[i, j]`` of symmetric matrices; ``out`` is (kernels,
    column tiles).

    Entry (r, c) of the band of kernel q is flat[q, at + r * stride + first + c]. weights[s, c] belongs to row rows[s]; other rows have no
    weight. Each column of a tile is summed over its rows, then these sums are added; the bits of the result depend only on the tile. In a
    band on the diagonal, all tiles but the first also represent their mirror images.
    """
    width = weights.shape[1]
    part = np.empty(BAND)
    for lo in range(0, width, BAND):
        size = min(BAND, width - lo)
        twice = 2.0 if lo > 0 or not on_diagonal else 1.0
        for q in range(flat.shape[0]):
            part[:size] = 0.0
            for s in range(rows.size):
                start = at + rows[s] * stride + first + lo
                entries, shares = flat[q, start : start + size], weights[s, lo : lo + size]
                for k in range(size):
                    part[k] += np.float64(entries[k]) * shares[k]
            total = 0.0
            for k in range(size):
                total += part[k]
            out[q, (first + lo) // BAND] = twice * total
