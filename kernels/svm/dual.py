"""Kernel duals in signed variables: the problem, access to its Gram matrix, and the certificate.

max over beta of   c'beta - sum_i kink_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta,   lo <= beta <= hi,  sum_i beta_i = total

The signed form has no labels and no doubled variables: classification has beta = alpha y, regression one variable per row. With
f = K beta and any bias b, weak duality bounds the optimum from above by the primal value

1/2 beta'K beta + b total + sum_i max over lo_i <= t <= hi_i of  (c_i - f_i - b) t - kink_i |t| - 1/2 ridge_i t^2,

whose sum over i is the loss: hinge, squared hinge, epsilon-insensitive or squared, according to the box (source: Schölkopf and Smola,
"Learning with Kernels", 2002, chapters 7 and 9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .gram_access import DenseGram as DenseGram
from .gram_access import Gram as Gram
from .gram_access import Scratch as Scratch
from .gram_access import add_rows as add_rows
from .gram_access import checked_diagonal as checked_diagonal

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

SUM_SLACK = 1e-10
"""A warm start whose sum is off by at most this share of sum |beta| counts as balanced."""


@dataclass(frozen=True)
class DualProblem:
    """max c'beta - sum_i kink_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta over a box, with or without a fixed sum.

    Attributes
    ----------
    c : ndarray of shape (n,)
    lo, hi : ndarray of shape (n,)
        The box; infinite only where ridge is positive.
    kink : float or ndarray of shape (n,)
        Weight of the absolute values, >= 0; one for all variables or one for each.
    total : float or None
        The sum of beta; None leaves it free, and the machine has no bias.
    ridge : ndarray of shape (n,) or None
        Added to the diagonal of K; None is zero.
    groups : ndarray of shape (n,) or None
        Codes from 0 on: beta sums to zero in every group, and every group has a bias of its own. `total` is 0 then.

    Raises
    ------
    ValueError
        If lengths differ, a number is not finite, a box is empty, or no point of the box has the sum.
    """

    c: FloatArray
    lo: FloatArray
    hi: FloatArray
    kink: float | FloatArray = 0.0
    total: float | None = 0.0
    ridge: FloatArray | None = None
    groups: IndexArray | None = None

    def __post_init__(self) -> None:
        for name in ("c", "lo", "hi", "kink", "ridge"):
            value = getattr(self, name)
            if value is not None and (name != "kink" or np.ndim(value)):
                value = np.ascontiguousarray(value, dtype=np.float64)
                object.__setattr__(self, name, value)
                if value.shape != (len(self.c),):
                    raise ValueError(f"{name}: shape {value.shape}, must be ({len(self.c)},)")
        self._check_numbers()
        if self.groups is not None:
            self._check_groups(np.asarray(self.groups))

    def _check_groups(self, codes: NDArray[Any]) -> None:
        if codes.shape != (self.n,) or codes.dtype.kind not in "iu" or codes.min() < 0:
            raise ValueError(f"groups: shape {codes.shape} of {codes.dtype}, must be ({self.n},) of codes from 0 on")
        if self.total != 0.0:
            raise ValueError(f"total={self.total!r}: must be 0 where beta sums to zero in every group")
        object.__setattr__(self, "groups", np.ascontiguousarray(codes, dtype=np.int64))
        least, most = (np.bincount(codes, np.clip(end, -1e300, 1e300)) for end in (self.lo, self.hi))
        if not ((least <= 0) & (most >= 0)).all():
            at = int(np.argmin((least <= 0) & (most >= 0)))
            raise ValueError(f"lo, hi: the box allows sums from {least[at]} to {most[at]} in group {at}, must hold 0")

    def _check_numbers(self) -> None:
        if not len(self.c) or not np.isfinite(self.c).all():
            raise ValueError("c: must be finite and not empty")
        if not np.all((np.asarray(self.kink) >= 0) & np.isfinite(self.kink)):
            raise ValueError(f"kink={self.kink!r}: must be finite and not negative")
        if self.ridge is not None and not (np.isfinite(self.ridge).all() and (self.ridge >= 0).all()):
            raise ValueError("ridge: must be finite and not negative")
        if not (self.lo <= self.hi).all():
            raise ValueError("lo, hi: an interval is empty or not a number")
        bounded = np.isfinite(self.lo) & np.isfinite(self.hi)
        if not (bounded if self.ridge is None else bounded | (self.ridge > 0)).all():
            raise ValueError("lo, hi: must be finite where ridge is zero")
        if self.total is not None and not self.lo.sum() <= self.total <= self.hi.sum():
            raise ValueError(f"total={self.total!r}: the box allows sums from {self.lo.sum()} to {self.hi.sum()}")

    @property
    def n(self) -> int:
        """Number of variables."""
        return len(self.c)

    def ridges(self) -> FloatArray:
        """Return ridge, zeros when there is none."""
        return np.zeros(self.n) if self.ridge is None else self.ridge

    def kinks(self) -> FloatArray:
        """Return the weight of every absolute value, shape (n,)."""
        return self.kink if isinstance(self.kink, np.ndarray) else np.full(self.n, self.kink)

    @property
    def kinked(self) -> bool:
        """Whether an absolute value has a weight."""
        return bool(np.any(self.kink))

    def linear(self, beta: FloatArray) -> float:
        """Return c'beta - sum_i kink_i |beta_i|."""
        return float(self.c @ beta - (weighed(self.kink, np.abs(beta)) if self.kinked else 0.0))

    def part(self, rows: IndexArray | slice, total: float | None = 0.0) -> DualProblem:
        """Return the problem of some rows alone, without groups: that of one group, of a working set, or of all in another order."""
        kink = self.kink[rows] if isinstance(self.kink, np.ndarray) else self.kink
        ridge = None if self.ridge is None else self.ridge[rows]
        return DualProblem(self.c[rows], self.lo[rows], self.hi[rows], kink, total, ridge)

    def feasible(self, beta: FloatArray) -> FloatArray:
        """Return beta as it is if feasible, else the nearest clip(beta - t, lo, hi) with the right sum."""
        clipped = np.minimum(np.maximum(beta, self.lo), self.hi)
        if self.groups is not None:
            return self._balanced_groups(beta, clipped, self.groups)
        if self.total is None or abs(clipped.sum() - self.total) <= SUM_SLACK * np.abs(clipped).sum():
            return clipped
        return _balanced(beta, self)

    def _balanced_groups(self, beta: FloatArray, clipped: FloatArray, groups: IndexArray) -> FloatArray:
        off = np.abs(np.bincount(groups, clipped)) > SUM_SLACK * np.bincount(groups, np.abs(clipped))
        for group in np.flatnonzero(off):
            own = groups == group
            clipped[own] = _balanced(beta[own], self.part(np.flatnonzero(own)))
        return clipped

    def start(self, warm: Warm) -> FloatArray:
        """Return the first point of a solver, always a new array.

        Raises
        ------
        ValueError
            If the warm start has another length or is not finite.
        """
        beta = np.zeros(self.n) if warm is None else np.array(warm.beta if isinstance(warm, DualSolution) else warm, dtype=np.float64)
        if beta.shape != (self.n,) or not np.isfinite(beta).all():
            raise ValueError(f"warm: shape {beta.shape}, must be ({self.n},) with finite entries")
        return self.feasible(beta)

    def check_gram(self, gram: Gram) -> None:
        """Raise ValueError if the matrix has another order."""
        if gram.n != self.n:
            raise ValueError(f"Gram matrix: order {gram.n}, the problem has {self.n} variables")


