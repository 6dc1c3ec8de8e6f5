"""Kernel duals in signed variables: the problem, access to its Gram matrix, and the certificate.

max over beta of   c'beta - sum_i e_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta,   lo <= beta <= hi,  sum_i beta_i = s

The signed form needs no labels and no doubled variables: for classification beta = alpha y, and regression has one variable per row. With f
= K beta and any bias b, weak duality bounds the optimum from above by the primal value

1/2 beta'K beta + b s + sum_i max over lo_i <= t <= hi_i of  (c_i - f_i - b) t - e_i |t| - 1/2 ridge_i t^2.

The sum over i is the loss: hinge, squared hinge, epsilon-insensitive or squared, depending on the box (source: Schölkopf and Smola,
"Learning with Kernels", 2002, chapters 7 and 9).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array, FloatArray, IntArray
from ..target_unit import LABELS, TargetUnit, in_machine_unit
from .gram_access import DenseGram as DenseGram
from .gram_access import Gram as Gram
from .gram_access import Scratch as Scratch
from .gram_access import add_rows as add_rows
from .gram_access import check_diagonal as check_diagonal

SUM_SLACK = 1e-10  # A warm start whose sum is off by at most this share of sum |beta| counts as balanced.


@dataclass(frozen=True)
class DualProblem:
    """``max c'beta - sum_i e_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta`` over a box, with or without a fixed sum. Arrays are ``(n,)``.

    * ``lo``, ``hi``: the box, which may be infinite only if ``ridge`` is positive.
    * ``l1_weight``: e >= 0, one number for all variables or one for each.
    * ``sum_constraint``: s, the sum of beta; None leaves the sum free, and the model then has no bias.
    * ``groups``: codes from 0. Beta sums to zero in every group, each group has its own bias, and ``sum_constraint`` is 0.
    * ``unit``: the unit of a real target.

    Raises ValueError if lengths differ, a number is not finite, a box is empty, or no point of the box has the sum.
    """

    c: FloatArray
    lo: FloatArray
    hi: FloatArray
    l1_weight: float | FloatArray = 0.0
    sum_constraint: float | None = 0.0
    ridge: FloatArray | None = None
    groups: IntArray | None = None
    unit: TargetUnit = LABELS

    def __post_init__(self) -> None:
        for name in ("c", "lo", "hi", "l1_weight", "ridge"):
            value = getattr(self, name)
            if value is not None and (name != "l1_weight" or np.ndim(value)):
                value = np.ascontiguousarray(value, dtype=np.float64)
                object.__setattr__(self, name, value)
                if value.shape != (len(self.c),):
                    raise ValueError(f"{name}: shape {value.shape}, must be ({len(self.c)},)")
        self._check_numbers()
        if self.groups is not None:
            self._check_groups(np.asarray(self.groups))

    def _check_groups(self, codes: Array) -> None:
        if codes.shape != (self.n,) or codes.dtype.kind not in "iu" or codes.min() < 0:
            raise ValueError(f"groups: shape {codes.shape} of {codes.dtype}, must be ({self.n},) of whole numbers from 0")
        if self.sum_constraint != 0.0:
            raise ValueError(f"sum_constraint={self.sum_constraint!r}: must be 0 with groups, because beta sums to 0 in every group")
        object.__setattr__(self, "groups", np.ascontiguousarray(codes, dtype=np.int64))
        lowest, highest = (np.bincount(codes, np.clip(end, -1e300, 1e300)) for end in (self.lo, self.hi))
        holds_zero = (lowest <= 0) & (highest >= 0)
        if not holds_zero.all():
            at = int(np.argmin(holds_zero))
            raise ValueError(f"lo, hi: the sum of beta in group {at} ranges from {lowest[at]} to {highest[at]}; the range must contain 0")

    def _check_numbers(self) -> None:
        if not len(self.c) or not np.isfinite(self.c).all():
            raise ValueError("c: must be finite and not empty")
        if not np.all((np.asarray(self.l1_weight) >= 0) & np.isfinite(self.l1_weight)):
            raise ValueError(f"l1_weight={self.l1_weight!r}: must be finite and not negative")
        if self.ridge is not None and not (np.isfinite(self.ridge).all() and (self.ridge >= 0).all()):
            raise ValueError("ridge: must be finite and not negative")
        if not (self.lo <= self.hi).all():
            raise ValueError("lo, hi: must be numbers with lo <= hi in every entry")
        bounded = np.isfinite(self.lo) & np.isfinite(self.hi)
        if not (bounded if self.ridge is None else bounded | (self.ridge > 0)).all():
            raise ValueError("lo, hi: must be finite where ridge is zero")
        if self.sum_constraint is not None and not self.lo.sum() <= self.sum_constraint <= self.hi.sum():
            sums = f"{self.lo.sum()} and {self.hi.sum()}"
            raise ValueError(f"sum_constraint={self.sum_constraint!r}: must be between {sums}, the sums of lo and of hi")

    @property
    def n(self) -> int:
        return len(self.c)

    def ridges(self) -> FloatArray:
        """Return the ridge of each variable, zeros if there is none."""
        return np.zeros(self.n) if self.ridge is None else self.ridge

    def l1_weights(self) -> FloatArray:
        """Return the weight of each absolute value, shape (n,)."""
        return self.l1_weight if isinstance(self.l1_weight, np.ndarray) else np.full(self.n, self.l1_weight)

    @property
    def has_l1_term(self) -> bool:
        return bool(self.l1_weight.any()) if isinstance(self.l1_weight, np.ndarray) else self.l1_weight != 0.0

    def linear(self, beta: FloatArray) -> float:
        """Return c'beta - sum_i e_i |beta_i|."""
        return float(self.c @ beta - (weighted_l1(self.l1_weight, np.abs(beta)) if self.has_l1_term else 0.0))

    def utility(self, beta: FloatArray) -> float:
        """Return the dual value without the part of the kernel: c'beta - sum_i e_i |beta_i| - 1/2 sum_i ridge_i beta_i^2."""
        linear = self.linear(beta)
        return linear if self.ridge is None else linear - 0.5 * float((self.ridge * beta) @ beta)

    @property
    def used(self) -> Array:
        """Mask of the rows whose variable is not fixed, ``(n,)``."""
        return self.hi > self.lo

    @property
    def is_squared(self) -> bool:
        """Whether every variable used is unbounded, as with the squared loss."""
        return bool((np.isinf(self.lo) & np.isinf(self.hi))[self.used].all())

    def without(self, rows: Array) -> DualProblem:
        """Return the problem without the rows of a mask; their variables are fixed at zero."""
        return replace(self, lo=np.where(rows, 0.0, self.lo), hi=np.where(rows, 0.0, self.hi))

    def part(self, rows: IntArray | slice, sum_constraint: float | None = 0.0) -> DualProblem:
        """Return the problem restricted to some rows, without groups; ``rows`` may also be a permutation of all rows."""
        l1_weight = self.l1_weight[rows] if isinstance(self.l1_weight, np.ndarray) else self.l1_weight
        ridge = None if self.ridge is None else self.ridge[rows]
        return DualProblem(self.c[rows], self.lo[rows], self.hi[rows], l1_weight, sum_constraint, ridge, unit=self.unit)

    def feasible(self, beta: FloatArray) -> FloatArray:
        """Return beta if it is feasible, otherwise the nearest clip(beta - t, lo, hi) with the right sum."""
        clipped = np.minimum(np.maximum(beta, self.lo), self.hi)
        if self.groups is not None:
            return self._balanced_groups(beta, clipped, self.groups)
        if self.sum_constraint is None or abs(clipped.sum() - self.sum_constraint) <= SUM_SLACK * np.abs(clipped).sum():
            return clipped
        return _shift_to_sum(beta, self)

    def _balanced_groups(self, beta: FloatArray, clipped: FloatArray, groups: IntArray) -> FloatArray:
        for group in np.flatnonzero(np.abs(np.bincount(groups, clipped)) > SUM_SLACK * np.bincount(groups, np.abs(clipped))):
            members = groups == group
            clipped[members] = _shift_to_sum(beta[members], self.part(np.flatnonzero(members)))
        return clipped

    def start(self, warm: Warm) -> FloatArray:
        """Return a solver's starting point as a new array. Raises ValueError if the warm start has another length or is not finite."""
        beta = np.zeros(self.n) if warm is None else np.array(warm.beta if isinstance(warm, DualSolution) else warm, dtype=np.float64)
        if beta.shape != (self.n,) or not np.isfinite(beta).all():
            raise ValueError(f"warm: shape {beta.shape}, must be ({self.n},) with finite entries")
        return self.feasible(beta)

    def check_gram(self, gram: Gram) -> None:
        """Raise ValueError if the matrix is not n by n."""
        if gram.n != self.n:
            raise ValueError(f"Gram matrix: has {gram.n} rows, but the problem has {self.n} variables")


