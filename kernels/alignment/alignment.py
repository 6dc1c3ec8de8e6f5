"""Centred, trace-normalised alignments of one kernel per feature with a target, without any Gram matrix.

For feature i with kernel matrix K_i over the m samples, H = I - 11'/m and a target y,

    a_i = y' H K_i H y / trace(H K_i H),   0 <= a_i <= ||H y||^2

(Jawanpuria, PhD thesis 2014, section 7.1). A row of weight c counts as c equal rows. With y~ = H y these are two sums over K_i itself:
``y~' K_i y~`` and, for a Gaussian kernel, ``m - 1' K_i 1 / m``. Both are cosine sums (``alignment_expansion``), or sums over pairs of
distinct values where there are few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ..features.views import Columns, SparseView, shape, view
from ..grams.cosine_sums import LONG, WORK, gaussian_forms
from ..jit import compiled
from .distinct_values import FEW, ROOT_TWO, few_valued, linear_columns, load_points, pair_forms, sort_points
from .median_width import median_distance

Array = np.ndarray

TILE = 1 << 16
"""Entries handled at a time: half a megabyte stays in the second cache while it is turned, sorted and summed."""

FINEST = 1e-15
"""Smallest error per pair asked of the expansion; rounding is counted with as much again."""


LARGEST = 1e300
"""Largest entry taken: the range of a column must not overflow."""


class Alignments(NamedTuple):
    """What a path of kernels needs of every feature, float64 ``(k,)`` each.

    Attributes
    ----------
    values
        Alignments a_i; 0 for a constant feature.
    traces
        ``trace(H K_i H)`` of the kernel as it is: a weight eta_i belongs to ``K_i / traces[i]``. 0 for a constant feature.
    widths
        sigma_i of ``exp(-(x - x')^2 / (2 sigma_i^2))``; 0 for a constant feature and for kernels without a width.
    errors
        Bounds of ``|values - exact|`` from the truncated expansion; 0 where nothing is truncated. Rounding comes beside.
    """

    values: Array
    traces: Array
    widths: Array
    errors: Array


class _Target(NamedTuple):
    """Centred labels, and how often every row counts: > 0, float64 ``(m,)`` each."""

    labels: Array
    times: Array


class _Tile(NamedTuple):
    """Columns ``lo:hi`` entry by entry: float64 values, their rows, and where each column begins."""

    lo: int
    hi: int
    values: Array
    rows: Array
    starts: Array


def _tiles(X: Columns) -> Iterator[_Tile]:
    m, k = shape(X)
    if isinstance(X, np.ndarray):
        step = max(1, TILE // m)
        rows = np.tile(np.arange(m, dtype=np.uint32), min(step, k))
        for lo in range(0, k, step):
            hi = min(lo + step, k)
            # A copy even of a transposed view: compiled code is told that it may write.
            values = np.array(X[:, lo:hi].T, dtype=np.float64, order="C").reshape(-1)
            yield _Tile(lo, hi, values, rows[: values.size], np.arange(hi - lo + 1) * m)
        return
    block = view(X)
    assert isinstance(block, SparseView)
    starts = block.starts.astype(np.int64)
    lo = 0
    while lo < k:
        hi = max(lo + 1, int(np.searchsorted(starts, starts[lo] + TILE, side="right")) - 1)
        first, last = starts[lo], starts[hi]
        yield _Tile(lo, hi, block.values[first:last].astype(np.float64), block.rows[first:last], starts[lo : hi + 1] - first)
        lo = hi


@compiled
def _distinct(ordered: Array, times: Array, lo: int, hi: int, m: float, v: Array, before: Array) -> int:
    """Fill v with the distinct values of a column, entries sorted, and before with the counts in front of each; return how many."""
    zeros = m
    for p in range(lo, hi):
        zeros -= times[p] if ordered[p] != 0.0 else 0.0
    # What is left of a sum of weights without zero entries is rounding.
    zeros = zeros if zeros > 1e-9 * m else 0.0
    n, waiting = 0, zeros > 0
    before[0] = 0.0
    for p in range(lo, hi):
        x = ordered[p]
        if x == 0.0:
            continue
        if waiting and x > 0.0:
            v[n], before[n + 1], waiting = 0.0, before[n] + zeros, False
            n += 1
        if n > 0 and v[n - 1] == x:
            before[n] += times[p]
        else:
            v[n], before[n + 1] = x, before[n] + times[p]
            n += 1
    if waiting:
        v[n], before[n + 1] = 0.0, before[n] + zeros
        n += 1
    return n


@compiled
def _certified(z: Array, s: Array, c: Array, m: float, tol: float, usual: float, work: Array) -> tuple[float, float, float]:
    """Return a, trace and the error bound of a by the expansion, refined until the bound is tol max(a, usual); trace 0 if it never is."""
    weight = 0.0
    for i in range(s.size):
        weight += abs(s[i])
    eps = tol / (10.0 * m)
    while True:
        form, mass = gaussian_forms(z, s, c, eps, work)
        trace, per_pair = m - mass / m, eps + FINEST
        slack = per_pair * m
        finer = FINEST
        if trace > 2.0 * slack:
            a = max(form, 0.0) / trace
            error = (per_pair * weight * weight + a * slack) / (trace - slack)
            wanted = tol * max(a, usual)
            if error <= wanted:
                return a, trace, error
            finer = max(0.5 * eps * wanted / error, FINEST)
        if eps <= FINEST:
            return 0.0, 0.0, 0.0
        eps = finer


@compiled
def _many_valued(
    values: Array,
    rows: Array,
    starts: Array,
    ordered: Array,
    counted: Array,
    which: Array,
    labels: Array,
    times: Array,
    given: Array,
    tol: float,
    out: Array,
) -> None:
    """Write alignment, trace, width and error bound of the columns ``which`` into out (4, k); tol = 0 sums over every pair."""
    rank, m = labels.size, times.sum()
    x, s, c, z, work = np.empty(rank), np.empty(rank), np.empty(rank), np.empty(rank), np.empty((WORK, rank))
    v, before = np.empty(rank), np.empty(rank + 1)
    usual = 0.0
    for i in range(rank):
        usual += labels[i] * labels[i] / (m * times[i])
    for q in range(which.size):
        j = which[q]
        first, last = int(starts[j]), int(starts[j + 1])
        n = load_points(values, rows, first, last, labels, times, m, x, s, c)
        distinct = _distinct(ordered, counted, first, last, m, v, before)
        if distinct < 2:
            continue
        span = v[distinct - 1] - v[0]
        width = given[j] if given[j] > 0.0 else median_distance(v, before, distinct)
        # Finer than this nothing is left of the kernel but its diagonal; the quotients below stay finite.
        width = float(max(width, 1e-100 * span))
        a, trace, error = 0.0, 0.0, 0.0
        if tol > 0.0:
            if span / (ROOT_TWO * width) > 0.99 * LONG:
                sort_points(x, s, c, n)
            for i in range(n):
                z[i] = x[i] / (ROOT_TWO * width)
            a, trace, error = _certified(z[:n], s[:n], c[:n], m, tol, usual, work)
        if trace == 0.0:
            form, trace = pair_forms(x, s, c, n, m, width)
            a = form / trace if trace > 0.0 else 0.0
        out[0, j], out[1, j], out[2, j], out[3, j] = a, trace, width, error


def _rbf(tile: _Tile, target: _Target, given: Array, method: str, tol: float, out: Array) -> None:
    direct = method == "direct"
    many = np.zeros(tile.hi - tile.lo, np.bool_)
    few_valued(tile.values, tile.rows, tile.starts, *target, given, 1 if direct else FEW, out, many)
    which = np.flatnonzero(many)
    if not which.size:
        return
    ordered, counted = _sorted(tile, which, target.times)
    _many_valued(tile.values, tile.rows, tile.starts, ordered, counted, which, *target, given, 0.0 if direct else tol, out)


def _sorted(tile: _Tile, which: Array, times: Array) -> tuple[Array, Array]:
    """Return the entries with the columns ``which`` sorted, and how often each counts."""
    ordered, alike = tile.values.copy(), bool(np.all(times == times[0]))
    counted = np.full(ordered.size, times[0])
    for j in which.tolist():
        part = slice(tile.starts[j], tile.starts[j + 1])
        if alike:
            ordered[part].sort()
            continue
        order = np.argsort(ordered[part], kind="stable")
        ordered[part] = ordered[part][order]
        counted[part] = times[tile.rows[part]][order]
    return ordered, counted


def _linear(tile: _Tile, target: _Target, given: Array, method: str, tol: float, out: Array) -> None:
    linear_columns(tile.values, tile.rows, tile.starts, *target, out)


KERNELS: dict[str, Callable[[_Tile, _Target, Array, str, float, Array], None]] = {"rbf": _rbf, "linear": _linear}
METHODS = ("auto", "direct")


def row_counts(sample_weight: Array | None, m: int) -> Array:
    """Return how often every row counts, float64 ``(m,)``; 1 without weights.

    Raises
    ------
    ValueError
        If there are not m finite numbers >= 0.
    """
    if sample_weight is None:
        return np.ones(m)
    times = np.array(sample_weight, dtype=np.float64)
    wrong = ~(np.isfinite(times) & (times >= 0.0))
    if times.shape != (m,) or wrong.any():
        found = f"sample_weight[{int(np.argmax(wrong))}] = {times[np.argmax(wrong)]}" if times.shape == (m,) else f"shape {times.shape}"
        raise ValueError(f"sample_weight has {found}; it needs a finite number >= 0 for each of the {m} rows of X")
    return times


def centred_target(y: Array, m: int, times: Array | None = None) -> Array:
    """Return ``H y`` as contiguous float64: for rows that count several times their sum.

    Raises
    ------
    ValueError
        If y has not m finite entries, or all are equal.
    """
    target = np.array(y, dtype=np.float64)
    if target.shape != (m,):
        raise ValueError(f"y has shape {target.shape}; it needs one entry for each of the {m} rows of X")
    if not np.isfinite(target).all():
        raise ValueError(f"y[{int(np.argmin(np.isfinite(target)))}] is not finite")
    if not np.ptp(target):
        raise ValueError("y is constant; alignment with a constant target is zero for every kernel")
    if times is None:
        return target - target.mean()
    return times * (target - np.average(target, weights=times))


def _checked_widths(widths: Array | float | None, k: int) -> Array:
    if widths is None:
        return np.zeros(k)
    given = np.array(np.broadcast_to(np.asarray(widths, dtype=np.float64), (k,)))
    wrong = ~(np.isfinite(given) & (given > 0.0))
    if wrong.any():
        raise ValueError(f"widths[{int(np.argmax(wrong))}] is {given[np.argmax(wrong)]}; a width is finite and > 0")
    return given


def _chosen_rows(X: Columns, kept: Array) -> Columns:
    """Return some rows, ascending, in the same form."""
    if isinstance(X, np.ndarray):
        return X[kept]
    return type(X)(X[kept])


def _check_values(tile: _Tile) -> None:
    if not tile.values.size or (tile.values.min() >= -LARGEST and tile.values.max() <= LARGEST):
        return
    with np.errstate(invalid="ignore"):
        at = int(np.argmin(np.abs(tile.values) <= LARGEST))
    column = int(np.searchsorted(tile.starts, at, side="right")) - 1
    raise ValueError(f"X[{tile.rows[at]}, {tile.lo + column}] is {tile.values[at]}; values are finite and at most {LARGEST} in size")


def alignments(
    X: Columns,
    y: Array,
    *,
    kernel: str = "rbf",
    widths: Array | float | None = None,
    method: str = "auto",
    tol: float = 1e-6,
    sample_weight: Array | None = None,
) -> Alignments:
    """Return ``a_i = y' H K_i H y / trace(H K_i H)`` of one kernel per column of a block.

    Each column's result is computed from that column alone: cutting the columns differently changes no bit, and dense and sparse columns
    give the same bits. Permuting the samples changes rounding only.

    Parameters
    ----------
    X : ndarray or csc_array of shape (m, k)
        Samples in rows, m >= 2; rows ascending and distinct inside sparse columns.
    y : ndarray of shape (m,)
        Target, +-1 or any finite numbers, not constant.
    kernel : {"rbf", "linear"}
        ``exp(-(x - x')^2 / (2 sigma^2))`` or ``x x'``.
    widths : ndarray of shape (k,) or float, optional
        sigma of each column; by default the median of its non-zero pairwise distances (see ``median_width``).
    method : {"auto", "direct"}
        ``direct`` takes an exponential for every pair of rows: slow, for checks. ``auto`` goes through counts where a column has at most
        FEW distinct values (exact), else by the cosine expansion.
    tol : float
        The expansion's error is at most ``tol max(a_i, ||H y||^2 / m)``; the second is the size of an unrelated feature's alignment.
    sample_weight : ndarray of shape (m,), optional
        How often every row counts; rows of weight 0 are as if they were not there.

    Returns
    -------
    Alignments

    Raises
    ------
    ValueError
        For shapes that do not match, values that are not finite, a constant y, unknown names, tol outside [1e-12, 0.1].
    """
    m, k = shape(X)
    if m < 2:
        raise ValueError(f"X has {m} rows; an alignment needs two")
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}; known are {', '.join(KERNELS)}")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; known are {', '.join(METHODS)}")
    if not 1e-12 <= tol <= 0.1:
        raise ValueError(f"tol is {tol}; it lies in [1e-12, 0.1]")
    if kernel == "linear" and widths is not None:
        raise ValueError("widths are given, but the linear kernel has none")
    given, times = _checked_widths(widths, k), row_counts(sample_weight, m)
    if not times.all():
        centred_target(y, m)
        kept = np.flatnonzero(times)
        options = {"kernel": kernel, "widths": widths, "method": method, "tol": tol}
        return alignments(_chosen_rows(X, kept), np.asarray(y)[kept], sample_weight=times[kept], **options)
    target = _Target(centred_target(y, m, None if sample_weight is None else times), times)
    out = np.zeros((4, k))
    for tile in _tiles(X):
        _check_values(tile)
        part = np.zeros((4, tile.hi - tile.lo))
        KERNELS[kernel](tile, target, given[tile.lo : tile.hi], method, tol, part)
        out[:, tile.lo : tile.hi] = part
    return Alignments(*out)
