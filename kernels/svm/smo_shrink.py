"""Shrinking: SMO steps on the variables that can still move, and the certificate of the result.

A variable is active if it can form a violating pair with the variable at the opposite extreme: g + u <= M or g + l >= m (notation of
:mod:`gramplane.kernels.svm.smo_steps`). The rows of active variables are copied side by side at first use. Steps on active variables
leave g of the others unchanged; these entries of g are updated later, with the matrix rows of the variables that moved. A problem counts
as solved only after all variables have been checked.

The driver is plain Python, because the loops ran at half the speed when driver and steps were compiled into one function.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .dual import DenseGram, DualProblem, DualSolution, Gram, Warm, add_rows, best_response, certified_solution, certify
from .smo_steps import (
    BROKEN,
    CAPPED,
    MAX_VIOLATION,
    N_VECTORS,
    SOLVED,
    STUCK,
    VECTOR_GAP,
    find_extremes,
    move_pairs,
    move_singles,
    set_offset,
    set_offsets,
)

CURVATURE_FLOORS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
"""Smallest curvature of a step, relative to the mean diagonal; below this curvature, the difference of three entries is round-off."""

REFRESH_STEPS = 100_000  # Steps after which the gradient is computed anew, so that its round-off does not grow with their number.
MAX_COPIED_SHARE = 0.6  # Greatest share of active variables for which their rows are copied.

STEPS_PER_VARIABLE, MIN_STEPS = 4, 200  # Steps per active variable between two checks of all variables, and how many at least.

MAX_IDLE_CHECKS = 3  # Checks of all variables in a row without a step, after which the solver is stuck.


class Ends(NamedTuple):
    """The extremes of the slopes, and the violation to compare with the tolerance.

    * ``m``, ``top``: m and M.
    * ``violation``: M - m, or max(-m, M) if the sum is free; 0 if nothing can move.
    """

    m: float
    top: float
    violation: float


def find_ends(m: float, top: float, paired: bool) -> Ends:
    if not paired:
        return Ends(m, top, max(-m, top, 0.0))
    return Ends(m, top, top - m if m < MAX_VIOLATION and top > -MAX_VIOLATION else 0.0)


@compiled
def _find_active(g: FloatArray, u: FloatArray, low: FloatArray, up: float, down: float) -> IntArray:
    active = np.empty(g.size, dtype=np.int64)
    count = 0
    for k in range(g.size):
        active[count] = k
        count += 1 if g[k] + u[k] <= up or g[k] + low[k] >= down else 0
    return active[:count]


class ShrinkingSteps:
    """Steps of :mod:`gramplane.kernels.svm.smo_steps` on one problem with its matrix in memory.

    * ``buffer``: the rows of the active variables; if it cannot hold their square matrix, no copy is made.
    * ``diag``, ``(n,)``: the diagonal of K + diag(ridge).
    * ``floor``: the smallest curvature of a step.
    * ``places``, ``(n,)``: the matrix row of each variable, if some variables share a row; ``buffer`` must then hold n^2 entries.
    """

    def __init__(
        self, problem: DualProblem, matrix: Array, buffer: Array, diag: FloatArray, floor: float, places: IntArray | None = None
    ) -> None:
        self._matrix, self._buffer, self._floor, self._places = matrix, buffer, floor, places
        self._paired = problem.sum_constraint is not None
        self._steps = move_pairs if self._paired else move_singles
        self._vectors = np.empty((N_VECTORS, problem.n + VECTOR_GAP))
        self._state = [row[: problem.n] for row in self._vectors]
        for row, values in zip(self._state, (diag, problem.ridges(), problem.lo, problem.hi, problem.l1_weight)):
            row[:] = values
        self._everything, self._there = np.arange(problem.n), np.ones(problem.n, dtype=np.bool_)
        self._worst = np.zeros(1)

    @property
    def worst(self) -> float:
        """Most negative curvature so far, relative to the diagonal of its pair."""
        return float(self._worst[0])

    def run(self, beta: FloatArray, g: FloatArray, tol: float, cap: int) -> tuple[int, int, Ends]:
        """Move beta and g = (K + diag(ridge)) beta - c in place. Return the number of steps, why the steps ended, and the extremes of
        the slopes over all variables.
        """
        _, _, lo, hi, kink, work_beta, work_g, u, low = self._state
        work_beta[:], work_g[:] = beta, g
        set_offsets(self._everything, work_beta, lo, hi, kink, u, low)
        outcome = self._run(tol, cap)
        beta[:], g[:] = work_beta, work_g
        return outcome

    def _run(self, tol: float, cap: int) -> tuple[int, int, Ends]:
        g, u, low = self._state[6:]
        n, steps, idle = len(g), 0, 0
        while True:
            _, m, top = find_extremes(g, u, low)
            ends = find_ends(m, top, self._paired)
            if ends.violation < tol or not ends.violation < MAX_VIOLATION:
                return steps, SOLVED if ends.violation < tol else BROKEN, ends
            if steps >= cap or idle == MAX_IDLE_CHECKS:
                return steps, CAPPED if steps >= cap else STUCK, ends
            up, down = (top, m) if self._paired else (ends.violation, -ends.violation)
            active = _find_active(g, u, low, up, down)
            if len(active) > MAX_COPIED_SHARE * n or len(active) ** 2 > len(self._buffer):
                done = self._whole(tol, min(max(n // 2, MIN_STEPS), cap - steps))
            else:
                inner = max(0.9 * tol, 0.1 * ends.violation)
                done = self._part(active, inner, min(max(STEPS_PER_VARIABLE * len(active), MIN_STEPS), cap - steps))
            steps, idle = steps + done, 0 if done else idle + 1

    def _whole(self, tol: float, cap: int) -> int:
        if self._places is not None:
            return self._part(self._everything, tol, cap)
        return self._call(self._everything, self._there, self._matrix, self._vectors, tol, cap)

    def _part(self, active: IntArray, tol: float, cap: int) -> int:
        a, n = len(active), len(self._everything)
        part = np.empty((N_VECTORS, a + VECTOR_GAP))
        for row, whole in zip(part, self._state):
            np.take(whole, active, out=row[:a])
        index = active if self._places is None else self._places[active]
        done = self._call(index, np.zeros(a, dtype=np.bool_), self._buffer[: a * a].reshape(a, a), part, tol, cap)
        _, ridge, lo, hi, kink, beta, g, u, low = self._state
        change = np.zeros(n)
        change[active] = part[5, :a] - beta[active]
        beta[active] = part[5, :a]
        moved = np.flatnonzero(change)
        if self._places is None:
            add_rows(g, self._matrix, moved, change)
        else:
            order = len(self._matrix)
            total, weights = np.zeros(order), np.asarray(np.bincount(self._places[moved], change[moved], order), np.float64)
            add_rows(total, self._matrix, np.flatnonzero(weights), weights)
            g += total[self._places]
        g[moved] += change[moved] * ridge[moved]
        set_offsets(moved, beta, lo, hi, kink, u, low)
        return done

    def _call(self, index: IntArray, have: NDArray[np.bool_], matrix: Array, vectors: FloatArray, tol: float, cap: int) -> int:
        return self._steps(self._matrix, index, have, matrix, vectors, self._floor, tol, cap, self._worst)[0]


# -- the start and the certificate, shared with decomposition ---------------------------------------------------------------


def curvature_floor(diag: FloatArray, dtype: np.dtype[Any]) -> float:
    """Return the smallest curvature of a step, positive even for a zero matrix."""
    return CURVATURE_FLOORS[dtype] * (float(diag.mean()) or 1.0)


def first_gradient(gram: Gram, problem: DualProblem, beta: FloatArray, warm: Warm, gradient: FloatArray | None) -> FloatArray:
    """Return (K + diag(ridge)) beta - c. ``gradient``, which is K beta - c at the warm start, is used only if ``beta`` is the warm
    start.
    """
    if gradient is not None and (np.shape(gradient) != (problem.n,) or not np.isfinite(gradient).all()):
        raise ValueError(f"gradient: shape {np.shape(gradient)}, must be ({problem.n},) with finite entries")
    before = np.zeros(problem.n) if warm is None else warm.beta if isinstance(warm, DualSolution) else warm
    if gradient is None or not np.array_equal(before, beta):
        return (gram.matvec(beta) if beta.any() else np.zeros(problem.n)) + problem.ridges() * beta - problem.c
    return gradient + problem.ridges() * beta


def kink_slopes(problem: DualProblem, beta: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the slopes of the kinks upwards and downwards, which variables can rise, and which can fall."""
    e = problem.l1_weight
    return np.where(beta >= 0, e, -e), np.where(beta > 0, e, -e), beta < problem.hi, beta > problem.lo


