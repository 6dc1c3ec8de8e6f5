"""Compiled exponentials of decaying kernels, shared between the values of gamma that are powers of two apart.

``exp(-gamma D)`` squares into ``exp(-2 gamma D)``. So that an entry depends on gamma and D alone, whatever else is asked for, gamma is
written as ``base * 2^k``, ``base = m 2^(octave q)``, ``1/2 <= m < 1``, ``0 <= k < octave``: one exponential at the base, then k squarings.
The chain is held in float64. Each squaring doubles the relative error, so it stays below ``2^octave`` rounding units: 3e-14 for float64
results (octave 8), 8e-12 before rounding for float32 ones (octave 16).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from .jit import compiled

Array = np.ndarray

OCTAVES = {8: 8, 4: 16}
"""Doublings of gamma that share one exponential, by the bytes of a result."""

TINY = 1e-36
"""Smaller entries become 0: they change no result, and numbers near the end of the range are slow to compute with."""

_ROUND = 6755399441055744.0
"""1.5 * 2^52: adding it rounds to a whole number, which then stands in the lowest bits."""


@compiled(inline=True)
def decay(t: float) -> float:
    """Return exp(t) for t <= 0, relative error below 1e-15; below 1e-300 for t below -700.

    Cody and Waite's reduction, then the Taylor series to the order 12 on [-0.347, 0.347]. No branch, so loops over it vectorise.
    """
    u = max(t, -700.0)
    shifted = u * 1.4426950408889634 + _ROUND
    whole = shifted - _ROUND
    r = (u - whole * 0.693145751953125) - whole * 1.4286068203094172e-06
    p = 1.0 / 479001600.0
    p = 1.0 / 39916800.0 + r * p
    p = 1.0 / 3628800.0 + r * p
    p = 1.0 / 362880.0 + r * p
    p = 1.0 / 40320.0 + r * p
    p = 1.0 / 5040.0 + r * p
    p = 1.0 / 720.0 + r * p
    p = 1.0 / 120.0 + r * p
    p = 1.0 / 24.0 + r * p
    p = 1.0 / 6.0 + r * p
    p = 0.5 + r * p
    p = 1.0 + r * p
    p = 1.0 + r * p
    return np.int64(np.float64(p).view(np.int64) + (np.float64(shifted).view(np.int64) << 52)).view(np.float64)


@compiled
def base_kernel(distance: Array, gamma: float, strip: Array) -> None:
    """Fill the first rows of a strip with exp(-gamma distance), as many as there are distances."""
    for r in range(distance.shape[0]):
        d, e = distance[r], strip[r]
        for j in range(d.size):
            v = decay(-gamma * d[j])
            e[j] = v if v > TINY else 0.0


@compiled
def square(strip: Array, rows: int) -> None:
    """Square the first rows of a strip; tiny entries become 0."""
    for r in range(rows):
        e = strip[r]
        for j in range(e.size):
            v = e[j] * e[j]
            e[j] = v if v > TINY else 0.0


@compiled
def square_twice(strip: Array, rows: int) -> None:
    """As square two times, in one pass."""
    for r in range(rows):
        e = strip[r]
        for j in range(e.size):
            v = e[j] * e[j]
            v = v if v > TINY else 0.0
            v = v * v
            e[j] = v if v > TINY else 0.0


class Chain(NamedTuple):
    """What to compute, in order: from each base, its outputs by growing number of squarings.

    ``bases`` (b,) float64; ``starts`` (b + 1,) where the outputs of each base begin; ``squarings`` (q,) from the base; ``slots`` (q,)
    where each output goes.
    """

    bases: Array
    starts: Array
    squarings: Array
    slots: Array


def split(gamma: float, octave: int) -> tuple[float, int]:
    """Return base and number of squarings of a gamma."""
    mantissa, exponent = math.frexp(gamma)
    k = exponent % octave
    return math.ldexp(mantissa, exponent - k), k


def chain(gammas: list[float], slots: list[int], octave: int) -> Chain:
    """Return the plan of several gammas, each with its place in the output."""
    ordered = sorted((*split(gamma, octave), slot) for gamma, slot in zip(gammas, slots))
    bases, starts = np.unique([base for base, _, _ in ordered], return_index=True)
    squarings, places = (np.array([item[which] for item in ordered], dtype=np.int64) for which in (1, 2))
    return Chain(bases, np.append(starts, len(ordered)).astype(np.int64), squarings, places)
