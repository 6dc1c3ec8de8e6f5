"""Group lasso on rows, for one target or several that share the groups: exact descent, Newton steps, accelerated proximal gradients.

    min_{v,b}  P = sum_i c_i loss(y_i, x_i'w_q + b_q) + lam Omega(v),  w = scatter(v),  q the task of row i

Biases are eliminated: every point has the best ones, so that its slopes are feasible in the dual but for a scale.

* squared: the moments of the rows tell everything (:mod:`gramplane.kernels.group_lasso.on_moments`);
* logistic: proximal Newton steps, each a weighted least squares problem on moments, with a line search;
* hinge, or any loss when asked: FISTA (Beck and Teboulle 2009) with backtracking, restarted whenever the objective would rise, so that it
  never does; the hinge is smoothed, and less so once the smoothed problem is solved as well as its smoothing allows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from ..jit import one_thread
from ..loss_types import RowLoss
from ..losses import require_loss
from ..mixed_norm.bias import solve_bias
from .on_moments import Moments, row_moments, solve_moments, target_moments
from .penalty import GroupPenalty
from .working_set import WorkingColumns

MIN_CURVATURE_SHARE = 1e-6
"""Least curvature of a row in a Newton model, as a share of the largest: a flat row must not lead to an endless step."""

MODEL_SHARES = 0.05, 1e-4, 0.0  # A Newton model is solved to this share of the gap; closer, where that leaves the point where it is.
MAX_HALVINGS = 40  # Times a Newton step is halved before it is called no descent.
STEPS_PER_CERTIFICATE = 10  # Steps of FISTA between two certificates.
BOUND_SLACK = 1e-13  # Relative round-off granted to the quadratic bound and to a decrease.

FIRST_MU, MU_DROP, MU_SHARE = 1.0, 0.25, 0.5
"""Smoothing of the hinge: its first value, its factor, and the share of the gap below which that of the smoothed problem lets it fall."""


REQUIRES = ("values", "slopes", "bends", "dual_value")  # What the solvers need of a loss.


@dataclass(frozen=True)
class TaskRows:
    """Columns of the rows, float64, dense or CSR, task after task: int64 ``(n_tasks + 1,)`` edges."""

    X: Array | sp.csr_array
    edges: Array

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.edges) - 1

    @cached_property
    def spans(self) -> list[slice]:
        """The rows of each task."""
        return [slice(int(a), int(b)) for a, b in zip(self.edges[:-1], self.edges[1:])]

    @cached_property
    def codes(self) -> Array | None:
        """Task of each row, None where there is one task."""
        return None if self.n_tasks == 1 else np.repeat(np.arange(self.n_tasks), np.diff(self.edges))

    @cached_property
    def shift(self) -> FloatArray | None:
        """Mean of dense columns: sums about it lose no digits."""
        return None if sp.issparse(self.X) or not len(self.X) else self.X.mean(axis=0)

    def decide(self, weights: FloatArray) -> FloatArray:
        """Return ``x_i'w_q`` of every row, for weights ``(n_tasks, p)``."""
        return np.concatenate([np.asarray(self._part(span) @ w) for span, w in zip(self.spans, weights, strict=True)])

    def slopes(self, u: FloatArray) -> FloatArray:
        """Return ``sum_i u_i x_i`` of every task, ``(n_tasks, p)``."""
        return np.stack([np.asarray(self._part(span).T @ u[span]) for span in self.spans])

    def _part(self, span: slice) -> Any:
        return self.X if self.n_tasks == 1 else self.X[span]

    def moments(self, target: FloatArray, cost: FloatArray, fit_bias: bool) -> Moments:
        """Return the moments of a weighted least squares problem on these rows."""
        shift = self.shift if fit_bias else None
        result = target_moments(row_moments(self.X, target, cost, shift=shift, codes=self.codes, n_tasks=self.n_tasks), fit_bias)
        return result if shift is None else replace(result, means=result.means + shift)


@dataclass(frozen=True)
class RowProblem:
    """What is minimised: rows with ``y``, labels +-1 or targets, and ``cost``, which sums to 1 in a task for the mean loss. ``loss``: see
    :func:`gramplane.kernels.losses.mean_loss`; ``fit_bias``: whether every task has a bias.
    """

    rows: TaskRows | WorkingColumns
    y: FloatArray
    cost: FloatArray
    loss: RowLoss
    penalty: GroupPenalty
    lam: float
    fit_bias: bool


