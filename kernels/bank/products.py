"""Compiled products ``K_q @ beta`` over Gram matrices in memory and over block pairs, with bit-identical results.

A tile of 128 columns contributes one weighted sum to the product at each row. By symmetry, a band of 128 rows contributes one weighted sum
at each column. Both sums are rounded to multiples of one unit before they are added. Sums of multiples below 2^53 units are exact in
float64, so neither the order nor the grouping of tiles matters (in the manner of Demmel and Nguyen, "Fast reproducible floating-point
summation", 2013).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from ..svm.dual import add_rows
from .loops import BAND, combine_block, sum_tiles

Mask = NDArray[np.bool_]

UNIT_BITS = 50  # The unit is 2^-UNITS of the least power of two not below max_i K_ii ||beta||_1, which bounds every product.
ROUNDING_SHIFT = 1.5 * 2.0**52  # Adding and subtracting SHIFT units rounds to a multiple of the unit.


def product_units(tops: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the rounding units ``(k, m)`` of products with ``vectors`` ``(m, n)``; ``tops`` ``(k,)`` are the largest diagonal entries."""
    bound = np.outer(tops, np.abs(vectors).sum(axis=1))
    return 2.0 ** (np.ceil(np.log2(np.where(bound > 0, bound, 1.0))) - UNIT_BITS)


@compiled(reassociate=True)
def _four_products(a: Array, b: Array, c: Array, d: Array, beta: FloatArray) -> tuple[float, float, float, float]:
    """Return the inner products of four rows with beta. Nothing is stored, so the compiler makes only one version of the loop."""
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
    """Add the contribution of a band of rows to ``K @ beta``: to ``to_rows`` at the rows of the band, to ``to_cols`` at its columns.

    Row r of the band begins at entries[r * stride]; in a band on the diagonal the first tile is the square on the diagonal. ``read`` lists
    the rows to read, ascending. They are read four at a time; the last row, with weight zero, fills up the last group of four. ``left`` is
    beta of the rows, ``right`` beta of the columns; ``part`` is work space of one number per column.
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
    """Write to ``out`` the rows of a band that are wanted or have a non-zero beta; return their number."""
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
    """Add R_q beta to ``out`` (len(chosen), m, n) at the wanted rows (m, n); other rows of ``out`` are undefined."""
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
    """Add the contribution of a block (k, rows, columns) to ``R_q @ beta``, at its rows (k, m, rows) and columns (k, m, columns)."""
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


# Products of a symmetric matrix that lies in block pairs, one block at a time.

Span = tuple[int, int]


def add_product(block: Array, rows: Span, cols: Span, v: FloatArray, out: FloatArray) -> None:
    """Add the contribution of one block ``(rows, columns)`` of K and of its mirror image to the product ``out = K @ v``; both vectors are
    float64 ``(n,)``.
    """
    left, right = slice(*rows), slice(*cols)
    _add_dots(block, v[right], out[left])
    if rows != cols:
        add_rows(out[right], block, np.flatnonzero(v[left]), v[left])


@compiled(reassociate=True)
def _add_dots(block: Array, weights: FloatArray, out: FloatArray) -> None:
    """Add sum over k of block[r, k] weights[k] to out[r]."""
    for r in range(len(block)):
        total = 0.0
        for k in range(weights.size):
            total += np.float64(block[r, k]) * weights[k]
        out[r] += total


# Sums over Gram matrices that lie in block pairs, to the bits of :class:`~gramplane.kernels.bank.bank.PackedBank`.
#
# A block pair is an array (k, rows, columns) of k kernels over two row ranges; the upper triangle of pairs stands for the whole. Row ranges
# begin at multiples of 128. The bits depend neither on the ranges nor on the number of processes: every tile of 128 x 128 entries is summed
# by itself, and the tiles are added row by row.


class TileSums(NamedTuple):
    """Contributions of one block pair, ``rows`` by ``cols``, to quadratic forms.

    ``values``, ``(k, m, row tiles, column tiles)``, has one contribution per tile.
    """

    rows: Span
    cols: Span
    values: FloatArray


def tile_sums(block: Array, rows: Span, cols: Span, vectors: FloatArray) -> TileSums:
    """Return the contributions of a block pair ``(k, rows, columns)`` to ``beta' K_q beta`` for vectors ``(m, n)``. Zeros of the vectors
    are skipped.
    """
    left, right = (np.ascontiguousarray(vectors[:, slice(*span)]) for span in (rows, cols))
    values = np.zeros((len(block), len(vectors), *[-(-part.shape[1] // BAND) for part in (left, right)]))
    sum_tiles(np.ascontiguousarray(block), rows == cols, left, right, values)
    return TileSums(rows, cols, values)


def total_forms(parts: Iterable[TileSums]) -> FloatArray:
    """Return the quadratic forms ``(k, m)`` from the contributions of all block pairs, in any order."""
    bands: dict[tuple[int, int], FloatArray] = {}
    for part in parts:
        for band in range(part.values.shape[2]):
            bands[part.rows[0] + band * BAND, part.cols[0]] = part.values[:, :, band]
    every = np.concatenate([bands[corner] for corner in sorted(bands)], axis=2)
    # Zeros left of the diagonal change no bit; cumsum adds one by one where sum would add in pairs.
    return np.cumsum(every, axis=2)[:, :, -1]


def product_sums(
    block: Array, rows: Span, cols: Span, vectors: FloatArray, wanted: NDArray[np.bool_], units: FloatArray
) -> dict[Span, FloatArray]:
    """Return the contributions of a block pair to ``K_q @ beta`` for ``vectors`` ``(m, n)`` at the ``wanted`` rows: ``(k, m, rows)`` for
    its rows and ``(k, m, columns)`` for its columns.

    ``units`` is as in ``product_units``: contributions to the same rows add exactly, in any order.
    """
    left, right = (np.ascontiguousarray(vectors[:, slice(*span)]) for span in (rows, cols))
    to_rows, to_cols = (np.zeros((len(block), *part.shape)) for part in (left, right))
    needed = np.ascontiguousarray(wanted[:, slice(*rows)])
    block_products(np.ascontiguousarray(block), rows == cols, left, right, needed, units, to_rows, to_cols)
    return {rows: to_rows + to_cols} if rows == cols else {rows: to_rows, cols: to_cols}


def total_products(shares: Mapping[Span, FloatArray], wanted: NDArray[np.bool_]) -> FloatArray:
    """Return the products ``(k, m, n)`` from the summed contributions to each range of rows. Rows that are not wanted are zero."""
    first = next(iter(shares.values()))
    out = np.zeros((len(first), *wanted.shape))
    for span, share in shares.items():
        out[:, :, slice(*span)] = share
    out[:, ~wanted] = 0.0
    return out


def combine_kernels(block: Array, theta: FloatArray, dtype: DTypeLike | None = None) -> Array:
    """Return ``sum_q theta_q K_q`` of a block pair, by default in the block's type; kernels of weight zero are not read."""
    used = np.flatnonzero(theta)
    out = np.zeros(block.shape[1] * block.shape[2])
    combine_block(np.ascontiguousarray(block), used, np.ascontiguousarray(theta[used], np.float64), out)
    return out.reshape(block.shape[1:]).astype(block.dtype if dtype is None else dtype, copy=False)
