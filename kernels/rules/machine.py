"""Rule ensemble on a fixed hull of conjunctions: joint re-weighting, inner Newton steps, and the duality gap as the stopping rule.

With conjunctions phi_w over a hull W, tasks t and their similarity B (output kernel), minimise over f (W, T) and b (T,)

    1/2 Omega(Q)^2 + sum_t sum_{i in t} C_i loss(y_i, sum_w f_wt phi_w(x_i) - b_t),   Q_w^2 = f_w' B^+ f_w,

with Omega the gauge of :mod:`gramplane.kernels.graphs.norms` and the losses of :mod:`gramplane.kernels.rules.row_losses` (Jawanpuria
2014, section 5.2, (5.4), (5.5) and 5.4). Since 1/2 Omega^2 is
the minimum of 1/2 sum_w Q_w^2 / delta_w, weights and coefficients are optimised together: the closed form of delta is applied after every
few Newton steps. With B = L L' the solver works on G (W, r), f = G L', Q_w = |G_w|. Every iterate gives a dual point alpha and hence a
lower bound, for the hinge: the max over 0 <= t <= step_bound of t 1'alpha - t^2 U / 2. Here U is at least the squared dual gauge of
M_w = s_w' B s_w, with s_wt = sum_{i in t} alpha_i y_i phi_w(x_i).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ..arrays import FloatArray, IntArray
from ..graphs.hulls import Hull
from ..graphs.norms import DualBound, DualPoint, dual_bound, dual_shares, gauge, joint_weights, start_weights
from ..jit import one_thread
from .row_blocks import BlockedRows, LocalRows, MergedRows, NewtonStart, TaskRows
from .row_losses import HINGE, RowLoss

FIRST_SMOOTHING, WARM_SMOOTHING = 0.5, 0.1  # Width of the hinge's parabola at first, and when a solution is known.

SMOOTHING_FACTOR = 0.6  # Factor of that width from one step to the next.
SHARE_OF_GAP = 8.0 / 3.0
"""Smoothing width times the costs inside the parabolas, divided by the tolerated gap. Wide parabolas leave a gap of about a sixth of
the width times these costs.
"""

FIRST_BLUR, WARM_BLUR, MIN_BLUR = 0.3, 0.1, 1e-6
"""Smoothing of norms, as a share of the largest norm, halved at every step. Without smoothing, a node whose norm is exactly zero would
stay at zero.
"""

OVERSTEP, OVERSTEP_LIMITS = 0.5, (0.05, 20.0)
"""Over-relaxation of the weights: the share of each change, in logarithms, that is added once more, and the limits of the factor by
which a weight has changed.
"""

NEWTON_STEPS = 4  # Newton steps between two re-weightings.

FIRST_PASSES, MAX_PASSES, BOUND_TOLERANCE_SHARE = 12, 400, 0.1
"""Numbers of passes for bounding a dual gauge: few at first, many if they can close the gap. These passes need no data. The third
number is the accuracy of the bound as a share of the tolerance.
"""

MAX_UNKNOWNS = 3000  # Unknowns of one Newton system of tasks that share weight.


@dataclass(frozen=True)
class RuleProblem:
    """The problem restricted to a hull: hull, rows of each task, and similarity of the tasks."""

    hull: Hull
    tasks: Sequence[TaskRows]
    root: FloatArray  # (T, r), L with B = L L'
    rho: float
    elsewhere: BlockedRows | None = None  # the tasks' rows where they lie in blocks elsewhere
    loss: RowLoss = HINGE

    @cached_property
    def rows(self) -> BlockedRows | LocalRows:
        """Products with the rows."""
        return self.elsewhere or LocalRows([task for task in self.tasks if isinstance(task, MergedRows)])

    @cached_property
    def tasks_independent(self) -> bool:
        """Whether no two tasks share weights: L is diagonal."""
        return self.root.shape[0] == self.root.shape[1] and not np.any(self.root - np.diag(np.diag(self.root)))


@dataclass(frozen=True)
class RulePoint:
    """A solution on a hull with its certificate there."""

    G: FloatArray  # (W, r); the weights of the conjunctions are G @ root.T
    bias: FloatArray  # (T,)
    alpha: tuple[FloatArray, ...]  # multipliers, the rows of every task
    eta: FloatArray  # (W,) shares of the hull's nodes
    objective: float  # primal value at (G, bias)
    dual: float  # best dual value on the hull
    bound: float  # U at alpha
    dual_point: DualPoint  # of alpha
    iterations: int = 0  # re-weightings
    steps: int = 0  # Newton steps
    converged: bool = False

    @property
    def gap(self) -> float:
        """Primal minus dual value on the hull."""
        return max(self.objective - self.dual, 0.0)

    def certified(self, outside: float) -> float:
        """Return a gap that is valid on the whole graph; ``outside`` bounds M_w / d_w^2 for all nodes outside the hull."""
        return max(self.objective - self.dual_point.value(max(self.bound, outside)), 0.0)


def solve_rules(
    problem: RuleProblem, *, warm: tuple[FloatArray, FloatArray] | None = None, tol: float = 1e-3, max_iter: int = 200
) -> RulePoint:
    """Minimise on the hull until the duality gap is at most tol times the objective; after ``max_iter`` re-weightings return the best
    point.

    ``warm`` holds initial weights ``(W, r)``, with zero rows for new nodes, and biases ``(T,)``.
    """
    with one_thread():
        search = RuleSearch(problem, warm)
        for _ in range(max_iter):
            if search.update_bounds(search.move(search.weights()), tol).converged:
                break
        return search.best


class RuleSearch:
    """State of the search for weights and coefficients: point, best bounds, and the width of the hinge's parabola."""

    best: RulePoint

    def __init__(self, problem: RuleProblem, warm: tuple[FloatArray, FloatArray] | None = None) -> None:
        self.problem, hull = problem, problem.hull
        self._G = np.zeros((hull.size, problem.root.shape[1])) if warm is None else warm[0].copy()
        self._bias = np.zeros(len(problem.tasks)) if warm is None else warm[1].copy()
        known = bool(np.any(self._G))
        self._h = WARM_SMOOTHING if known else FIRST_SMOOTHING
        self._blur = WARM_BLUR if known else FIRST_BLUR
        self._best_point: RulePoint | None = None
        self._iterations = self._steps = 0
        self._before: FloatArray | None = None
        self._falls = True
        self.forms = np.zeros(hull.size)

    @property
    def _curve(self) -> RowLoss:
        return self.problem.loss.smoothed(self._h)

    @property
    def norms(self) -> FloatArray:
        """Norms Q (W,) of the point."""
        return np.sqrt(np.sum(self._G**2, axis=1))

    def weights(self) -> FloatArray:
        """Return the weights delta for the next move: the weights of the point, with decreasing smoothing, extrapolated.

        The closed form approaches its limit by a constant factor per step; extrapolating by half of each change of the logarithm saves a
        third of the steps. After a step that did not lower the objective, the closed form itself is used.
        """
        hull, norms = self.problem.hull, self.norms
        top = float(norms.max(initial=0.0))
        if top == 0.0:
            return start_weights(hull)
        blur, self._blur = max(self._blur, MIN_BLUR) * top, 0.5 * self._blur
        delta, before = joint_weights(hull, np.sqrt(norms**2 + blur**2), self.problem.rho), self._before
        self._before = delta
        if before is None or not self._falls:
            return delta
        return delta * np.clip(delta / np.maximum(before, np.finfo(float).tiny), *OVERSTEP_LIMITS) ** OVERSTEP

    def move(self, delta: FloatArray) -> list[FloatArray]:
        """Take Newton steps at the given weights; return the decision values of each task, before the bias."""
        if not self.problem.tasks_independent:
            self._G, self._bias, values, steps = take_coupled_steps(self.problem, delta, self._G, self._bias, self._curve, NEWTON_STEPS)
            self._steps += steps
            return values
        scales = [float(scale) for scale in np.diag(self.problem.root)]
        starts = [NewtonStart(delta * s**2, self._G[:, t] * s, float(self._bias[t])) for t, s in enumerate(scales)]
        ends = self.problem.rows.newton_steps(starts, self._curve, NEWTON_STEPS)
        for t, (end, scale) in enumerate(zip(ends, scales, strict=True)):
            self._G[:, t], self._bias[t] = end.f / scale, end.bias
            self._steps += end.steps
        return [end.F for end in ends]

    def update_bounds(self, values: list[FloatArray], tol: float, eta: FloatArray | None = None) -> RulePoint:
        """Bound the optimum at the point, keep the better value of each bound, and narrow the parabola; return the best point so far.

        The dual gauge is bounded at the shares ``eta``; if they are None, at the best shares that can be found without data.
        """
        problem, hull = self.problem, self.problem.hull
        tasks, h, norms, curve, exact = problem.tasks, self._h, self.norms, self._curve, problem.loss.smoothed(0.0)
        parts = list(zip(values, tasks, self._bias, strict=True))
        alpha = [curve.multipliers(F, task.y, task.cost, b) for F, task, b in parts]
        sums = np.column_stack(problem.rows.sums([curve.signs(task.y) * a for task, a in zip(tasks, alpha, strict=True)], hull.size))
        self.forms = np.sum((sums @ problem.root) ** 2, axis=1)
        loss = sum(exact.value(F, task.y, task.cost, b) + 0.5 * task.scatter for F, task, b in parts)
        objective = 0.5 * gauge(hull, norms, problem.rho) ** 2 + loss
        scatter = float(sum(task.scatter for task in tasks))
        dual = dual_point([curve.dual_terms(a, task.y, task.cost) for a, task in zip(alpha, tasks, strict=True)], scatter)
        bound = self._bound(eta, dual, objective, tol)
        self._iterations += 1
        every_alpha = tuple(task.spread(a) for task, a in zip(tasks, alpha, strict=True))
        certificate = bound.eta, objective, dual.value(bound.value), bound.value, dual
        self._keep(RulePoint(self._G.copy(), self._bias.copy(), every_alpha, *certificate), tol)
        zone = sum(float(task.cost[curve.zone(F, task.y, task.cost, b)].sum()) for F, task, b in parts)
        target = SHARE_OF_GAP * tol * objective / zone if zone > 0 else h
        self._h = max(min(target, h), SMOOTHING_FACTOR * h)
        return self.best

    def _bound(self, eta: FloatArray | None, point: DualPoint, objective: float, tol: float) -> DualBound:
        """Bound the dual gauge; many passes are used only if they can close the gap."""
        hull, rho = self.problem.hull, self.problem.rho
        if eta is not None:
            return dual_bound(hull, self.forms, rho, eta, 0)
        first = dual_bound(hull, self.forms, rho, dual_shares(hull, self.norms, rho), FIRST_PASSES, BOUND_TOLERANCE_SHARE * tol)
        lowest = objective if self._best_point is None else min(objective, self._best_point.objective)
        if lowest - point.value(first.value) <= tol * lowest or lowest - point.value(first.attained) > tol * lowest:
            return first
        return dual_bound(hull, self.forms, rho, first.eta, MAX_PASSES, BOUND_TOLERANCE_SHARE * tol)

    def _keep(self, point: RulePoint, tol: float) -> None:
        old = self._best_point
        self._falls = old is None or point.objective < old.objective
        if old is not None and point.dual < old.dual:
            point = replace(point, alpha=old.alpha, eta=old.eta, dual=old.dual, bound=old.bound, dual_point=old.dual_point)
        if old is not None and point.objective > old.objective:
            point = replace(point, G=old.G, bias=old.bias, objective=old.objective)
        converged = point.objective - point.dual <= tol * point.objective
        self.best = self._best_point = replace(point, iterations=self._iterations, steps=self._steps, converged=converged)


