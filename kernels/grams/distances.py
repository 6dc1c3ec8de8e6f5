"""Sums over features of a function of two numbers, for a tile of pairs of rows; all kernels of numbers are functions of such sums.

Each sum runs over the features in ascending order in float64, term by term. An entry therefore depends on its two rows alone, not on its
tile, and swapping the rows gives a bit-identical result. Sparse rows visit only features where at least one row is non-zero. The skipped
terms are zeros, except for the additive Gaussian, where they are ones and are counted.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Entry
from ..jit import compiled, fused

# Compiled exponentials of decaying kernels.
#
# In float64 values of gamma whose ratio is a power of two share one: the square of ``exp(-gamma D)`` is ``exp(-2 gamma D)``. So that an
# entry depends on gamma and D alone and not on the other kernels, gamma is written as ``base * 2^k``, ``base = m 2^(OCTAVE q)``, ``1/2 <= m
# < 1``, ``0 <= k < OCTAVE``: one exponential at the base, then k squarings. Each doubles the relative error, which stays below ``2^OCTAVE``
# rounding units, 3e-14. Float32 results have an exponential each, computed in float32: that takes less time than a squaring in float64 that
# is rounded. A relative error e of an argument x becomes ``x exp(-x) e <= 0.37 e``, so with two roundings of the argument (D and gamma) and
# those of the polynomial an entry is within 1e-7 of the exact one; the relative error of small entries grows as x does, to 1e-5 at 1e-36.

OCTAVE = 8  # Doublings of gamma that share one exponential in float64.
MIN_ENTRY = 1e-36  # Smaller entries become 0: they change no result, and arithmetic near the end of the range is slow.
MAX_SINGLE_GAMMA = 2.0**100
"""Gammas between 1 / MAX_SINGLE_GAMMA and MAX_SINGLE_GAMMA can be used in float32: if a distance overflows, the kernel is 0, and if it
underflows, 1.
"""

_ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to a whole number, which is then in the lowest bits.
_LOG2E = 1.4426950408889634
_ROUND_SINGLE = np.float32(1.5 * 2**23)
_LEAST_SINGLE = np.float32(_ROUND_SINGLE + math.floor(math.log2(MIN_ENTRY)))
_ZERO, _ONE = np.float32(0.0), np.float32(1.0)
_BITS = np.int32(23)

_P1, _P2, _P3, _P4, _P5, _P6 = (
    np.float32(c) for c in (0.693147203, 0.240226479, 0.0555033247, 0.00961843737, 0.00133988751, 0.000153533601)
)
"""Coefficients of ``1 + r (P1 + r (P2 + ...))``. This polynomial approximates 2^r on [-0.5, 0.5] with a relative error of at most 2e-9; the
coefficients minimise the largest relative error.
"""


@compiled(inline=True)
def decay(t: float) -> float:
    """Return exp(t) for t <= 0 with a relative error below 1e-15. For t < -700 the result is below 1e-300.

    The method is Cody and Waite's reduction, then the Taylor series to order 12 on [-0.347, 0.347]. There is no branch, so loops over it
    vectorise.
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


@compiled(inline=True)
def single_decay(distance: np.float32, rate: np.float32) -> np.float32:
    """Return ``2^(rate * distance)`` in float32 for a distance >= 0 and a rate < 0, both in float32. Results below MIN_ENTRY, and the
    result for NaN, are replaced by 0.

    As in decay, adding a large number leaves the integer part in the lowest bits and the remainder r in [-0.5, 0.5]; here r is the
    remainder of the exact product. If the product is far from 0, integer part and remainder are meaningless, and the last line replaces the
    result by 0. All operations are fused, so a vectorised loop and its scalar tail are bit-identical.
    """
    shifted = fused(distance, rate, _ROUND_SINGLE)
    r = fused(distance, rate, _ROUND_SINGLE - shifted)
    p = fused(r, _P6, _P5)
    p = fused(r, p, _P4)
    p = fused(r, p, _P3)
    p = fused(r, p, _P2)
    p = fused(r, p, _P1)
    p = fused(r, p, _ONE)
    value = np.int32(np.float32(p).view(np.int32) + (np.float32(shifted).view(np.int32) << _BITS)).view(np.float32)
    return value if shifted > _LEAST_SINGLE else _ZERO


def single_rate(gamma: float) -> float:
    """Return the rate for :func:`single_decay` that belongs to a gamma, or 0 if the gamma can be used only in float64."""
    return -gamma * _LOG2E if 1.0 / MAX_SINGLE_GAMMA <= gamma <= MAX_SINGLE_GAMMA else 0.0


