"""Median of the pairwise distances of one feature, in about linear time once its values are sorted.

A feature is given by its distinct values in ascending order and how often each occurs. Equal entries are at distance zero and do not
count: over mostly-zero columns the plain median would be zero, and a kernel of width zero is useless.

A trial distance ``t`` is ranked by two fingers over the sorted values; the next one comes from the same search over a few dozen groups
of neighbouring values, shifted by the error of rank so far. Two or three passes over the values are enough.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array
from ..jit import compiled

RANK_TOLERANCE = 1e-3  # A distance is taken as the median when the share of smaller or equal ones is within this of one half.
MAX_EXACT_VALUES = 32  # Up to so many distinct values the median is exact.
COARSE_GROUPS = 96  # Groups of neighbouring values in the coarse search.


@compiled(deferred=True)
def count_pairs_within(v: Array, before: Array, n: int, t: float) -> tuple[float, float, float]:
    """Return the number of pairs with 0 < distance <= t, the greatest of these distances (or 0) and the least one above t (or inf). ``v``
    (n,) ascending distinct values, ``before`` (n + 1,) the number of entries in front of each.
    """
    pairs, below, above = 0.0, 0.0, np.inf
    j = 1
    for i in range(n - 1):
        x = v[i]
        while j < n and v[j] - x <= t:
            j += 1
        pairs += (before[i + 1] - before[i]) * (before[j] - before[i + 1])
        below = max(below, v[j - 1] - x)
        if j < n:
            above = min(above, v[j] - x)
        else:
            # The fingers can go no further: every later value has all those above it in reach.
            later = before[n] - before[i + 1]
            for h in range(i + 1, n - 1):
                later -= before[h + 1] - before[h]
                pairs += (before[h + 1] - before[h]) * later
            break
    return pairs, below, above


@compiled(deferred=True)
def _find_ranked_distance(v: Array, before: Array, n: int, total: float, target: float, slack: float, t: float) -> float:
    """Return a distance with target of all ``total`` pairs within it, give or take slack; failing that, the least with at least target."""
    low, high = 0.0, v[n - 1] - v[0]
    t_low, f_low, t_high, f_high = 0.0, 0.0, high, total
    step = 0
    while low < high:
        pairs, below, above = count_pairs_within(v, before, n, t)
        if abs(pairs - target) <= slack and below > 0.0:
            return below
        # Bounds are distances that occur, so integers or other lattices end after as many halvings as they have values.
        if pairs >= target:
            high, t_high, f_high = below, t, pairs
        else:
            low, t_low, f_low = above, t, pairs
        step += 1
        t = t_low + (t_high - t_low) * ((target - f_low) / (f_high - f_low)) if step % 3 else 0.5 * (low + high)
        if not low <= t < high:
            t = low
    return high


@compiled(deferred=True)
def _group_values(v: Array, before: Array, n: int, centres: Array, edges: Array) -> None:
    """Cut the values into len(centres) groups of about equal numbers of entries, each at its middle one."""
    groups = centres.size
    at = 0
    for g in range(groups):
        first = at
        last = max((g + 1) * before[n] / groups, before[first + 1])
        while at < n and before[at + 1] <= last and n - at > groups - g - 1:
            at += 1
        at = max(at, first + 1)
        if g == groups - 1:
            at = n
        centres[g] = v[(first + at - 1) // 2]
        edges[g + 1] = before[at]


@compiled(deferred=True)
def median_distance(v: Array, before: Array, n: int) -> float:
    """Return the median of the non-zero distances between entries (the lower one of two middle ones). The first n >= 2 entries of ``v`` are
    the distinct values, ascending; ``before`` ``(n + 1,)`` are the numbers of entries in front of each, ``before[n]`` of all. The result is
    a distance d between two entries, the least with half of the distances <= d. For more than MAX_EXACT_VALUES values any d will do for
    which the share of distances <= d is within RANK_TOLERANCE of one half.
    """
    span = v[n - 1] - v[0]
    if n == 2:
        return span
    total = 0.0
    for i in range(n):
        total += (before[i + 1] - before[i]) * (before[n] - before[i + 1])
    target = 0.5 * total
    if n <= MAX_EXACT_VALUES:
        return _find_ranked_distance(v, before, n, total, target, 0.0, 0.3 * span)
    slack = RANK_TOLERANCE * total
    if n < 4 * COARSE_GROUPS:
        return _find_ranked_distance(v, before, n, total, target, slack, 0.3 * span)
    centres, edges = np.empty(COARSE_GROUPS), np.zeros(COARSE_GROUPS + 1)
    _group_values(v, before, n, centres, edges)
    between = 0.0
    for g in range(COARSE_GROUPS):
        between += (edges[g + 1] - edges[g]) * (before[n] - edges[g + 1])
    # Pairs inside a group count as within the distance.
    coarse = target - (total - between)
    guess = _find_ranked_distance(centres, edges, centres.size, between, coarse, 0.5 * slack, 0.3 * span)
    pairs, below, _ = count_pairs_within(v, before, n, guess)
    if abs(pairs - target) <= slack:
        return below
    shifted = min(max(coarse + target - pairs, 1.0), between)
    return _find_ranked_distance(
        v, before, n, total, target, slack, _find_ranked_distance(centres, edges, centres.size, between, shifted, 0.5 * slack, guess)
    )
