"""Quadratic forms of a Gaussian kernel of one variable by cosine sums: O(n K) with K about 15, instead of n^2 / 2 exponentials.

With z = x / (sqrt(2) sigma) the kernel is exp(-(z - z')^2). Summing its copies at all multiples of a period P (Poisson's formula),

    sum_j exp(-(t + j P)^2) = sum_k w_k cos(k w t),   w = 2 pi / P,   w_0 = sqrt(pi) / P,   w_k = 2 w_0 exp(-(k w)^2 / 4),

all terms positive, so  sum_ij s_i s_j K_ij = sum_k w_k |sum_i s_i e^(i k w z_i)|^2  up to two errors, both bounded for every pair. Let r
be the range of z, P = r + sqrt(l) and K >= 2 sqrt(l) / w. The copies add at most 2.1 e^-l, because |t| <= r leaves the nearest one at
P - r = sqrt(l). The terms beyond K are at most erfc(K w / 2) <= e^-l. So l = log(4 / eps) gives |error| <= eps per pair.

Where r is long, sorted points are cut into blocks at least sqrt(l) long: blocks that are not neighbours do not see each other (e^-l), and
neighbours are summed together, which counts a pair of one block at most three times with sign: l = log(12 / eps). K then is bounded.
"""

from __future__ import annotations

import math

from ..arrays import Array
from ..jit import compiled

MAX_UNSORTED_RANGE = 32.0  # Ranges of z above which sorting and cutting into blocks costs less than the terms it saves.
WORK_ROWS = 5  # Rows of work space.


@compiled(reassociate=True)
def start_waves(z: Array, middle: float, rate: float, twice: Array, c_old: Array, s_old: Array, c: Array, s: Array) -> None:
    """Fill the recursions of cos(k t), sin(k t), t = rate (z - middle) in [-pi, pi]: k = -1 in the old arrays, k = 0 in the others."""
    for i in range(z.size):
        h = 0.5 * rate * (z[i] - middle)
        q = h * h
        # Taylor series of sin h and cos h, |h| <= pi / 2: remainders below 3e-16 and 2e-17.
        a = -1.0 / 121645100408832000.0
        a = 1.0 / 355687428096000.0 + q * a
        a = -1.0 / 1307674368000.0 + q * a
        a = 1.0 / 6227020800.0 + q * a
        a = -1.0 / 39916800.0 + q * a
        a = 1.0 / 362880.0 + q * a
        a = -1.0 / 5040.0 + q * a
        a = 1.0 / 120.0 + q * a
        a = -1.0 / 6.0 + q * a
        sine = h + h * q * a
        b = 1.0 / 2432902008176640000.0
        b = -1.0 / 6402373705728000.0 + q * b
        b = 1.0 / 20922789888000.0 + q * b
        b = -1.0 / 87178291200.0 + q * b
        b = 1.0 / 479001600.0 + q * b
        b = -1.0 / 3628800.0 + q * b
        b = 1.0 / 40320.0 + q * b
        b = -1.0 / 720.0 + q * b
        b = 1.0 / 24.0 + q * b
        b = -0.5 + q * b
        cosine = 1.0 + q * b
        whole = 1.0 - 2.0 * sine * sine
        twice[i] = 2.0 * whole
        c_old[i] = whole
        s_old[i] = -2.0 * sine * cosine
        c[i] = 1.0
        s[i] = 0.0


@compiled(reassociate=True)
def _add_two_terms(twice: Array, old: Array, new: Array, s: Array, c: Array) -> tuple[float, float, float, float]:
    """Advance f_(k+1) = 2 cos(t) f_k - f_(k-1) twice; return sum s f and sum c f of both."""
    form, mass, form_2, mass_2 = 0.0, 0.0, 0.0, 0.0
    for i in range(twice.size):
        first = twice[i] * new[i] - old[i]
        second = twice[i] * first - new[i]
        old[i] = first
        new[i] = second
    for i in range(twice.size):
        form += s[i] * old[i]
        mass += c[i] * old[i]
        form_2 += s[i] * new[i]
        mass_2 += c[i] * new[i]
    return form, mass, form_2, mass_2


@compiled
def _sum_segment(z: Array, s: Array, c: Array, length: float, work: Array) -> tuple[float, float]:
    """Return sum s s' K and sum c c' K over all pairs of points."""
    n = z.size
    total, count = 0.0, 0.0
    low, high = z[0], z[0]
    for i in range(n):
        total += s[i]
        count += c[i]
        low = min(low, z[i])
        high = max(high, z[i])
    if low == high:
        return total * total, count * count
    root = math.sqrt(length)
    rate = 2.0 * math.pi / (high - low + root)
    weight = math.sqrt(math.pi) / (high - low + root)
    form, mass = weight * total * total, weight * count * count
    twice, c_old, s_old, c_new, s_new = work[0, :n], work[1, :n], work[2, :n], work[3, :n], work[4, :n]
    start_waves(z, 0.5 * (low + high), rate, twice, c_old, s_old, c_new, s_new)
    for k in range(1, math.ceil(2.0 * root / rate) + 1, 2):
        a, b, a_2, b_2 = _add_two_terms(twice, c_old, c_new, s, c)
        e, f, e_2, f_2 = _add_two_terms(twice, s_old, s_new, s, c)
        first, second = 2.0 * weight * math.exp(-0.25 * (k * rate) ** 2), 2.0 * weight * math.exp(-0.25 * ((k + 1) * rate) ** 2)
        form += first * (a * a + e * e) + second * (a_2 * a_2 + e_2 * e_2)
        mass += first * (b * b + f * f) + second * (b_2 * b_2 + f_2 * f_2)
    return form, mass


@compiled
def _sum_blocks(z: Array, s: Array, c: Array, length: float, work: Array) -> tuple[float, float]:
    """Return the sums of :func:`_sum_segment` for ascending points over a long range, block by block."""
    n, root = z.size, math.sqrt(length)
    form, mass = 0.0, 0.0
    last, lo = 0, 0
    while lo < n:
        hi = lo + 1
        while hi < n and z[hi] < z[lo] + root:
            hi += 1
        joins_last = 1.0 if lo > 0 and z[lo] - z[lo - 1] < root else 0.0
        joins_next = 1.0 if hi < n and z[hi] - z[hi - 1] < root else 0.0
        # A block counts once together with each neighbour, and by itself once minus these times.
        begins = (last, lo)
        times = (joins_last, 1.0 - joins_last - joins_next)
        for part in range(2):
            if times[part] != 0.0:
                first = begins[part]
                f, g = _sum_segment(z[first:hi], s[first:hi], c[first:hi], length, work)
                form += times[part] * f
                mass += times[part] * g
        last, lo = lo, hi
    return form, mass


@compiled
def gaussian_forms(z: Array, s: Array, c: Array, eps: float, work: Array) -> tuple[float, float]:
    """Return ``sum_ij s_i s_j K_ij`` and ``sum_ij c_i c_j K_ij`` of K_ij = exp(-(z_i - z_j)^2), each K_ij to within eps. The points z,
    ``(n,)``, may have any order if their range is at most LONG, else they ascend. The bound ``eps`` comes on top of rounding (about 1e-14).
    ``work`` is ``(WORK, >= n)``.
    """
    low, high = z[0], z[0]
    for i in range(z.size):
        low = min(low, z[i])
        high = max(high, z[i])
    if high - low <= MAX_UNSORTED_RANGE:
        return _sum_segment(z, s, c, math.log(4.0 / eps), work)
    return _sum_blocks(z, s, c, math.log(12.0 / eps), work)
