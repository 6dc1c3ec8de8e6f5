"""Group lasso on rows, for one target or several that share the groups: exact descent, Newton steps or accelerated proximal gradients.

    min_{v,b}  P = sum_i c_i loss(y_i, x_i'w_q + b_q) + lam Omega(v),  w = scatter(v),  q the task of row i

Biases are eliminated: every point has its best biases, so its slopes are dual feasible up to a scale. The solver depends on the loss:

* squared: descent on the moments of the rows (:mod:`gramplane.kernels.group_lasso.on_moments`);
* logistic: proximal Newton steps, each a weighted least squares problem on moments, with a line search;
* hinge: a primal-dual interior-point method (:mod:`gramplane.kernels.group_lasso.interior`);
* squared and logistic on request: FISTA (Beck and Teboulle 2009) with backtracking, restarted whenever a step would raise the objective, so
  the objective never rises.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..jit import one_thread
from ..loss_types import RowLoss
from ..losses import Hinge, require_loss
from ..mixed_norm.line_search import solve_bias
from .interior import balanced_slopes, interior_path
from .on_moments import solve_moments
from .penalty import GroupPenalty
from .row_problem import RowProblem

MIN_CURVATURE_SHARE = 1e-6
"""Smallest curvature of a row in a Newton model, as a share of the largest; it prevents huge steps along flat rows."""

MODEL_SHARES = 0.05, 1e-4, 0.0  # A Newton model is solved to this share of the gap; closer, where that leaves the point where it is.
MAX_HALVINGS = 40  # Times a Newton step is halved before it is called no descent.
STEPS_PER_CERTIFICATE = 10  # Steps of FISTA between two certificates.
BOUND_SLACK = 1e-13  # Relative round-off granted to the quadratic bound and to a decrease.


REQUIRES = ("values", "slopes", "bends", "dual_value")  # What the solvers need of a loss.


def check_solvable(loss: str, penalty: GroupPenalty) -> None:
    """Raise ValueError for the hinge loss with norms that its interior-point method has no cones for."""
    if loss == "hinge" and penalty.p != 2.0:
        raise ValueError(
            f"loss='hinge' with the L_p norm p={penalty.p:g} has no batch solver; use loss='logistic', or algorithm='da' or 'fobos'"
        )


class RowSolution(NamedTuple):
    """The end of a solve.

    * ``copies``, ``(n_tasks, n_copies)``: the copied coefficients v.
    * ``slopes``, ``(n,)``: the negative derivative of each row's loss; once scaled, these are the dual variables.
    * ``objective``, ``gap``: P, and P - D over these columns.
    * ``steps``: number of sweeps, Newton steps, proximal steps or interior-point steps.
    * ``stop``: ``"gap"``, ``"max_iter"`` or ``"no_progress"``.
    """

    copies: FloatArray
    biases: FloatArray
    slopes: FloatArray
    objective: float
    gap: float
    steps: int
    stop: str


class _Point(NamedTuple):
    copies: FloatArray
    z: FloatArray
    biases: FloatArray
    f: FloatArray
    loss: float
    omega: float

    @property
    def objective(self) -> float:
        return self.loss + self.omega


def best_bias(loss: RowLoss, y: FloatArray, cost: FloatArray, z: FloatArray, start: float = 0.0) -> float:
    """Return the bias b that minimises ``sum c loss(y, z + b)``."""
    if loss.is_quadratic:
        return float(cost @ (y - z)) / max(float(cost.sum()), np.finfo(float).tiny)

    def sums(back: float) -> tuple[float, float, float]:
        u, f = cost * loss.slopes(y, z - back), z - back
        return float(u.sum()), float(cost @ loss.bends(y, f)), float(np.abs(u).sum())

    return -solve_bias(sums, -start, 1.0)


def biases_at(problem: RowProblem, z: FloatArray, start: FloatArray) -> FloatArray:
    """Return the best bias of each task at ``z_i = x_i'w_q``. Without biases, return zeros."""
    if not problem.fit_bias:
        return np.zeros(problem.rows.n_tasks)
    loss, y, cost = problem.loss, problem.y, problem.cost
    return np.array([best_bias(loss, y[s], cost[s], z[s], b) for s, b in zip(problem.rows.spans, start, strict=True)])


