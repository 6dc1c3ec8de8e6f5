"""Median of the pairwise distances of one feature, in roughly linear time once its values are sorted.

A feature is given by its distinct values in ascending order and their counts. Equal entries are at distance zero and are not counted: for
mostly-zero columns the plain median would be zero, and a kernel of width zero is useless.

The rank of a trial distance ``t`` is found by two pointers over the sorted values. The next trial distance is found in the same way for a
few dozen groups of neighbouring values instead of all values, and corrected by the rank error so far. Two or three passes over the values
are enough.
"""

from __future__ import annotations

import math

import numpy as np

from ..arrays import Array
from ..jit import compiled

RANK_TOLERANCE = 1e-3  # A distance is taken as the median when the share of smaller or equal ones is within this of one half.
MAX_EXACT_VALUES = 32  # Up to so many distinct values the median is exact.
COARSE_GROUPS = 96  # Groups of neighbouring values in the coarse search.


@compiled(deferred=True)
def count_pairs_within(v: Array, before: Array, n: int, t: float) -> tuple[float, float, float]:
    """Return the number of pairs with 0 < distance <= t, the largest of these distances (or 0), and the smallest distance above t (or inf).

    ``v`` (n,) holds ascending distinct values, ``before`` (n + 1,) the number of entries before each value.
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
    """Return a distance t such that ``target`` of all ``total`` pairs are within t, give or take ``slack`` pairs. If no such distance
    exists, return the smallest distance t for which at least ``target`` pairs are within t.
    """
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
    """Divide the values into len(centres) groups with about equal numbers of entries. Each group is represented by its middle value."""
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
    """Return the median of the non-zero distances between entries (the lower one of two middle ones).

    The first n >= 2 entries of ``v`` are the distinct values, ascending. ``before`` ``(n + 1,)`` is the number of entries before each
    value, and ``before[n]`` the number of all entries. The result is the smallest distance d between two entries such that half of the
    distances are <= d. For more than MAX_EXACT_VALUES values, it is any d for which the fraction of distances <= d is within RANK_TOLERANCE
    of one half.
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


# Centred alignments of one feature from its points: distinct values with their counts, the linear kernel, and every pair.
#
# A *point* is a non-zero entry x with its weight s, the centred label of its row, in the order of rows; all zero entries together are one
# more point, with the sum of their weights, which is minus the others' because centred labels sum to zero. Dense and sparse columns so give
# the same bits. A point stands for c entries: the times its row counts, all of them together for the zeros.
#
# Because the weights sum to zero, ``sum s s' K = -sum s s' (1 - K)``, and ``trace(H K H) = sum c c' (1 - K) / m`` when K(x, x) = 1: with
# ``expm1`` neither loses digits, however wide the kernel.

Table = tuple[Array, Array, Array]  # Distinct values, their sums of labels, and counts.
Entries = tuple[Array, Array, Array]  # Values, their bits as int64, and rows.

ROOT_TWO = math.sqrt(2.0)
SLOT_BITS = 7  # Four times as many slots as values: a look-up seldom takes a second step.


@compiled(deferred=True)
def load_points(values: Array, rows: Array, lo: int, hi: int, labels: Array, times: Array, m: float, x: Array, s: Array, c: Array) -> int:
    """Fill x, s and c with value, label and count of the points of a column: each non-zero entry is a point, and all zeros together are one
    point. Return the number of points. Row i counts ``times[i]`` times; the counts of all rows sum to m.
    """
    n, total, counted = 0, 0.0, 0.0
    for p in range(lo, hi):
        if values[p] != 0.0:
            x[n] = values[p]
            s[n] = labels[rows[p]]
            c[n] = times[rows[p]]
            total += s[n]
            counted += c[n]
            n += 1
    if n == labels.size:
        return n
    x[n], s[n], c[n] = 0.0, -total, m - counted
    return n + 1