def dual_point(terms: Sequence[tuple[float, float, float]], scatter: float = 0.0) -> DualPoint:
    """Return the dual point of multipliers from the :meth:`~.row_losses.HingeLoss.dual_terms` of every task.

    ``scatter`` belongs to merged rows: their targets around the mean.
    """
    linear, square, stretch = zip(*terms, strict=True)
    return DualPoint(float(sum(linear)) + scatter, float(sum(square)) + scatter, max(min(stretch), 1.0))


def take_coupled_steps(
    problem: RuleProblem, delta: FloatArray, G: FloatArray, bias: FloatArray, loss: RowLoss, steps: int
) -> tuple[FloatArray, FloatArray, list[FloatArray], int]:
    """Take Newton steps for tasks that share weights. One system covers all tasks and all nodes with non-zero weight; biases are
    eliminated as for one task.
    """
    keep = np.flatnonzero(delta > 1e-10 * delta.max())
    root, D = problem.root, np.sqrt(delta[keep])
    unknowns = G[keep] / D[:, None]
    state = _CoupledSystem(problem, keep, D, loss)
    value, bias, values = state.at(unknowns, bias)
    taken = 0
    for _ in range(steps):
        gradient = unknowns - D[:, None] * (state.sums(values, bias) @ root)
        direction = state.direction(values, bias, gradient)
        slope, step = float(np.sum(gradient * direction)), 1.0
        taken += 1
        for _trial in range(25):
            trial = state.at(unknowns + step * direction, bias)
            if trial[0] <= value + 1e-4 * step * slope:
                break
            step *= 0.5
        if not trial[0] < value:
            break
        unknowns, enough = unknowns + step * direction, value - trial[0] <= 1e-7 * trial[0]
        value, bias, values = trial
        if enough:
            break
    out = np.zeros_like(G)
    out[keep] = D[:, None] * unknowns
    return out, bias, values, taken


