"""The sub-problem in terms of its kernel weights, solved by reduced gradients; slow, used as a reference for the other solvers.

J(mu) = max_{u in A} U(u) - 1/2 sum_h mu_h ||c_h||^2 = min_{omega, g} 1/2 sum_h ||omega_h||^2 / mu_h + P(Z omega + X g)

is minimised over the simplex (equation (29) of Tan, Tsang and Wang, JMLR 15, 2014, with its missing linear term). The derivative of J in
mu_h is -1/2 ||c_h||^2 at the solution for mu, where omega_h = mu_h c_h. J equals F at the best mu and is larger elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..jit import one_thread
from ..weights.domains import Simplex
from ..weights.reduced_gradient import ROUND_OFF, reduced_step
from .apg import group_norms
from .hessian import free_shift, newton_direction
from .line_search import Trial, descend
from .problem import GroupProblem, GroupSolution, Warm, certify, checked_limits, solution
from .rows import Evaluation, LiveColumns, Rows

MAX_STEPS = 2_000  # Safety net when no cap is given.
INNER_TOL = 1e-14
"""Relative gap required of the problem at fixed weights, about its round-off. The error of J's derivative is the square root of this gap.
"""

SLOPE_SHARE = 1e-3  # The search of a line ends when J's derivative has fallen to this share of the first one.
MAX_IDLE_STEPS = 10  # Steps in a row without progress after which the solver gives up.
MIN_WEIGHT = 1e-12  # Weights below this become zero.


@dataclass(frozen=True)
class _Master:
    """The solution at fixed kernel weights."""

    weights: FloatArray
    omega: FloatArray
    evaluation: Evaluation
    value: float
    slopes: FloatArray


def solve_mkl(problem: GroupProblem, *, warm: Warm | None = None, tol: float = 1e-3, max_iter: int | None = None) -> GroupSolution:
    """Minimise J over the simplex by reduced gradients with a line search on its derivative (SimpleMKL).

    Parameters
    ----------
    warm : tuple of ndarrays of shape (p,) and (q,), optional
        Initial omega and unpenalised coefficients of the first problem at fixed weights. The weights themselves start uniform.
    tol : float
        Stop when the duality gap is at most tol F.
    max_iter : int, optional
        Largest number of reduced-gradient steps.
    """
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    with one_thread():
        return _ReducedGradient(problem, warm, tol).run(limit)


class _ReducedGradient:
    def __init__(self, problem: GroupProblem, warm: Warm | None, tol: float) -> None:
        self._problem, self._tol = problem, tol
        omega, self._free = problem.start(warm)
        self._master = self._solve(Simplex().start(len(problem.starts) - 1), omega)

    def run(self, limit: int) -> GroupSolution:
        steps = idle = 0
        while True:
            point = certify(self._problem, self._master.omega, self._problem.rows.evaluate(self._master.omega, self._free))
            if point.gap <= self._tol * point.objective:
                return solution(self._problem, point, steps, "gap")
            if steps == limit or idle == MAX_IDLE_STEPS:
                return solution(self._problem, point, steps, "max_iter" if steps == limit else "no_progress")
            before = self._master
            self._master = reduced_step(before, lambda weights, previous: self._solve(weights, previous.omega), flat=SLOPE_SHARE)
            idle = 0 if self._master.value < before.value * (1.0 - ROUND_OFF) else idle + 1
            steps += 1

    def _solve(self, weights: FloatArray, omega: FloatArray) -> _Master:
        weights = np.where(weights > MIN_WEIGHT, weights, 0.0)
        weights /= weights.sum()
        ridge = _Ridge(self._problem, weights)
        omega, evaluation = ridge.solve(omega, self._free)
        self._free = evaluation.free
        slopes = -0.5 * group_norms(evaluation.correlations, self._problem.starts) ** 2
        return _Master(weights, omega, evaluation, ridge.value(omega, evaluation), slopes)


class _Ridge:
    """min 1/2 sum_h ||omega_h||^2 / mu_h + P by Newton steps on the groups with mu_h > 0."""

    def __init__(self, problem: GroupProblem, weights: FloatArray) -> None:
        self._rows = problem.rows
        owner = np.repeat(np.arange(len(weights)), np.diff(problem.starts))
        columns = np.flatnonzero(weights[owner])
        stiffness = 1.0 / weights[owner[columns]]
        self._live = LiveColumns(columns, owner[columns], np.zeros(len(columns)), stiffness)
        self._pull = np.zeros(len(owner))
        self._pull[columns] = stiffness

    def value(self, omega: FloatArray, evaluation: Evaluation) -> float:
        return evaluation.loss + 0.5 * float(omega @ (self._pull * omega))

    def solve(self, omega: FloatArray, free: FloatArray) -> tuple[FloatArray, Evaluation]:
        """Starting from ``omega`` on the non-zero groups, return the minimiser, or the last point before round-off ends the descent."""
        omega = np.where(self._pull > 0, omega, 0.0)
        evaluation = self._rows.evaluate(omega, free)
        previous = np.inf
        for _ in range(200):
            value, pulls = self.value(omega, evaluation), evaluation.correlations[self._live.columns]
            dual = evaluation.utility - 0.5 * float(np.sum(pulls**2 / self._live.stiffness))
            if value - dual <= INNER_TOL * value or value >= previous:
                break
            previous = value
            step, direction = self._newton(omega, evaluation, value)
            omega, evaluation = omega + step * direction, self._rows.advance(step)
        return omega, evaluation

    def _newton(self, omega: FloatArray, evaluation: Evaluation, value: float) -> tuple[float, FloatArray]:
        curvature = self._rows.curvature(len(self._live.columns))
        gradient = (self._pull * omega - evaluation.correlations)[self._live.columns]
        direction = np.zeros_like(omega)
        direction[self._live.columns] = newton_direction(curvature, self._live, gradient, 1.0)
        self._rows.aim(direction, free_shift(direction, curvature))
        slope = float(gradient @ direction[self._live.columns])
        return descend(_RidgeLine(self._rows, self._pull, omega, direction), Trial(0.0, value, slope, np.inf)).step, direction


@dataclass(frozen=True)
class _RidgeLine:
    rows: Rows
    pull: FloatArray
    omega: FloatArray
    direction: FloatArray

    def at(self, steps: list[float]) -> list[Trial]:
        square, cross, length = (
            float(left @ (self.pull * right))
            for left, right in ((self.omega, self.omega), (self.omega, self.direction), (self.direction, self.direction))
        )
        return [
            Trial(step, loss + 0.5 * square + step * (cross + 0.5 * step * length), slope + cross + step * length, bend + length)
            for step, (loss, slope, bend) in zip(steps, self.rows.line(np.array(steps)).T.tolist(), strict=True)
        ]
