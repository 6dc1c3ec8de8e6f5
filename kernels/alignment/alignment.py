"""Centred, trace-normalised alignments of one kernel per feature with a target, computed without Gram matrices.

For feature i with kernel matrix K_i over the m samples, H = I - 11'/m and a target y,

    a_i = y' H K_i H y / trace(H K_i H),   0 <= a_i <= ||H y||^2

(Jawanpuria, PhD thesis 2014, section 7.1). A row of weight c counts as c equal rows. With y~ = H y the alignment needs two sums over K_i
itself: ``y~' K_i y~`` and, for a Gaussian kernel, ``m - 1' K_i 1 / m``. Both are cosine sums (``alignment_expansion``), or sums over pairs
of distinct values if a feature has few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array
from ..features.views import Columns, SparseView, shape, view
from ..grams.feature_sums import MAX_UNSORTED_RANGE, WORK_ROWS, gaussian_forms
from ..jit import compiled
from .median_width import (
    MAX_EXACT_VALUES,
    ROOT_TWO,
    align_few_valued,
    align_linear_columns,
    load_points,
    median_distance,
    sort_points,
    sum_pairs,
)

TILE_ENTRIES = 1 << 16  # Entries handled at a time: half a megabyte stays in the second cache while it is transposed, sorted and summed.
MIN_ERROR_PER_PAIR = 1e-15  # Smallest error per pair that the expansion is asked for; rounding is counted with as much again.


MAX_ABS_VALUE = 1e300  # Entries beyond it in size are refused: the range of a column must not overflow.


class Alignments(NamedTuple):
    """Alignments of one kernel per feature, float64 ``(k,)`` each; all 0 for a constant feature.

    A weight eta_i belongs to ``K_i / traces[i]``, with ``traces[i] = trace(H K_i H)``.

    * ``widths``: sigma_i of ``exp(-(x - x')^2 / (2 sigma_i^2))``; 0 for kernels without a width.
    * ``errors``: bounds of ``|values - exact|`` due to truncating the expansion; rounding errors come in addition.
    """

    values: Array
    traces: Array
    widths: Array
    errors: Array


Entries = tuple[Array, Array, Array]  # Values, their rows, and the first entry of each column.


class _Target(NamedTuple):
    """``H y`` with each entry multiplied by the count of its row, and the counts (> 0), float64 ``(m,)`` each; and the total count."""

    labels: Array
    times: Array
    count: float  # pyright: ignore[reportIncompatibleMethodOverride]


class _Tile(NamedTuple):
    """The columns ``lo:hi`` as lists of entries: float64 values, the row of each value, and the position of each column's first entry."""

    lo: int
    hi: int
    values: Array
    rows: Array
    starts: Array


def _read_tiles(X: Columns) -> Iterator[_Tile]:
    m, k = shape(X)
    if isinstance(X, np.ndarray):
        step = max(1, TILE_ENTRIES // m)
        rows = np.tile(np.arange(m, dtype=np.uint32), min(step, k))
        for lo in range(0, k, step):
            hi = min(lo + step, k)
            # A copy even of a transposed view: compiled code takes arrays that it may write.
            values = np.array(X[:, lo:hi].T, dtype=np.float64, order="C").reshape(-1)
            yield _Tile(lo, hi, values, rows[: values.size], np.arange(hi - lo + 1) * m)
        return
    block = view(X)
    assert isinstance(block, SparseView)
    starts = block.starts.astype(np.int64)
    lo = 0
    while lo < k:
        hi = max(lo + 1, int(np.searchsorted(starts, starts[lo] + TILE_ENTRIES, side="right")) - 1)
        first, last = starts[lo], starts[hi]
        yield _Tile(lo, hi, block.values[first:last].astype(np.float64), block.rows[first:last], starts[lo : hi + 1] - first)
        lo = hi


@compiled(deferred=True)
def _collect_distinct(ordered: Array, times: Array, lo: int, hi: int, m: float, v: Array, before: Array) -> int:
    """Fill ``v`` with the distinct values of a sorted column, and ``before`` with the number of rows before each value. Return the number
    of distinct values.
    """
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


@compiled(deferred=True)
def _align_by_expansion(z: Array, s: Array, c: Array, m: float, tol: float, usual: float, work: Array) -> tuple[float, float, float]:
    """Return alignment, trace and error bound, computed by the expansion. The expansion is refined until the bound is at most
    ``tol * max(a, usual)``, where a is the alignment. If this cannot be reached, the trace returned is 0.
    """
    weight = 0.0
    for i in range(s.size):
        weight += abs(s[i])
    eps = tol / (10.0 * m)
    while True:
        form, mass = gaussian_forms(z, s, c, eps, work)
        trace, per_pair = m - mass / m, eps + MIN_ERROR_PER_PAIR
        slack = per_pair * m
        finer = MIN_ERROR_PER_PAIR
        if trace > 2.0 * slack:
            a = max(form, 0.0) / trace
            error = (per_pair * weight * weight + a * slack) / (trace - slack)
            max_error = tol * max(a, usual)
            if error <= max_error:
                return a, trace, error
            finer = max(0.5 * eps * max_error / error, MIN_ERROR_PER_PAIR)
        if eps <= MIN_ERROR_PER_PAIR:
            return 0.0, 0.0, 0.0
        eps = finer


@compiled(deferred=True)
def _align_many_valued(
    entries: Entries, ordered: Array, counted: Array, which: Array, target: _Target, sigmas: Array, tol: float, out: Array
) -> None:
    """Write alignment, trace, width and error bound of the columns ``which`` to ``out`` (4, k). If tol = 0, sum over all pairs of rows."""
    values, rows, starts = entries
    labels, times, m = target
    rank = labels.size
    x, s, c, z, work = np.empty(rank), np.empty(rank), np.empty(rank), np.empty(rank), np.empty((WORK_ROWS, rank))
    v, before = np.empty(rank), np.empty(rank + 1)
    usual = 0.0
    for i in range(rank):
        usual += labels[i] * labels[i] / (m * times[i])
    for q in range(which.size):
        j = which[q]
        first, last = int(starts[j]), int(starts[j + 1])
        n = load_points(values, rows, first, last, labels, times, m, x, s, c)
        distinct = _collect_distinct(ordered, counted, first, last, m, v, before)
        if distinct < 2:
            continue
        span = v[distinct - 1] - v[0]
        width = sigmas[j] if sigmas[j] > 0.0 else median_distance(v, before, distinct)
        # Finer than this nothing is left of the kernel but its diagonal; the quotients below stay finite.
        width = float(max(width, 1e-100 * span))
        a, trace, error = 0.0, 0.0, 0.0
        if tol > 0.0:
            if span / (ROOT_TWO * width) > 0.99 * MAX_UNSORTED_RANGE:
                sort_points(x, s, c, n)
            for i in range(n):
                z[i] = x[i] / (ROOT_TWO * width)
            a, trace, error = _align_by_expansion(z[:n], s[:n], c[:n], m, tol, usual, work)
        if trace == 0.0:
            form, trace = sum_pairs(x, s, c, n, m, width)
            a = form / trace if trace > 0.0 else 0.0
        out[0, j], out[1, j], out[2, j], out[3, j] = a, trace, width, error


def _align_rbf(tile: _Tile, target: _Target, sigmas: Array, method: str, tol: float, out: Array) -> None:
    direct = method == "direct"
    many = np.zeros(tile.hi - tile.lo, np.bool_)
    align_few_valued(tile.values, tile.rows, tile.starts, *target, sigmas, 1 if direct else MAX_EXACT_VALUES, out, many)
    which = np.flatnonzero(many)
    if not which.size:
        return
    ordered, counted = _sort_columns(tile, which, target.times)
    _align_many_valued(tile[2:], ordered, counted, which, target, sigmas, 0.0 if direct else tol, out)


def _sort_columns(tile: _Tile, which: Array, times: Array) -> tuple[Array, Array]:
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


def _align_linear(tile: _Tile, target: _Target, sigmas: Array, method: str, tol: float, out: Array) -> None:
    align_linear_columns(tile.values, tile.rows, tile.starts, *target, out)


KERNELS: dict[str, Callable[[_Tile, _Target, Array, str, float, Array], None]] = {"rbf": _align_rbf, "linear": _align_linear}
METHODS = ("auto", "direct")


def row_counts(sample_weight: Array | None, m: int) -> Array:
    """Return the count of each row, float64 ``(m,)``, finite and >= 0. Without weights, all counts are 1."""
    if sample_weight is None:
        return np.ones(m)
    times = np.array(sample_weight, dtype=np.float64)
    wrong = ~(np.isfinite(times) & (times >= 0.0))
    if times.shape != (m,) or wrong.any():
        problem = f"sample_weight[{int(np.argmax(wrong))}] = {times[np.argmax(wrong)]}" if times.shape == (m,) else f"shape {times.shape}"
        raise ValueError(f"sample_weight has {problem}; it needs a finite number >= 0 for each of the {m} rows of X")
    return times


def centre_target(y: Array, m: int, times: Array | None = None) -> Array:
    """Return ``H y`` as contiguous float64, each entry multiplied by the count of its row. Raises ValueError if y is constant or not
    finite.
    """
    target = np.array(y, dtype=np.float64)
    if target.shape != (m,):
        raise ValueError(f"y has shape {target.shape}; it needs one entry for each of the {m} rows of X")
    if not np.isfinite(target).all():
        raise ValueError(f"y[{int(np.argmin(np.isfinite(target)))}] is not finite")
    if not np.ptp(target):
        raise ValueError("y is constant; alignment with a constant target is zero for every kernel")
    return target - target.mean() if times is None else times * (target - np.average(target, weights=times))


def _check_widths(widths: Array | float | None, k: int) -> Array:
    if widths is None:
        return np.zeros(k)
    sigmas = np.array(np.broadcast_to(np.asarray(widths, dtype=np.float64), (k,)))
    wrong = ~(np.isfinite(sigmas) & (sigmas > 0.0))
    if wrong.any():
        raise ValueError(f"widths[{int(np.argmax(wrong))}] is {sigmas[np.argmax(wrong)]}; widths must be finite and > 0")
    return sigmas


def _check_values(tile: _Tile) -> None:
    if not tile.values.size or (tile.values.min() >= -MAX_ABS_VALUE and tile.values.max() <= MAX_ABS_VALUE):
        return
    with np.errstate(invalid="ignore"):
        at = int(np.argmin(np.abs(tile.values) <= MAX_ABS_VALUE))
    column = int(np.searchsorted(tile.starts, at, side="right")) - 1
    raise ValueError(
        f"X[{tile.rows[at]}, {tile.lo + column}] is {tile.values[at]}; values must be finite and at most {MAX_ABS_VALUE} in magnitude"
    )


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
    """Return ``a_i = y' H K_i H y / trace(H K_i H)`` of one kernel per column of a block ``(m, k)``, dense or csc with ascending rows.

    Each result depends on its own column alone: it is bit-identical for any division into blocks, and for dense and sparse columns.
    Permuting the samples changes only rounding. The target y ``(m,)`` holds finite numbers and is not constant.

    The kernel is ``"rbf"``, ``exp(-(x - x')^2 / (2 sigma^2))``, or ``"linear"``, ``x x'``. sigma comes from ``widths`` ``(k,)``; by default
    it is the median of the non-zero pairwise distances of the column (see ``median_width``). ``method="direct"`` evaluates all pairs of
    rows; it is slow and meant for checks. ``"auto"`` is exact for columns with at most MAX_EXACT_VALUES distinct values. For others it uses
    the cosine expansion with an error of at most ``tol * max(a_i, ||H y||^2 / m)``; the second term is the typical alignment of an
    unrelated feature. ``sample_weight`` ``(m,)`` is the number of times that each row counts; rows of weight 0 are ignored.
    """
    m, k = shape(X)
    if m < 2:
        raise ValueError(f"n_samples = {m}: an alignment needs at least two rows")
    if kernel not in KERNELS:
        raise ValueError(f"kernel is {kernel!r}; it must be one of {', '.join(KERNELS)}")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; it must be one of {', '.join(METHODS)}")
    if not 1e-12 <= tol <= 0.1:
        raise ValueError(f"tol is {tol}; it must be in [1e-12, 0.1]")
    if kernel == "linear" and widths is not None:
        raise ValueError("widths are given, but kernel='linear' has no width; leave widths out")
    sigmas, times = _check_widths(widths, k), row_counts(sample_weight, m)
    if not times.all():
        centre_target(y, m)
        used = np.flatnonzero(times)
        options: dict[str, Any] = {"kernel": kernel, "widths": widths, "method": method, "tol": tol}
        return alignments(
            X[used] if isinstance(X, np.ndarray) else type(X)(X[used]), np.asarray(y)[used], sample_weight=times[used], **options
        )
    target = _Target(centre_target(y, m, None if sample_weight is None else times), times, float(times.sum()))
    out = np.zeros((4, k))
    for tile in _read_tiles(X):
        _check_values(tile)
        part = np.zeros((4, tile.hi - tile.lo))
        KERNELS[kernel](tile, target, sigmas[tile.lo : tile.hi], method, tol, part)
        out[:, tile.lo : tile.hi] = part
    return Alignments(*out)
