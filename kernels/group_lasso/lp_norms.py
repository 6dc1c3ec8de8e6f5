r"""The proximal step of an L_p norm, 1 < p <= inf: ``w = argmin 1/2 ||w - v||^2 + bar ||w||_p``.

With 1/p + 1/q = 1, w is 0 if and only if ``||v||_q <= bar``. Otherwise let ``N = ||w||_p > 0``. The condition of the minimum, ``|v_i| -
|w_i| = bar (|w_i| / N)^(p-1)``, says that ``|w_i| = N x_i``, where x_i is the root of ``N x + bar x^(p-1) = |v_i|`` and N the root of
``sum_i x_i^p = 1``. N lies between 0, where the sum is ``(||v||_q / bar)^q > 1``, and ``||v||_p``, where it is at most 1. Newton steps in N
solve ``1 / ||x||_p = 1``, which is linear in N for p = 2; a step that leaves the bracket is replaced by its middle. For p = inf, ``|w_i| =
min(|v_i|, N)`` and ``sum_i (|v_i| - N)_+ = bar``, which Newton steps from below solve exactly.

Entries are given as in `gramplane.kernels.group_lasso.penalty.Groups`: positions ``first`` to ``last`` of ``members``, or of ``values``
itself if ``members`` is empty.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, Entry
from ..jit import compiled

MAX_STEPS = 100  # Steps after which a root is what a float64 can hold; a handful suffices.


@compiled
def lp_norm(values: Array, members: Array, first: Entry, last: Entry, p: float) -> Entry:
    """Return ``||v||_p`` of some entries, 1 <= p <= inf."""
    peak, total, listed = 0.0, 0.0, members.size > 0
    for k in range(first, last):
        peak = max(peak, abs(values[members[k] if listed else k]))
    if p == np.inf or peak == 0.0:
        return peak
    for k in range(first, last):
        total += (abs(values[members[k] if listed else k]) / peak) ** p
    return peak * total ** (1.0 / p)


@compiled
def _share(entry: Entry, size: Entry, bar: Entry, p: float) -> Entry:
    """Return the root x of ``size x + bar x^(p-1) = entry``. The equation is solved for x (p >= 2) or x^(p-1), in which it is convex:
    Newton steps from above never pass the root.
    """
    if not entry > 0.0:
        return 0.0
    linear, steep, power = (size, bar, p - 1.0) if p >= 2.0 else (bar, size, 1.0 / (p - 1.0))
    x = min(entry / linear, (entry / steep) ** (1.0 / power))
    for _ in range(MAX_STEPS):
        bend = steep * x ** (power - 1.0)
        ahead = x - ((linear + bend) * x - entry) / (linear + power * bend)
        if not ahead < x:
            break
        x = ahead
    return x if p >= 2.0 else x**power


@compiled
def prox_size(values: Array, members: Array, first: Entry, last: Entry, bar: Entry, p: float) -> Entry:
    """Return ``N = ||w||_p`` of the proximal point w of some entries; 0 if the point is zero."""
    high, listed = lp_norm(values, members, first, last, p), members.size > 0
    dual = lp_norm(values, members, first, last, 1.0 if p == np.inf else p / (p - 1.0))
    if not dual > bar:
        return 0.0
    if p == np.inf:
        return _ceiling(values, members, first, last, bar)
    low, size, scale = 0.0, high * (1.0 - bar / dual), high
    for _ in range(MAX_STEPS):
        total, slope = 0.0, 0.0
        for k in range(first, last):
            x = _share(abs(values[members[k] if listed else k]), size, bar, p)
            if x > 0.0:
                total += x**p
                slope += x**p / (size + bar * (p - 1.0) * x ** (p - 2.0))
        low, high = (size, high) if total > 1.0 else (low, size)
        step = (total ** (1.0 / p) - 1.0) * total / slope
        if abs(step) <= 1e-15 * scale:
            break
        size = size + step if low < size + step < high else 0.5 * (low + high)
    return size


@compiled
def _ceiling(values: Array, members: Array, first: Entry, last: Entry, bar: Entry) -> Entry:
    """Return N with ``sum (|v_i| - N)_+ = bar``."""
    size, ahead, listed = -1.0, 0.0, members.size > 0
    while ahead > size:
        size, total, count = ahead, -bar, 0
        for k in range(first, last):
            entry = abs(values[members[k] if listed else k])
            if entry > size:
                total += entry
                count += 1
        ahead = total / count if count else size
    return size


@compiled
def prox_entry(value: Entry, size: Entry, bar: Entry, p: float) -> Entry:
    """Return the entry of the proximal point w that belongs to the entry ``value`` of v; ``size`` is ``||w||_p``."""
    if size == 0.0:
        return 0.0
    return np.copysign(min(abs(value), size) if p == np.inf else size * _share(abs(value), size, bar, p), value)


@compiled
def group_norms(values: Array, indptr: Array, members: Array, p: float, out: Array) -> None:
    """Write ``||v_g||_p`` of each group g over all tasks, for ``values`` ``(n_tasks, n)``, of which group g has the columns
    ``members[indptr[g]:indptr[g + 1]]``.
    """
    n_tasks, none = values.shape[0], np.zeros(0, np.int64)
    for g in range(out.size):
        out[g] = lp_norm(_gathered(values, indptr[g], indptr[g + 1], members), none, 0, n_tasks * (indptr[g + 1] - indptr[g]), p)


@compiled
def _gathered(values: Array, first: Entry, last: Entry, members: Array) -> Array:
    """Return the entries of some columns over all tasks."""
    out, k = np.empty(values.shape[0] * (last - first)), 0
    for q in range(values.shape[0]):
        for p in range(first, last):
            out[k] = values[q, members[p] if members.size else p]
            k += 1
    return out


@compiled
def shrink_columns(values: Array, first: Entry, last: Entry, bar: Entry, p: float) -> None:
    """Replace the columns ``first`` to ``last`` of ``values`` ``(n_tasks, n)``, taken together, by their proximal point."""
    none = np.zeros(0, np.int64)
    size = prox_size(_gathered(values, first, last, none), none, 0, values.shape[0] * (last - first), bar, p)
    for q in range(values.shape[0]):
        for j in range(first, last):
            values[q, j] = prox_entry(values[q, j], size, bar, p)


@compiled
def shrink_groups(values: Array, indptr: Array, bars: Array, p: float) -> None:
    """Replace the columns of each group by their proximal point."""
    for g in range(bars.size):
        shrink_columns(values, indptr[g], indptr[g + 1], bars[g], p)
