"""Losses of the rows of a rule ensemble: the hinge of labels, and the square and the tube of the residuals of real targets.

A loss is smoothed to a parabola of width h where the solver needs a curvature; the square needs none. Its multipliers alpha are the slopes
at the rows: the sums over rows are those of ``signs(y) * alpha``, where y are labels with alpha >= 0, or targets with alpha of either sign.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled


@compiled
def bias_root(F: FloatArray, y: FloatArray, cost: FloatArray, h: float, start: float) -> float:
    """Return b with sum_i y_i C_i clip((1 - y_i (F_i - b)) / h, 0, 1) = 0; the sum rises with b."""
    low = np.inf
    high = -np.inf
    plus = 0.0
    minus = 0.0
    for i in range(F.size):
        if cost[i] > 0.0:
            low = min(low, F[i] - 1.0)
            high = max(high, F[i] + 1.0)
            if y[i] > 0:
                plus += cost[i]
            else:
                minus += cost[i]
    # One label alone: the bias at which every row just reaches its margin.
    if minus == 0.0:
        return low if plus > 0.0 else 0.0
    if plus == 0.0:
        return high
    b = min(max(start, low), high)
    for _ in range(200):
        total = 0.0
        slope = 0.0
        for i in range(F.size):
            t = 1.0 - y[i] * (F[i] - b)
            if t >= h:
                total += y[i] * cost[i]
            elif t > 0.0:
                total += y[i] * cost[i] * t / h
                slope += cost[i] / h
        if abs(total) <= 1e-13 * (plus + minus):
            break
        if total > 0.0:
            high = b
        else:
            low = b
        b = b - total / slope if slope > 0.0 else 0.5 * (low + high)
        if not low < b < high:
            b = 0.5 * (low + high)
            if not low < b < high:
                break
    return b


@compiled
def smooth_value(F: FloatArray, y: FloatArray, cost: FloatArray, h: float, b: float) -> float:
    """Return sum_i C_i H_h(1 - y_i (F_i - b)); h = 0 gives the hinge loss."""
    total = 0.0
    for i in range(F.size):
        t = 1.0 - y[i] * (F[i] - b)
        if t >= h:
            total += cost[i] * (t - 0.5 * h)
        elif t > 0.0:
            total += cost[i] * t * t / (2.0 * h)
    return total


def multipliers(F: FloatArray, y: FloatArray, cost: FloatArray, h: float, b: float) -> FloatArray:
    """Return alpha_i = C_i clip((1 - y_i (F_i - b)) / h, 0, 1)."""
    return cost * np.minimum(np.maximum((1.0 - y * (F - b)) / h, 0.0), 1.0)


def find_zone(F: FloatArray, y: FloatArray, cost: FloatArray, h: float, b: float) -> IntArray:
    """Return the rows in the quadratic part of the smoothed hinge."""
    t = 1.0 - y * (F - b)
    return np.flatnonzero((cost > 0.0) & (t > 0.0) & (t < h))


@compiled
def look_along(
    F: FloatArray, dF: FloatArray, step: float, y: FloatArray, cost: FloatArray, h: float, start: float, out: FloatArray
) -> tuple[float, float, float]:
    """Write ``F + step * dF`` to ``out``. Return the bias and the smoothed loss at this point, and the derivative of the loss in the
    step.
    """
    for i in range(F.size):
        out[i] = F[i] + step * dF[i]
    b = bias_root(out, y, cost, h, start)
    slope = 0.0
    for i in range(F.size):
        t = 1.0 - y[i] * (out[i] - b)
        if t > 0.0:
            slope -= y[i] * cost[i] * min(t / h, 1.0) * dF[i]
    return b, smooth_value(out, y, cost, h, b), slope


@dataclass(frozen=True)
class HingeLoss:
    """max(0, 1 - y (F - b)) of labels y, with a parabola of width h below the margin."""

    h: float = 0.0
    is_number: ClassVar[bool] = False
    is_bounded: ClassVar[bool] = True  # multipliers are at most the cost
    can_merge: ClassVar[bool] = True  # rows that agree in all conjunctions and in the label can be one row

    def smoothed(self, h: float) -> HingeLoss:
        return HingeLoss(h)

    def signs(self, y: FloatArray) -> FloatArray:
        return y

    def bias(self, F: FloatArray, y: FloatArray, cost: FloatArray, start: float) -> float:
        """Return the bias at which the multipliers balance."""
        return bias_root(F, y, cost, self.h, start)

    def value(self, F: FloatArray, y: FloatArray, cost: FloatArray, b: float) -> float:
        """Return the sum of the losses."""
        return smooth_value(F, y, cost, self.h, b)

    def multipliers(self, F: FloatArray, y: FloatArray, cost: FloatArray, b: float) -> FloatArray:
        return multipliers(F, y, cost, self.h, b)

    def zone(self, F: FloatArray, y: FloatArray, cost: FloatArray, b: float) -> IntArray:
        """Return the rows in the parabola."""
        return find_zone(F, y, cost, self.h, b)

    def look_along(
        self, F: FloatArray, dF: FloatArray, step: float, y: FloatArray, cost: FloatArray, start: float, out: FloatArray
    ) -> tuple[float, float, float]:
        """Write ``F + step * dF`` to ``out``; return bias, loss, and the derivative of the loss in the step."""
        return look_along(F, dF, step, y, cost, self.h, start, out)

    def dual_terms(self, alpha: FloatArray, y: FloatArray, cost: FloatArray) -> tuple[float, float, float]:
        """Return the terms of a :class:`~gramplane.kernels.graphs.norms.DualPoint`; the last one is infinite without multipliers."""
        return alpha.sum(), 0.0, float(np.min(cost[alpha > 0] / alpha[alpha > 0], initial=np.inf))

    def null_multipliers(self, y: FloatArray, cost: FloatArray) -> FloatArray | None:
        """Return ``signs(y) * alpha`` of a model without rules; None for one label alone."""
        plus, minus = float(cost[y > 0].sum()), float(cost[y < 0].sum())
        if plus == 0 or minus == 0:
            return None
        return np.where(y > 0, cost * min(minus / plus, 1.0), -cost * min(plus / minus, 1.0))

    def arguments(self, y: FloatArray, decisions: FloatArray) -> FloatArray:
        """Return what :meth:`of_arguments` is taken of; it falls by ``signs(y)`` times what is added to the decisions."""
        return 1.0 - y * decisions

    def of_arguments(self, arguments: FloatArray) -> FloatArray:
        return np.maximum(arguments, 0.0)


@dataclass(frozen=True)
class NumberLoss:
    """max(0, abs(r) - epsilon) of residuals r = y - (F - b), with a parabola of width h; without its end this is r^2 / (2 h)."""

    epsilon: float = 0.0
    h: float = 1.0
    end: float = np.inf  # of the parabola, as an excess over epsilon
    is_number: ClassVar[bool] = True

    @property
    def is_bounded(self) -> bool:
        return self.end < np.inf

    @property
    def can_merge(self) -> bool:
        """Whether rows that agree in all conjunctions can be one row with their mean: the squares around it are a constant."""
        return not self.is_bounded

    def smoothed(self, h: float) -> NumberLoss:
        return NumberLoss(self.epsilon, h, h) if self.is_bounded else self

    def signs(self, y: FloatArray) -> FloatArray:
        return np.ones(len(y))

    def bias(self, F: FloatArray, y: FloatArray, cost: FloatArray, start: float) -> float:
        low, high = float(np.min(F - y)) - self.epsilon, float(np.max(F - y)) + self.epsilon
        b = min(max(start, low), high)
        for _ in range(200):
            total, curvature = float(self.multipliers(F, y, cost, b).sum()), float(cost[self.zone(F, y, cost, b)].sum()) / self.h
            if abs(total) <= 1e-13 * cost.sum():
                break
            low, high = (low, b) if total > 0.0 else (b, high)
            b = b - total / curvature if curvature > 0.0 else 0.5 * (low + high)
            if not low < b < high:
                b = 0.5 * (low + high)
                if not low < b < high:
                    break
        return b

    def value(self, F: FloatArray, y: FloatArray, cost: FloatArray, b: float) -> float:
        excess = np.maximum(np.abs(y - (F - b)) - self.epsilon, 0.0)
        curved = np.minimum(excess, self.end)
        return float(cost @ (curved * (excess - 0.5 * curved) / self.h if self.h > 0.0 else excess))

    def multipliers(self, F: FloatArray, y: FloatArray, cost: FloatArray, b: float) -> FloatArray:
        residuals = y - (F - b)
        return cost * np.sign(residuals) * np.clip(np.abs(residuals) - self.epsilon, 0.0, self.end) / self.h

    def zone(self, F: FloatArray, y: FloatArray, cost: FloatArray, b: float) -> IntArray:
        excess = np.abs(y - (F - b)) - self.epsilon
        return np.flatnonzero((cost > 0.0) & (excess >= 0.0) & (excess < self.end))

    def look_along(
        self, F: FloatArray, dF: FloatArray, step: float, y: FloatArray, cost: FloatArray, start: float, out: FloatArray
    ) -> tuple[float, float, float]:
        out[:] = F + step * dF
        b = self.bias(out, y, cost, start)
        return b, self.value(out, y, cost, b), -float(self.multipliers(out, y, cost, b) @ dF)

    def dual_terms(self, alpha: FloatArray, y: FloatArray, cost: FloatArray) -> tuple[float, float, float]:
        sizes = np.abs(alpha)
        linear, used = float(alpha @ y - self.epsilon * sizes.sum()), sizes > 0
        if not self.is_bounded:
            return linear, float(self.h * np.sum(alpha[used] ** 2 / cost[used])), np.inf
        return linear, 0.0, float(np.min(cost[used] / sizes[used], initial=np.inf))

    def null_multipliers(self, y: FloatArray, cost: FloatArray) -> FloatArray | None:
        return cost * (y - np.average(y, weights=cost))

    def arguments(self, y: FloatArray, decisions: FloatArray) -> FloatArray:
        return y - decisions

    def of_arguments(self, arguments: FloatArray) -> FloatArray:
        excess = np.maximum(np.abs(arguments) - self.epsilon, 0.0)
        return excess if self.is_bounded else 0.5 * excess**2


RowLoss = HingeLoss | NumberLoss
HINGE, SQUARED = HingeLoss(), NumberLoss()


def tube_loss(epsilon: float) -> NumberLoss:
    return NumberLoss(epsilon, 0.0, 0.0)
