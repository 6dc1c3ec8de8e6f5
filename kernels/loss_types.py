"""Base classes of the losses in :mod:`gramplane.kernels.losses`.

A base class states which methods a solver can rely on. It contains only formulas that hold for all losses of its kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar

import numpy as np

from .arrays import FloatArray


@dataclass(frozen=True)
class Loss:
    """Base class of all losses. Solvers check the attributes of a loss to find out whether they support it."""

    name: ClassVar[str]
    kind: ClassVar[IntEnum]


class SumLoss(Loss):
    """A loss summed over rows with costs, as the sub-problem of the Feature Generating Machine needs it.

    Dual variables are signed: ``u = -dP/df``, the negative gradient of P in the decision values. y holds labels +-1 or real targets.
    """

    of_labels: ClassVar[bool]  # whether y are labels
    max_curvature: Any  # largest second derivative of one row's loss in its decision value, per unit of cost
    first_bias_step: ClassVar[float]
    """Largest length of the first Newton step for an intercept. Without this limit, flat tails of the loss make the full step overshoot.
    Infinite if the step cannot leave the range of the data.
    """

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        raise NotImplementedError

    def residual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return u(f), shape (n_samples,)."""
        raise NotImplementedError

    def bound(self, y: FloatArray, u: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return the larger of two values: ``U(u) - norm2 / 2``, and its value at the best scaling, ``max over s >= 0 of U(s u) - s^2 norm2
        / 2``.
        """
        raise NotImplementedError


class MarginLoss(SumLoss):
    """A loss of the margin m = y f, with dual variables alpha = y u >= 0."""

    of_labels = True
    max_curvature: ClassVar[float]  # pyright: ignore[reportIncompatibleVariableOverride]

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha(f), shape (n_samples,)."""
        raise NotImplementedError

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return U(alpha); minus infinity or NaN outside of the dual bounds."""
        raise NotImplementedError

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the smallest and the largest feasible alpha of each row."""
        raise NotImplementedError

    def residual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return u = alpha y."""
        return self.dual(y, f, cost) * y

    def gradient(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return the gradient of P in f, -alpha y."""
        return -self.dual(y, f, cost) * y

    def best_constant(self, positive: float, negative: float) -> float:
        """Return the constant f of least loss, given the total cost of each class. The optimality condition is solved by bisection."""
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
        """Return P for a constant f, given the total cost of each class."""
        return self.value(np.array([1.0, -1.0]), np.full(2, f), np.array([positive, negative]))

    def best_scaled_dual(self, alpha: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return ``max over s >= 0 of U(s alpha) - s^2 norm2 / 2``, with s alpha within the dual bounds. The function is concave and is
        maximised by section search.

        If norm2 = ||c(alpha)||_(B)^2, the sum of the B largest scores, the value is a lower bound of the exact optimum of the Feature
        Generating Machine, for any dual vector (docs/theory/fgm.md, "Outer bounds").
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
        """Return the larger of U(alpha) - norm2 / 2 and :meth:`best_scaled_dual`."""
        return max(self.utility(alpha, cost) - 0.5 * norm2, self.best_scaled_dual(alpha, cost, norm2))

    def bound(self, y: FloatArray, u: FloatArray, cost: FloatArray, norm2: float) -> float:
        """Return :meth:`best_bound` of alpha = u y."""
        return self.best_bound(u * y, cost, norm2)


class RowLoss(Loss):
    """A loss of single rows, whose mean is minimised by linear models such as the group lasso."""

    is_quadratic: ClassVar[bool] = False  # whether moments of the rows tell everything
    max_curvature: Any  # largest second derivative of one row's loss in its decision value

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        raise NotImplementedError

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return s, the negative derivative of each row's loss in f."""
        raise NotImplementedError

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the second derivative of each row's loss in f."""
        raise NotImplementedError

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return U(s) of each row."""
        raise NotImplementedError

    def dual_value(self, y: FloatArray, cost: FloatArray, s: FloatArray, reach: float, lam: float) -> float:
        """Return the dual value ``sum c U(t s)``, where t scales the slopes towards 0 until ``t Omega*(sum c s x) <= lam``.

        ``reach`` is ``Omega*(sum c s x)``. With an intercept, ``sum c s`` must be 0.
        """
        return float(cost @ self.utilities(y, min(1.0, lam / reach if reach > 0.0 else np.inf) * s))
