"""Sums over Gram matrices that lie in block pairs, to the bits of :class:`~gramplane.kernels.bank.bank.PackedBank`.

A block pair is an array (k, rows, columns) of k kernels over two row ranges; the upper triangle of pairs stands for the whole. Row ranges
begin at multiples of 128. The bits depend neither on the ranges nor on the number of processes: every tile of 128 x 128 entries is summed
by itself, and the tiles are added row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..arrays import Array, FloatArray
from .loops import BAND, combine_block, sum_tiles
from .products import block_products

Span = tuple[int, int]


class TileSums(NamedTuple):
    """Shares of one block pair in quadratic forms: its ranges, and a share of every tile, ``(k, m, row tiles, column tiles)``."""

    rows: Span
    cols: Span
    values: FloatArray


def tile_sums(block: Array, rows: Span, cols: Span, vectors: FloatArray) -> TileSums:
    """Return the shares of a block pair ``(k, rows, columns)`` in ``beta' K_q beta`` of vectors ``(m, n)``, whose zeros are not read."""
    left, right = (np.ascontiguousarray(vectors[:, slice(*span)]) for span in (rows, cols))
    values = np.zeros((len(block), len(vectors), *[-(-part.shape[1] // BAND) for part in (left, right)]))
    sum_tiles(np.ascontiguousarray(block), rows == cols, left, right, values)
    return TileSums(rows, cols, values)


def total_forms(parts: Iterable[TileSums]) -> FloatArray:
    """Return ``(k, m)`` quadratic forms from the shares of all block pairs, which come in any order."""
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
    """Return the shares of a block pair in ``K_q beta`` of ``vectors`` ``(m, n)`` at the ``wanted`` rows: ``(k, m, rows)`` of its rows, and
    of its columns. ``units`` as of ``product_units``: shares of the same rows are added exactly, in any order.
    """
    left, right = (np.ascontiguousarray(vectors[:, slice(*span)]) for span in (rows, cols))
    to_rows, to_cols = (np.zeros((len(block), *part.shape)) for part in (left, right))
    needed = np.ascontiguousarray(wanted[:, slice(*rows)])
    block_products(np.ascontiguousarray(block), rows == cols, left, right, needed, units, to_rows, to_cols)
    return {rows: to_rows + to_cols} if rows == cols else {rows: to_rows, cols: to_cols}


def total_products(shares: Mapping[Span, FloatArray], wanted: NDArray[np.bool_]) -> FloatArray:
    """Return ``(k, m, n)`` products, zero at rows not wanted, from the sums of all shares of every range of rows."""
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