class RowSolution(NamedTuple):
    """Where a solve ended. ``copies``: ``(n_tasks, n_copies)`` v; ``slopes``: ``(n,)`` minus the derivative of every row's loss: dual
    variables, once scaled; ``objective``, ``gap``: P and P - D over these columns; ``steps``: sweeps, Newton steps or proximal steps;
    ``mu``: smoothing of the hinge; ``stop``: ``"gap"``, ``"max_iter"`` or ``"no_progress"``.
    """

    copies: FloatArray
    biases: FloatArray
    slopes: FloatArray
    objective: float
    gap: float
    steps: int
    mu: float
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
    """Return the b of least ``sum c loss(y, z + b)``."""
    if loss.is_quadratic:
        return float(cost @ (y - z)) / max(float(cost.sum()), np.finfo(float).tiny)

    def sums(back: float) -> tuple[float, float, float]:
        u, f = cost * loss.slopes(y, z - back), z - back
        return float(u.sum()), float(cost @ loss.bends(y, f)), float(np.abs(u).sum())

    return -solve_bias(sums, -start, 1.0)


def biases_at(problem: RowProblem, z: FloatArray, start: FloatArray) -> FloatArray:
    """Return the best bias of every task at ``z_i = x_i'w_q``; zeros without biases."""
    if not problem.fit_bias:
        return np.zeros(problem.rows.n_tasks)
    loss, y, cost = problem.loss, problem.y, problem.cost
    return np.array([best_bias(loss, y[s], cost[s], z[s], b) for s, b in zip(problem.rows.spans, start, strict=True)])


def solve_rows(
    problem: RowProblem, *, warm: FloatArray | None = None, biases: FloatArray | None = None, tol: float = 1e-4, max_iter: int = 1000,
    method: str = "auto",
) -> RowSolution:  # fmt: skip
    """Minimise a mean loss plus ``lam Omega`` over rows. Stops when the gap is at most ``tol`` times the objective. ``problem.loss.mu`` is
    the first smoothing of a hinge (0: 1); ``warm``, ``biases`` are first copies and biases, zeros by default; ``max_iter`` bounds sweeps
    (squared), Newton steps (logistic) or proximal steps; ``method`` is ``"auto"`` or ``"fista"``.
    """
    require_loss(problem.loss, "the group lasso on rows", *REQUIRES)
    shape = (problem.rows.n_tasks, problem.penalty.n_copies)
    copies = np.zeros(shape) if warm is None else np.ascontiguousarray(warm, dtype=np.float64)
    start = np.zeros(shape[0]) if biases is None else biases
    if problem.loss.needs_smoothing and not problem.loss.mu > 0.0:
        problem = replace(problem, loss=problem.loss.smoothed(FIRST_MU))
    with one_thread():
        solver = _Solver(problem, tol)
        if not problem.penalty.n_copies:
            return solver.solution(solver.point(copies, start), 0, "gap")
        if method == "fista" or problem.loss.needs_smoothing:
            return solver.fista(solver.point(copies, start), max_iter)
        if problem.loss.is_quadratic:
            return solver.descend(copies, max_iter)
        return solver.newton(solver.point(copies, start), max_iter)


LEAST_LAM = 1e-12  # of a penalty that follows from data, where no feature says anything of the target


def lambda_max(problem: RowProblem) -> float:
    """Return the least lam at which all weights are zero; of a hinge that of its first smoothing."""
    if problem.loss.needs_smoothing:
        problem = replace(problem, loss=problem.loss.smoothed(FIRST_MU))
    with one_thread():
        solver = _Solver(problem, 0.0)
        at = solver.point(np.zeros((problem.rows.n_tasks, problem.penalty.n_copies)), np.zeros(problem.rows.n_tasks))
        z = problem.rows.slopes(problem.cost * problem.loss.slopes(problem.y, at.f))
    return float(problem.penalty.dual_norms(z).max(initial=0.0))