def _shift_to_sum(beta: FloatArray, problem: DualProblem) -> FloatArray:
    """Return clip(beta - t, lo, hi) with the right sum. t is found by bisection; the remaining round-off goes to entries strictly inside
    the box.
    """
    total = problem.sum_constraint or 0.0

    def shifted(t: float) -> FloatArray:
        return np.minimum(np.maximum(beta - t, problem.lo), problem.hi)

    bound = 1.0
    while shifted(-bound).sum() < total or shifted(bound).sum() > total:
        bound *= 2.0
        if bound > 1e300:
            return shifted(0.0)
    low, high = -bound, bound
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if shifted(middle).sum() > total else (low, middle)
    point = shifted(high)
    inside = (point > problem.lo) & (point < problem.hi)
    if inside.any():
        point[inside] += (total - point.sum()) / inside.sum()
    return np.minimum(np.maximum(point, problem.lo), problem.hi)


@dataclass(frozen=True)
class DualSolution:
    """A feasible point with its certificate; every number refers to this point.

    * ``bias``: b of the decision value f + b; 0 without a sum constraint.
    * ``biases``, ``(n_groups,)``: replaces ``bias`` in a problem with groups.
    * ``objective``: the dual value, a lower bound of the primal optimum.
    * ``upper``: the primal value at (K beta, bias).
    * ``gap``: ``upper - objective`` >= 0, summed from non-negative terms.
    * ``violation``: the number that was compared with the tolerance.
    * ``converged``: False after ``max_iter`` or if round-off prevents the tolerance.
    * ``decision``: K beta, without ridge and bias.
    * ``indefinite``: negative curvature beyond round-off was found: K is not positive semi-definite, the problem is not concave, and
      ``objective`` is no bound.
    * ``details``: statistics of the solver, such as fetched rows, hit rate and factorisations.
    """

    beta: FloatArray
    bias: float
    objective: float
    upper: float
    gap: float
    iterations: int
    converged: bool
    decision: FloatArray
    violation: float = np.nan
    indefinite: bool = False
    details: dict[str, float] = field(default_factory=dict)
    biases: FloatArray | None = None


