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


def count_packed(n: int) -> int:
    """Return the packed entries of one matrix of order n."""
    whole, rest = divmod(n, BAND)
    # Bands of 128 rows and n, n - 128, ... columns, then a square of what is left.
    return BAND * (whole * n - BAND * whole * (whole - 1) // 2) + rest * rest


@compiled
def combine_bands(values: NDArray[Any], n: int, used: IndexArray, weights: FloatArray, out: NDArray[Any]) -> None:
    """Write sum over q of weights[q] times kernel used[q] to out (n, n), both triangles."""
    total = np.empty(max(n, STRIP))
    # A plain 0 would have what is called below compiled twice: for the number 0, and for any number.
    at = int(np.int64(0))
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
                to, row = out[first + start + r, first:], part[r * width : (r + 1) * width]
                # Copied as slices, they would have the texts of errors about shapes compiled.
                for k in range(width):
                    to[k] = row[k]
        mirror_band(out, first, rows)


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
def mirror_band(out: NDArray[Any], first: int, rows: int) -> None:
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
