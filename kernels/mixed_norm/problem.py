"""The sub-problem of the Feature Generating Machine, its certificate and its solution.

min over (omega, b) of   F = 1/2 (sum_h ||omega_h||)^2 + P(sum_h Z_h omega_h, b)

with one group h per cut (equation (31) of Tan, Tsang and Wang, JMLR 15, 2014; docs/methods.md, "Sub-problem"). The dual value of any
u = alpha y with sum_i u_i = 0 (when a bias is fitted) is U(alpha) - 1/2 max_h ||c_h||^2, c = Z'u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from ..losses import margin_loss
from .rows import Evaluation, Rows

Warm = tuple[FloatArray, float]


@dataclass(frozen=True)
class GroupProblem:
    """One sub-problem: group h holds the columns starts[h]..starts[h + 1] - 1 of Z, at least one, possibly all zero. A feature chosen by
    several cuts has a column in each. ``loss`` is that of the rows. With ``fit_bias`` decision values are z - b instead of z; it needs rows
    of both classes with positive cost: with one class alone b would be infinite.
    """

    rows: Rows
    starts: IntArray
    loss: str
    fit_bias: bool

    def __post_init__(self) -> None:
        margin_loss(self.loss)
        if self.rows.loss != self.loss:
            raise ValueError(f"loss={self.loss!r}: the rows were made for {self.rows.loss!r}")
        starts = self.starts
        if len(starts) < 2 or starts[0] != 0 or starts[-1] != self.rows.p or (starts[1:] <= starts[:-1]).any():
            raise ValueError(f"starts={starts.tolist()}: must rise from 0 to the {self.rows.p} columns of Z without an empty group")
        if self.fit_bias and not all(cost > 0 for cost in self.rows.class_cost):
            sums = f"the costs of the positive and of the negative rows sum to {self.rows.class_cost}"
            raise ValueError(f"fit_bias=True: {sums}: both classes need a row with positive cost")

    def start(self, warm: Warm | None) -> tuple[FloatArray, float | None]:
        """Return the first (omega, bias) of a solver: the warm start, or zero."""
        omega, bias = (np.zeros(self.rows.p), 0.0) if warm is None else (np.array(warm[0], dtype=np.float64), float(warm[1]))
        if omega.shape != (self.rows.p,):
            raise ValueError(f"warm: omega has shape {omega.shape}, must be ({self.rows.p},)")
        if not (np.isfinite(omega).all() and np.isfinite(bias)):
            raise ValueError("warm: omega and bias must be finite")
        return omega, bias if self.fit_bias else None


class Point(NamedTuple):
    """A point with its value and certificate. ``norms``, ``pulls``: ``(t,)``, ||omega_h|| and ||c_h||; ``gamma``: sum of the former;
    ``objective``: F; ``gap``: F minus the dual value of this point's own alpha: an upper bound on F - F*; ``strongest``: the greatest
    ||c_h||; ``shortest``: the least ||omega_h|| that is not zero; infinity if all are.
    """

    omega: FloatArray
    evaluation: Evaluation
    norms: FloatArray
    gamma: float
    objective: float
    gap: float
    pulls: FloatArray
    strongest: float = math.inf
    shortest: float = 0.0


@compiled
def group_lengths(
    omega: FloatArray, correlations: FloatArray, starts: IntArray
) -> tuple[FloatArray, FloatArray, tuple[float, float, float]]:
    """Return ||omega_h|| and ||c_h|| of every group; the sum and the least positive one of the former, the greatest of the latter."""
    groups, gamma, shortest, strongest = starts.size - 1, 0.0, np.inf, 0.0
    norms, pulls = np.empty(groups), np.empty(groups)
    for h in range(groups):
        square, correlation = 0.0, 0.0
        for j in range(starts[h], starts[h + 1]):
            square += omega[j] * omega[j]
            correlation += correlations[j] * correlations[j]
        norms[h] = math.sqrt(square)
        pulls[h] = math.sqrt(correlation)
        gamma += norms[h]
        if norms[h] > 0.0:
            shortest = min(shortest, norms[h])
        # Written so that NaN is kept, for the caller to see.
        if not pulls[h] <= strongest:
            strongest = pulls[h]
    return norms, pulls, (gamma, shortest, strongest)


def certify(problem: GroupProblem, omega: FloatArray, evaluation: Evaluation) -> Point:
    """Return the point with F and its duality gap; ValueError if one is not finite."""
    norms, pulls, (gamma, shortest, strongest) = group_lengths(omega, evaluation.correlations, problem.starts)
    objective = evaluation.loss + 0.5 * gamma * gamma
    gap = objective - (evaluation.utility - 0.5 * strongest * strongest)
    if not math.isfinite(gap):
        raise ValueError(f"the objective is {objective}, the gap {gap}: Z holds NaN or infinity, or numbers whose products overflow")
    return Point(omega, evaluation, norms, gamma, objective, gap, pulls, strongest, shortest)


@dataclass(frozen=True)
class GroupSolution:
    """What a solver hands back; everything belongs to the returned omega, and decision values are z - b. ``gap``: F - (U(alpha) - 1/2 max_h
    ||c_h||^2); ``gamma``: sum_h ||omega_h||; ``weights``: ``(t,)``, kernel weights mu_h = ||omega_h|| / gamma, on the simplex; uniform when
    omega = 0; ``correlations``: ``(p,)``, c = Z'u; ``residual``: ``(n,)``, u = alpha y; ``stop``: "gap", "decrease", "max_iter" or
    "no_progress".
    """

    omega: FloatArray
    bias: float
    objective: float
    gap: float
    gamma: float
    group_norms: FloatArray
    weights: FloatArray
    correlations: FloatArray
    residual: FloatArray
    iterations: int
    stop: str


def solution(problem: GroupProblem, point: Point, iterations: int, stop: str) -> GroupSolution:
    """Return the solution at the rows' current point."""
    at, groups = point.evaluation, len(point.norms)
    weights = point.norms / point.gamma if point.gamma > 0 else np.full(groups, 1.0 / groups)
    state = point.omega, at.bias, point.objective, point.gap, point.gamma, point.norms, weights, at.correlations
    return GroupSolution(*state, problem.rows.residual(), iterations, stop)


def checked_limits(tol: float, max_iter: int | None, default: int) -> int:
    """Return the greatest number of steps; ValueError if the tolerance is negative or NaN, or the number of steps negative."""
    if not tol >= 0:
        raise ValueError(f"tol={tol!r}: must not be negative")
    if max_iter is not None and max_iter < 0:
        raise ValueError(f"max_iter={max_iter!r}: must not be negative")
    return default if max_iter is None else max_iter