@compiled(deferred=True)
def sort_points(x: Array, s: Array, c: Array, n: int) -> None:
    """Sort the first n entries of all three arrays by x with Shell sort. The order of equal points depends only on the arrays."""
    gap = 1
    while gap < n:
        gap = (9 * gap + 4) // 4
    while gap > 1:
        gap = max((4 * gap - 4) // 9, 1)
        for i in range(gap, n):
            xi, si, ci, j = x[i], s[i], c[i], i
            while j >= gap and x[j - gap] > xi:
                x[j], s[j], c[j] = x[j - gap], s[j - gap], c[j - gap]
                j -= gap
            x[j], s[j], c[j] = xi, si, ci


@compiled(inline=True, deferred=True)
def _find_slot(bits: int) -> int:
    """Return the first hash slot for a value with these bits (multiplicative hashing; the top bits are mixed best)."""
    return int(np.int64((np.uint64(bits) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - SLOT_BITS)))


@compiled(deferred=True)
def fill_value_table(
    entries: Entries, lo: int, hi: int, labels: Array, times: Array, m: float, table: Table, slots: Array, filled_at: Array
) -> int:
    """Fill v with the distinct values of a column in ascending order, s with the sum of the labels at each value, and c with the count of
    each value. Return the number of values, or -1 if it exceeds v.size.

    ``slots`` (2 ** SLOT_BITS,) and ``filled_at`` (m,) are work space.
    """
    values, bits, rows = entries
    v, s, c = table
    n, at, total, counted, filled = 0, 0, 0.0, 0.0, 0
    slots[:] = -1
    # Without a branch: where zeros are many and anywhere, guessing wrong costs more than the rest.
    for p in range(lo, hi):
        filled_at[filled] = p
        filled += 1 if values[p] != 0.0 else 0
    for q in range(filled):
        p = int(filled_at[q])
        x = values[p]
        if n == 0 or v[at] != x:
            slot = _find_slot(bits[p])
            while slots[slot] >= 0 and v[slots[slot]] != x:
                slot = (slot + 1) & (slots.size - 1)
            if slots[slot] < 0:
                if n == v.size:
                    return -1
                slots[slot], v[n], s[n], c[n] = n, x, 0.0, 0.0
                n += 1
            at = slots[slot]
        label, count = labels[rows[p]], times[rows[p]]
        s[at] += label
        c[at] += count
        total += label
        counted += count
    if filled < labels.size:
        if n == v.size:
            return -1
        v[n], s[n], c[n] = 0.0, -total, m - counted
        n += 1
    sort_points(v, s, c, n)
    return n


@compiled(deferred=True)
def median_table_distance(v: Array, c: Array, n: int) -> float:
    """Return the median non-zero distance, given n >= 2 distinct values and the count of each."""
    before = np.empty(n + 1)
    before[0] = 0.0
    for i in range(n):
        before[i + 1] = before[i] + c[i]
    return median_distance(v, before, n)


@compiled(deferred=True)
def sum_pairs(x: Array, s: Array, c: Array, n: int, m: float, width: float) -> tuple[float, float]:
    """Return ``y~' K y~`` and ``trace(H K H)`` of the Gaussian kernel, summed over all pairs of points."""
    form, mass = 0.0, 0.0
    for i in range(n):
        f, g = 0.0, 0.0
        for j in range(i):
            z = (x[i] - x[j]) / (ROOT_TWO * width)
            away = -math.expm1(-z * z)
            f += s[j] * away
            g += c[j] * away
        form -= 2.0 * s[i] * f
        mass += 2.0 * c[i] * g
    return max(form, 0.0), mass / m


@compiled(deferred=True)
def align_few_valued(
    values: Array, rows: Array, starts: Array, labels: Array, times: Array, m: float, sigmas: Array, limit: int, out: Array, many: Array
) -> None:
    """Write alignment, trace and width of columns with at most ``limit`` distinct values into ``out`` (4, k); mark the others in ``many``.

    ``sigmas`` (k,) is 0 for columns whose width is the median distance. The entries of ``out`` for constant columns stay zero.
    """
    v, s, c, slots = np.empty(limit), np.empty(limit), np.empty(limit), np.empty(1 << SLOT_BITS, np.int64)
    bits = values.view(np.int64)
    filled_at = np.empty(labels.size, np.int64)
    for j in range(many.size):
        n = fill_value_table((values, bits, rows), starts[j], starts[j + 1], labels, times, m, (v, s, c), slots, filled_at)
        many[j] = n < 0
        if n < 2:
            continue
        width = sigmas[j] if sigmas[j] > 0.0 else median_table_distance(v, c, n)
        if n == 2:
            # One distance, one kernel value: it cancels from the alignment.
            z = (v[1] - v[0]) / (ROOT_TWO * width)
            out[0, j] = m * (s[1] / c[0]) * (s[1] / c[1])
            out[1, j] = 2.0 * c[0] * c[1] * -math.expm1(-z * z) / m
        else:
            form, trace = sum_pairs(v, s, c, n, m, width)
            out[0, j] = form / trace if trace > 0.0 else 0.0
            out[1, j] = trace
        out[2, j] = width


@compiled(deferred=True)
def align_linear_columns(values: Array, rows: Array, starts: Array, labels: Array, times: Array, m: float, out: Array) -> None:
    """Write alignment and trace of the linear kernel of each column into ``out`` (4, k)."""
    x, s, c = np.empty(labels.size), np.empty(labels.size), np.empty(labels.size)
    for j in range(starts.size - 1):
        n = load_points(values, rows, starts[j], starts[j + 1], labels, times, m, x, s, c)
        total, low, high = 0.0, x[0], x[0]
        for i in range(n):
            total += c[i] * x[i]
            low = min(low, x[i])
            high = max(high, x[i])
        if low == high:
            continue
        mean = total / m
        product, square = 0.0, 0.0
        for i in range(n):
            centred = x[i] - mean
            product += s[i] * centred
            square += c[i] * centred * centred
        out[0, j] = product * product / square
        out[1, j] = square
