"""Loss functions. Each is a class for arrays and a number for compiled loops; all formulas of losses are in this module.

With labels y = +-1 or targets y, decision values f, margins m = y f, costs C_i >= 0 and dual variables s (the negative slope in f):

================  =============================  ===========================  ==========================================  ==========
name              loss of a row                  s                            dual utility U(s)                           largest
                                                                                                                          curvature
================  =============================  ===========================  ==========================================  ==========
squared_hinge     max(0, 1 - m)^2 / 2            y max(0, 1 - m)              a - a^2 / 2,  a = y s >= 0                  1
logistic          log(1 + exp(-m))               y / (1 + exp(m))             H(y s), the binary entropy in nats          1/4
squared           r^2 / 2,  r = y - f            r                            y s - s^2 / 2                               1
hinge             max(0, 1 - m)                  y if m < 1 else 0            y s, 0 <= y s <= 1                          none
squared_epsilon_  max(0, |r| - epsilon)^2 / 2    sign(r) max(0, |r| -         y s - epsilon |s| - s^2 / 2                 1
insensitive                                      epsilon)
huber             r^2 / 2 where |r| <= delta,    r between -delta and delta   y s - s^2 / 2,  |s| <= delta                1
                  else delta |r| - delta^2 / 2
================  =============================  ===========================  ==========================================  ==========

A sum over rows with costs has the dual variables u_i = C_i s_i (for labels also alpha_i = y_i u_i) and the utility sum_i C_i U(u_i / C_i).
Rows with C_i = 0 are ignored. At any f the pair (f, u) satisfies U(u) = P(f) + sum_i u_i f_i (docs/theory/fgm.md, "Losses and duals").

To add a loss, add a number in :class:`LossKind`, a class in :data:`LOSSES`, and a branch in each compiled loop that should support it. A
solver names the attributes it needs of a loss; :func:`require_loss` rejects losses without them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import numpy as np
from scipy.special import entr, expit

from .arrays import FloatArray
from .jit import compiled
from .loss_types import Loss, MarginLoss, RowLoss, SumLoss


class LossKind(IntEnum):
    """Numbers of the losses in compiled loops; they are never stored in files."""

    SQUARED_HINGE = 0
    LOGISTIC = 1
    SQUARED = 2
    HINGE = 3
    SQUARED_EPSILON_INSENSITIVE = 4
    HUBER = 5


@compiled(inline=True)
def margin_terms(kind: int, margin: float, cost: float) -> tuple[float, float, float]:
    """Return three values, each times the cost: the loss of a row, its negative slope in the margin, and its second derivative."""
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
    """Return cost times the second derivative of a margin loss at the dual variable alpha > 0."""
    if kind == LossKind.SQUARED_HINGE:
        return cost
    if kind == LossKind.LOGISTIC:
        return alpha * max(1.0 - alpha / cost, 0.0)
    return np.nan


@compiled(inline=True)
def target_terms(residual: float, cost: float, epsilon: float, delta: float) -> tuple[float, float, float]:
    """Return the loss, its negative slope and its second derivative, each times the cost, for a row with a real target and residual y - f.

    One formula covers the squared loss (epsilon 0, delta infinite), its epsilon-insensitive form (delta infinite) and Huber's loss (epsilon
    0).
    """
    excess = max(abs(residual) - epsilon, 0.0)
    share = min(excess, delta)
    bends = (excess > 0.0 or epsilon == 0.0) and excess < delta
    return cost * share * (excess - 0.5 * share), math.copysign(cost * share, residual), cost if bends else 0.0


@compiled(inline=True)
def target_curvature(u: float, cost: float, epsilon: float, delta: float) -> float:
    """Return the cost times the second derivative of the loss of :func:`target_terms` at the dual variable u."""
    return cost if (u != 0.0 or epsilon == 0.0) and abs(u) < cost * delta else 0.0


@compiled
def value_and_slope(kind: int, y: Any, f: Any) -> tuple[float, float]:
    """Return the loss of one row and its derivative in the decision value."""
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
class SquaredHinge(MarginLoss):
    """Squared hinge loss, ``P = 1/2 sum_i C_i max(0, 1 - y_i f_i)^2``, with the factor 1/2 of Tan, Tsang and Wang, JMLR 15, 2014."""

    name = "squared_hinge"
    kind = LossKind.SQUARED_HINGE
    max_curvature = 1.0
    first_bias_step = math.inf

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
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
        """Return the mean label, the minimiser of the loss over constants."""
        return (positive - negative) / (positive + negative)

    def constant_value(self, positive: float, negative: float, f: float) -> float:
        """Return P at a constant f between -1 and 1."""
        return 0.5 * positive * (1.0 - f) ** 2 + 0.5 * negative * (1.0 + f) ** 2

    def best_scaled_dual(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return (sum alpha)^2 / (2 (sum alpha^2 / C + norm2))."""
        return self._best_scale(*self._sums(alpha, cost), norm2)

    def best_bound(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the larger of U(alpha) - norm2 / 2 and the bound of :meth:`best_scaled_dual`; both use the same two sums."""
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
    """Logistic loss, P = sum_i C_i log(1 + exp(-y_i f_i)).

    The dual objective contains the constant n C log C, which Tan, Tsang and Wang drop (docs/theory/fgm.md, "Losses and duals").
    """

    name = "logistic"
    kind = LossKind.LOGISTIC
    max_curvature = 0.25
    first_bias_step = 4.0
    steepness = 1.0

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
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
        """Return the log-odds, the minimiser of the loss over constants."""
        return float(np.log(positive / negative))

    def constant_value(self, positive: float, negative: float, f: float) -> float:
        """Return P at a constant f."""
        return positive * float(np.log1p(np.exp(-f))) + negative * float(np.log1p(np.exp(f)))

    def best_scaled_dual(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the best dual value over scalings 0 <= s <= min C / alpha, by bracketed Newton steps."""
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
        """Return the larger of U(alpha) - norm2 / 2 and the bound of :meth:`best_scaled_dual`."""
        return max(self._utility_of_costs(alpha, cost) - 0.5 * norm2, self.best_scaled_dual(alpha, cost, norm2))

    @staticmethod
    def _utility_of_costs(alpha: FloatArray, cost: FloatArray) -> float:
        """Return U without divisions: ``sum C log C - alpha log alpha - (C - alpha) log(C - alpha)``; an alpha slightly above C counts as
        C.
        """
        used = cost > 0
        a, c = alpha[used], cost[used]
        return float(np.sum(_xlogx(c) - _xlogx(a) - _xlogx(np.maximum(c - a, 0.0))))

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        return np.logaddexp(0.0, -y * f)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        return y * expit(-y * f)

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        p = expit(f)
        return p * (1.0 - p)

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return the binary entropy of y s."""
        return entr(y * s) + entr(1.0 - y * s)


def _xlogx(x: FloatArray) -> FloatArray:
    return x * np.log(np.where(x > 0, x, 1.0))


class TargetLoss(SumLoss):
    """A loss of the residual r = y - f: zero up to ``epsilon``, then quadratic, and linear from slope ``delta`` on."""

    of_labels = False
    max_curvature = 1.0
    epsilon: float = 0.0
    delta: float = math.inf

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        excess = np.maximum(np.abs(y - f) - self.epsilon, 0.0)
        share = np.minimum(excess, self.delta)
        return float(np.sum(cost * share * (excess - 0.5 * share)))

    def residual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return u_i = C_i sign(r_i) min(delta, max(0, |r_i| - epsilon))."""
        return cost * np.copysign(np.clip(np.abs(y - f) - self.epsilon, 0.0, self.delta), y - f)

    def utility(self, y: FloatArray, u: FloatArray, cost: FloatArray) -> float:
        """Return sum_i u_i y_i - epsilon |u_i| - u_i^2 / (2 C_i) over the rows with C_i > 0; |u_i| <= C_i delta is required."""
        aligned, square = self._sums(y, u, cost)
        return aligned - 0.5 * square

    def bound(self, y: FloatArray, u: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the dual value at the best scaling of u, which is at least U(u) - norm2 / 2."""
        used = u != 0.0
        reach = float(np.min(cost[used] * self.delta / np.abs(u[used]), initial=math.inf))
        aligned, square = self._sums(y, u, cost)
        return best_dual(square + norm2, max(aligned, 0.0), reach)

    def _sums(self, y: FloatArray, u: FloatArray, cost: FloatArray) -> tuple[float, float]:
        """Return ``sum u y - epsilon |u|`` and ``sum u^2 / C_i``."""
        used = cost > 0
        y, u, cost = (y, u, cost) if used.all() else (y[used], u[used], cost[used])
        return float(np.sum(u * y - self.epsilon * np.abs(u))), float(np.sum(u * u / cost))


@dataclass(frozen=True)
class Squared(TargetLoss, RowLoss):
    """Squared loss, (y - f)^2 / 2."""

    name = "squared"
    kind = LossKind.SQUARED
    first_bias_step = math.inf
    steepness = 4.0
    is_quadratic = True

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
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
        """Return the dual value of the residuals at their best scaling; the factor may exceed 1."""
        return best_dual(float(cost @ (s * s)), float(cost @ (y * s)), lam / reach if reach > 0.0 else np.inf)


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(TargetLoss):
    """Squared epsilon-insensitive loss, P = 1/2 sum_i C_i max(0, |y_i - f_i| - epsilon)^2."""

    epsilon: float = 0.1

    name = "squared_epsilon_insensitive"
    kind = LossKind.SQUARED_EPSILON_INSENSITIVE
    first_bias_step = math.inf


@dataclass(frozen=True)
class Huber(TargetLoss):
    """Huber's loss: quadratic for residuals up to delta, linear beyond."""

    delta: float = 1.35

    name = "huber"
    kind = LossKind.HUBER
    first_bias_step = 1.0


def best_dual(square: float, aligned: float, bound: float) -> float:
    """Return the largest dual value ``t aligned - t^2/2 square`` over ``|t| <= bound``, where ``aligned = sum c y r`` and ``square = sum c
    r^2``.
    """
    scale = aligned / square if square > 0.0 else 1.0
    scale = min(max(scale, -bound), bound)
    return scale * aligned - 0.5 * scale * scale * square


@dataclass(frozen=True)
class Hinge(RowLoss):
    """Hinge loss, max(0, 1 - y f)."""

    name = "hinge"
    kind = LossKind.HINGE
    steepness = 2.0

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        return np.maximum(1.0 - y * f, 0.0)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return y where 1 - y f is positive, else 0."""
        return np.where(1.0 - y * f > 0.0, y, 0.0)

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return y s."""
        return y * s


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (SquaredHinge(), Logistic(), Squared(), Hinge(), SquaredEpsilonInsensitive(), Huber())
}


def require_loss(loss: Loss, solver: str, *needs: str) -> None:
    """Raise ValueError if a loss lacks an attribute that a solver needs. The message names the loss, the missing attribute, and the losses
    that the solver supports.
    """
    lacking = " and ".join(need for need in needs if not hasattr(loss, need))
    if lacking:
        raise ValueError(f"loss={loss.name!r}: must be one of {_names_with(*needs)}; {solver} needs a loss with {lacking}")


def _names_with(*needs: str) -> str:
    return ", ".join(sorted(name for name, loss in LOSSES.items() if all(hasattr(loss, need) for need in needs)))


def named_loss(name: str, solver: str, *needs: str) -> Any:
    """Return the loss called ``name``. Raises ValueError if there is no such loss, or if it lacks an attribute that the solver needs."""
    if name not in LOSSES:
        raise ValueError(f"loss={name!r}: must be one of {_names_with(*needs)}")
    require_loss(LOSSES[name], solver, *needs)
    return LOSSES[name]


def sum_loss(name: str, **widths: float) -> SumLoss:
    """Return the loss called ``name`` for sums over rows with costs. From ``widths`` (``epsilon``, ``delta``) the loss uses only its own
    parameters.

    Raises ValueError if there is no such loss.
    """
    loss = named_loss(name, "the sub-problem of the Feature Generating Machine", "residual", "bound")
    return replace(loss, **{key: value for key, value in widths.items() if key in loss.__dataclass_fields__})


def mean_loss(name: str) -> RowLoss:
    """Return the loss called ``name`` for means over rows, as linear models use them. Raises ValueError if there is no such loss, or if
    it lacks what linear models need.
    """
    return named_loss(name, "a group lasso", "values", "slopes", "utilities")
