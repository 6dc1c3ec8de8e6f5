"""Weighted sums of one kernel per feature, ``sum_i w_i K_i``: as matrices, and applied to vectors without a matrix.

A Gaussian kernel of one feature is a short cosine series on the range of that feature. Its matrix is a product of few columns, and a sum
over features is one symmetric product. Applied to coefficients, the series gives the value at each point in ``O(terms)``, whatever the
number of coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs
from scipy.special import erfcinv

from ..arrays import Array, IntArray
from ..jit import compiled, one_thread
from .distances import dot_product

# Quadratic forms of a Gaussian kernel of one variable by cosine sums: O(n K) with K about 15, instead of n^2 / 2 exponentials.
#
# With z = x / (sqrt(2) sigma) the kernel is exp(-(z - z')^2). Summing its copies at all multiples of a period P (Poisson's formula),
#
#     sum_j exp(-(t + j P)^2) = sum_k w_k cos(k w t),   w = 2 pi / P,   w_0 = sqrt(pi) / P,   w_k = 2 w_0 exp(-(k w)^2 / 4),
#
# all terms positive, so  sum_ij s_i s_j K_ij = sum_k w_k |sum_i s_i e^(i k w z_i)|^2  up to two errors, both bounded for every pair. Let r
# be the range of z, P = r + sqrt(l) and K >= 2 sqrt(l) / w. The copies add at most 2.1 e^-l, because |t| <= r leaves the nearest one at
# P - r = sqrt(l). The terms beyond K are at most erfc(K w / 2) <= e^-l. So l = log(4 / eps) gives |error| <= eps per pair.
#
# Where r is long, sorted points are cut into blocks at least sqrt(l) long: blocks that are not neighbours do not see each other (e^-l), and
# neighbours are summed together, which counts a pair of one block at most three times with sign: l = log(12 / eps). K then is bounded.

MAX_UNSORTED_RANGE = 32.0  # Ranges of z above which sorting and cutting into blocks costs less than the terms it saves.
WORK_ROWS = 5  # Rows of work space.


@compiled(reassociate=True)
def start_waves(z: Array, middle: float, rate: float, twice: Array, c_old: Array, s_old: Array, c: Array, s: Array) -> None:
    """Initialise the recursions of cos(k t) and sin(k t), where ``t = rate * (z - middle)`` is in [-pi, pi]. ``c_old`` and ``s_old``
    receive the values for k = -1, ``c`` and ``s`` those for k = 0.
    """
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
    """Advance the recursion ``f_(k+1) = 2 cos(t) f_k - f_(k-1)`` by two terms; return the sums of ``s * f`` and ``c * f`` for each."""
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
    """Return ``sum_ij s_i s_j K_ij`` and ``sum_ij c_i c_j K_ij`` over all pairs of points."""
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
    """Return ``sum_ij s_i s_j K_ij`` and ``sum_ij c_i c_j K_ij`` of K_ij = exp(-(z_i - z_j)^2), each K_ij to within eps.

    The points z, ``(n,)``, may have any order if their range is at most LONG, else they must ascend. Rounding (about 1e-14) comes in
    addition to ``eps``. ``work`` is ``(WORK, >= n)``.
    """
    low, high = z[0], z[0]
    for i in range(z.size):
        low = min(low, z[i])
        high = max(high, z[i])
    if high - low <= MAX_UNSORTED_RANGE:
        return _sum_segment(z, s, c, math.log(4.0 / eps), work)
    return _sum_blocks(z, s, c, math.log(12.0 / eps), work)


MATRIX_ERROR = 1e-6  # Largest error of one entry of one kernel in a matrix, besides the rounding of float32.
PRODUCT_ERROR = 1e-9  # The same in products with vectors, which are float64.
PRODUCT_COLUMNS = 2048  # Columns of one symmetric product.
MAX_TERMS = 96  # Greatest number of terms of a series: longer ones are slower than one exponential per pair.
FIRST_ROWS = 64  # Rows that are looked at for a third value before all are.
ROOT_TWO = math.sqrt(2.0)


def series_lengths(epsilon: float) -> tuple[float, float]:
    """Return two lengths: the distance of the periodic copies of the kernel, and the length of the series. Each of the two contributes half
    of the error ``epsilon``.
    """
    return math.sqrt(math.log(4.2 / epsilon)), float(erfcinv(0.5 * epsilon))


def _column_counts(columns: Array, widths: Array, copies: float, tail: float, longest: int) -> IntArray:
    """Return the number of columns of each feature's kernel: 0 for a constant feature, 1 for one with two values, -1 if too many."""
    low, high = columns.min(axis=1), columns.max(axis=1)
    terms = tail * ((high - low) / (ROOT_TWO * widths) + copies) / math.pi
    # Ends before it becomes an integer, which it may be too large for.
    counts = np.where(terms > longest, -1.0, 2.0 * np.ceil(np.fmin(terms, longest))).astype(np.int64)
    # Most features show a third value in their first rows.
    begin = columns[:, :FIRST_ROWS]
    for j in np.flatnonzero(((begin == low[:, None]) | (begin == high[:, None])).all(axis=1)):
        if np.all((columns[j] == low[j]) | (columns[j] == high[j])):
            counts[j] = low[j] < high[j]
    return counts


