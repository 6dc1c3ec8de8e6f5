"""Shrinking: steps on the variables that can still move, whose rows are copied side by side when they are first used; the certificate.

Active are the variables that can move against the other end of the violation: g + u <= M or g + l >= m. Steps on them leave g of the others
unchanged; it is updated with the rows that moved, and no problem counts as solved before all variables have been checked.

The driver is plain Python: compiled into one function with the steps, their loops lost half their speed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .dual import DualProblem, DualSolution, Gram, Warm, add_rows, certified_solution
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
    set_offsets,
)

CURVATURE_FLOORS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
"""Least curvature of a step over the mean diagonal: below it the difference of three entries is round-off."""

REFRESH_STEPS = 100_000  # Steps after which the gradient is computed anew, so that its round-off does not grow with their number.
MAX_COPIED_SHARE = 0.6  # Greatest share of active variables for which their rows are copied.

STEPS_PER_VARIABLE, MIN_STEPS = 4, 200  # Steps per active variable between two checks of all variables, and how many at least.

MAX_IDLE_CHECKS = 3  # Checks of all variables in a row without a step, after which the solver is stuck.


class Ends(NamedTuple):
    """m, M and what is compared with the tolerance: M - m, or max(-m, M) when sums are free; 0 if nothing can move."""

    m: float
    top: float
    violation: float


def find_ends(m: float, top: float, paired: bool) -> Ends:
    """Return the ends with their violation."""
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
    """Steps of :mod:`gramplane.kernels.svm.smo_steps` on one problem with its matrix in memory. ``buffer`` takes the rows of the active
    variables; where it is smaller than their square, no copy is made. ``diag``, ``(n,)``, is the diagonal of K + diag(ridge), ``floor`` the
    least curvature of a step, ``places``, ``(n,)``, the row of the matrix of every variable, where some share theirs; `buffer` must hold
    n^2 entries then.
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
        """Most negative curvature so far, relative to its pair's diagonal."""
        return float(self._worst[0])

    def run(self, beta: FloatArray, g: FloatArray, tol: float, cap: int) -> tuple[int, int, Ends]:
        """Move beta and g = (K + diag(ridge)) beta - c in place; return steps, why they ended, and the ends over all variables."""
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
    """Return the least curvature of a step, positive even for a zero matrix."""
    return CURVATURE_FLOORS[dtype] * (float(diag.mean()) or 1.0)


def first_gradient(gram: Gram, problem: DualProblem, beta: FloatArray, warm: Warm, gradient: FloatArray | None) -> FloatArray:
    """Return (K + diag(ridge)) beta - c: from ``gradient`` = K beta - c at the warm start if beta is that, else computed."""
    if gradient is not None and (np.shape(gradient) != (problem.n,) or not np.isfinite(gradient).all()):
        raise ValueError(f"gradient: shape {np.shape(gradient)}, must be ({problem.n},) with finite entries")
    before = np.zeros(problem.n) if warm is None else warm.beta if isinstance(warm, DualSolution) else warm
    if gradient is None or not np.array_equal(before, beta):
        return (gram.matvec(beta) if beta.any() else np.zeros(problem.n)) + problem.ridges() * beta - problem.c
    return gradient + problem.ridges() * beta


def kink_slopes(problem: DualProblem, beta: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the slopes of the kinks upwards and downwards, and which variables can rise and fall."""
    e = problem.l1_weight
    return np.where(beta >= 0, e, -e), np.where(beta > 0, e, -e), beta < problem.hi, beta > problem.lo


def _compute_bias(problem: DualProblem, beta: FloatArray, g: FloatArray, ends: Ends) -> float:
    """Return b: minus the mean of g + kink slope over free variables; if none is free, minus the middle of m and M."""
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
    """Return the solution at (beta, g)."""
    decision = g + problem.c if problem.ridge is None else g + problem.c - problem.ridge * beta
    ended = {"iterations": steps, "converged": converged, "violation": ends.violation, "indefinite": bool(indefinite), "details": details}
    return certified_solution(problem, beta, decision, _compute_bias(problem, beta, g, ends), **ended)