class _CoupledSystem:
    """Newton systems in the unknowns of all tasks at given weights."""

    def __init__(self, problem: RuleProblem, keep: IntArray, D: FloatArray, loss: RowLoss) -> None:
        self._problem, self._keep, self._D, self._loss = problem, keep, D, loss

    def at(self, unknowns: FloatArray, bias: FloatArray) -> tuple[float, FloatArray, list[FloatArray]]:
        """Return the smoothed objective, the biases and the decision values of each task."""
        f = np.zeros((self._problem.hull.size, len(self._problem.tasks)))
        f[self._keep] = self._D[:, None] * (unknowns @ self._problem.root.T)
        biases, total = np.empty(len(bias)), 0.5 * float(np.sum(unknowns**2))
        values = self._problem.rows.products([np.ascontiguousarray(f[:, t]) for t in range(len(bias))])
        for t, (task, F) in enumerate(zip(self._problem.tasks, values, strict=True)):
            biases[t] = self._loss.bias(F, task.y, task.cost, float(bias[t]))
            total += self._loss.value(F, task.y, task.cost, biases[t])
        return total, biases, values

    def sums(self, values: list[FloatArray], bias: FloatArray) -> FloatArray:
        """Return the sums ``s_wt = sum_{i in t} alpha_i y_i phi_w(x_i)``, ``(k, T)``, of the nodes with non-zero weight."""
        parts = zip(values, self._problem.tasks, bias, strict=True)
        loss = self._loss
        vectors = [loss.signs(task.y) * loss.multipliers(F, task.y, task.cost, b) for F, task, b in parts]
        return np.column_stack([sums[self._keep] for sums in self._problem.rows.sums(vectors, self._problem.hull.size)])

    def direction(self, values: list[FloatArray], bias: FloatArray, gradient: FloatArray) -> FloatArray:
        """Return the Newton direction, ``(k, r)``. With very many unknowns, the direction is computed from the diagonal blocks of the r
        coordinates alone.
        """
        k, r = gradient.shape
        root, scale = self._problem.root, np.outer(self._D, self._D)
        whole = k * r <= MAX_UNKNOWNS
        H = np.zeros((r, k, r, k)) if whole else np.zeros((r, k, k))
        parts = zip(values, self._problem.tasks, bias, strict=True)
        zones = [self._loss.zone(F, task.y, task.cost, b) for F, task, b in parts]
        for row, curvature in zip(root, self._problem.rows.curvatures(zones, self._loss.h, self._keep), strict=True):
            part = scale * curvature
            for i in np.flatnonzero(row):
                if whole:
                    for j in np.flatnonzero(row):
                        H[i, :, j, :] += row[i] * row[j] * part
                else:
                    # Not less than the whole in the order of matrices, so that its steps descend.
                    H[i] += abs(row[i]) * float(np.abs(row).sum()) * part
        if whole:
            system = H.reshape(r * k, r * k) + np.eye(r * k)
            return np.asarray(-np.linalg.solve(system, gradient.T.reshape(-1)).reshape(r, k).T, np.float64)
        return np.asarray(np.column_stack([-np.linalg.solve(H[i] + np.eye(k), gradient[:, i]) for i in range(r)]), np.float64)