Warm = DualSolution | FloatArray | None  # The start of a solver: a solution, a beta, or zero.


def weighted_l1(weight: float | FloatArray, magnitudes: FloatArray) -> float:
    """Return ``sum_i weight_i * magnitudes_i`` without BLAS, so that one weight and an array of equal weights give the same bits."""
    return float((weight * magnitudes).sum())


def best_response(slope: FloatArray, problem: DualProblem) -> FloatArray:
    """Return argmax over lo <= t <= hi of slope t - l1_weight |t| - 1/2 ridge t^2, row by row."""
    soft = np.sign(slope) * np.maximum(np.abs(slope) - problem.l1_weight, 0.0) if problem.has_l1_term else slope
    free = np.where(soft > 0, problem.hi, np.where(soft < 0, problem.lo, 0.0))
    if problem.ridge is not None:
        curved = problem.ridge > 0
        free = np.where(curved, soft / np.where(curved, problem.ridge, 1.0), free)
    return np.minimum(np.maximum(free, problem.lo), problem.hi)


def certify(problem: DualProblem, beta: FloatArray, decision: FloatArray, bias: float | FloatArray) -> tuple[float, float]:
    """Return the dual value and its gap to the primal value at (decision, bias), where decision = K beta; a problem with groups has one
    bias per group.

    Raises ValueError if a value is not finite, because the Gram matrix holds NaN, infinity, or entries whose products overflow.
    """
    ridge, l1_weight, has_l1_term = problem.ridge, problem.l1_weight, problem.has_l1_term

    def gain(t: FloatArray) -> FloatArray:
        # Terms that are zero are left out: small problems are certified thousands of times.
        value = slope * t if ridge is None else (slope - 0.5 * ridge * t) * t
        return value - l1_weight * np.abs(t) if has_l1_term else value

    slope = problem.c - decision - (bias if problem.groups is None else np.asarray(bias)[problem.groups])
    absolute = weighted_l1(l1_weight, np.abs(beta)) if has_l1_term else 0.0
    objective = float((problem.c - 0.5 * decision) @ beta - absolute - (0.0 if ridge is None else 0.5 * (ridge * beta) @ beta))
    if problem.groups is None:
        off = 0.0 if problem.sum_constraint is None else float(bias) * (problem.sum_constraint - beta.sum())
    else:
        off = -float(np.bincount(problem.groups, beta) @ np.asarray(bias))
    gap = float(np.maximum(gain(best_response(slope, problem)) - gain(beta), 0.0).sum() + max(off, 0.0))
    if not (np.isfinite(objective) and np.isfinite(gap)):
        raise ValueError(f"Gram matrix: the dual value is {objective}, the gap {gap}: entries are NaN, infinite or overflow")
    return objective, gap