def solve_rows(
    problem: RowProblem, *, warm: FloatArray | None = None, biases: FloatArray | None = None, tol: float = 1e-4, max_iter: int = 1000,
    method: str = "auto",
) -> RowSolution:  # fmt: skip
    """Minimise a mean loss plus ``lam Omega`` over rows, until the gap is at most ``tol`` times the objective.

    ``warm`` holds the initial copied coefficients, ``biases`` the initial biases [default: zeros]; the interior-point method ignores both.
    ``max_iter`` limits sweeps (squared), Newton steps (logistic), interior-point steps (hinge) or proximal steps. ``method`` is ``"auto"``
    or, for smooth losses, ``"fista"``.
    """
    if isinstance(problem.loss, Hinge):
        with one_thread():
            return RowSolution(*interior_path(problem, tol, max_iter))
    require_loss(problem.loss, "the group lasso on rows", *REQUIRES)
    shape = (problem.rows.n_tasks, problem.penalty.n_copies)
    copies = np.zeros(shape) if warm is None else np.ascontiguousarray(warm, dtype=np.float64)
    start = np.zeros(shape[0]) if biases is None else biases
    with one_thread():
        solver = _Solver(problem, tol)
        if not problem.penalty.n_copies:
            return solver.solution(solver.point(copies, start), 0, "gap")
        if method == "fista":
            return solver.fista(solver.point(copies, start), max_iter)
        if problem.loss.is_quadratic:
            return solver.descend(copies, max_iter)
        return solver.newton(solver.point(copies, start), max_iter)


CONSTANT_SHARE = 1e-12  # Share of its size below which the range of a target is rounding.


def share_of_largest(share: float, largest: float, targets: FloatArray, cost: FloatArray, size: float = 0.0) -> float:
    """Return ``share`` times ``largest``, the smallest lam that selects nothing (`lambda_max`).

    If all targets are constant up to rounding, return ``largest`` itself; if the result would be 0, because no feature is correlated with
    the targets, return 1. ``targets`` are ``(n,)`` or ``(n_machines, n)``, with row costs ``cost``. ``size`` is the magnitude of the shift
    that was subtracted from the targets.
    """
    used = np.atleast_2d(targets)[:, cost > 0]
    size = max(size, float(np.abs(used).max(initial=0.0)))
    tells = used.size and float(np.ptp(used, axis=1).max()) > CONSTANT_SHARE * size
    return (share * largest if tells else largest) or 1.0


def lambda_max(problem: RowProblem) -> float:
    """Return the smallest lam at which all weights are zero.

    For the hinge, the dual has many solutions at this lam. The one that treats all rows of a class alike is used: for the returned lam and
    any larger one, all weights are zero.
    """
    with one_thread():
        if isinstance(problem.loss, Hinge):
            slopes = balanced_slopes(problem)
        else:
            biases = biases_at(problem, np.zeros(len(problem.y)), np.zeros(problem.rows.n_tasks))
            slopes = problem.loss.slopes(problem.y, np.repeat(biases, np.diff(problem.rows.edges)))
        z = problem.rows.slopes(problem.cost * slopes)
    return float(problem.penalty.dual_norms(z).max(initial=0.0))


