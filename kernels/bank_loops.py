"""Compiled loops over packed Gram matrices; :class:`gramplane.kernels.bank.PackedBank` explains the layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .jit import compiled
from .solvers.dual import add_rows

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

BAND = 128
"""Rows of a band."""

STRIP = 4096
"""Entries that are combined at a time: their float64 sums stay in the first-level cache."""

FEW = 8
"""Where less than one column in so many is non-zero, its entries are gathered instead of reading the row."""


def count_packed(n: int) -> int:
    """Return the packed entries of one matrix of order n."""
    whole, rest = divmod(n, BAND)
    # Bands of 128 rows and n, n - 128, ... columns, then a square of what is left.
    return BAND * (whole * n - BAND * whole * (whole - 1) // 2) + rest * rest


@compiled
def combine_bands(values: NDArray[Any], n: int, used: IndexArray, weights: FloatArray, out: NDArray[Any]) -> None:
    """Write sum over q of weights[q] times kernel used[q] to out (n, n), both triangles."""
    total = np.empty(max(n, STRIP))
    at = 0
    for first in range(0, n, BAND):
        width = n - first
        rows = min(BAND, width)
        step = max(1, STRIP // width)
        for start in range(0, rows, step):
            taken = min(step, rows - start)
            part = total[: taken * width]
            part[:] = 0.0
            _add_kernels(part, values, at, used, weights)
            at += taken * width
            for r in range(taken):
                out[first + start + r, first:] = part[r * width : (r + 1) * width]
        _mirror(out, first, rows)


@compiled
def _add_kernels(out: FloatArray, values: NDArray[Any], at: int, used: IndexArray, weights: FloatArray) -> None:
    """Add weighted entries from position `at` on, four kernels a pass."""
    size = out.size
    whole = used.size - used.size % 4
    for at_kernel in range(0, whole, 4):
        a, b = values[used[at_kernel], at : at + size], values[used[at_kernel + 1], at : at + size]
        c, d = values[used[at_kernel + 2], at : at + size], values[used[at_kernel + 3], at : at + size]
        p, q, r, s = weights[at_kernel], weights[at_kernel + 1], weights[at_kernel + 2], weights[at_kernel + 3]
        for k in range(size):
            out[k] += (p * np.float64(a[k]) + q * np.float64(b[k])) + (r * np.float64(c[k]) + s * np.float64(d[k]))
    for at_kernel in range(whole, used.size):
        row, weight = values[used[at_kernel], at : at + size], weights[at_kernel]
        for k in range(size):
            out[k] += weight * np.float64(row[k])


@compiled
def _mirror(out: NDArray[Any], first: int, rows: int) -> None:
    """Copy the band right of its square to below it, in tiles that stay in the cache."""
    n = len(out)
    for left in range(first + rows, n, 32):
        for top in range(first, first + rows, 32):
            for j in range(left, min(left + 32, n)):
                for i in range(top, min(top + 32, first + rows)):
                    out[j, i] = out[i, j]


@compiled
def sum_forms(values: NDArray[Any], n: int, chosen: IndexArray, betas: FloatArray, out: FloatArray) -> None:
    """Add beta' R beta to out (len(chosen), len(betas)), raw matrices, reading the rows where beta is not zero."""
    total = np.empty(n)
    for q in range(chosen.size):
        at = 0
        for first in range(0, n, BAND):
            width = n - first
            rows = min(BAND, width)
            band = values[chosen[q], at : at + rows * width].reshape((rows, width))
            at += rows * width
            for m in range(len(betas)):
                beta = betas[m, first:]
                support = np.flatnonzero(beta[:rows])
                if support.size:
                    part = total[:width]
                    part[:] = 0.0
                    add_rows(part, band, support, beta)
                    out[q, m] = _add_tiles(out[q, m], part, beta)


@compiled
def _add_tiles(total: float, part: FloatArray, beta: FloatArray) -> float:
    """Return total + part'beta, one tile after the other, those right of the first twice: they stand for their mirror images too."""
    for lo in range(0, beta.size, BAND):
        tile = _tile(part, beta, lo)
        total += tile if lo == 0 else 2.0 * tile
    return total


@compiled(inline=True)
def _tile(part: FloatArray, beta: FloatArray, lo: int) -> float:
    found = 0.0
    for k in range(lo, min(lo + BAND, beta.size)):
        found += part[k] * beta[k]
    return found


