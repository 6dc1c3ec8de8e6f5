"""Matrices that were handed over: looked at in one pass over them, in their own type, and packed in the same pass where they must be.

Numbers are compared as bit patterns first: integers are compared several at a time without a thought of NaN, a matrix that equals its
mirror image to the bit is symmetric, and the greatest pattern without a sign is the greatest magnitude, above that of infinity if one is
not a number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .bank_loops import BAND, count_packed
from .jit import compiled

FloatArray = NDArray[np.float64]

SIDE = 64
"""Rows and columns of a tile, which is read beside its mirror image."""

SMALL, CELL = 32, 8
"""The same of a tile of bit patterns, and of its parts that are turned in registers."""


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
        ``(count_packed(n),)`` as in :class:`.bank.PackedBank`, overwritten; nothing is written by default.
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
    """Return what a matrix tells that is its own mirror image, bit for bit; ``None`` of any other."""
    kind: Any = np.int32 if rows.dtype == np.float32 else np.int64
    bits, (whole, edge) = rows.view(kind), divmod(len(rows), SMALL)
    sign = kind(np.iinfo(kind).max)
    top, differ = _patterns(bits, sign, whole * SMALL, np.empty(SMALL * SMALL, kind))
    if edge:
        beside, other = _edge_patterns(bits, sign, whole * SMALL)
        top, differ = max(top, beside), differ | other
    greatest = float(np.array(top, kind).view(rows.dtype))
    return None if differ else Entries(greatest if np.isfinite(greatest) else np.nan, 0.0)


def _compared(rows: NDArray[Any], mirrored: bool, out: NDArray[np.float32]) -> Entries:
    greatest, asymmetry = _look(rows, mirrored, out)
    return Entries(greatest, asymmetry)


@compiled
def _patterns(bits: NDArray[Any], magnitude: Any, n: int, turned: NDArray[Any]) -> tuple[Any, Any]:
    """Return the greatest pattern of the first n rows and columns without its sign, and the bits in which mirror images differ."""
    top, differ = magnitude & 0, magnitude & 0
    for first in range(0, n, SMALL):
        for left in range(first, n, SMALL):
            _turn_cells(bits, turned, first, left)
            for i in range(SMALL):
                row = bits[first + i, left : left + SMALL]
                top, differ = _met(row, turned[i * SMALL : (i + 1) * SMALL], magnitude, top, differ)
    return top, differ


@compiled
def _turn_cells(bits: NDArray[Any], turned: NDArray[Any], first: int, left: int) -> None:
    """Copy the mirror image of a tile, cell by cell: loops of known length, which need neither branches nor places one by one."""
    for across in range(0, SMALL, CELL):
        for down in range(0, SMALL, CELL):
            for i in range(CELL):
                for j in range(CELL):
                    turned[(down + i) * SMALL + across + j] = bits[left + across + j, first + down + i]


@compiled
def _met(row: NDArray[Any], image: NDArray[Any], magnitude: Any, top: Any, differ: Any) -> tuple[Any, Any]:
    for j in range(row.size):
        a = row[j]
        differ |= a ^ image[j]
        a &= magnitude
        top = a if a > top else top
    return top, differ


@compiled
def _edge_patterns(bits: NDArray[Any], magnitude: Any, start: int) -> tuple[Any, Any]:
    """Return the same of the columns from ``start`` on, which fill no tile."""
    top, differ = magnitude & 0, magnitude & 0
    for j in range(start, len(bits)):
        for i in range(j + 1):
            a = bits[j, i]
            differ |= a ^ bits[i, j]
            a &= magnitude
            top = a if a > top else top
    return top, differ


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
