"""Matrices that were handed over: looked at in one pass over them, in their own type, and packed in the same pass where they must be.

A matrix in single precision that needs no packing is read row by row, as it lies; reading every tile beside its mirror image takes three
times as long. Each row right of the square on the diagonal that it meets, and each column below, is summed as 32-bit patterns with one odd
random weight per place, modulo 2^64. Sums that differ show an asymmetry, whose size the tiles then tell. Sums that agree are those of
different entries with a probability of 2^-31 at most, and never where the row and its column differ in one entry only. The squares, of
which passes read both triangles, are compared entry by entry.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from .loops import BAND, count_packed

FloatArray = NDArray[np.float64]

SIDE = 64
"""Rows and columns of a tile, which is read beside its mirror image."""


class Entries(NamedTuple):
    """What a pass tells of a matrix: its greatest magnitude (NaN where an entry is not finite) and its greatest asymmetry."""

    greatest: float
    asymmetry: float


def looked_at(matrix: NDArray[Any], packed: NDArray[np.float32] | None = None) -> Entries:
    """Return what one pass over a square matrix tells, and write its packed upper triangle beside.

    Parameters
    ----------
    matrix
        ``(n, n)``; read where it lies, if it is C- or Fortran-ordered float32 or float64.
    packed
        ``(count_packed(n),)`` as in :class:`gramplane.kernels.bank.bank.PackedBank`, overwritten; nothing is written by default.
    """
    given = matrix if matrix.dtype in (np.float32, np.float64) else matrix.astype(np.float64)
    mirrored = not given.flags.c_contiguous and given.flags.f_contiguous
    rows = (given.T if mirrored else np.ascontiguousarray(given)).view()
    rows.flags.writeable = False
    if packed is None:
        found = _equal(rows)
        return _compared(rows, mirrored, np.empty(0, np.float32)) if found is None else found
    if len(packed) != count_packed(len(rows)):
        raise ValueError(f"packed: {len(packed)} entries, must be {count_packed(len(rows))} for n={len(rows)}")
    return _compared(rows, mirrored, packed)


def _equal(rows: NDArray[Any]) -> Entries | None:
    """Return what a float32 matrix tells that is its own mirror image; ``None`` of any other."""
    if rows.dtype != np.float32:
        return None
    right, below = np.zeros((2, len(rows)), np.uint64)
    top, differ = _sums(rows.view(np.int32), _weights(len(rows)), right, below)
    greatest = float(np.array(top, np.int32).view(np.float32))
    return None if differ or (right != below).any() else Entries(greatest if np.isfinite(greatest) else np.nan, 0.0)


@lru_cache(maxsize=4)
def _weights(n: int) -> NDArray[np.uint32]:
    return np.random.default_rng(0).integers(0, 1 << 31, n, np.uint32) * np.uint32(2) + np.uint32(1)


def _compared(rows: NDArray[Any], mirrored: bool, out: NDArray[np.float32]) -> Entries:
    greatest, asymmetry = _look(rows, mirrored, out)
    return Entries(greatest, asymmetry)


@compiled
def _sums(bits: NDArray[Any], weights: NDArray[Any], right: NDArray[Any], below: NDArray[Any]) -> tuple[Any, Any]:
    """Add up rows right of the squares and columns below them; return the greatest pattern without sign, above infinity's of a NaN.

    Beside it stand the bits in which entries of the squares and their mirror images differ.
    """
    n, top, differ = len(bits), np.int32(0), np.int32(0)
    for first in range(0, n, BAND):
        last = min(first + BAND, n)
        # One loop each: compilers do not vectorise them together.
        for i in range(first, last):
            top = _top(bits[i], top)
        for i in range(first, last):
            right[i] = _row_sum(bits[i, last:], weights[last:])
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
def _add_patterns(
    out: NDArray[Any], a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], d: NDArray[Any], p: Any, q: Any, r: Any, s: Any
) -> None:
    # Products of two 32-bit numbers that are widened here are one instruction; those of wider numbers are many.
    x, y, z, w = np.uint64(np.uint32(p)), np.uint64(np.uint32(q)), np.uint64(np.uint32(r)), np.uint64(np.uint32(s))
    for k in range(out.size):
        left = x * np.uint64(np.uint32(a[k])) + y * np.uint64(np.uint32(b[k]))
        out[k] += left + (z * np.uint64(np.uint32(c[k])) + w * np.uint64(np.uint32(d[k])))


@compiled
def _row_sum(row: NDArray[Any], weights: NDArray[Any]) -> Any:
    total = np.uint64(0)
    for k in range(row.size):
        total += np.uint64(weights[k]) * np.uint64(np.uint32(row[k]))
    return total


@compiled
def _top(row: NDArray[Any], top: Any) -> Any:
    for k in range(row.size):
        pattern = row[k] & np.int32(0x7FFFFFFF)
        top = pattern if pattern > top else top
    return top


@compiled
def _look(matrix: NDArray[Any], mirrored: bool, out: NDArray[np.float32]) -> tuple[float, float]:
    """Return greatest magnitude and asymmetry; a mirrored matrix is its own transpose, whose upper triangle is what lies below."""
    n, at, turned = len(matrix), 0, np.empty((SIDE, SIDE), matrix.dtype)
    # One number per column of a tile, so that the loops over them vectorise.
    greatest, asymmetry, trouble = np.zeros(SIDE, matrix.dtype), np.zeros(SIDE, matrix.dtype), np.zeros(SIDE, matrix.dtype)
    for first in range(0, n, BAND):
        rows, width = min(BAND, n - first), n - first
        band = out[at : at + rows * width].reshape((rows, width)) if out.size else out.reshape((0, 1))
        at += rows * width
        for left in range(first, n, SIDE):
            for top in range(first, min(first + rows, left + SIDE), SIDE):
                bottom, right = min(top + SIDE, first + rows), min(left + SIDE, n)
                _turn(matrix, turned, top, bottom, left, right)
                for i in range(top, bottom):
                    # Slices of one row are contiguous, which lets the loops over them vectorise.
                    _compare(matrix[i, left:right], turned[i - top], greatest, asymmetry, trouble)
                    if out.size:
                        begin = max(left, i)
                        line = turned[i - top, begin - left : right - left] if mirrored else matrix[i, begin:right]
                        _store(line, band, i - first, begin - first)
    sound = trouble.sum() == 0.0
    return np.float64(greatest.max()) if sound else np.nan, np.float64(asymmetry.max())


@compiled
def _turn(matrix: NDArray[Any], turned: NDArray[Any], top: int, bottom: int, left: int, right: int) -> None:
    """Copy the mirror image of a tile."""
    for j in range(left, right):
        row = matrix[j, top:bottom]
        for i in range(row.size):
            turned[i, j - left] = row[i]


@compiled
def _compare(row: NDArray[Any], image: NDArray[Any], greatest: NDArray[Any], asymmetry: NDArray[Any], trouble: NDArray[Any]) -> None:
    """Take a row of a tile and its mirror image into the figures of the columns."""
    for j in range(row.size):
        a, b = row[j], image[j]
        size, other, off = abs(a), abs(b), abs(a - b)
        size = size if size > other else other
        greatest[j] = size if size > greatest[j] else greatest[j]
        asymmetry[j] = off if off > asymmetry[j] else asymmetry[j]
        # 0 of every number, not of NaN and infinity.
        trouble[j] += (a - a) + (b - b)


@compiled
def _store(line: NDArray[Any], band: NDArray[np.float32], row: int, begin: int) -> None:
    """Write a part of a row into its band, and the mirror image of what lies in the band's square."""
    into = band[row, begin : begin + line.size]
    for j in range(line.size):
        into[j] = line[j]
    for j in range(min(line.size, len(band) - begin)):
        band[begin + j, row] = into[j]
