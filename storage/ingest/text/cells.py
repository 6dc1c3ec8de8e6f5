"""Conversion of many cells of text to numbers at a time: pyarrow converts them, and compiled code checks how they are written."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import Chunk, chunk_of_arrow
from ...encoding.record import EXACT_INTEGERS, MISSING_WORDS
from ...errors import Foreign
from .._jit import compile_kernel

_BLANK, _ZERO, _NINE = ord(" "), ord("0"), ord("9")
_PLUS, _MINUS = ord("+"), ord("-")

SHORT_ROWS = 1024  # Rows up to which the calls for a column take longer than copying its cells.


def plain_cells(column: Foreign, missing_words: Sequence[str], is_comma: bool) -> Foreign:
    """Return part of a column of texts. Words for a missing value become empty, and decimal commas become points."""
    import pyarrow as pa

    compute = _compute()
    if missing_words:
        column = compute.if_else(compute.is_in(column, value_set=pa.array(missing_words)), "", column)
    if is_comma:
        is_number = compute.match_substring_regex(column, r"^\s*[+-]?([0-9]+,[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?\s*$")
        column = compute.if_else(is_number, compute.replace_substring(column, ",", "."), column)
    return column


def chunks_of_cells(columns: Sequence[Foreign]) -> list[Chunk]:
    """Return parts of columns of texts as `chunk_of_cells` does. Short columns that contain only numerals are converted together."""
    import pyarrow as pa

    if len(columns) > 1 and len(columns[0]) <= SHORT_ROWS:
        values = _numbers(pa.concat_arrays(columns))
        if values is not None:
            return list(values.reshape(len(columns), -1))
    return [chunk_of_cells(column) for column in columns]


def chunk_of_cells(column: Foreign) -> Chunk:
    """Return part of a column of texts, most of which are numerals, as numbers with NaN for missing values.

    If a cell is not a number, is an integer beyond 2^53 or has leading zeros, the part is returned as words with codes, so that the cell is
    examined individually.
    """
    values = _numbers(column)
    return chunk_of_arrow(column) if values is None else values


def _numbers(column: Foreign) -> npt.NDArray[np.float64] | None:
    """Return numerals as numbers, NaN if missing. Return None if a cell is a word or may be a name."""
    import pyarrow as pa

    compute = _compute()
    try:
        values = compute.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        bare = compute.utf8_trim_whitespace(column)
        gone = compute.is_in(compute.utf8_lower(bare), value_set=pa.array(sorted(MISSING_WORDS)))
        try:
            values = compute.cast(compute.if_else(gone, None, bare), pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
    _, ends, letters = column.buffers()
    if not len(column) or letters is None:
        return values
    ends = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    return None if _is_odd(np.frombuffer(letters, np.uint8), ends, values) else values


@cache  # (an import takes as long as a short column)
def _compute() -> Foreign:
    from pyarrow import compute

    return compute


@compile_kernel
def _is_odd(letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> bool:
    """Return whether a numeral has a meaningless leading zero (007), or is an integer that float64 may not represent.

    Cell i is ``letters[ends[i] : ends[i + 1]]`` with the value ``values[i]``.
    """
    last = np.uint64(letters.size - 1)
    for i in range(values.size):
        p, end = np.uint64(ends[i]), np.uint64(ends[i + 1])
        while p < end and letters[p] <= _BLANK:
            p += _1
        # Without branches: signs, and zeros in front of the point, come and go.
        letter = letters[min(p, last)]
        p += np.uint64((letter == _MINUS) | (letter == _PLUS))
        follows = letters[min(p + _1, last)]
        if (letters[min(p, last)] == _ZERO) & (follows >= _ZERO) & (follows <= _NINE) & (p + _1 < end):
            return True
        if abs(values[i]) >= EXACT_INTEGERS:  # the next integer reads as 2^53 too
            while p < end and _ZERO <= letters[p] <= _NINE:
                p += _1
            while p < end and letters[p] <= _BLANK:
                p += _1
            if p == end:
                return True
    return False


# Decimal text to the nearest float64, compiled.
#
# Clinger's exact product for short numbers, else the 128-bit product of D. Lemire, "Number parsing at a gigabyte per second"
# (Software: Practice and Experience 51, 2021), which rounds correctly for every mantissa of at most 19 digits (N. Mushtak and D. Lemire,
# "Fast number parsing without fallback", 2023).

_Q_MIN, _Q_MAX = -342, 308


def _powers_of_five() -> npt.NDArray[np.uint64]:
    """Return, for each q, the high and low words of 5^q scaled into [2^127, 2^128): rounded up for -27 <= q < 0, else truncated."""
    table = np.empty((_Q_MAX - _Q_MIN + 1, 2), dtype=np.uint64)
    for row, q in enumerate(range(_Q_MIN, _Q_MAX + 1)):
        table[row] = divmod(_scaled_power(q), 1 << 64)
    return table


def _scaled_power(q: int) -> int:
    power = 5 ** abs(q)
    bits = power.bit_length()
    if q >= 0:
        return (power << 128) >> bits
    return (1 << (bits + 127)) // power + (q >= -27)


_POWERS = _powers_of_five()
_TENS = np.array([10.0**k for k in range(23)])

_0, _1, _3, _32 = np.uint64(0), np.uint64(1), np.uint64(3), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MASK9 = np.uint64(0x1FF)
_CLINGER = np.uint64(1 << 53)


@compile_kernel
def _wide_product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return the high and low word of a * b."""
    a1, a0, b1, b0 = a >> _32, a & _LOW, b >> _32, b & _LOW
    low, mid = a0 * b0, a1 * b0
    mid2 = a0 * b1 + (low >> _32) + (mid & _LOW)
    return a1 * b1 + (mid >> _32) + (mid2 >> _32), (mid2 << _32) | (low & _LOW)


