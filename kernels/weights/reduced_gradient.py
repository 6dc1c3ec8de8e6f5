"""Reduced gradients on the simplex of kernel weights (SimpleMKL), for any function J known by its value and gradient.

Source: Rakotomamonjy, Bach, Canu, Grandvalet, "SimpleMKL", JMLR 9 (2008), algorithm 1. The line search looks for a root of J's
derivative instead of Armijo's condition: every trial solves the machine and so has the derivative for nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

ROUND_OFF = 1e-14
"""Relative changes of J below this are round-off."""

TRIALS = 60
"""Greatest number of machines one line search solves."""


class Evaluated(Protocol):
    """J at a point of the simplex, and whatever its solver keeps for a warm start."""

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


E = TypeVar("E", bound=Evaluated)


def reduced_gradient(weights: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return the reduced gradient's descent direction: differences to the heaviest weight, zero where it would leave the simplex.

    Parameters
    ----------
    weights, slopes : ndarray of shape (t,)
        A point of the simplex and the gradient there.
    """
    pivot = int(np.argmax(weights))
    direction = slopes[pivot] - slopes
    direction[(weights == 0) & (direction < 0)] = 0.0
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return direction


def longest_step(weights: FloatArray, direction: FloatArray) -> float:
    """Return the step at which the first weight reaches zero; some direction must fall."""
    falling = direction < 0
    return float(np.min(weights[falling] / -direction[falling]))


def along_border(weights: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the direction without what would leave the simplex at weights: that share goes to the heaviest weight."""
    kept = np.where(weights > 0, direction, np.maximum(direction, 0.0))
    kept[np.argmax(weights)] -= kept.sum()
    return kept


def reduced_step(at: E, evaluate: Callable[[FloatArray, E], E], *, flat: float = 0.1) -> E:
    """Take one step of SimpleMKL: to the border of the simplex as long as J falls there, then to a flat point of the line.

    Parameters
    ----------
    at : Evaluated
        Where the step starts.
    evaluate : callable
        (weights, a point evaluated just before) -> J at the weights; the second argument is for warm starts. Weights may differ from zero
        and from sum one by round-off: the callable decides what it calls zero and hands back the weights it used.
    flat : float
        The search of a line ends when J's derivative has fallen to this share of the first one.

    Returns
    -------
    Evaluated
        Never above the start by more than round-off; the start itself where no direction descends.
    """
    direction = reduced_gradient(at.weights, at.slopes)
    while direction.any():
        reach = longest_step(at.weights, direction)
        border = evaluate(at.weights + reach * direction, at)
        if border.value >= at.value:
            return _flat_point(at, border, direction, reach, evaluate, flat)
        at = border
        direction = along_border(at.weights, direction)
        if direction @ at.slopes >= 0:
            break
    return at


def _flat_point(start: E, border: E, direction: FloatArray, reach: float, evaluate: Callable[[FloatArray, E], E], flat: float) -> E:
    """Find the root of J's derivative between the start and the border, by bisection and secants."""
    at, low, high = start, 0.0, reach
    first = slope_low = float(direction @ start.slopes)
    slope_high = float(direction @ border.slopes)
    for trial in range(TRIALS):
        secant = trial % 3 and slope_high > slope_low
        middle = low - slope_low * (high - low) / (slope_high - slope_low) if secant else 0.5 * (low + high)
        at = evaluate(start.weights + middle * direction, at)
        slope = float(direction @ at.slopes)
        if abs(slope) <= flat * abs(first):
            break
        low, slope_low, high, slope_high = (middle, slope, high, slope_high) if slope < 0 else (low, slope_low, middle, slope)
    return start if at.value > start.value + ROUND_OFF * abs(start.value) else at
