"""The sub-problem of the Feature Generating Machine, its certificate and its solution.

min over (omega, g) of   F = 1/2 (sum_h ||omega_h||)^2 + P(sum_h Z_h omega_h + X g)

with one group h per cut (equation (31) of Tan, Tsang and Wang, JMLR 15, 2014; docs/theory/fgm.md, "Sub-problem") and unpenalised columns X.
The dual value of any u with X'u = 0 is U(u) - 1/2 max_h ||c_h||^2, c = Z'u.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from .rows import Evaluation, Rows

Warm = tuple[FloatArray, FloatArray]


@dataclass(frozen=True)
class GroupProblem:
    """One sub-problem: group h has the columns starts[h] to starts[h + 1] - 1 of Z, at least one.

    Columns may be zero, and a feature chosen by several cuts has a column in each cut. The loss and the unpenalised columns are those
    of ``rows``. For labels with a bias, both classes need rows with positive cost; with one class the bias would be infinite.
    """

    rows: Rows
    starts: IntArray

    def __post_init__(self) -> None:
        starts = self.starts
        if len(starts) < 2 or starts[0] != 0 or starts[-1] != self.rows.p or (starts[1:] <= starts[:-1]).any():
            raise ValueError(f"starts={starts.tolist()}: must increase strictly from 0 to {self.rows.p}, the number of columns of Z")
        if self.rows.q and self.rows.loss.of_labels and not all(cost > 0 for cost in self.rows.class_cost):
            sums = f"the costs of the positive and the negative rows sum to {self.rows.class_cost}"
            raise ValueError(f"{sums}; to fit a bias, both classes need a row with positive cost")

    def start(self, warm: Warm | None) -> tuple[FloatArray, FloatArray]:
        """Return the initial omega and g of a solver: the warm start, or zero."""
        sizes = self.rows.p, self.rows.q
        omega, free = (np.zeros(size) if warm is None else np.array(warm[k], dtype=np.float64) for k, size in enumerate(sizes))
        if (*omega.shape, *free.shape) != sizes:
            rule = f"must be ({sizes[0]},) and ({sizes[1]},)"
            raise ValueError(f"warm: omega and the free coefficients have shapes {omega.shape} and {free.shape}, {rule}")
        if not (np.isfinite(omega).all() and np.isfinite(free).all()):
            raise ValueError("warm: omega and the free coefficients must be finite")
        return omega, free


class Point(NamedTuple):
    """A point with its value and certificate.

    * ``norms``, ``(t,)``: ||omega_h||; ``gamma`` is their sum.
    * ``pulls``, ``(t,)``: ||c_h||.
    * ``objective``: F.
    * ``gap``: F minus the dual value of this point's own u, an upper bound of F - F*.
    * ``strongest``: the largest ||c_h||.
    * ``shortest``: the smallest non-zero ||omega_h||, infinite if all are zero.
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


@compiled(deferred=True)
def group_lengths(
    omega: FloatArray, correlations: FloatArray, starts: IntArray
) -> tuple[FloatArray, FloatArray, tuple[float, float, float]]:
    """Return five results: ||omega_h|| and ||c_h|| of each group, the sum of ||omega_h||, its smallest positive value, and the largest
    ||c_h||.
    """
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
    """Return the point with F and its duality gap. Raises ValueError if F or the gap is not finite."""
    norms, pulls, (gamma, shortest, strongest) = group_lengths(omega, evaluation.correlations, problem.starts)
    objective = evaluation.loss + 0.5 * gamma * gamma
    gap = objective - (evaluation.utility - 0.5 * strongest * strongest)
    if not math.isfinite(gap):
        raise ValueError(f"the objective is {objective}, the gap {gap}: Z holds NaN or infinity, or numbers whose products overflow")
    return Point(omega, evaluation, norms, gamma, objective, gap, pulls, strongest, shortest)


@dataclass(frozen=True)
class GroupSolution:
    """The result of a solver. All fields belong to the returned omega; decision values are Z omega + X g.

    * ``free``, ``(q,)``: g.
    * ``gap``: F - (U(u) - 1/2 max_h ||c_h||^2).
    * ``gamma``: sum_h ||omega_h||.
    * ``weights``, ``(t,)``: the kernel weights mu_h = ||omega_h|| / gamma on the simplex, uniform if omega = 0.
    * ``correlations``, ``(p,)``: c = Z'u.
    * ``residual``, ``(n,)``: u.
    * ``stop``: "gap", "decrease", "max_iter" or "no_progress".
    """

    omega: FloatArray
    free: FloatArray
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
    """Return the solution at the current point of the rows."""
    at, groups = point.evaluation, len(point.norms)
    weights = point.norms / point.gamma if point.gamma > 0 else np.full(groups, 1.0 / groups)
    state = point.omega, at.free, point.objective, point.gap, point.gamma, point.norms, weights, at.correlations
    return GroupSolution(*state, problem.rows.residual(), iterations, stop)


def checked_limits(tol: float, max_iter: int | None, default: int) -> int:
    """Return the largest number of steps. Raises ValueError if the tolerance is negative or NaN, or the number of steps is negative."""
    if not tol >= 0:
        raise ValueError(f"tol={tol!r}: must not be negative")
    if max_iter is not None and max_iter < 0:
        raise ValueError(f"max_iter={max_iter!r}: must not be negative")
    return default if max_iter is None else max_iter
