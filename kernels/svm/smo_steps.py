"""Compiled steps of sequential minimal optimisation for one dual problem with a square matrix in memory.

minimise over beta   1/2 beta'(K + diag(ridge)) beta - c'beta + sum_i e_i |beta_i|,   lo <= beta <= hi

The sum of beta is fixed (steps move pairs) or free (steps move single variables). The state is g = (K + diag(ridge)) beta - c and two
offsets, u for moving up and l for moving down: the slope of the kink on that side. A variable that cannot move has u or -l =
BLOCKED_OFFSET, which is finite, so passes need no branch. With m = min(g + u) and M = max(g + l), a pair problem is solved when M - m <
tol, LIBSVM's criterion. The second variable is chosen by the second-order rule (Fan, Chen and Lin, "Working set selection using second
order information for training SVM", 2005).

Minima and maxima run over LANES indices in parallel, four at a time, because a loop with a single running extreme is not vectorised. Adding
0.0 to the running extreme changes no value but keeps the compiler from using a masked store; this alone makes both passes 1.6 to 1.8 times
as fast for n = 512 to 2,000.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled

LANES = 32
N_VECTORS = 9
"""Vectors of a problem: diagonal of K + diag(ridge), ridge, lo, hi, kink, beta, g, u and l; the last four are changed in place.