def _compute_bias(problem: DualProblem, beta: FloatArray, g: FloatArray, ends: Ends) -> float:
    """Return b, the negative mean of ``g + kink slope`` over the free variables. If none is free, return ``-(m + M) / 2``."""
    if problem.sum_constraint is None:
        return 0.0
    up, down, can_rise, can_fall = kink_slopes(problem, beta)
    free = can_rise & can_fall & (up == down)
    if free.any():
        return -float((g + up)[free].mean())
    known = [end for end in ends[:2] if abs(end) < MAX_VIOLATION]
    return -sum(known) / len(known) if known else 0.0


def finish_solve(
    problem: DualProblem, beta: FloatArray, g: FloatArray, ends: Ends, converged: bool, steps: int, indefinite: bool, **details: float
) -> DualSolution:
    decision = g + problem.c if problem.ridge is None else g + problem.c - problem.ridge * beta
    ended = {"iterations": steps, "converged": converged, "violation": ends.violation, "indefinite": bool(indefinite), "details": details}
    return certified_solution(problem, beta, decision, _compute_bias(problem, beta, g, ends), **ended)


# Duals with one equality per group of variables: beta sums to zero in every group, and every group has a bias of its own.
#
# max over beta of   c'beta - sum_i e_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta,   lo <= beta <= hi,  sum of beta over every group = 0
#
# Pairs of variables can move only inside one group, so the steps take the group that violates optimality most, move pairs in it
# (:func:`gramplane.kernels.svm.smo_steps.move_pairs`) until a tenth of its violation is left, and bring the gradient of all variables up to
# date with the rows that moved.
#
# The bias of a group minimises the primal value sum_i max over t in the box of (c_i - f_i - b) t - e_i |t| - 1/2 ridge_i t^2, convex in b
# with minus the sum of the responses t_i(b) as its slope. Where the minimum is an interval, as for the hinge without a free support vector,
# the bias is its middle; where it has only one end, as in a group of one class, that end.