def certified_solution(problem: DualProblem, beta: FloatArray, decision: FloatArray, bias: float, **fields: Any) -> DualSolution:
    """Return the point with its certificate; ``fields`` are further fields of :class:`DualSolution`."""
    objective, gap = certify(problem, beta, decision, bias)
    return DualSolution(beta=beta, bias=bias, objective=objective, upper=objective + gap, gap=gap, decision=decision, **fields)


# -- problems --------------------------------------------------------------------------------------------------------------


def check_cost(C: ArrayLike, n: int) -> FloatArray:
    """Return the cost of every row. Raises ValueError if a cost is negative or not finite, all are zero, or the length is wrong."""
    cost = np.asarray(C, dtype=np.float64)
    if cost.ndim > 1 or (cost.ndim == 1 and cost.shape != (n,)):
        raise ValueError(f"C: shape {cost.shape}, must be a number or ({n},)")
    cost = np.full(n, cost) if cost.ndim == 0 else cost
    if not np.isfinite(cost).all() or (cost < 0).any() or not (cost > 0).any():
        raise ValueError(f"C={C!r}: must be finite and not negative, with at least one entry above 0")
    return cost


def check_labels(y: ArrayLike, cost: FloatArray, bias: bool) -> FloatArray:
    """Return the labels in float64. Raises ValueError if one is not -1 or +1. With a bias, each class needs a row with positive cost."""
    labels = np.asarray(y, dtype=np.float64)
    if labels.shape != cost.shape or not (np.abs(labels) == 1).all():
        raise ValueError(f"y: shape {labels.shape}, must be ({len(cost)},) with entries -1 and +1")
    if bias and not all((cost[labels == side] > 0).any() for side in (-1.0, 1.0)):
        raise ValueError("y: one class only among the rows with positive cost; a bias needs both classes")
    return labels


