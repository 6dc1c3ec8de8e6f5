"""Accelerated proximal gradient for the sub-problem, with unpenalised columns eliminated; needs no p x p matrix.

The smooth part is P(omega) = min_g P(Z omega + X g), whose gradient is -Z'u at the best g. This is Algorithm 4 of Tan, Tsang and Wang, JMLR
15, 2014, with corrections: the line search has no cap, the method restarts when F rises, and the bias is never stepped on its own
(docs/theory/fgm.md, "Columns without a penalty" and "Sub-problem").
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import one_thread
from .problem import GroupProblem, GroupSolution, Point, Warm, certify, checked_limits, solution
from .rows import Evaluation

# Proximal operators with closed forms.


def group_norms(omega: FloatArray, starts: IntArray) -> FloatArray:
    """Return the norm of each group ``omega[starts[h]:starts[h + 1]]``, (n_groups,); groups must not be empty."""
    return np.sqrt(np.add.reduceat(omega * omega, starts[:-1]))


def prox_squared_mixed_norm(u: FloatArray, starts: IntArray, tau: float) -> tuple[FloatArray, float]:
    r"""Minimise tau/2 \|omega - u\|^2 + 1/2 (sum_h \|omega_h\|)^2; return omega and the threshold.

    The threshold shrinks every group by the same length: omega_h = u_h max(0, 1 - threshold / \|u_h\|). It equals sum_h \|omega_h\| / tau,
    so the penalty needs no further computation. Groups must not be empty (source: equation (34) and Algorithm 3 of Tan, Tsang and Wang,
    JMLR 15, 2014, with the indices corrected).
    """
    if not tau > 0:
        raise ValueError(f"tau={tau!r}: must be positive")
    norms = group_norms(u, starts)
    threshold = squared_sum_threshold(norms, tau)
    # Division only where the group survives: a zero group stays zero without 0/0.
    factor = np.zeros_like(norms)
    alive = norms > threshold
    factor[alive] = 1.0 - threshold / norms[alive]
    return u * np.repeat(factor, np.diff(starts)), threshold


def squared_sum_threshold(norms: FloatArray, tau: float) -> float:
    """Return the common shrinkage of non-negative numbers under the penalty 1/2 (sum)^2.

    With the numbers in descending order o, the threshold is sum_{i <= rho} o_i / (tau + rho) for the largest rho with o_rho (tau + rho) >
    sum_{i <= rho} o_i, and 0 if all are zero. Unlike the printed form, this one has no cancellation.
    """
    ordered = np.sort(norms)[::-1]
    sums = np.cumsum(ordered)
    weights = tau + np.arange(1, len(ordered) + 1)
    shrunk = np.flatnonzero(ordered * weights > sums)
    return float(sums[shrunk[-1]] / weights[shrunk[-1]]) if shrunk.size else 0.0


Until = Literal["gap", "decrease"]

MAX_STEPS = 20_000  # Safety net when no cap is given.
ETA = 0.7
"""Factor of the proximal weight tau: tau is divided by ETA after a failed trial and multiplied by ETA only at a restart, as the
convergence proof requires.
"""

BOUND_SLACK = 1e-12  # Relative round-off granted to the quadratic bound.
ROUND_OFF = 1e-14  # Relative changes of F below this are round-off: neither progress nor a reason to restart.
MAX_IDLE_STEPS = 100
"""Consecutive steps without progress after which the solver stops. The gap keeps closing for a while after F stops changing visibly."""

FIRST_STEPS = np.concatenate([[0.0], 4.0 ** np.arange(-16, 17)])
"""Trial steps along the gradient for a loss that is linear at the starting point: the steepest secant of the slope over these steps
replaces the curvature.
"""


def solve_apg(
    problem: GroupProblem, *, warm: Warm | None = None, tol: float = 1e-3, max_iter: int | None = None, until: Until = "gap"
) -> GroupSolution:
    """Minimise 1/2 (sum_h ||omega_h||)^2 + P(Z omega + X g) by accelerated proximal gradient steps.

    Parameters
    ----------
    warm : tuple of ndarrays of shape (p,) and (q,), optional
        Initial omega and unpenalised coefficients.
    max_iter : int, optional
        Largest number of proximal steps.
    until : {"gap", "decrease"}
        ``"gap"`` stops when the duality gap is at most tol F. ``"decrease"``, the paper's rule (41), stops when a step lowers F by at most
        tol F; it is fast but leaves gaps of 30 to 50 % of F.
    """
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    if until not in ("gap", "decrease"):
        raise ValueError(f"until={until!r}: must be 'gap' or 'decrease'")
    with one_thread():
        return _Accelerated(problem, warm, tol, until).run(limit)


class _Accelerated:
    def __init__(self, problem: GroupProblem, warm: Warm | None, tol: float, until: str) -> None:
        self._problem, self._rows, self._tol, self._until = problem, problem.rows, tol, until
        omega, self._free = problem.start(warm)
        self._extrapolated, self._evaluation = omega, self._evaluate(omega)
        self._point = certify(problem, omega, self._evaluation)
        self._bound = self._point.objective - self._point.gap
        self._momentum, self._idle_steps = 1.0, 0
        self._tau = self._first_tau()

    def run(self, limit: int) -> GroupSolution:
        steps = 0
        stop = "gap" if self._has_converged(self._point.objective) and self._until == "gap" else None
        while stop is None:
            if steps == limit:
                stop = "max_iter"
                break
            stop, steps = self._step(), steps + 1
        return solution(self._problem, certify(self._problem, self._point.omega, self._evaluate(self._point.omega)), steps, stop)

    def _step(self) -> str | None:
        """Take one proximal step from the extrapolated point; if F would rise, restart from the current point instead."""
        omega, gamma, loss = self._proximal()
        objective = loss + 0.5 * gamma * gamma
        if objective > self._point.objective * (1.0 + ROUND_OFF) and self._momentum > 1.0:
            self._momentum, self._tau = 1.0, self._tau * ETA
            return self._extrapolate(self._point.omega)
        before, previous = self._point.objective, self._point.omega
        self._idle_steps = 0 if objective < before * (1.0 - ROUND_OFF) else self._idle_steps + 1
        # The loss is taken at the extrapolated point's g: an upper bound on F until the point is evaluated.
        nothing = np.zeros(0)
        self._point = Point(omega, self._evaluation, nothing, gamma, objective, objective - self._bound, nothing)
        if self._until == "gap" and self._has_converged(objective):
            # The gap with the new point's own dual variables, which are the ones handed back.
            self._point = certify(self._problem, omega, self._evaluate(omega))
            if self._point.gap <= self._tol * self._point.objective:
                return "gap"
        if self._until == "decrease" and before - objective <= self._tol * before:
            return "decrease"
        if self._idle_steps == MAX_IDLE_STEPS:
            return "no_progress"
        momentum = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self._momentum**2))
        self._extrapolate(omega + (self._momentum - 1.0) / momentum * (omega - previous))
        self._momentum = momentum
        return None

    def _proximal(self) -> tuple[FloatArray, float, float]:
        """Return the proximal point of the extrapolated point, the sum of its group norms, and its loss; tau rises until the upper bound
        holds.
        """
        correlations, loss = self._evaluation.correlations, self._evaluation.loss
        while True:
            omega, threshold = prox_squared_mixed_norm(self._extrapolated + correlations / self._tau, self._problem.starts, self._tau)
            change = omega - self._extrapolated
            self._rows.aim(change, np.zeros(self._rows.q))
            # At a fixed g the loss is an upper bound on the eliminated one, so the test is only stricter.
            reached, slope = self._rows.line(np.ones(1))[:2, 0].tolist()
            promised, spread = -float(correlations @ change), self._tau * float(change @ change)
            excess, turn = reached - loss - promised - 0.5 * spread, slope - promised - spread
            # Close to the optimum the differences of losses are round-off, and accepting them would let tau fall without end; the change of
            # the slope along the step is still exact there.
            if excess <= 0 or (excess <= BOUND_SLACK * loss and turn <= 0):
                return omega, threshold * self._tau, reached
            self._tau /= ETA

    def _extrapolate(self, ahead: FloatArray) -> None:
        self._extrapolated, self._evaluation = ahead, self._evaluate(ahead)
        there = certify(self._problem, ahead, self._evaluation)
        self._bound = max(self._bound, there.objective - there.gap)

    def _evaluate(self, omega: FloatArray) -> Evaluation:
        evaluation = self._rows.evaluate(omega, self._free)
        self._free = evaluation.free
        return evaluation

    def _has_converged(self, objective: float) -> bool:
        return objective - self._bound <= self._tol * objective

    def _first_tau(self) -> float:
        """Return the curvature of P along its gradient: a lower bound of the Lipschitz constant, accurate to a small factor."""
        gradient = self._evaluation.correlations
        square = float(gradient @ gradient)
        if square == 0:
            return 1.0
        self._rows.aim(gradient, np.zeros(self._rows.q))
        curvature = float(self._rows.line(np.zeros(1))[2, 0])
        if curvature == 0:
            # Every row lies on a straight piece of its loss: the steepest secant of the slope instead.
            _, slopes, _ = self._rows.line(FIRST_STEPS)
            curvature = float(np.max((slopes[1:] - slopes[0]) / FIRST_STEPS[1:]))
        return max(curvature / square, 1e-300)