def group_biases(problem: DualProblem, decision: FloatArray) -> FloatArray:
    """Return the bias of each group that minimises the primal value at ``decision`` = K beta, shape (n_groups,)."""
    groups, slope = problem.groups, problem.c - decision
    assert groups is not None
    rows = np.bincount(groups)
    low, high = (np.where(rows > 0, end, 0.0) for end in (np.inf, -np.inf))
    np.minimum.at(low, groups, slope)
    np.maximum.at(high, groups, slope)
    # Beyond these ends all responses have one sign.
    margin = 2.0 * np.max(problem.l1_weight) + np.abs(low) + np.abs(high)
    low, high = low - margin, high + margin
    first, last = (np.asarray(np.bincount(groups, best_response(slope - end[groups], problem)), np.float64) for end in (low, high))
    owner, points, sums, rates = _falling_sums(problem, slope, (low, high), first, np.where(first > last, first - last, 1.0))
    ends, rounding = np.cumsum(np.bincount(owner)) - 1, np.finfo(float).eps * len(points)

    def edge(level: float) -> FloatArray:
        # The first point behind which the sum is not above the level: it falls there, or on the way from the point before.
        k = np.minimum(ends + 1 - np.bincount(owner, sums <= level).astype(np.int64), ends)
        start, rate = sums[k - 1], rates[k - 1]
        falls_before = (rate > 0) & (start - rate * (points[k] - points[k - 1]) <= level)
        way = np.divide(np.maximum(start, 0.0), rate, out=np.full(len(k), np.inf), where=falls_before)
        return np.minimum(points[k], points[k - 1] + way)

    has_left, has_right = first > 0, last < 0
    left, right = edge(rounding), edge(-rounding)
    biases = np.where(has_left & has_right, 0.5 * (left + right), np.where(has_left, left, right))
    return np.where(has_left | has_right, biases, 0.0)