def svc_problem(y: ArrayLike, C: ArrayLike, linear: ArrayLike | None = None, *, bias: bool = True) -> DualProblem:
    """Return the hinge-loss problem: primal 1/2 ||w||^2 + sum_i C_i max(0, p_i - y_i (f_i + b)).

    ``y`` holds labels -1 and +1, ``linear`` the margins p (default 1). ``C`` is as in scikit-learn, one number or one per row; 0 leaves a
    row out. Without a bias the sum of beta is free.
    """
    cost = check_cost(C, np.asarray(y).shape[0] if np.ndim(y) else 0)
    labels = check_labels(y, cost, bias)
    lo, hi = np.where(labels > 0, 0.0, -cost), np.where(labels > 0, cost, 0.0)
    return DualProblem(_signed_margins(labels, linear), lo, hi, 0.0, _sum_constraint(bias))


def squared_hinge_problem(y: ArrayLike, C: ArrayLike, linear: ArrayLike | None = None, *, bias: bool = True) -> DualProblem:
    """Return the squared-hinge problem: primal 1/2 ||w||^2 + sum_i C_i max(0, p_i - y_i (f_i + b))^2.

    Its dual is the dual of the hinge with K + I / (2 C) and no upper bound. C is as in ``LinearSVC``; other parameters are as in
    :func:`svc_problem`.
    """
    cost = check_cost(C, np.asarray(y).shape[0] if np.ndim(y) else 0)
    labels = check_labels(y, cost, bias)
    used = cost > 0
    lo, hi = np.where(used & (labels < 0), -np.inf, 0.0), np.where(used & (labels > 0), np.inf, 0.0)
    return DualProblem(_signed_margins(labels, linear), lo, hi, 0.0, _sum_constraint(bias), _half_inverse_cost(cost))


def svr_problem(target: ArrayLike, epsilon: float, C: ArrayLike, *, bias: bool = True) -> DualProblem:
    """Return the epsilon-insensitive problem: primal 1/2 ||w||^2 + sum_i C_i max(0, |t_i - f_i - b| - epsilon), epsilon >= 0."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon!r}: must not be negative")
    targets = np.asarray(target, dtype=np.float64)
    cost = check_cost(C, len(targets))
    return DualProblem(targets, -cost, cost, float(epsilon), _sum_constraint(bias))


def ridge_problem(target: ArrayLike, C: ArrayLike, *, bias: bool = True) -> DualProblem:
    """Return the squared-loss problem: primal 1/2 ||w||^2 + sum_i C_i (t_i - f_i - b)^2. ``alpha`` of KernelRidge is 1 / (2 C)."""
    targets = np.asarray(target, dtype=np.float64)
    cost = check_cost(C, len(targets))
    bound = np.where(cost > 0, np.inf, 0.0)
    return DualProblem(targets, -bound, bound, 0.0, _sum_constraint(bias), _half_inverse_cost(cost))


def target_problem(loss: str, target: FloatArray, epsilon: float, cost: FloatArray) -> DualProblem:
    """Return the problem of standardised real targets, for the ``"squared"`` or an epsilon-insensitive loss.

    Costs ``C_i`` and ``epsilon`` refer to targets of standard deviation one: 1/2 ||w||^2 + sum_i C_i loss of (t - shift) / s.
    """
    scaled, unit = in_machine_unit(np.asarray(target, dtype=np.float64), cost, centred=True)
    if loss == "squared":
        problem = ridge_problem(scaled, cost)
    else:
        problem = svr_problem(scaled, epsilon, cost)
    return replace(problem, unit=unit)


def _signed_margins(labels: FloatArray, linear: ArrayLike | None) -> FloatArray:
    return labels.copy() if linear is None else labels * np.asarray(linear, dtype=np.float64)


def _sum_constraint(bias: bool) -> float | None:
    return 0.0 if bias else None


def _half_inverse_cost(cost: FloatArray) -> FloatArray:
    return np.where(cost > 0, 0.5 / np.where(cost > 0, cost, 1.0), 1.0)