@compiled
def base_kernel(distance: Array, gamma: float, strip: Array) -> None:
    """Fill the first rows of a strip with ``exp(-gamma * distance)``: row r from row r of the distances."""
    for r in range(distance.shape[0]):
        d, e = distance[r], strip[r]
        for j in range(d.size):
            v = decay(-gamma * d[j])
            e[j] = v if v > MIN_ENTRY else 0.0


@compiled
def square_strip(strip: Array, rows: int) -> None:
    """Square the first rows of a strip; tiny entries become 0."""
    for r in range(rows):
        e = strip[r]
        for j in range(e.size):
            v = e[j] * e[j]
            e[j] = v if v > MIN_ENTRY else 0.0


@compiled
def square_strip_twice(strip: Array, rows: int) -> None:
    """Square the first rows of a strip twice, in one pass."""
    for r in range(rows):
        e = strip[r]
        for j in range(e.size):
            v = e[j] * e[j]
            v = v if v > MIN_ENTRY else 0.0
            v = v * v
            e[j] = v if v > MIN_ENTRY else 0.0


class Chain(NamedTuple):
    """A plan for computing exponentials ``exp(-gamma * sum)``: a few are computed as bases, and the others by squaring a base repeatedly.
    The outputs are ordered by base, and those of a base by ascending number of squarings.

    * ``bases`` (b,), float64: the gammas of the bases.
    * ``starts`` (b + 1,): the first output of each base.
    * ``squarings`` (q,): the number of squarings from the base to each output.
    * ``gammas`` (q,): the gamma of each output.
    * ``rates`` (q,), float32: the rate of each output, from :func:`single_rate`.
    * ``slots`` (q,): the positions of the outputs.
    """

    bases: Array
    starts: Array
    squarings: Array
    gammas: Array
    rates: Array
    slots: Array


def split_gamma(gamma: float) -> tuple[float, int]:
    """Return the gamma of the base, and the number of squarings that lead from it to ``gamma``."""
    mantissa, exponent = math.frexp(gamma)
    k = exponent % OCTAVE
    return math.ldexp(mantissa, exponent - k), k


def plan_chain(gammas: list[float], slots: list[int]) -> Chain:
    """Return the plan for several gammas and their positions in the output."""
    ordered = sorted((*split_gamma(gamma), slot) for gamma, slot in zip(gammas, slots))
    bases, starts = np.unique([base for base, _, _ in ordered], return_index=True)
    squarings, places = (np.array([item[which] for item in ordered], dtype=np.int64) for which in (1, 2))
    exact = [math.ldexp(base, k) for base, k, _ in ordered]
    rates = np.array([single_rate(gamma) for gamma in exact], dtype=np.float32)
    return Chain(bases, np.append(starts, len(ordered)).astype(np.int64), squarings, np.array(exact), rates, places)


PRODUCTS, SQUARES, MANHATTAN, CHI2, MINIMA, CHI2_PRODUCTS, GAUSSIANS = range(7)
"""Terms x z; (x - z)^2; |x - z|; (x - z)^2 / (x + z); min(x, z); 2 x z / (x + z); exp(-gamma (x - z)^2)."""


Csr = tuple[Array, Array, Array]  # Values, columns and starts of sparse rows.