class _Solver:
    def __init__(self, problem: RowProblem, tol: float) -> None:
        self._problem, self._tol = problem, tol

    # -- points and certificates -------------------------------------------------------------------------------------------

    def point(self, copies: FloatArray, start: FloatArray, known: FloatArray | None = None) -> _Point:
        """Return the point whose copied coefficients are ``copies``, with its biases, decision values, loss and penalty.

        ``start`` are the biases to start from; ``known`` are the decision values without biases, if they have been computed already.
        """
        problem = self._problem
        z: FloatArray = problem.rows.decide(problem.penalty.scatter(copies)) if known is None else known
        biases = biases_at(problem, z, start)
        f = z + np.repeat(biases, np.diff(problem.rows.edges))
        loss = float(problem.cost @ problem.loss.values(problem.y, f))
        return _Point(copies, z, biases, f, loss, problem.lam * problem.penalty.value(copies))

    def _dual(self, at: _Point) -> float:
        """Return the dual value of the point's slopes after scaling."""
        problem = self._problem
        s = problem.loss.slopes(problem.y, at.f)
        z = problem.rows.slopes(problem.cost * s)
        reach = float(problem.penalty.dual_norms(z).max(initial=0.0))
        return problem.loss.dual_value(problem.y, problem.cost, s, reach, problem.lam)

    def solution(self, at: _Point, steps: int, stop: str) -> RowSolution:
        slopes = self._problem.loss.slopes(self._problem.y, at.f)
        return RowSolution(at.copies, at.biases, slopes, at.objective, at.objective - self._dual(at), steps, stop)

    # -- squared -----------------------------------------------------------------------------------------------------------

    def descend(self, copies: FloatArray, limit: int) -> RowSolution:
        """Descend on the moments of the rows."""
        problem = self._problem
        moments = problem.rows.moments(problem.y, problem.cost, problem.fit_bias)
        result = solve_moments(moments, problem.penalty, problem.lam, warm=copies, tol=self._tol, max_sweeps=limit)
        at = self.point(result.copies, np.zeros(problem.rows.n_tasks))
        return self.solution(at, result.sweeps, "max_iter" if result.stop == "max_sweeps" else result.stop)

    # -- logistic ----------------------------------------------------------------------------------------------------------

    def newton(self, at: _Point, limit: int) -> RowSolution:
        for steps in range(limit):
            gap = at.objective - self._dual(at)
            if gap <= self._tol * at.objective:
                return self.solution(at, steps, "gap")
            ahead = self._newton_step(at, gap)
            if ahead is None:
                return self.solution(at, steps, "no_progress")
            at = ahead
        return self.solution(at, limit, "max_iter")

    def _newton_step(self, at: _Point, gap: float) -> _Point | None:
        problem, y = self._problem, self._problem.y
        bends = problem.loss.bends(y, at.f)
        bends = np.maximum(bends, max(MIN_CURVATURE_SHARE * float(bends.max()), np.finfo(float).tiny))
        moments = problem.rows.moments(at.f + problem.loss.slopes(y, at.f) / bends, problem.cost * bends, problem.fit_bias)
        for share in MODEL_SHARES:
            model = solve_moments(moments, problem.penalty, problem.lam, warm=at.copies, tol=0.0, min_gap=share * gap)
            if (model.copies != at.copies).any():
                return self._towards(at, model.copies)
        return None

    def _towards(self, at: _Point, copies: FloatArray) -> _Point | None:
        """Return the first point with a lower objective on the line to ``copies``. The full step, half of it, a quarter of it and so on are
        tried.
        """
        problem, share = self._problem, 1.0
        z = problem.rows.decide(problem.penalty.scatter(copies))
        for _ in range(MAX_HALVINGS):
            tried = copies if share == 1.0 else at.copies + share * (copies - at.copies)
            ahead = self.point(tried, at.biases, at.z + share * (z - at.z))
            if ahead.objective < at.objective:
                return ahead
            share *= 0.5
        return None

    # -- any loss ----------------------------------------------------------------------------------------------------------

    def fista(self, at: _Point, limit: int) -> RowSolution:
        """Take accelerated proximal steps; the objective never rises."""
        ahead, momentum, curvature = at, 1.0, self._first_curvature()
        for steps in range(limit):
            if steps % STEPS_PER_CERTIFICATE == 0 and at.objective - self._dual(at) <= self._tol * at.objective:
                return self.solution(at, steps, "gap")
            result, curvature = self._proximal(ahead, curvature)
            if result.objective > at.objective * (1.0 + BOUND_SLACK) and momentum > 1.0:
                ahead, momentum = at, 1.0
                continue
            after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            push = (momentum - 1.0) / after
            ahead = self.point(result.copies + push * (result.copies - at.copies), result.biases, result.z + push * (result.z - at.z))
            at, momentum = result, after
        return self.solution(at, limit, "max_iter")

    def _proximal(self, ahead: _Point, curvature: float) -> tuple[_Point, float]:
        """Return the proximal point of the extrapolated point ``ahead``, and the curvature for which the quadratic upper bound held."""
        problem, penalty = self._problem, self._problem.penalty
        slope = problem.rows.slopes(problem.cost * problem.loss.slopes(problem.y, ahead.f))[:, penalty.members]
        while True:
            result = self.point(penalty.prox(ahead.copies + slope / curvature, problem.lam / curvature), ahead.biases)
            change = result.copies - ahead.copies
            bound = ahead.loss - float(np.sum(slope * change)) + 0.5 * curvature * float(np.sum(change * change))
            if result.loss <= bound + BOUND_SLACK * abs(ahead.loss):
                return result, curvature
            curvature *= 2.0

    def _first_curvature(self) -> float:
        """Return the curvature of the loss along its first slope. This is a lower bound of the curvature needed; backtracking raises it."""
        problem, penalty = self._problem, self._problem.penalty
        slope = problem.rows.slopes(problem.cost * problem.y)[:, penalty.members]
        square = float(np.sum(slope * slope))
        if not square > 0.0:
            return 1.0
        image = problem.rows.decide(penalty.scatter(slope))
        return max(problem.loss.max_curvature * float(problem.cost @ (image * image)) / square, 1e-300)
