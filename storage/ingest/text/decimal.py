"""Decimal text to the nearest float64, compiled.

Clinger's exact product for short numbers, else the 128-bit product of D. Lemire, "Number parsing at a gigabyte per second"
(Software: Practice and Experience 51, 2021), which rounds correctly for every mantissa of at most 19 digits (N. Mushtak and D. Lemire,
"Fast number parsing without fallback", 2023).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from .._jit import compile_kernel

_Q_MIN, _Q_MAX = -342, 308


def _powers_of_five() -> npt.NDArray[np.uint64]:
    """High and low words of 5^q scaled into [2^127, 2^128): rounded up for -27 <= q < 0, else truncated."""
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
    """High and low word of a * b."""
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
    """Nearest float64 of w * 10^q for w != 0 (Lemire's algorithm)."""
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
    """Nearest float64 of w * 10^q, infinity above the largest. ``w``: integer of at most 19 decimal digits; ``q``: decimal exponent."""
    if w == _0:
        return 0.0
    if w <= _CLINGER and -22 <= q <= 22:
        # Both factors are exact, so the one rounding is the right one.
        return float(w) / _TENS[-q] if q < 0 else float(w) * _TENS[q]
    return _round_product(w, q)