def _falling_sums(
    problem: DualProblem, slope: FloatArray, limits: tuple[FloatArray, FloatArray], first: FloatArray, fall: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Return, for each group, the sum of the responses as a piecewise linear, decreasing function of the bias.

    The result has four arrays: the group of each breakpoint, the breakpoints in ascending order, beginning with the smallest bias of
    the group, the sums at the breakpoints, and the rates of decrease from each breakpoint on. Sums and rates are divided by ``fall``,
    the decrease over all points of the group.
    """
    groups, zeros = problem.groups, np.zeros(len(first))
    assert groups is not None
    still = np.minimum(np.maximum(0.0, problem.lo), problem.hi)
    # A response goes from hi to that of a slope of zero, and from there to lo: at once, or at a rate of 1 / ridge.
    tops, feet = np.concatenate([problem.hi, still]), np.concatenate([still, problem.lo])
    turns = np.concatenate([slope - problem.l1_weight, slope + problem.l1_weight])
    ridge, twice = np.tile(problem.ridges(), 2), np.tile(groups, 2)
    begins, ends = (np.clip(turns - ridge * side, limits[0][twice], limits[1][twice]) for side in (tops, feet))
    rate = np.divide(1.0 / fall[twice], ridge, out=np.zeros_like(ridge), where=ridge > 0)
    drop = np.where(ridge > 0, 0.0, (tops - feet) / fall[twice])
    owner, points = np.concatenate([np.arange(len(first)), twice, twice]), np.concatenate([limits[0], begins, ends])
    order = np.lexsort((points, owner))
    owner, points = owner[order], points[order]
    rates = np.cumsum(np.concatenate([zeros, rate, -rate])[order])
    drops = np.concatenate([zeros, drop, np.zeros_like(drop)])[order]
    is_next = owner[1:] == owner[:-1]
    drops[1:] += np.where(is_next, rates[:-1] * np.diff(points), 0.0)
    total = np.cumsum(drops)
    sums = (first / fall + total[np.concatenate([[True], ~is_next])])[owner] - total
    return owner, points, sums, rates


def grouped_solution(problem: DualProblem, beta: FloatArray, decision: FloatArray, **fields: Any) -> DualSolution:
    """Return the point with the exact biases and their certificate; ``fields`` are further fields of the solution."""
    biases = group_biases(problem, decision)
    objective, gap = certify(problem, beta, decision, biases)
    values = {"objective": objective, "upper": objective + gap, "gap": gap}
    return DualSolution(beta=beta, bias=0.0, decision=decision, biases=biases, **values, **fields)


def group_layout(groups: IntArray, buffer: Array) -> tuple[IntArray, IntArray, Array]:
    """Return the layout of the groups for :func:`move_pairs_in_groups`: order, starts, and a buffer for the matrix of the largest group."""
    return np.argsort(groups, kind="stable"), np.concatenate(([0], np.cumsum(np.bincount(groups)))), buffer


def solve_grouped(gram: DenseGram, problem: DualProblem, beta: FloatArray, g: FloatArray, tol: float, limit: int) -> DualSolution:
    """Solve a problem with groups by steps inside groups, starting at beta with g = (K + diag(ridge)) beta - c."""
    groups = problem.groups
    assert groups is not None
    dtype, ridge = gram.array.dtype, problem.ridges()
    diag = gram.diag() + ridge
    layout = group_layout(groups, gram.scratch.take(int(np.bincount(groups).max()) ** 2, dtype))
    fixed = (diag, ridge, problem.lo, problem.hi, problem.l1_weights())
    floor, worst, steps = curvature_floor(diag, dtype), np.zeros(1), 0
    while True:
        cap = min(REFRESH_STEPS, limit - steps)
        done, state, violation = move_pairs_in_groups(gram.array, layout, fixed, floor, beta, g, tol, cap, worst)
        steps += done
        if state == BROKEN:
            raise ValueError("Gram matrix: the gradient is not finite: entries are NaN, infinite or overflow")
        if state != CAPPED or steps >= limit:
            bad = bool(worst[0] < -CURVATURE_FLOORS[dtype])
            ended = {"iterations": steps, "converged": state == SOLVED, "violation": violation, "indefinite": bad}
            return grouped_solution(problem, beta, g + problem.c - ridge * beta, **ended)
        g = gram.matvec(beta) + ridge * beta - problem.c


@compiled(deferred=True)
def move_pairs_in_groups(
    source: Array, layout: tuple[IntArray, IntArray, Array], fixed: tuple[FloatArray, ...], floor: float, beta: FloatArray, g: FloatArray,
    tol: float, cap: int, worst: FloatArray,
) -> tuple[int, int, float]:  # fmt: skip
    """Move pairs inside groups until no group violates optimality by ``tol``, or for ``cap`` steps; beta and g are changed in place.

    ``source`` is ``(n, n)``. ``layout`` holds order, starts and a buffer for the matrix of the largest group; group q has the variables
    order[starts[q] : starts[q + 1]]. ``fixed`` holds the diagonal of K + diag(ridge), ridge, lo, hi and kink. ``worst``, ``(1,)``, receives
    the most negative curvature relative to the diagonal of its pair. Returns the number of steps, SOLVED, CAPPED, STUCK or BROKEN, and the
    largest violation.
    """
    order, starts, buffer = layout
    diag, ridge, lo, hi, kink = fixed
    n, groups, steps = beta.size, starts.size - 1, 0
    u, low, stuck = np.empty(n), np.empty(n), np.zeros(groups, np.bool_)
    for k in range(n):
        set_offset(k, beta, lo, hi, kink, u, low)
    while True:
        chosen, largest, violation = -1, 0.0, 0.0
        for q in range(groups):
            m, top = 3e30, -3e30
            for p in range(starts[q], starts[q + 1]):
                k = order[p]
                m, top = min(m, float(g[k] + u[k])), max(top, float(g[k] + low[k]))
            if m > MAX_VIOLATION or top < -MAX_VIOLATION:
                continue
            if not abs(m) + abs(top) < MAX_VIOLATION:
                return steps, BROKEN, np.inf
            violation = max(violation, top - m)
            if top - m > largest and not stuck[q]:
                chosen, largest = q, top - m
        if violation < tol:
            return steps, SOLVED, violation
        if steps >= cap or chosen < 0:
            return steps, CAPPED if chosen >= 0 else STUCK, violation
        members = order[starts[chosen] : starts[chosen + 1]]
        a = members.size
        before, inner = beta[members], float(max(0.9 * tol, 0.1 * largest))
        vectors = np.empty((N_VECTORS, a + VECTOR_GAP))
        for p in range(a):
            k = members[p]
            vectors[0, p], vectors[1, p], vectors[2, p], vectors[3, p], vectors[4, p] = diag[k], ridge[k], lo[k], hi[k], kink[k]
            vectors[5, p], vectors[6, p], vectors[7, p], vectors[8, p] = beta[k], g[k], u[k], low[k]
        have, square = np.zeros(a, np.bool_), buffer[: a * a].reshape((a, a))
        budget = min(cap - steps, max(200, 4 * a))
        done, _ = move_pairs(source, members, have, square, vectors, floor, inner, budget, worst)
        steps += done
        if done > 0:
            stuck[:] = False
        stuck[chosen] = done == 0
        change, count, moved = np.zeros(n), 0, np.empty(a, np.int64)
        for p in range(a):
            k = members[p]
            if vectors[5, p] != before[p]:
                change[k] = vectors[5, p] - before[p]
                beta[k] = vectors[5, p]
                moved[count] = k
                count += 1
        add_rows(g, source, moved[:count], change)
        for p in range(count):
            k = moved[p]
            g[k] += change[k] * ridge[k]
            set_offset(k, beta, lo, hi, kink, u, low)