def _balanced(beta: FloatArray, problem: DualProblem) -> FloatArray:
    """Bisect on the shift, then spread what round-off leaves over entries strictly inside."""
    total = problem.total or 0.0

    def shifted(t: float) -> FloatArray:
        return np.minimum(np.maximum(beta - t, problem.lo), problem.hi)

    reach = 1.0
    while shifted(-reach).sum() < total or shifted(reach).sum() > total:
        reach *= 2.0
        if reach > 1e300:
            return shifted(0.0)
    low, high = -reach, reach
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if shifted(middle).sum() > total else (low, middle)
    found = shifted(high)
    inside = (found > problem.lo) & (found < problem.hi)
    if inside.any():
        found[inside] += (total - found.sum()) / inside.sum()
    return np.minimum(np.maximum(found, problem.lo), problem.hi)


@dataclass(frozen=True)
class DualSolution:
    """A feasible point with its certificate; every number belongs to this point.

    Attributes
    ----------
    beta : ndarray of shape (n,)
    bias : float
        b of the decision value f + b; 0 without an equality.
    objective : float
        Dual value, a lower bound of the optimum of the primal.
    upper : float
        Primal value at (K beta, bias).
    gap : float
        upper - objective >= 0, summed from terms that are each non-negative.
    iterations : int
    converged : bool
        Whether the tolerance was reached; False after max_iter or when round-off forbids it.
    decision : ndarray of shape (n,)
        K beta, without ridge and bias.
    violation : float
        What was compared with the tolerance.
    indefinite : bool
        Negative curvature beyond round-off was met: K is not positive semi-definite, the problem not concave, and `objective` no bound.
    details : dict
        Figures of one solver: rows fetched, hit rate, factorisations.
    biases : ndarray of shape (n_groups,) or None
        The biases of a problem with groups, whose `bias` is 0.
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


Warm = DualSolution | FloatArray | None
"""Where a solver starts: a solution, a beta, or zero."""


def weighed(kink: float | FloatArray, magnitudes: FloatArray) -> float:
    """Return sum_i kink_i magnitudes_i, to the same bits for one kink as for one each: by the same operations, without BLAS."""
    return float((kink * magnitudes).sum())


def best_response(slope: FloatArray, problem: DualProblem) -> FloatArray:
    """Return argmax over lo <= t <= hi of slope t - kink |t| - 1/2 ridge t^2, row by row."""
    soft = np.sign(slope) * np.maximum(np.abs(slope) - problem.kink, 0.0) if problem.kinked else slope
    if problem.ridge is None:
        free = np.where(soft > 0, problem.hi, np.where(soft < 0, problem.lo, 0.0))
    else:
        curved = problem.ridge > 0
        straight = np.where(soft > 0, problem.hi, np.where(soft < 0, problem.lo, 0.0))
        free = np.where(curved, soft / np.where(curved, problem.ridge, 1.0), straight)
    return np.minimum(np.maximum(free, problem.lo), problem.hi)


def certify(problem: DualProblem, beta: FloatArray, decision: FloatArray, bias: float | FloatArray) -> tuple[float, float]:
    """Return the dual value and the gap to the primal value at (decision, bias), decision = K beta, a bias per group if there are some.

    Raises
    ------
    ValueError
        If one of them is not finite: the Gram matrix holds NaN, infinity, or numbers whose products overflow.
    """
    ridge, kink, kinked = problem.ridge, problem.kink, problem.kinked

    def own(t: FloatArray) -> FloatArray:
        # What is zero is left out: small problems are certified thousands of times.
        value = slope * t if ridge is None else (slope - 0.5 * ridge * t) * t
        return value - kink * np.abs(t) if kinked else value

    slope = problem.c - decision - (bias if problem.groups is None else np.asarray(bias)[problem.groups])
    linear = (problem.c - 0.5 * decision) @ beta
    objective = float(linear - (weighed(kink, np.abs(beta)) if kinked else 0.0) - (0.0 if ridge is None else 0.5 * (ridge * beta) @ beta))
    if problem.groups is None:
        off = 0.0 if problem.total is None else float(bias) * (problem.total - beta.sum())
    else:
        off = -float(np.bincount(problem.groups, beta) @ np.asarray(bias))
    gap = float(np.maximum(own(best_response(slope, problem)) - own(beta), 0.0).sum() + max(off, 0.0))
    if not (np.isfinite(objective) and np.isfinite(gap)):
        raise ValueError(f"Gram matrix: the dual value is {objective}, the gap {gap}: entries are NaN, infinite or overflow")
    return objective, gap


def solution(problem: DualProblem, beta: FloatArray, decision: FloatArray, bias: float, **rest: Any) -> DualSolution:
    """Return the point with its certificate; `rest` are further fields of :class:`DualSolution`."""
    objective, gap = certify(problem, beta, decision, bias)
    return DualSolution(beta=beta, bias=bias, objective=objective, upper=objective + gap, gap=gap, decision=decision, **rest)


# -- problems --------------------------------------------------------------------------------------------------------------


def checked_cost(C: ArrayLike, n: int) -> FloatArray:
    """Return the cost of every row.

    Raises
    ------
    ValueError
        If it is negative, not finite, all zero, or has another length.
    """
    cost = np.asarray(C, dtype=np.float64)
    if cost.ndim > 1 or (cost.ndim == 1 and cost.shape != (n,)):
        raise ValueError(f"C: shape {cost.shape}, must be a number or ({n},)")
    cost = np.full(n, cost) if cost.ndim == 0 else cost
    if not np.isfinite(cost).all() or (cost < 0).any() or not (cost > 0).any():
        raise ValueError(f"C={C!r}: must be finite and positive (an entry 0 leaves its row out)")
    return cost


def checked_labels(y: ArrayLike, cost: FloatArray, bias: bool) -> FloatArray:
    """Return the labels in float64.

    Raises
    ------
    ValueError
        If one is not -1 or +1, or a bias is wanted and a class has no row with positive cost.
    """
    labels = np.asarray(y, dtype=np.float64)
    if labels.shape != cost.shape or not (np.abs(labels) == 1).all():
        raise ValueError(f"y: shape {labels.shape}, must be ({len(cost)},) of -1 and +1")
    if bias and not all((cost[labels == side] > 0).any() for side in (-1.0, 1.0)):
        raise ValueError("y: one class only among the rows with positive cost; a bias needs both")
    return labels


def svc_problem(y: ArrayLike, C: ArrayLike, linear: ArrayLike | None = None, *, bias: bool = True) -> DualProblem:
    """Return the hinge-loss problem: primal 1/2 ||w||^2 + sum_i C_i max(0, p_i - y_i (f_i + b)).

    Parameters
    ----------
    y : array-like of shape (n,)
        Labels -1 and +1.
    C : float or array-like of shape (n,)
        As scikit-learn's; 0 leaves a row out.
    linear : array-like of shape (n,), optional
        Margins p, ones by default.
    bias : bool
        Without one the sum of beta is free.

    Raises
    ------
    ValueError
        If labels, costs or margins are not valid.
    """
    cost = checked_cost(C, np.asarray(y).shape[0] if np.ndim(y) else 0)
    labels = checked_labels(y, cost, bias)
    return DualProblem(_margins(labels, linear), np.where(labels > 0, 0.0, -cost), np.where(labels > 0, cost, 0.0), 0.0, _sum(bias))


def squared_hinge_problem(y: ArrayLike, C: ArrayLike, linear: ArrayLike | None = None, *, bias: bool = True) -> DualProblem:
    """Return the squared-hinge problem: primal 1/2 ||w||^2 + sum_i C_i max(0, p_i - y_i (f_i + b))^2.

    Its dual is that of the hinge with K + I / (2 C) and no upper bound; C is that of ``LinearSVC``. Parameters as in :func:`svc_problem`.

    Raises
    ------
    ValueError
        If labels, costs or margins are not valid.
    """
    cost = checked_cost(C, np.asarray(y).shape[0] if np.ndim(y) else 0)
    labels = checked_labels(y, cost, bias)
    used = cost > 0
    lo, hi = np.where(used & (labels < 0), -np.inf, 0.0), np.where(used & (labels > 0), np.inf, 0.0)
    return DualProblem(_margins(labels, linear), lo, hi, 0.0, _sum(bias), _half_inverse(cost))


def svr_problem(target: ArrayLike, epsilon: float, C: ArrayLike, *, bias: bool = True) -> DualProblem:
    """Return the epsilon-insensitive problem: primal 1/2 ||w||^2 + sum_i C_i max(0, |t_i - f_i - b| - epsilon).

    Parameters
    ----------
    target : array-like of shape (n,)
    epsilon : float
        Half width of the tube, >= 0.
    C : float or array-like of shape (n,)
    bias : bool

    Raises
    ------
    ValueError
        If the tube is negative or costs or targets are not valid.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon={epsilon!r}: must not be negative")
    wanted = np.asarray(target, dtype=np.float64)
    cost = checked_cost(C, len(wanted))
    return DualProblem(wanted, -cost, cost, float(epsilon), _sum(bias))


def ridge_problem(target: ArrayLike, C: ArrayLike, *, bias: bool = True) -> DualProblem:
    """Return the squared-loss problem: primal 1/2 ||w||^2 + sum_i C_i (t_i - f_i - b)^2; KernelRidge's alpha is 1 / (2 C).

    Raises
    ------
    ValueError
        If costs or targets are not valid.
    """
    wanted = np.asarray(target, dtype=np.float64)
    cost = checked_cost(C, len(wanted))
    reach = np.where(cost > 0, np.inf, 0.0)
    return DualProblem(wanted, -reach, reach, 0.0, _sum(bias), _half_inverse(cost))


def _margins(labels: FloatArray, linear: ArrayLike | None) -> FloatArray:
    return labels.copy() if linear is None else labels * np.asarray(linear, dtype=np.float64)


def _sum(bias: bool) -> float | None:
    return 0.0 if bias else None


def _half_inverse(cost: FloatArray) -> FloatArray:
    return np.where(cost > 0, 0.5 / np.where(cost > 0, cost, 1.0), 1.0)