def dense_sums(kind: int, gamma: float, x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    """Fill the tile ``out``, from row ``top``, column ``side`` on, with the sums of all pairs.

    ``kind`` is one of the terms above; ``gamma`` is used only by the last term. ``x`` has at least ``height`` float64 rows, and ``z``,
    ``(d, w)``, holds the rows of the other side, transposed.
    """
    if kind == PRODUCTS:
        _sum_products(x, height, z, out, top, side)
    elif kind == SQUARES:
        _sum_squares(x, height, z, out, top, side)
    else:
        _sum_terms(kind, gamma, x, height, z, out, top, side)


# The usual terms in functions of their own: all seven together take three times as long to compile.


@compiled
def _sum_products(x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    for i in range(height):
        total = out[top + i, side : side + z.shape[1]]
        total[:] = 0.0
        for k in range(z.shape[0]):
            a, b = x[i, k], z[k]
            for j in range(total.size):
                total[j] += a * b[j]


@compiled
def _sum_squares(x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    for i in range(height):
        total = out[top + i, side : side + z.shape[1]]
        total[:] = 0.0
        for k in range(z.shape[0]):
            a, b = x[i, k], z[k]
            for j in range(total.size):
                t = a - b[j]
                total[j] += t * t


@compiled
def _sum_terms(kind: int, gamma: float, x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    for i in range(height):
        total = out[top + i, side : side + z.shape[1]]
        total[:] = 0.0
        width = total.size
        for k in range(z.shape[0]):
            a, b = x[i, k], z[k]
            if kind == MANHATTAN:
                for j in range(width):
                    total[j] += abs(a - b[j])
            elif kind == CHI2:
                for j in range(width):
                    s, t = a + b[j], a - b[j]
                    total[j] += t * t / (s if s > 0.0 else 1.0)
            elif kind == MINIMA:
                for j in range(width):
                    total[j] += min(a, b[j])
            elif kind == CHI2_PRODUCTS:
                for j in range(width):
                    s = a + b[j]
                    total[j] += 2.0 * (a * b[j]) / (s if s > 0.0 else 1.0)
            else:
                for j in range(width):
                    t = a - b[j]
                    total[j] += decay(-gamma * (t * t))


@compiled
def _pair_term(kind: int, gamma: float, a: Entry, b: Entry) -> float:
    """Return one term minus the term of two zeros."""
    t, s = a - b, a + b
    if kind == PRODUCTS:
        return a * b
    if kind == SQUARES:
        return t * t
    if kind == MANHATTAN:
        return abs(t)
    if kind == CHI2:
        return t * t / (s if s > 0.0 else 1.0)
    if kind == MINIMA:
        return min(a, b)
    if kind == CHI2_PRODUCTS:
        return 2.0 * (a * b) / (s if s > 0.0 else 1.0)
    return decay(-gamma * (t * t)) - 1.0


@compiled
def sparse_sums(kind: int, gamma: float, x: Csr, z: Csr, part: tuple[int, int, int, int], constant: float, out: Array) -> None:
    """Fill a tile like :func:`dense_sums` from CSR rows ``(values, columns, starts)``.

    ``part`` holds the first row and the number of rows of x and of z; ``constant`` is the sum for two rows of zeros.
    """
    x_first, z_first, height, width = part
    xv, xc, xs = x
    zv, zc, zs = z
    for i in range(height):
        first, last = xs[x_first + i], xs[x_first + i + 1]
        for j in range(width):
            p, q, end = first, zs[z_first + j], zs[z_first + j + 1]
            total = constant
            while p < last and q < end:
                if xc[p] == zc[q]:
                    total += _pair_term(kind, gamma, xv[p], zv[q])
                    p += 1
                    q += 1
                elif xc[p] < zc[q]:
                    total += _pair_term(kind, gamma, xv[p], 0.0)
                    p += 1
                else:
                    total += _pair_term(kind, gamma, 0.0, zv[q])
                    q += 1
            while p < last:
                total += _pair_term(kind, gamma, xv[p], 0.0)
                p += 1
            while q < end:
                total += _pair_term(kind, gamma, 0.0, zv[q])
                q += 1
            out[i, j] = total


@compiled(reassociate=True)
def dot_product(a: Array, b: Array) -> float:
    """Return the sum of a[k] b[k], in an order chosen by the compiler."""
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@compiled(reassociate=True)
def squared_norms(x: Array, out: Array) -> None:
    """Write ||x_i||^2 of every row of x (n, d) to out[i]."""
    for i in range(x.shape[0]):
        row, total = x[i], 0.0
        for k in range(row.size):
            total += row[k] * row[k]
        out[i] = total


@compiled
def squares_from_products(products: Array, x_norms: Array, z_norms: Array, out: Array, top: int, side: int) -> None:
    """Fill a tile, from row ``top`` and column ``side`` on, with max(0, ||x||^2 + ||z||^2 - 2 <x, z>). The lengths of the two arrays of
    norms are the numbers of rows and columns.
    """
    for i in range(x_norms.size):
        a, p, d = x_norms[i], products[i], out[top + i, side : side + z_norms.size]
        for j in range(d.size):
            d[j] = max((a + z_norms[j]) - 2.0 * p[j], 0.0)


@compiled
def mirror_upper(tile: Array, n: int) -> None:
    """Copy the upper triangle of the first n rows and columns to the lower one, in pieces that stay in the first-level cache."""
    for i in range(0, n, 16):
        for j in range(0, i + 1, 16):
            for a in range(i, min(i + 16, n)):
                to = tile[a]
                for b in range(j, min(j + 16, a)):
                    to[b] = tile[b, a]


@compiled
def transpose_tile(tile: Array, height: int, width: int, out: Array, side: int = 0) -> None:
    """Transpose the first ``height`` rows and ``width`` columns, from ``side`` on, of a tile into ``out``, in squares of 8 x 8 entries."""
    for i in range(0, height, 8):
        for j in range(0, width, 8):
            for a in range(8):
                for b in range(8):
                    out[j + b, i + a] = tile[i + a, side + j + b]
