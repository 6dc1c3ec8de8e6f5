"""Compiled products K_q beta over Gram matrices in memory and over block pairs, to the same bits.

A tile of 128 columns adds the sum of its entries to a row, and a band of 128 rows, by symmetry, the sum of its rows to a column. Both are
rounded to multiples of one unit before they are added. Sums of multiples below 2^53 units are exact in float64, so neither the order nor
the grouping of tiles matters (in the manner of Demmel and Nguyen, "Fast reproducible floating-point summation", 2013).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .loops import BAND

Mask = NDArray[np.bool_]

UNIT_BITS = 50  # The unit is 2^-UNITS of the least power of two not below max_i K_ii ||beta||_1, which bounds every product.
ROUNDING_SHIFT = 1.5 * 2.0**52  # Adding and subtracting SHIFT units rounds to a multiple of the unit.


def product_units(tops: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the units of the products, ``(k, m)``, for greatest diagonal entries ``tops`` ``(k,)`` and ``vectors`` ``(m, n)``."""
    bound = np.outer(tops, np.abs(vectors).sum(axis=1))
    return np.where(bound > 0, 2.0 ** (np.ceil(np.log2(np.where(bound > 0, bound, 1.0))) - UNIT_BITS), 1.0)


@compiled(reassociate=True)
def _four_products(a: Array, b: Array, c: Array, d: Array, beta: FloatArray) -> tuple[float, float, float, float]:
    """Return the inner products of four rows with beta; nothing is stored, so the loop has one form only."""
    e = f = g = h = 0.0
    for k in range(beta.size):
        x = beta[k]
        e += np.float64(a[k]) * x
        f += np.float64(b[k]) * x
        g += np.float64(c[k]) * x
        h += np.float64(d[k]) * x
    return e, f, g, h


@compiled
def _add_four_rows(out: FloatArray, a: Array, b: Array, c: Array, d: Array, p: float, q: float, r: float, s: float) -> None:
    for k in range(out.size):
        out[k] += (p * np.float64(a[k]) + q * np.float64(b[k])) + (r * np.float64(c[k]) + s * np.float64(d[k]))


@compiled
def add_band(
    entries: Array, stride: int, on_diagonal: bool, read: IntArray, left: FloatArray, right: FloatArray, unit: float, part: FloatArray,
    to_rows: FloatArray, to_cols: FloatArray,
) -> None:  # fmt: skip
    """Add the share of a band of rows in K beta to its rows and to its columns. Row r of the band begins at entries[r * stride]; the first
    tile of a band on the diagonal is the square there. The rows to ``read`` are ascending; the last one, with weight zero, fills their
    number up to a multiple of four. ``left`` and ``right`` are beta of the rows and of the columns, ``part`` is work space for one number a
    column.
    """
    width, big = right.size, ROUNDING_SHIFT * unit
    part[:width] = 0.0
    for at in range(0, read.size, 4):
        last = read.size - 1
        i, j, k, h = read[at], read[min(at + 1, last)], read[min(at + 2, last)], read[min(at + 3, last)]
        p, q = float(left[i]), float(left[j]) if at + 1 <= last else 0.0
        r, s = float(left[k]) if at + 2 <= last else 0.0, float(left[h]) if at + 3 <= last else 0.0
        a, b = entries[i * stride : i * stride + width], entries[j * stride : j * stride + width]
        c, d = entries[k * stride : k * stride + width], entries[h * stride : h * stride + width]
        mirrored = p != 0.0 or q != 0.0 or r != 0.0 or s != 0.0
        for lo in range(0, width, BAND):
            hi = min(lo + BAND, width)
            e, f, g, t = _four_products(a[lo:hi], b[lo:hi], c[lo:hi], d[lo:hi], right[lo:hi])
            to_rows[i] += (e + big) - big
            if at + 1 <= last:
                to_rows[j] += (f + big) - big
            if at + 2 <= last:
                to_rows[k] += (g + big) - big
            if at + 3 <= last:
                to_rows[h] += (t + big) - big
            if mirrored and (lo > 0 or not on_diagonal):
                _add_four_rows(part[lo:hi], a[lo:hi], b[lo:hi], c[lo:hi], d[lo:hi], p, q, r, s)
    for column in range(BAND if on_diagonal else 0, width):
        to_cols[column] += (part[column] + big) - big


@compiled
def _list_rows(beta: FloatArray, wanted: Mask, out: IntArray) -> int:
    """Write the rows of a band that have a weight or are wanted, and return how many."""
    count = 0
    for k in range(beta.size):
        if beta[k] != 0.0 or wanted[k]:
            out[count] = k
            count += 1
    return count


@compiled
def bank_products(
    values: Array, n: int, bands: IntArray, chosen: IntArray, betas: FloatArray, wanted: Mask, units: FloatArray, out: FloatArray
) -> None:
    """Add R_q beta to out (len(chosen), m, n) at the wanted rows (m, n); the other rows of out mean nothing."""
    part, rows = np.empty(n), np.empty(BAND, np.int64)
    for q in range(chosen.size):
        for band in range(len(bands)):
            first, at, stride = band * BAND, bands[band, 0], bands[band, 1]
            for m in range(len(betas)):
                left = betas[m, first : first + BAND]
                count = _list_rows(left, wanted[m, first : first + BAND], rows)
                if count:
                    into = out[q, m, first:]
                    add_band(values[chosen[q], at:], stride, n > 0, rows[:count], left, betas[m, first:], units[q, m], part, into, into)


@compiled
def block_products(
    block: Array, on_diagonal: bool, left: FloatArray, right: FloatArray, wanted: Mask, units: FloatArray, to_rows: FloatArray,
    to_cols: FloatArray,
) -> None:  # fmt: skip
    """Add the share of a block (k, rows, columns) in R_q beta to its rows (k, m, rows) and columns (k, m, columns)."""
    k, height, width = block.shape
    part, listed = np.empty(width), np.empty(BAND, np.int64)
    for q in range(k):
        flat = block[q].reshape(height * width)
        for top in range(0, height, BAND):
            rows = min(BAND, height - top)
            first = top if on_diagonal else 0
            for m in range(len(left)):
                beta = left[m, top : top + rows]
                count = _list_rows(beta, wanted[m, top : top + rows], listed)
                if count:
                    start = top * width + first
                    add_band(
                        flat[start:], width, on_diagonal, listed[:count], beta, right[m, first:], units[q, m], part,
                        to_rows[q, m, top:], to_cols[q, m, first:],
                    )  # fmt: skip
