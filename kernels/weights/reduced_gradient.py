"""Reduced gradients on the simplex of kernel weights (SimpleMKL), for any function J known by its value and gradient.

Source: Rakotomamonjy, Bach, Canu, Grandvalet, "SimpleMKL", JMLR 9 (2008), algorithm 1. The line search looks for a root of J's
derivative instead of Armijo's condition: every trial solves the machine, which gives the derivative at no cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from ..arrays import FloatArray

ROUND_OFF = 1e-14  # Relative changes of J below this are round-off.
MAX_TRIALS = 60  # Greatest number of machines one line search solves.


class Evaluated(Protocol):
    """J at a point of the simplex; an implementation may hold a warm start of its solver, too."""

    @property
    def weights(self) -> FloatArray:
        """The point, shape (t,)."""
        ...

    @property
    def value(self) -> float:
        """J there."""
        ...

    @property
    def slopes(self) -> FloatArray:
        """The gradient of J there, shape (t,): -1/2 of the quadratic forms."""
        ...


EvaluatedT = TypeVar("EvaluatedT", bound=Evaluated)
Evaluate = Callable[[FloatArray, EvaluatedT], EvaluatedT]


def reduced_gradient(weights: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return the descent direction of the reduced gradient ``slopes`` at a point of the simplex. Its entries are differences to the slope
    of the greatest weight, zero where they would leave the simplex.
    """
    pivot = int(np.argmax(weights))
    direction = slopes[pivot] - slopes
    direction[(weights == 0) & (direction < 0)] = 0.0
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return direction


def longest_step(weights: FloatArray, direction: FloatArray) -> float:
    """Return the step at which the first weight reaches zero; an entry of the direction must be negative."""
    falling = direction < 0
    return float(np.min(weights[falling] / -direction[falling]))


def clip_direction(weights: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the direction without the entries that would leave the simplex; the greatest weight takes their sum."""
    allowed, pivot = np.where(weights > 0, direction, np.maximum(direction, 0.0)), np.argmax(weights)
    # Never what is left of its own entry: an entry far below it would be lost, and nothing would fall.
    allowed[pivot] = 0.0
    allowed[pivot] = -allowed.sum()
    return allowed


def reduced_step(at: EvaluatedT, evaluate: Evaluate[EvaluatedT], *, flat: float = 0.1) -> EvaluatedT:
    """Take one step of SimpleMKL: from border to border of the simplex as long as J falls, then to a flat point of the line. ``evaluate``
    maps weights and the last evaluated point, for warm starts, to J there. Weights may differ from zero and from sum one by round-off: the
    callable decides which are zero and returns the weights it used. A line search ends when J's derivative has fallen to the share ``flat``
    of the first one. The result is never above the start by more than round-off; the start itself where no direction descends.
    """
    direction = reduced_gradient(at.weights, at.slopes)
    while direction.any():
        length = longest_step(at.weights, direction)
        border = evaluate(at.weights + length * direction, at)
        if border.value >= at.value:
            return _find_flat_point(at, border, direction, length, evaluate, flat)
        at = border
        direction = clip_direction(at.weights, direction)
        if direction @ at.slopes >= 0:
            break
    return at


def _find_flat_point(
    start: EvaluatedT, border: EvaluatedT, direction: FloatArray, length: float, evaluate: Evaluate[EvaluatedT], flat: float
) -> EvaluatedT:
    """Find the root of J's derivative between the start and the border, by bisection and secants."""
    at, low, high = start, 0.0, length
    first = slope_low = float(direction @ start.slopes)
    slope_high = float(direction @ border.slopes)
    for trial in range(MAX_TRIALS):
        secant = trial % 3 and slope_high > slope_low
        middle = low - slope_low * (high - low) / (slope_high - slope_low) if secant else 0.5 * (low + high)
        at = evaluate(start.weights + middle * direction, at)
        slope = float(direction @ at.slopes)
        if abs(slope) <= flat * abs(first):
            break
        low, slope_low, high, slope_high = (middle, slope, high, slope_high) if slope < 0 else (low, slope_low, middle, slope)
    return start if at.value > start.value + ROUND_OFF * abs(start.value) else at