class _Solver:
    def __init__(self, problem: RowProblem, tol: float) -> None:
        self._problem, self._tol = problem, tol
        self._closed = self._smoother = False

    # -- points and certificates -------------------------------------------------------------------------------------------

    def point(self, copies: FloatArray, start: FloatArray, known: FloatArray | None = None) -> _Point:
        """Return everything at some copies; ``known`` is z where it is known already."""
        problem = self._problem
        z: FloatArray = problem.rows.decide(problem.penalty.scatter(copies)) if known is None else known
        biases = biases_at(problem, z, start)
        f = z + np.repeat(biases, np.diff(problem.rows.edges))
        loss = float(problem.cost @ problem.loss.values(problem.y, f))
        return _Point(copies, z, biases, f, loss, problem.lam * problem.penalty.value(copies))

    def _dual(self, at: _Point) -> tuple[FloatArray, float]:
        """Return ``sum c s x`` at a point, and the dual value of its scaled slopes."""
        problem = self._problem
        s = problem.loss.slopes(problem.y, at.f)
        z = problem.rows.slopes(problem.cost * s)
        reach = float(problem.penalty.dual_norms(z).max(initial=0.0))
        return z, problem.loss.dual_value(problem.y, problem.cost, s, reach, problem.lam)

    def _exact(self, at: _Point) -> float:
        return float(self._problem.cost @ self._problem.loss.exact(self._problem.y, at.f)) + at.omega

    def solution(self, at: _Point, steps: int, stop: str) -> RowSolution:
        """Return a point with its certificate."""
        problem, objective = self._problem, self._exact(at)
        slopes = problem.loss.slopes(problem.y, at.f)
        # Round-off may put the dual value a hair above the objective.
        gap = max(objective - self._dual(at)[1], 0.0)
        return RowSolution(at.copies, at.biases, slopes, objective, gap, steps, problem.loss.mu, stop)

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
        """Take proximal Newton steps."""
        for steps in range(limit):
            gap = at.objective - self._dual(at)[1]
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
        """Return the first point on the way to some copies that lies lower: at all of it, a half, a quarter, …."""
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
        """Take accelerated proximal steps; the objective never rises while the smoothing stays."""
        ahead, momentum, curvature = at, 1.0, self._first_curvature()
        for steps in range(limit):
            if steps % STEPS_PER_CERTIFICATE == 0:
                at = self._settled(at)
                if self._closed:
                    return self.solution(at, steps, "gap")
                if self._smoother:
                    ahead, momentum, curvature = at, 1.0, curvature / MU_DROP
            result, curvature = self._proximal(ahead, curvature)
            if result.objective > at.objective * (1.0 + BOUND_SLACK) and momentum > 1.0:
                ahead, momentum = at, 1.0
                continue
            after = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            push = (momentum - 1.0) / after
            ahead = self.point(result.copies + push * (result.copies - at.copies), result.biases, result.z + push * (result.z - at.z))
            at, momentum = result, after
        return self.solution(at, limit, "max_iter")

    def _settled(self, at: _Point) -> _Point:
        """Check the certificate; where only the smoothing keeps it open, smooth less."""
        objective, dual = self._exact(at), self._dual(at)[1]
        self._closed = objective - dual <= self._tol * objective
        self._smoother = False
        problem = self._problem
        if not problem.loss.needs_smoothing or self._closed:
            return at
        share = problem.y * problem.loss.slopes(problem.y, at.f)
        smoothed = at.objective - (dual - 0.5 * problem.loss.mu * float(problem.cost @ (share * share)))
        if smoothed > MU_SHARE * (objective - dual):
            return at
        self._smoother = True
        self._problem = replace(problem, loss=problem.loss.smoothed(MU_DROP * problem.loss.mu))
        return self.point(at.copies, at.biases, at.z)

    def _proximal(self, ahead: _Point, curvature: float) -> tuple[_Point, float]:
        """Return the proximal point of an extrapolated one, and the curvature at which the quadratic bound held."""
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
        """Return the loss's curvature along its first slope: a lower bound of the one needed, which backtracking raises."""
        problem, penalty = self._problem, self._problem.penalty
        slope = problem.rows.slopes(problem.cost * problem.y)[:, penalty.members]
        square = float(np.sum(slope * slope))
        if not square > 0.0:
            return 1.0
        image = problem.rows.decide(penalty.scatter(slope))
        return max(problem.loss.max_curvature * float(problem.cost @ (image * image)) / square, 1e-300)
