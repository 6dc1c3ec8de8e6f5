"""Check the caller's matrices in one pass in their own type, and pack them in the same pass if necessary.

A single-precision matrix that needs no packing is read row by row, three times as fast as tiles with their mirror images. Its symmetry is
checked by checksums: each row to the right of the square on the diagonal, and each column below it, is summed as 32-bit patterns with one
odd random weight per entry, modulo 2^64. If the checksums differ, a second pass by tiles measures the asymmetry. A row and a column with
different entries have equal checksums with a probability of at most 2^-31, and never if they differ in a single entry. The squares on the
diagonal are compared entry by entry instead, because both of their triangles are read in computations.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..jit import compiled
from .loops import BAND, count_packed

TILE_SIDE = 64  # Rows and columns of a tile, which is read together with its mirror image.


class MatrixFigures(NamedTuple):
    """Largest magnitude of the entries of a matrix (NaN if one is not finite) and their largest asymmetry."""

    greatest: float
    asymmetry: float


def inspect_matrix(matrix: Array, packed: NDArray[np.float32] | None = None) -> MatrixFigures:
    """Return the largest magnitude and asymmetry of a square matrix in one pass, optionally writing its packed upper triangle.

    A C- or Fortran-ordered float32 or float64 matrix is not copied. The array ``packed``, ``(count_packed(n),)``, receives the triangle.
    """
    entries = matrix if matrix.dtype in (np.float32, np.float64) else matrix.astype(np.float64)
    mirrored = not entries.flags.c_contiguous and entries.flags.f_contiguous
    rows = (entries.T if mirrored else np.ascontiguousarray(entries)).view()
    rows.flags.writeable = False
    if packed is None:
        return _compare_checksums(rows) or MatrixFigures(*_compare_tiles(rows, mirrored, np.empty(0, np.float32)))
    if len(packed) != count_packed(len(rows)):
        raise ValueError(f"packed: {len(packed)} entries, must be {count_packed(len(rows))} for n={len(rows)}")
    return MatrixFigures(*_compare_tiles(rows, mirrored, packed))


def _compare_checksums(rows: Array) -> MatrixFigures | None:
    """Return the largest entry and asymmetry of a float32 matrix that is symmetric by its checksums, or ``None`` for any other."""
    if rows.dtype != np.float32:
        return None
    right, below = np.zeros((2, len(rows)), np.uint64)
    top, differ = _checksums(rows.view(np.int32), _checksum_weights(len(rows)), right, below)
    greatest = float(np.array(top, np.int32).view(np.float32))
    return None if differ or (right != below).any() else MatrixFigures(greatest if np.isfinite(greatest) else np.nan, 0.0)


@lru_cache(maxsize=4)
def _checksum_weights(n: int) -> NDArray[np.uint32]:
    return np.random.default_rng(0).integers(0, 1 << 31, n, np.uint32) * np.uint32(2) + np.uint32(1)


@compiled
def _checksums(bits: Array, weights: Array, right: Array, below: Array) -> tuple[Any, Any]:
    """Add two kinds of checksums: to ``right``, those of the rows to the right of the squares on the diagonal; to ``below``, those of the
    columns below the squares.

    Return two bit patterns:

    * The largest pattern of an entry without its sign; it is above the pattern of infinity if an entry is NaN.
    * The bits in which any entry of the squares differs from its mirror image; 0 if the squares are symmetric.
    """
    n, top, differ = len(bits), np.int32(0), np.int32(0)
    for first in range(0, n, BAND):
        last = min(first + BAND, n)
        # In one loop together, compilers do not vectorise them.
        for i in range(first, last):
            top = _greatest_pattern(bits[i], top)
        for i in range(first, last):
            right[i] = _row_checksum(bits[i, last:], weights[last:])
        for i in range(first, last, 4):
            # The last row stands in for those that would make a multiple of four, with weight zero.
            j, k, h = min(i + 1, last - 1), min(i + 2, last - 1), min(i + 3, last - 1)
            q, r, s = weights[j] * (j == i + 1), weights[k] * (k == i + 2), weights[h] * (h == i + 3)
            _add_patterns(below[:first], bits[i], bits[j], bits[k], bits[h], weights[i], q, r, s)
        for j in range(first, last):
            for i in range(first, j):
                differ |= bits[j, i] ^ bits[i, j]
    return top, differ


@compiled
def _add_patterns(out: Array, a: Array, b: Array, c: Array, d: Array, p: np.uint32, q: np.uint32, r: np.uint32, s: np.uint32) -> None:
    # Products of 32-bit numbers widened here take one instruction, those of wider numbers many.
    x, y, z, w = np.uint64(np.uint32(p)), np.uint64(np.uint32(q)), np.uint64(np.uint32(r)), np.uint64(np.uint32(s))
    for k in range(out.size):
        left = x * np.uint64(np.uint32(a[k])) + y * np.uint64(np.uint32(b[k]))
        out[k] += left + (z * np.uint64(np.uint32(c[k])) + w * np.uint64(np.uint32(d[k])))


@compiled
def _row_checksum(row: Array, weights: Array) -> np.uint64:
    total = np.uint64(0)
    for k in range(row.size):
        total += np.uint64(weights[k]) * np.uint64(np.uint32(row[k]))
    return total


@compiled
def _greatest_pattern(row: Array, top: np.int32) -> np.int32:
    for k in range(row.size):
        pattern = row[k] & np.int32(0x7FFFFFFF)
        top = pattern if pattern > top else top
    return top


@compiled
def _compare_tiles(matrix: Array, mirrored: bool, out: NDArray[np.float32]) -> tuple[float, float]:
    """Return the largest magnitude and asymmetry. If ``mirrored``, the matrix is read transposed, so its lower triangle is packed."""
    n, at, image = len(matrix), 0, np.empty((TILE_SIDE, TILE_SIDE), matrix.dtype)
    # One number per column of a tile, so that the loops over them vectorise.
    greatest, asymmetry, trouble = np.zeros(TILE_SIDE, matrix.dtype), np.zeros(TILE_SIDE, matrix.dtype), np.zeros(TILE_SIDE, matrix.dtype)
    for first in range(0, n, BAND):
        rows, width = min(BAND, n - first), n - first
        band = out[at : at + rows * width].reshape((rows, width)) if out.size else out.reshape((0, 1))
        at += rows * width
        for left in range(first, n, TILE_SIDE):
            for top in range(first, min(first + rows, left + TILE_SIDE), TILE_SIDE):
                bottom, right = min(top + TILE_SIDE, first + rows), min(left + TILE_SIDE, n)
                _transpose_tile(matrix, image, top, bottom, left, right)
                for i in range(top, bottom):
                    # Slices of one row are contiguous, which lets the loops over them vectorise.
                    _compare_rows(matrix[i, left:right], image[i - top], greatest, asymmetry, trouble)
                    if out.size:
                        begin = max(left, i)
                        line = image[i - top, begin - left : right - left] if mirrored else matrix[i, begin:right]
                        _store_row(line, band, i - first, begin - first)
    is_finite = trouble.sum() == 0.0
    return np.float64(greatest.max()) if is_finite else np.nan, np.float64(asymmetry.max())


@compiled
def _transpose_tile(matrix: Array, image: Array, top: int, bottom: int, left: int, right: int) -> None:
    for j in range(left, right):
        row = matrix[j, top:bottom]
        for i in range(row.size):
            image[i, j - left] = row[i]


@compiled
def _compare_rows(row: Array, image: Array, greatest: Array, asymmetry: Array, trouble: Array) -> None:
    """Compare one row of a tile with its mirror image, and update the largest magnitude and the largest asymmetry of each column."""
    for j in range(row.size):
        a, b = row[j], image[j]
        size, other, off = abs(a), abs(b), abs(a - b)
        size = size if size > other else other
        greatest[j] = size if size > greatest[j] else greatest[j]
        asymmetry[j] = off if off > asymmetry[j] else asymmetry[j]
        # 0 for every number, NaN for NaN and infinity.
        trouble[j] += (a - a) + (b - b)


@compiled
def _store_row(line: Array, band: NDArray[np.float32], row: int, begin: int) -> None:
    """Write part of a row into its band; copy the entries that are in the square on the diagonal to their mirror positions there."""
    into = band[row, begin : begin + line.size]
    for j in range(line.size):
        into[j] = line[j]
    for j in range(min(line.size, len(band) - begin)):
        band[begin + j, row] = into[j]
