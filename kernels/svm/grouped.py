"""Duals with one equality per group of variables: beta sums to zero in every group, and every group has a bias of its own.

max over beta of   c'beta - sum_i kink_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta,   lo <= beta <= hi,  sum of beta over every group = 0

A pair of variables can move only inside one group, so the steps take the group that violates optimality most, move pairs in it
(:func:`gramplane.kernels.svm.smo_steps.pair_steps`) until a tenth of its violation is left, and bring the gradient of all variables up with
the rows that moved.

The bias of a group minimises the primal value sum_i max over t in the box of (c_i - f_i - b) t - kink_i |t| - 1/2 ridge_i t^2, a convex
function of b whose slope is minus the sum of the responses t_i(b). Where the minimum is an interval, as for the hinge without a free
support vector, its middle is taken; where it has no end on one side, as in a group of one class, the end it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from .dual import DenseGram, DualProblem, DualSolution, add_rows, best_response, certify
from .smo_state import FLOORS, curvature_floor
from .smo_steps import BROKEN, CAPPED, OVERFLOW, SOLVED, STUCK, pair_steps, set_offset

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

HALVINGS = 120
"""Halvings of the bracket of a bias; a float64 is exhausted after about 60."""

REFRESH = 100_000
"""Steps after which the gradient is computed anew, so that its round-off does not grow with their number."""


def group_biases(problem: DualProblem, decision: FloatArray) -> FloatArray:
    """Return the bias of every group that minimises the primal value at `decision` = K beta, shape (n_groups,)."""
    groups = problem.groups
    assert groups is not None
    slope = problem.c - decision
    count = int(groups.max()) + 1
    low, high = (np.where(np.bincount(groups) > 0, end, 0.0) for end in (np.inf, -np.inf))
    np.minimum.at(low, groups, slope)
    np.maximum.at(high, groups, slope)
    # Beyond these ends all responses have one sign.
    most = float(np.max(problem.kink))
    low, high = low - most - 1.0 - np.abs(low), high + most + 1.0 + np.abs(high)

    def sums(bias: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(groups, best_response(slope - bias[groups], problem), count), np.float64)

    ends = [_edge(low, high, lambda bias: sums(bias) > 0), _edge(low, high, lambda bias: sums(bias) >= 0)]
    known = [sums(low) > 0, sums(high) < 0]
    left, right = (np.where(there, end, np.nan) for there, end in zip(known, ends, strict=True))
    found = np.where(known[0] & known[1], 0.5 * (left + right), np.where(known[0], left, right))
    return np.where(known[0] | known[1], found, 0.0)


def _edge(low: FloatArray, high: FloatArray, before: Any) -> FloatArray:
    """Return where `before` turns from true to false, per group."""
    low, high = low.copy(), high.copy()
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if ((middle == low) | (middle == high)).all():
            break
        early = before(middle)
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return 0.5 * (low + high)


def grouped_solution(problem: DualProblem, beta: FloatArray, decision: FloatArray, **rest: Any) -> DualSolution:
    """Return the point with the exact biases and their certificate; `rest` are further fields of the solution."""
    biases = group_biases(problem, decision)
    objective, gap = certify(problem, beta, decision, biases)
    return DualSolution(
        beta=beta, bias=0.0, objective=objective, upper=objective + gap, gap=gap, decision=decision, biases=biases, **rest
    )  # fmt: skip


def solve_grouped(gram: DenseGram, problem: DualProblem, beta: FloatArray, g: FloatArray, tol: float, limit: int) -> DualSolution:
    """Solve a problem with groups by steps inside groups; beta and g = (K + diag(ridge)) beta - c are those of the first point."""
    groups = problem.groups
    assert groups is not None
    dtype, ridge = gram.array.dtype, problem.ridges()
    diag = gram.diag() + ridge
    order = np.argsort(groups, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(groups))))
    most = int(np.diff(starts).max())
    place = (order, starts, gram.scratch.take(most * most, dtype))
    fixed = (diag, ridge, problem.lo, problem.hi, problem.kinks(), curvature_floor(diag, dtype))
    worst, steps = np.zeros(1), 0
    while True:
        done, state, violation = group_steps(gram.array, *place, *fixed, beta, g, tol, min(REFRESH, limit - steps), worst)
        steps += done
        if state == BROKEN:
            raise ValueError("Gram matrix: the gradient is not finite: entries are NaN, infinite or overflow")
        if state != CAPPED or steps >= limit:
            bad = bool(worst[0] < -FLOORS[dtype])
            ended = {"iterations": steps, "converged": state == SOLVED, "violation": violation, "indefinite": bad}
            return grouped_solution(problem, beta, g + problem.c - ridge * beta, **ended)
        g = gram.matvec(beta) + ridge * beta - problem.c


@compiled
def group_steps(
    source: NDArray[Any],
    order: IndexArray,
    starts: IndexArray,
    buffer: NDArray[Any],
    diag: FloatArray,
    ridge: FloatArray,
    lo: FloatArray,
    hi: FloatArray,
    kink: FloatArray,
    floor: float,
    beta: FloatArray,
    g: FloatArray,
    tol: float,
    cap: int,
    worst: FloatArray,
) -> tuple[int, int, float]:
    """Move pairs inside groups until no group violates optimality by `tol`, or `cap` steps; beta and g are changed in place.

    Parameters
    ----------
    source : ndarray of shape (n, n)
    order, starts : ndarray
        Variables of group q are order[starts[q] : starts[q + 1]].
    buffer : ndarray
        Room for the matrix of the largest group.
    worst : ndarray of shape (1,)
        Receives the most negative curvature relative to its pair's diagonal.

    Returns
    -------
    tuple of (int, int, float)
        Steps taken, SOLVED, CAPPED, STUCK or BROKEN, and the greatest violation.
    """
    n, groups, steps = beta.size, starts.size - 1, 0
    u, low, stuck = np.empty(n), np.empty(n), np.zeros(groups, np.bool_)
    for k in range(n):
        set_offset(k, beta, lo, hi, kink, u, low)
    while True:
        chosen, most, violation = -1, 0.0, 0.0
        for q in range(groups):
            m, top = 3e30, -3e30
            for p in range(starts[q], starts[q + 1]):
                k = order[p]
                m, top = min(m, float(g[k] + u[k])), max(top, float(g[k] + low[k]))
            if m > OVERFLOW or top < -OVERFLOW:
                continue
            if not abs(m) + abs(top) < OVERFLOW:
                return steps, BROKEN, np.inf
            violation = max(violation, top - m)
            if top - m > most and not stuck[q]:
                chosen, most = q, top - m
        if violation < tol:
            return steps, SOLVED, violation
        if steps >= cap or chosen < 0:
            return steps, CAPPED if chosen >= 0 else STUCK, violation
        own = order[starts[chosen] : starts[chosen + 1]]
        a = own.size
        before, inner = beta[own], float(max(0.9 * tol, 0.1 * most))
        state = diag[own], ridge[own], lo[own], hi[own], kink[own]
        own_beta, own_g, own_u, own_low = before.copy(), g[own], u[own], low[own]
        have, square = np.zeros(a, np.bool_), buffer[: a * a].reshape((a, a))
        room = min(cap - steps, max(200, 4 * a))
        done, _ = pair_steps(
            source, own, have, square, state[0], state[1], state[2], state[3], state[4], floor,
            own_beta, own_g, own_u, own_low, inner, room, worst,
        )  # fmt: skip
        steps += done
        if done > 0:
            stuck[:] = False
        stuck[chosen] = done == 0
        change, count, moved = np.zeros(n), 0, np.empty(a, np.int64)
        for p in range(a):
            k = own[p]
            if own_beta[p] != before[p]:
                change[k] = own_beta[p] - before[p]
                beta[k] = own_beta[p]
                moved[count] = k
                count += 1
        add_rows(g, source, moved[:count], change)
        for p in range(count):
            k = moved[p]
            g[k] += change[k] * ridge[k]
            set_offset(k, beta, lo, hi, kink, u, low)