@compiled(reassociate=True)
def _next_wave(twice: Array, old: Array, new: Array, height: float, out: Array) -> None:
    for i in range(twice.size):
        value = twice[i] * new[i] - old[i]
        old[i] = new[i]
        new[i] = value
        out[i] = np.float32(height * value)


@compiled
def _fill_waves(columns: Array, widths: Array, counts: Array, copies: float, out: Array, constants: Array) -> None:
    """Fill ``out`` with the rows B_j of each kernel j, and fill ``constants``, such that the kernel is ``B_j' B_j + constants[j]``. Kernels
    with count -1 are skipped.
    """
    n = columns.shape[1]
    z, work = np.empty(n), np.empty((5, n))
    at = 0
    for j in range(len(columns)):
        constants[j] = 1.0 if counts[j] == 0 else 0.0
        if counts[j] < 1:
            continue
        low, high = columns[j, 0], columns[j, 0]
        for i in range(n):
            low, high = min(low, columns[j, i]), max(high, columns[j, i])
        span = (high - low) / (ROOT_TWO * widths[j])
        if counts[j] == 1:
            far = math.exp(-span * span)
            constants[j] = 0.5 * (1.0 + far)
            height = math.sqrt(0.5 * (1.0 - far))
            for i in range(n):
                out[at, i] = np.float32(height if columns[j, i] == high else -height)
            at += 1
            continue
        for i in range(n):
            z[i] = (columns[j, i] - low) / (ROOT_TWO * widths[j])
        rate = 2.0 * math.pi / (span + copies)
        constants[j] = math.sqrt(math.pi) / (span + copies)
        start_waves(z, 0.5 * span, rate, work[0], work[1], work[2], work[3], work[4])
        for k in range(1, counts[j] // 2 + 1):
            height = math.sqrt(2.0 * constants[j] * math.exp(-0.25 * (k * rate) ** 2))
            _next_wave(work[0], work[1], work[3], height, out[at])
            _next_wave(work[0], work[2], work[4], height, out[at + 1])
            at += 2


@compiled
def _add_pairs(column: Array, width: float, weights: Array, out: Array) -> None:
    """Add the weighted matrices of one Gaussian to the upper triangles of ``out`` (r, n, n)."""
    n = column.size
    for i in range(n):
        for j in range(i, n):
            z = (column[i] - column[j]) / (ROOT_TWO * width)
            value = math.exp(-z * z)
            for r in range(weights.size):
                out[r, i, j] += weights[r] * value


@compiled
def mirror_triangles(out: Array) -> Array:
    """Copy the upper triangles of ``out`` (r, n, n) to the lower ones, in place, and return it."""
    n = out.shape[1]
    for r in range(len(out)):
        for first in range(0, n, 64):
            for i in range(n):
                for j in range(first, min(first + 64, i)):
                    out[r, i, j] = out[r, j, i]
    return out


def add_feature_sums(X: Array, weights: Array, widths: Array | None, out: Array) -> None:
    """Add ``sum_i weights[r, i] K_i`` over the columns of X ``(n, k)`` to the upper triangle of each ``out[r]``, ``(n, n)`` in C order.

    Weights are >= 0. With ``widths`` ``(k,)`` the kernels are ``exp(-(x - x')^2 / (2 sigma^2))`` and ``out`` is float32. Without widths
    they are ``x x'`` and ``out`` is float64: the columns are not centred, and those with large means would lose digits in float32.
    """
    columns = np.ascontiguousarray(X.T, dtype=np.float64)
    with one_thread():
        if widths is None:
            for lo in range(0, len(columns), PRODUCT_COLUMNS):
                _add_products(columns[lo : lo + PRODUCT_COLUMNS], weights[:, lo : lo + PRODUCT_COLUMNS], out)
            return
        _add_gaussians(columns, weights, np.ascontiguousarray(widths, np.float64), out)


def _add_gaussians(columns: Array, weights: Array, widths: Array, out: Array) -> None:
    copies, tail = series_lengths(MATRIX_ERROR)
    counts = _column_counts(columns, widths, copies, tail, max(8, min(MAX_TERMS, columns.shape[1] // 4)))
    for lo, hi in _split_batches(np.maximum(counts, 0)):
        part = slice(lo, hi)
        taken = np.maximum(counts[part], 0)
        waves, constants = np.empty((int(taken.sum()), columns.shape[1]), np.float32), np.empty(hi - lo)
        _fill_waves(columns[part], widths[part], counts[part], copies, waves, constants)
        if len(waves):
            _add_products(waves, np.repeat(weights[:, part], taken, axis=1), out)
        out += (weights[:, part] @ constants)[:, None, None].astype(out.dtype)
    for j in np.flatnonzero(counts < 0):
        _add_pairs(columns[j], float(widths[j]), weights[:, j], out)


def _split_batches(counts: Array) -> Iterator[tuple[int, int]]:
    """Yield ranges of kernels with about COLUMNS columns in total."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    lo = 0
    while lo < len(counts):
        hi = max(lo + 1, int(np.searchsorted(ends, ends[lo] + PRODUCT_COLUMNS, side="right")) - 1)
        yield lo, hi
        lo = hi


def _add_products(rows: Array, weights: Array, out: Array) -> None:
    product: Any = get_blas_funcs("syrk", dtype=rows.dtype)
    for root, matrix in zip(np.sqrt(weights).astype(rows.dtype), out, strict=True):
        if not root.any():
            continue
        # The upper triangle of a C array is for Fortran the lower one of its transpose.
        product(1.0, (rows * root[:, None]).T, beta=1.0, c=matrix.T, lower=1, overwrite_c=1)


def weighted_feature_sum(X: Array, weights: Array, widths: Array | None = None) -> Array:
    """Return ``sum_i w_i K_i`` over the columns of X, ``(n, n)``, exactly symmetric, with weights and widths as in
    :func:`add_feature_sums`.

    Sums of Gaussians are float32, each entry within ``MATRIX_ERROR * sum_i w_i`` of the exact sum, plus rounding. Sums of linear kernels
    are float64.
    """
    out = np.zeros((1, len(X), len(X)), np.float64 if widths is None else np.float32)
    add_feature_sums(X, weights[None, :], widths, out)
    return mirror_triangles(out)[0]


@compiled(reassociate=True)
def _advance_wave(twice: Array, old: Array, new: Array) -> None:
    for i in range(twice.size):
        value = twice[i] * new[i] - old[i]
        old[i] = new[i]
        new[i] = value


@compiled
def _add_wave(c: Array, s: Array, by_c: float, by_s: float, out: Array) -> None:
    for i in range(out.size):
        out[i] += by_c * c[i] + by_s * s[i]


@compiled
def _add_values(x: Array, z: Array, weight: float, beta: Array, copies: float, tail: float, longest: int, out: Array) -> None:
    """Add ``weight * sum_s beta[r, s] exp(-(x_i - z_s)^2)`` to ``out`` (r, n). Distant points of x are moved closer, in place."""
    low, high = z.min(), z.max()
    for i in range(x.size):
        x[i] = min(max(x[i], low - copies), high + copies)
    low, high = min(low, x.min()), max(high, x.max())
    span = high - low
    terms = tail * (span + copies) / math.pi
    if terms > longest:
        for i in range(x.size):
            for s in range(z.size):
                value = weight * math.exp(-((x[i] - z[s]) ** 2))
                for r in range(len(beta)):
                    out[r, i] += beta[r, s] * value
        return
    rate, constant = 2.0 * math.pi / (span + copies), math.sqrt(math.pi) / (span + copies)
    here, there = np.empty((5, x.size)), np.empty((5, z.size))
    middle = 0.5 * (low + high)
    start_waves(x, middle, rate, here[0], here[1], here[2], here[3], here[4])
    start_waves(z, middle, rate, there[0], there[1], there[2], there[3], there[4])
    for k in range(math.ceil(terms) + 1):
        height = weight * constant * math.exp(-0.25 * (k * rate) ** 2) * (1.0 if k == 0 else 2.0)
        for r in range(len(beta)):
            _add_wave(here[3], here[4], height * dot_product(beta[r], there[3]), height * dot_product(beta[r], there[4]), out[r])
        _advance_wave(here[0], here[1], here[3])
        _advance_wave(here[0], here[2], here[4])
        _advance_wave(there[0], there[1], there[3])
        _advance_wave(there[0], there[2], there[4])


@compiled
def _gaussian_values(left: Array, right: Array, weights: Array, widths: Array, beta: Array, copies: float, tail: float, out: Array) -> None:
    x, z = np.empty(left.shape[1]), np.empty(right.shape[1])
    # A term costs a handful of operations at every point, a pair an exponential.
    longest = max(8, x.size * z.size // (x.size + z.size))
    for j in range(len(left)):
        scale = 1.0 / (ROOT_TWO * widths[j])
        for i in range(x.size):
            x[i] = left[j, i] * scale
        for i in range(z.size):
            z[i] = right[j, i] * scale
        _add_values(x, z, weights[j], beta, copies, tail, longest, out)


def feature_values(X: Array, Z: Array, weights: Array, widths: Array | None, beta: Array) -> Array:
    """Return ``sum_i w_i sum_s beta_s K_i(x, z_s)`` at each row x of X ``(n, k)``, without a matrix: ``(r, n)`` for beta ``(r, m)``.

    The coefficients belong to the rows of Z, ``(m, k)``; kernels are as in :func:`add_feature_sums`. Values are float64, accurate to
    ``PRODUCT_ERROR * sum_i |w_i| * sum_s |beta_s|``.
    """
    # Slices and read-only arrays are copied: the functions would be compiled again for each kind.
    beta, weights = (np.require(part, np.float64, ("C", "W")) for part in (beta, weights))
    if widths is None:
        with one_thread():
            return (((beta @ Z) * weights) @ X.T).astype(np.float64)
    out = np.zeros((len(beta), len(X)))
    left, right = (np.ascontiguousarray(part.T, dtype=np.float64) for part in (X, Z))
    if len(X) and len(Z):
        _gaussian_values(left, right, weights, np.require(widths, np.float64, ("C", "W")), beta, *series_lengths(PRODUCT_ERROR), out)
    return out