@compile_kernel
def _leading_zeros(w: np.uint64) -> int:
    n = 0
    for step in (32, 16, 8, 4, 2, 1):
        if (w >> np.uint64(64 - step)) == _0:
            w = w << np.uint64(step)
            n += step
    return n


@compile_kernel
def _round_product(w: np.uint64, q: int) -> float:
    """Return the float64 nearest to w * 10^q for w != 0 (Lemire's algorithm)."""
    if q < _Q_MIN:
        return 0.0
    if q > _Q_MAX:
        return math.inf
    lead = _leading_zeros(w)
    w = w << np.uint64(lead)
    high, low = _wide_product(w, _POWERS[q - _Q_MIN, 0])
    if (high & _MASK9) == _MASK9:
        more, _ = _wide_product(w, _POWERS[q - _Q_MIN, 1])
        low = low + more
        if more > low:
            high = high + _1
    upper: Any = np.int64(high >> np.uint64(63))
    shift = np.uint64(upper + 9)
    mantissa = high >> shift
    exponent = ((217706 * q) >> 16) + 63 + upper - lead + 1023
    if exponent <= 0:
        if exponent < -62:
            return 0.0
        mantissa = mantissa >> np.uint64(1 - exponent)
        return math.ldexp(float((mantissa + (mantissa & _1)) >> _1), -1074)
    tie = low <= _1 and -4 <= q <= 23 and (mantissa & _3) == _1 and (mantissa << shift) == high
    if tie:
        mantissa = mantissa - _1
    mantissa = (mantissa + (mantissa & _1)) >> _1
    if exponent > 2047:
        return math.inf
    return math.ldexp(float(mantissa), exponent - 1075)


@compile_kernel
def to_double(w: np.uint64, q: int) -> float:
    """Return the float64 nearest to ``w * 10^q``; infinity above the largest float64. w is an integer of at most 19 decimal digits."""
    if w == _0:
        return 0.0
    if w <= _CLINGER and -22 <= q <= 22:
        # Both factors are exact, so the one rounding is the right one.
        return float(w) / _TENS[-q] if q < 0 else float(w) * _TENS[q]
    return _round_product(w, q)