They are rows of one array: passing one array to a compiled function is faster than nine arguments, and a tuple of nine is slower.
"""

VECTOR_GAP = 136
"""Gap between two vectors, in entries. Vectorised loops test for overlap with ranges rounded up to four times LANES; if the vectors are
closer, they take a slow path (1.5 times slower at n = 500).
"""

BLOCKED_OFFSET = 1e30  # Offset of a variable that cannot move.
MAX_VIOLATION = 1e25  # A violation beyond this means that the matrix is not finite.

SOLVED, CAPPED, STUCK, BROKEN = 0, 1, 2, 3
"""Why the steps ended: tolerance reached, step limit reached, no step possible, numbers not finite."""


@compiled(deferred=True)
def set_offset(k: int, beta: FloatArray, lo: FloatArray, hi: FloatArray, kink: FloatArray, u: FloatArray, low: FloatArray) -> None:
    u[k] = BLOCKED_OFFSET if beta[k] >= hi[k] else (kink[k] if beta[k] >= 0 else -kink[k])
    low[k] = -BLOCKED_OFFSET if beta[k] <= lo[k] else (kink[k] if beta[k] > 0 else -kink[k])


@compiled(deferred=True)
def set_offsets(index: IntArray, beta: Array, lo: Array, hi: Array, kink: Array, u: FloatArray, low: FloatArray) -> None:
    for k in index:
        set_offset(k, beta, lo, hi, kink, u, low)


@compiled
def find_extremes(g: FloatArray, u: FloatArray, low: FloatArray) -> tuple[int, float, float]:
    """Return argmin (g + u), m and M."""
    at, smallest, largest = 0, 3.0 * BLOCKED_OFFSET, -3.0 * BLOCKED_OFFSET
    for k in range(g.size):
        if g[k] + u[k] < smallest:
            at, smallest = k, g[k] + u[k]
        largest = max(largest, g[k] + low[k])
    return at, smallest, largest


@compiled
def gather_row(k: int, source: Array, index: IntArray, have: NDArray[np.bool_], matrix: Array) -> None:
    """Copy row k of source[index, index] into ``matrix`` at its first use."""
    if not have[k]:
        row, into = source[index[k]], matrix[k]
        for t in range(index.size):
            into[t] = row[index[t]]
        have[k] = True


@compiled
def _lane_maximum(lanes: FloatArray) -> float:
    """Return the largest entry, using four independent chains to avoid waiting for each comparison."""
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    for t in range(4, LANES, 4):
        a, b, c, d = max(a, lanes[t]), max(b, lanes[t + 1]), max(c, lanes[t + 2]), max(d, lanes[t + 3])
    return max(max(a, b), max(c, d))


@compiled
def _lane_minimum(lanes: FloatArray) -> float:
    a, b, c, d = lanes[0], lanes[1], lanes[2], lanes[3]
    for t in range(4, LANES, 4):
        a, b, c, d = min(a, lanes[t]), min(b, lanes[t + 1]), min(c, lanes[t + 2]), min(d, lanes[t + 3])
    return min(min(a, b), min(c, d))


@compiled
def _find_lane(lanes: FloatArray, value: float) -> int:
    """Return the first lane that holds ``value``, or LANES if none does."""
    t = 0
    while t < LANES and lanes[t] != value:
        t += 1
    return t


@compiled
def _choose_partner(row: Array, own: float, m: float, floor: float, diag: Array, g: Array, low: Array, best: FloatArray) -> int:
    """Return argmax of max(0, g + l - m)^2 / curvature, or -1 if it is 0."""
    n = g.size
    whole, fours = n - n % LANES, n - n % (4 * LANES)
    best[:] = 0.0
    for base in range(0, fours, 4 * LANES):
        for t in range(LANES):
            i = base + t
            j, k, h = i + LANES, i + 2 * LANES, i + 3 * LANES
            p, q = max(g[i] + low[i] - m, 0.0), max(g[j] + low[j] - m, 0.0)
            r, s = max(g[k] + low[k] - m, 0.0), max(g[h] + low[h] - m, 0.0)
            a, b = max(own + diag[i] - 2.0 * np.float64(row[i]), floor), max(own + diag[j] - 2.0 * np.float64(row[j]), floor)
            c, e = max(own + diag[k] - 2.0 * np.float64(row[k]), floor), max(own + diag[h] - 2.0 * np.float64(row[h]), floor)
            best[t] = max(best[t] + 0.0, max(max(p * p / a, q * q / b), max(r * r / c, s * s / e)))
    # The last block overlaps the one before it, so that only problems below LANES variables have a scalar tail. Through slices: the
    # compiler cannot prove that sums of indices are not negative, and would load entry by entry.
    for at in range(fours, n if whole else 0, LANES):
        base = min(at, n - LANES)
        gs, ls, ds, rs = g[base : base + LANES], low[base : base + LANES], diag[base : base + LANES], row[base : base + LANES]
        for t in range(LANES):
            p = max(gs[t] + ls[t] - m, 0.0)
            best[t] = max(best[t] + 0.0, p * p / max(own + ds[t] - 2.0 * np.float64(rs[t]), floor))
    last = n - LANES if whole else 0
    for k in range(0 if whole else n):
        p = max(g[k] + low[k] - m, 0.0)
        best[k] = max(best[k] + 0.0, p * p / max(own + diag[k] - 2.0 * np.float64(row[k]), floor))
    top = _lane_maximum(best)
    if not top > 0.0:
        return -1
    lane = _find_lane(best, top)
    # The same operations in IEEE arithmetic give the same bits, so equality finds the index.
    for k in range(lane, whole, LANES):
        p = max(g[k] + low[k] - m, 0.0)
        if p * p / max(own + diag[k] - 2.0 * np.float64(row[k]), floor) == top:
            return k
    return last + lane


@compiled
def _add_pair_step(
    d: float, row_i: Array, row_j: Array, g: FloatArray, u: FloatArray, low: FloatArray, least: FloatArray, most: FloatArray
) -> tuple[int, float, float]:
    """Add d (row_i - row_j) to g and return the new argmin (g + u), m and M."""
    n = g.size
    whole, fours = n - n % LANES, n - n % (4 * LANES)
    least[:] = 3.0 * BLOCKED_OFFSET
    most[:] = -3.0 * BLOCKED_OFFSET
    for base in range(0, fours, 4 * LANES):
        for t in range(LANES):
            i = base + t
            j, k, h = i + LANES, i + 2 * LANES, i + 3 * LANES
            p = g[i] + d * (np.float64(row_i[i]) - np.float64(row_j[i]))
            q = g[j] + d * (np.float64(row_i[j]) - np.float64(row_j[j]))
            r = g[k] + d * (np.float64(row_i[k]) - np.float64(row_j[k]))
            s = g[h] + d * (np.float64(row_i[h]) - np.float64(row_j[h]))
            g[i] = p
            g[j] = q
            g[k] = r
            g[h] = s
            least[t] = min(least[t] + 0.0, min(min(p + u[i], q + u[j]), min(r + u[k], s + u[h])))
            most[t] = max(most[t] + 0.0, max(max(p + low[i], q + low[j]), max(r + low[k], s + low[h])))
    for at in range(fours, n if whole else 0, LANES):
        base = min(at, n - LANES)
        gs, us, ls = g[base : base + LANES], u[base : base + LANES], low[base : base + LANES]
        ri, rj = row_i[base : base + LANES], row_j[base : base + LANES]
        moved = at - base
        for t in range(LANES):
            # Entries that the block before has moved stay.
            p = gs[t] + (d if t >= moved else 0.0) * (np.float64(ri[t]) - np.float64(rj[t]))
            gs[t] = p
            least[t] = min(least[t] + 0.0, p + us[t])
            most[t] = max(most[t] + 0.0, p + ls[t])
    last = n - LANES if whole else 0
    for k in range(0 if whole else n):
        g[k] += d * (np.float64(row_i[k]) - np.float64(row_j[k]))
        least[k] = min(least[k] + 0.0, g[k] + u[k])
        most[k] = max(most[k] + 0.0, g[k] + low[k])
    m = _lane_minimum(least)
    lane = _find_lane(least, m)
    for k in range(lane, whole, LANES):
        if g[k] + u[k] == m:
            return k, m, _lane_maximum(most)
    return min(last + lane, n - 1), m, _lane_maximum(most)


@compiled
def move_pairs(
    source: Array, index: IntArray, have: Array, matrix: Array, vectors: FloatArray, floor: float, tol: float, cap: int, worst: FloatArray
) -> tuple[int, int]:
    """Move pairs until M - m < tol, or for ``cap`` steps; return the number of steps and SOLVED, CAPPED, STUCK or BROKEN.

    Row k of the problem's matrix is matrix[k] if have[k]; otherwise it is copied from source[index[k], index] into matrix[k]. ``vectors``
    is ``(N_VECTORS, >= n)``, and ``floor`` the smallest curvature of a step. ``worst``, ``(1,)``, receives the most negative curvature
    relative to the diagonal of its pair.
    """
    n = index.size
    diag, ridge, lo, hi, kink = vectors[0, :n], vectors[1, :n], vectors[2, :n], vectors[3, :n], vectors[4, :n]
    beta, g, u, low = vectors[5, :n], vectors[6, :n], vectors[7, :n], vectors[8, :n]
    lanes, other = np.empty(LANES), np.empty(LANES)
    i, m, top = find_extremes(g, u, low)
    steps = 0
    while True:
        if not abs(m) + abs(top) < MAX_VIOLATION:
            return steps, (SOLVED if m > MAX_VIOLATION or top < -MAX_VIOLATION else BROKEN)
        if top - m < tol:
            return steps, SOLVED
        if steps >= cap:
            return steps, CAPPED
        gather_row(i, source, index, have, matrix)
        row_i = matrix[i]
        j = _choose_partner(row_i, diag[i], m, floor, diag, g, low, lanes)
        if j < 0:
            return steps, STUCK
        gather_row(j, source, index, have, matrix)
        curvature = diag[i] + diag[j] - 2.0 * np.float64(row_i[j])
        worst[0] = min(worst[0], curvature / (diag[i] + diag[j] + 1e-300))
        d = (g[j] + low[j] - m) / max(curvature, floor)
        to_i = min(0.0, hi[i]) if kink[i] > 0 and beta[i] < 0 else hi[i]
        to_j = max(0.0, lo[j]) if kink[j] > 0 and beta[j] > 0 else lo[j]
        longest = min(to_i - beta[i], beta[j] - to_j)
        d = min(d, longest)
        # A variable that reaches its end is set there exactly: the offsets test equality.
        beta[i] = to_i if d == to_i - beta[i] else beta[i] + d
        beta[j] = to_j if d == beta[j] - to_j else beta[j] - d
        g[i] += d * ridge[i]
        g[j] -= d * ridge[j]
        set_offset(i, beta, lo, hi, kink, u, low)
        set_offset(j, beta, lo, hi, kink, u, low)
        i, m, top = _add_pair_step(d, row_i, matrix[j], g, u, low, lanes, other)
        steps += 1


@compiled
def _add_single_step(
    d: float, row: Array, g: FloatArray, u: FloatArray, low: FloatArray, weight: FloatArray, most: FloatArray, gain: FloatArray
) -> tuple[int, float]:
    """Add ``d * row`` to g. Return the variable with the largest gain, violation^2 / curvature, and the largest violation."""
    n = g.size
    whole = n - n % LANES
    most[:] = 0.0
    gain[:] = 0.0
    for base in range(0, whole, LANES):
        for t in range(LANES):
            k = base + t
            p = g[k] + d * np.float64(row[k])
            g[k] = p
            v = max(max(-(p + u[k]), p + low[k]), 0.0)
            most[t] = max(most[t] + 0.0, v)
            gain[t] = max(gain[t] + 0.0, v * v * weight[k])
    for k in range(whole, n):
        g[k] += d * np.float64(row[k])
    last = n - LANES if whole else 0
    for t in range(min(LANES, n)):
        k = last + t
        v = max(max(-(g[k] + u[k]), g[k] + low[k]), 0.0)
        most[t] = max(most[t] + 0.0, v)
        gain[t] = max(gain[t] + 0.0, v * v * weight[k])
    best = _lane_maximum(gain)
    if not best > 0.0:
        return -1, _lane_maximum(most)
    lane = _find_lane(gain, best)
    for k in range(lane, whole, LANES):
        v = max(max(-(g[k] + u[k]), g[k] + low[k]), 0.0)
        if v * v * weight[k] == best:
            return k, _lane_maximum(most)
    return last + lane, _lane_maximum(most)


@compiled
def move_singles(
    source: Array, index: IntArray, have: Array, matrix: Array, vectors: FloatArray, floor: float, tol: float, cap: int, worst: FloatArray
) -> tuple[int, int]:
    """Move one variable at a time (the sum of beta is free) until max(-m, M) < tol; arguments as in :func:`move_pairs`."""
    n = index.size
    diag, ridge, lo, hi, kink = vectors[0, :n], vectors[1, :n], vectors[2, :n], vectors[3, :n], vectors[4, :n]
    beta, g, u, low = vectors[5, :n], vectors[6, :n], vectors[7, :n], vectors[8, :n]
    lanes, other = np.empty(LANES), np.empty(LANES)
    weight = np.empty(g.size)
    for k in range(g.size):
        weight[k] = 1.0 / max(diag[k], floor)
    # A step of length zero along any row: it only selects.
    gather_row(int(np.int64(0)), source, index, have, matrix)
    i, top = _add_single_step(0.0, matrix[0], g, u, low, weight, lanes, other)
    steps = 0
    while True:
        if not top < MAX_VIOLATION:
            return steps, BROKEN
        if top < tol:
            return steps, SOLVED
        if steps >= cap:
            return steps, CAPPED
        if i < 0:
            return steps, STUCK
        gather_row(i, source, index, have, matrix)
        up = -(g[i] + u[i]) >= g[i] + low[i]
        slope = g[i] + u[i] if up else g[i] + low[i]
        at = beta[i]
        if up:
            end = min(0.0, hi[i]) if kink[i] > 0 and at < 0 else hi[i]
            d = min(-slope * weight[i], end - at)
        else:
            end = max(0.0, lo[i]) if kink[i] > 0 and at > 0 else lo[i]
            d = max(-slope * weight[i], end - at)
        beta[i] = end if d == end - at else at + d
        g[i] += d * ridge[i]
        set_offset(i, beta, lo, hi, kink, u, low)
        i, top = _add_single_step(d, matrix[i], g, u, low, weight, lanes, other)
        steps += 1