@compiled
def sum_tiles(block: NDArray[Any], on_diagonal: bool, left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Write what every tile of a block (k, rows, columns) adds to the forms of `sum_forms`, to the same bits.

    left (m, rows) and right (m, columns) are the parts of the vectors, out is (k, m, row tiles, column tiles). Edges of the block are
    multiples of BAND, but for the ends of the matrix.
    """
    total = np.empty(block.shape[2])
    for q in range(block.shape[0]):
        for band in range(out.shape[2]):
            top = band * BAND
            first = top if on_diagonal else 0
            rows = block[q, top : top + BAND, first:]
            for m in range(len(left)):
                support = np.flatnonzero(left[m, top : top + BAND])
                if support.size:
                    part = total[: rows.shape[1]]
                    part[:] = 0.0
                    add_rows(part, rows, support, left[m, top : top + BAND])
                    for lo in range(0, part.size, BAND):
                        twice = lo > 0 or not on_diagonal
                        out[q, m, band, (first + lo) // BAND] = _tile(part, right[m, first:], lo) * (2.0 if twice else 1.0)


@compiled
def combine_block(block: NDArray[Any], used: IndexArray, weights: FloatArray, out: FloatArray) -> None:
    """Add sum over q of weights[q] times kernel used[q] to out (rows * columns), to the bits of `combine_bands`."""
    step = 4096
    flat = block.reshape((block.shape[0], block.shape[1] * block.shape[2]))
    for at in range(0, out.size, step):
        _add_kernels(out[at : at + step], flat, at, used, weights)


@compiled
def add_products(values: NDArray[Any], n: int, chosen: IndexArray, scale: FloatArray, beta: FloatArray, out: FloatArray) -> None:
    """Add scale[q] R_q beta to out (len(chosen), n)."""
    total = np.empty(n)
    filled = np.flatnonzero(beta)
    for q in range(chosen.size):
        total[:] = 0.0
        at = 0
        for first in range(0, n, BAND):
            width = n - first
            rows = min(BAND, width)
            columns = filled[filled >= first] - first
            if not columns.size:
                break
            band = values[chosen[q], at : at + rows * width].reshape((rows, width))
            at += rows * width
            if columns.size * FEW < width:
                _few_columns(band, columns, beta[first:], total[first:])
            else:
                _all_columns(band, beta[first:], total[first:])
        for k in range(n):
            out[q, k] += scale[q] * total[k]


@compiled
def _few_columns(band: NDArray[Any], columns: IndexArray, beta: FloatArray, out: FloatArray) -> None:
    rows, width = band.shape
    for r in range(rows):
        found = 0.0
        for c in columns:
            found += beta[c] * np.float64(band[r, c])
        out[r] += found
    for r in columns:
        if r < rows:
            row, weight = band[r], beta[r]
            for k in range(rows, width):
                out[k] += weight * np.float64(row[k])


@compiled(reassociate=True)
def _all_columns(band: NDArray[Any], beta: FloatArray, out: FloatArray) -> None:
    """Add band @ beta to the band's own rows and its mirror image times beta to those below, reading each row once."""
    rows, width = band.shape
    whole = rows - rows % 4
    for r in range(0, whole, 4):
        a, b, c, d = band[r], band[r + 1], band[r + 2], band[r + 3]
        p, q, s, t = beta[r], beta[r + 1], beta[r + 2], beta[r + 3]
        e = f = g = h = 0.0
        for k in range(rows):
            x = beta[k]
            e += np.float64(a[k]) * x
            f += np.float64(b[k]) * x
            g += np.float64(c[k]) * x
            h += np.float64(d[k]) * x
        for k in range(rows, width):
            x, i, j, m, o = beta[k], np.float64(a[k]), np.float64(b[k]), np.float64(c[k]), np.float64(d[k])
            e += i * x
            f += j * x
            g += m * x
            h += o * x
            out[k] += (p * i + q * j) + (s * m + t * o)
        out[r] += e
        out[r + 1] += f
        out[r + 2] += g
        out[r + 3] += h
    for r in range(whole, rows):
        row, weight, e = band[r], beta[r], 0.0
        for k in range(rows):
            e += np.float64(row[k]) * beta[k]
        for k in range(rows, width):
            e += np.float64(row[k]) * beta[k]
            out[k] += weight * np.float64(row[k])
        out[r] += e
