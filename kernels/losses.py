r"""The losses of rows: the only place where their formulas stand, by class for arrays and by number for compiled loops.

With labels y = +-1 or targets y, decision values f, margins m = y f, costs C_i >= 0 and dual variables s = minus the slope in f:

================  =============================  ===========================  ==========================================  ==========
name              loss of a row                  s                            dual utility U(s)                           largest
                                                                                                                          curvature
================  =============================  ===========================  ==========================================  ==========
squared_hinge     max(0, 1 - m)^2 / 2            y max(0, 1 - m)              a - a^2 / 2,  a = y s >= 0                  1
logistic          log(1 + exp(-m))               y / (1 + exp(m))             H(y s), the entropy of a coin in nats       1/4
squared           (y - f)^2 / 2                  y - f                        y s - s^2 / 2                               1
hinge             max(0, 1 - m)                  y if m < 1 else 0            y s, 0 <= y s <= 1                          none
================  =============================  ===========================  ==========================================  ==========

A sum over rows with costs has the dual variables alpha_i = C_i y_i s_i and the utility sum_i C_i U(alpha_i / C_i); rows with C_i = 0 do
not exist. At any f the pair (f, alpha) satisfies U(alpha) = P(f) + sum_i alpha_i m_i (docs/methods.md, "Losses and duals").

To add a loss: a number in :class:`LossKind`, a class in :data:`LOSSES`, and a branch in the compiled functions of the loops that shall take
it. A solver names the attributes it needs of a loss; :func:`require_loss` refuses losses without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit

from .jit import compiled

FloatArray = NDArray[np.float64]
LossName = Literal["logistic", "squared", "hinge"]  # Losses of linear models under a mean.
L = TypeVar("L", bound="Loss")


class LossKind(IntEnum):
    """Numbers of the losses in compiled loops; nothing stores them."""

    SQUARED_HINGE = 0
    LOGISTIC = 1
    SQUARED = 2
    HINGE = 3


@compiled(inline=True)
def margin_terms(kind: int, margin: float, cost: float) -> tuple[float, float, float]:
    """Return cost times the loss of a row, times minus its slope in the margin, and times its second derivative."""
    if kind == LossKind.SQUARED_HINGE:
        return _squared_hinge_terms(margin, cost)
    if kind == LossKind.LOGISTIC:
        return _logistic_terms(margin, cost)
    return np.nan, np.nan, np.nan


@compiled(inline=True)
def _squared_hinge_terms(margin: float, cost: float) -> tuple[float, float, float]:
    slack = max(1.0 - margin, 0.0)
    alpha = cost * slack
    return 0.5 * alpha * slack, alpha, cost if slack > 0.0 else 0.0


@compiled(inline=True)
def _logistic_terms(margin: float, cost: float) -> tuple[float, float, float]:
    # All from one exponential that cannot overflow.
    small = math.exp(-abs(margin))
    other = 1.0 / (1.0 + small)
    share = small * other if margin > 0.0 else other
    return cost * (max(-margin, 0.0) + math.log1p(small)), cost * share, cost * (small * other * other)


@compiled(inline=True)
def curvature_at_dual(kind: int, alpha: float, cost: float) -> float:
    """Return cost times the second derivative of a margin loss where its dual variable is alpha, 0 < alpha."""
    if kind == LossKind.SQUARED_HINGE:
        return cost
    if kind == LossKind.LOGISTIC:
        return alpha * max(1.0 - alpha / cost, 0.0)
    return np.nan


@compiled
def value_and_slope(kind: int, y: Any, f: Any) -> tuple[float, float]:
    """Return the loss of a row of a stream and its derivative in the decision value."""
    if kind == LossKind.SQUARED:
        return 0.5 * (f - y) * (f - y), f - y
    m = y * f
    if kind == LossKind.HINGE:
        return (1.0 - m, -y) if m < 1.0 else (0.0, 0.0)
    if kind != LossKind.LOGISTIC:
        return np.nan, np.nan
    e = np.exp(-abs(m))
    if m > 0.0:
        return np.log1p(e), -y * e / (1.0 + e)
    return np.log1p(e) - m, -y / (1.0 + e)


@dataclass(frozen=True)
class Loss:
    """A loss; what else it has is what tells the solvers that can take it."""

    name: ClassVar[str]
    kind: ClassVar[LossKind]


class MarginLoss(Loss):
    """A loss of the margin, summed over rows with costs: what the sub-problem of the Feature Generating Machine needs."""

    max_curvature: ClassVar[float]  # largest second derivative of one row's loss in its decision value, per unit of cost
    first_bias_step: ClassVar[float]
    """How far the first Newton step of a bias may go: flat tails throw it off. Infinite where it cannot overshoot the data."""

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        """Return P(f)."""
        raise NotImplementedError

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha(f) of shape (n_samples,)."""
        raise NotImplementedError

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return U(alpha); minus infinity, or NaN, outside of the dual bounds."""
        raise NotImplementedError

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and greatest alpha of each row."""
        raise NotImplementedError

    def gradient(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return the gradient of P in f, -alpha y."""
        return -self.dual(y, f, cost) * y

    def best_constant(self, positive: float, negative: float) -> float:
        """Return the f of least loss, the same for all rows, from the costs of both classes: a root of the balance by bisection."""
        y, cost = np.array([1.0, -1.0]), np.array([positive, negative])
        low, high = -1.0, 1.0
        while self.gradient(y, np.full(2, low), cost).sum() > 0:
            low *= 2.0
        while self.gradient(y, np.full(2, high), cost).sum() < 0:
            high *= 2.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.gradient(y, np.full(2, middle), cost).sum() > 0 else (middle, high)
        return 0.5 * (low + high)

    def constant_value(self, positive: float, negative: float, f: float) -> float:
        """Return P where f is the same for all rows, from the costs of both classes."""
        return self.value(np.array([1.0, -1.0]), np.full(2, f), np.array([positive, negative]))

    def best_scaled_dual(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return max over s >= 0 of U(s alpha) - s^2 norm2 / 2, s alpha within the dual bounds: here by sections of a concave function.
        With norm2 = ||c(alpha)||_(B)^2, the sum of the B largest scores, it is a lower bound of the Feature Generating Machine's exact
        optimum from any dual vector (docs/methods.md, "Outer bounds").
        """
        used = alpha > 0
        if not used.any():
            return 0.0
        a, c = alpha[used], cost[used]

        def dual(s: float) -> float:
            return self.utility(s * a, c) - 0.5 * s * s * norm2

        high = float(np.min(self.dual_bounds(c)[1] / a))
        if math.isinf(high):
            high = 1.0
            while dual(2.0 * high) > dual(high):
                high *= 2.0
            high *= 2.0
        low, best = 0.0, max(0.0, dual(high))
        for _ in range(80):
            left, right = low + 0.382 * (high - low), low + 0.618 * (high - low)
            at_left, at_right = dual(left), dual(right)
            low, high = (left, high) if at_left < at_right else (low, right)
            best = max(best, at_left, at_right)
        return best

    def best_bound(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the better of U(alpha) - norm2 / 2 and :meth:`best_scaled_dual`."""
        return max(self.utility(alpha, cost) - 0.5 * norm2, self.best_scaled_dual(alpha, cost, norm2))


class RowLoss(Loss):
    """A loss of single rows, whose mean a linear model minimises: what the group lasso needs."""

    is_quadratic: ClassVar[bool] = False  # whether moments of the rows tell everything
    needs_smoothing: ClassVar[bool] = False  # whether it has slopes everywhere only when it is smoothed
    mu: float = 0.0  # its smoothing
    max_curvature: Any  # largest second derivative of one row's loss in its decision value

    def smoothed(self, mu: float) -> RowLoss:
        """Return the loss smoothed by mu: itself where it needs none."""
        return self

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the loss of every row, smoothed where it is."""
        raise NotImplementedError

    def exact(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the loss of every row without smoothing."""
        return self.values(y, f)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return s, minus the derivative of every row's loss in f."""
        raise NotImplementedError

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the second derivative of every row's loss in f."""
        raise NotImplementedError

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return U(s) of every row, for slopes scaled towards 0."""
        raise NotImplementedError

    def dual_value(self, y: FloatArray, cost: FloatArray, s: FloatArray, reach: float, lam: float) -> float:
        """Return the dual value ``sum c U(t s)`` of slopes scaled until ``t Omega*(sum c s x) <= lam``; with a bias ``sum c s`` must be 0.
        ``reach`` is ``Omega*(sum c s x)``.
        """
        return float(cost @ self.utilities(y, min(1.0, lam / reach if reach > 0.0 else np.inf) * s))


@dataclass(frozen=True)
class SquaredHinge(MarginLoss):
    """Squared hinge loss, P = 1/2 sum_i C_i max(0, 1 - y_i f_i)^2 (the 1/2 is that of Tan, Tsang and Wang, JMLR 15, 2014)."""

    name = "squared_hinge"
    kind = LossKind.SQUARED_HINGE
    max_curvature = 1.0
    first_bias_step = math.inf

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        """Return P(f)."""
        slack = np.maximum(1.0 - y * f, 0.0)
        return float(0.5 * np.sum(cost * slack * slack))

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha_i = C_i max(0, 1 - y_i f_i)."""
        return cost * np.maximum(1.0 - y * f, 0.0)

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return sum_i alpha_i - alpha_i^2 / (2 C_i) over the rows with C_i > 0."""
        used = cost > 0
        return float(np.sum(alpha[used] - alpha[used] ** 2 / (2.0 * cost[used])))

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 0 and infinity (0 where C_i = 0)."""
        return np.zeros_like(cost), np.where(cost > 0, np.inf, 0.0)

    def best_constant(self, positive: float, negative: float) -> float:
        """Return the mean label."""
        return (positive - negative) / (positive + negative)

    def constant_value(self, positive: float, negative: float, f: float) -> float:
        """Return P at a constant within -1 and 1."""
        return 0.5 * positive * (1.0 - f) ** 2 + 0.5 * negative * (1.0 + f) ** 2

    def best_scaled_dual(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return (sum alpha)^2 / (2 (sum alpha^2 / C + norm2))."""
        return self._best_scale(*self._sums(alpha, cost), norm2)

    def best_bound(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the better of U(alpha) - norm2 / 2 and the best scaled one, both from the same two sums."""
        total, square = self._sums(alpha, cost)
        return max(total - 0.5 * square - 0.5 * norm2, self._best_scale(total, square, norm2))

    @staticmethod
    def _best_scale(total: float, square: float, norm2: float) -> float:
        return total**2 / (2.0 * (square + norm2)) if total > 0 else 0.0

    @staticmethod
    def _sums(alpha: FloatArray, cost: FloatArray) -> tuple[float, float]:
        """Return ``sum alpha`` and ``sum alpha^2 / C_i``."""
        used = cost > 0
        a, c = (alpha, cost) if used.all() else (alpha[used], cost[used])
        return float(a.sum()), float(np.sum(a * a / c))


@dataclass(frozen=True)
class Logistic(MarginLoss, RowLoss):
    """Logistic loss, P = sum_i C_i log(1 + exp(-y_i f_i)). The utility contains the constant n C log C that Tan, Tsang and Wang drop
    (docs/methods.md, "Losses and duals").
    """

    name = "logistic"
    kind = LossKind.LOGISTIC
    max_curvature = 0.25
    first_bias_step = 4.0
    steepness = 1.0

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        """Return P(f)."""
        return float(np.sum(cost * np.logaddexp(0.0, -y * f)))

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha_i = C_i / (1 + exp(y_i f_i))."""
        return cost * np.exp(-np.logaddexp(0.0, y * f))

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return sum_i C_i H(alpha_i / C_i) over the rows with C_i > 0; minus infinity outside 0 <= alpha <= C."""
        used = cost > 0
        share = alpha[used] / cost[used]
        return float(np.sum(cost[used] * (entr(share) + entr(1.0 - share))))

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 0 and C_i."""
        return np.zeros_like(cost), cost.astype(np.float64)

    def best_constant(self, positive: float, negative: float) -> float:
        """Return the log of the odds."""
        return float(np.log(positive / negative))

    def constant_value(self, positive: float, negative: float, f: float) -> float:
        """Return P at a constant."""
        return positive * float(np.log1p(np.exp(-f))) + negative * float(np.log1p(np.exp(f)))

    def best_scaled_dual(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the best value over 0 <= s <= min C / alpha, by Newton steps on its slope inside a bracket."""
        used = (cost > 0) & (alpha > 0)
        if not used.any():
            return 0.0
        a, c = alpha[used], cost[used]
        low, high = 0.0, float(np.min(c / a))
        s = min(1.0, 0.5 * high)
        for _ in range(60):
            slope = float(np.sum(a * np.log((c - s * a) / (s * a))) - s * norm2)
            low, high = (s, high) if slope > 0 else (low, s)
            if high - low <= 1e-9 * high:
                break
            curvature = -float(np.sum(a * c / (s * (c - s * a)))) - norm2
            newton = s - slope / curvature
            s = newton if low < newton < high else 0.5 * (low + high)
        return self._utility_of_costs(s * a, c) - 0.5 * s * s * norm2

    def best_bound(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the better of U(alpha) - norm2 / 2 and the best scaled one."""
        return max(self._utility_of_costs(alpha, cost) - 0.5 * norm2, self.best_scaled_dual(alpha, cost, norm2))

    @staticmethod
    def _utility_of_costs(alpha: FloatArray, cost: FloatArray) -> float:
        """Return U without a division: ``sum C log C - alpha log alpha - (C - alpha) log(C - alpha)``; alpha a hair above C counts as C."""
        used = cost > 0
        a, c = alpha[used], cost[used]
        return float(np.sum(_xlogx(c) - _xlogx(a) - _xlogx(np.maximum(c - a, 0.0))))

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return log(1 + exp(-y f)) of every row."""
        return np.logaddexp(0.0, -y * f)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return s of every row."""
        return y * expit(-y * f)

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the second derivative of every row's loss in f."""
        p = expit(f)
        return p * (1.0 - p)

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return the entropy of a coin that falls with y s."""
        return entr(y * s) + entr(1.0 - y * s)


def _xlogx(x: FloatArray) -> FloatArray:
    return x * np.log(np.where(x > 0, x, 1.0))


@dataclass(frozen=True)
class Squared(RowLoss):
    """Squared loss, (y - f)^2 / 2."""

    name = "squared"
    kind = LossKind.SQUARED
    max_curvature = 1.0
    steepness = 4.0
    is_quadratic = True

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return (y - f)^2 / 2 of every row."""
        return 0.5 * np.square(y - f)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return y - f."""
        return y - f

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return 1 for every row."""
        return np.ones_like(f)

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return y s - s^2 / 2."""
        return y * s - 0.5 * s * s

    def dual_value(self, y: FloatArray, cost: FloatArray, s: FloatArray, reach: float, lam: float) -> float:
        """Return the dual value of residuals under their best factor, which may be beyond 1."""
        return best_dual(float(cost @ (s * s)), float(cost @ (y * s)), lam / reach if reach > 0.0 else np.inf)


def best_dual(square: float, aligned: float, bound: float) -> float:
    """Return the largest dual value ``t aligned - t^2/2 square``, ``|t| <= bound``, of residuals r: ``sum c y r`` and ``sum c r^2``."""
    scale = aligned / square if square > 0.0 else 1.0
    scale = min(max(scale, -bound), bound)
    return scale * aligned - 0.5 * scale * scale * square


@dataclass(frozen=True)
class Hinge(RowLoss):
    """Hinge loss, smoothed by mu > 0: max over 0 <= a <= 1 of a (1 - y f) - mu a^2 / 2. That lies below the hinge by at most mu/2, and its
    slopes are points of the hinge's own dual: the certificate is that of the hinge, whatever mu.
    """

    mu: float = 0.0

    name = "hinge"
    kind = LossKind.HINGE
    steepness = 2.0
    needs_smoothing = True

    @property
    def max_curvature(self) -> float:
        """Largest second derivative: 1 / mu."""
        return 1.0 / max(self.mu, 1e-300)

    def smoothed(self, mu: float) -> Hinge:
        """Return the hinge smoothed by mu."""
        return Hinge(mu)

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the smoothed loss of every row."""
        share = self.slopes(y, f) * y
        return share * (1.0 - y * f) - 0.5 * self.mu * share * share

    def exact(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return max(0, 1 - y f) of every row."""
        return np.maximum(1.0 - y * f, 0.0)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return y max(0, min(1, (1 - y f) / mu))."""
        return y * np.clip((1.0 - y * f) / self.mu, 0.0, 1.0)

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return 1 / mu where the parabola is, else 0."""
        return ((1.0 - y * f > 0.0) & (1.0 - y * f < self.mu)) / self.mu

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return y s."""
        return y * s


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SquaredHinge(), Logistic(), Squared(), Hinge())}


def require_loss(loss: Loss, solver: str, *needs: str) -> None:
    """Refuse a loss that lacks what a solver needs; the ValueError names the loss, the losses it takes, the solver and what is lacking."""
    lacking = " and ".join(need for need in needs if not hasattr(loss, need))
    if lacking:
        raise ValueError(f"loss={loss.name!r}: must be one of {_names_with(*needs)}; {solver} needs its {lacking}")


def _names_with(*needs: str) -> str:
    return ", ".join(sorted(name for name, loss in LOSSES.items() if all(hasattr(loss, need) for need in needs)))


def named_loss(name: str, solver: str, *needs: str) -> Any:
    """Return the loss called `name`, which a solver needs to have some attributes; ValueError if there is none, or it lacks one of them."""
    if name not in LOSSES:
        raise ValueError(f"loss={name!r}: must be one of {_names_with(*needs)}")
    require_loss(LOSSES[name], solver, *needs)
    return LOSSES[name]


def margin_loss(name: str, solver: str = "the sub-problem of the Feature Generating Machine") -> MarginLoss:
    """Return a loss of the margin by name; ValueError if there is none of this name, or it is no loss of the margin."""
    return named_loss(name, solver, "dual", "utility", "first_bias_step")


def mean_loss(name: str, mu: float = 0.0) -> RowLoss:
    """Return a loss of linear models by name, smoothed by mu where it needs that; ValueError for any other name."""
    return named_loss(name, "a group lasso", "values", "slopes", "utilities").smoothed(mu)
