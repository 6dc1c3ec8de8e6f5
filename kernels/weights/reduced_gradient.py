"""Reduced gradients on the simplex of kernel weights (SimpleMKL), for any function J given by value and gradient.

Source: Rakotomamonjy, Bach, Canu, Grandvalet, "SimpleMKL", JMLR 9 (2008), algorithm 1. The line search finds a root of J's derivative
instead of using Armijo's condition: each trial solves the SVM, which gives the derivative at no extra cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import numpy as np

from ..arrays import FloatArray
from ..jit import compiled
from .l1_lp import l1_lp_response
from .norm_sets import elastic_response, greatest_entry, power_response, project_elastic

ROUND_OFF = 1e-14  # Relative changes of J below this are round-off.
MAX_TRIALS = 60  # Greatest number of machines one line search solves.


class Evaluated(Protocol):
    """J at a point of the simplex; an implementation may also hold a warm start of its solver."""

    @property
    def weights(self) -> FloatArray:
        """The point, shape (t,)."""
        ...

    @property
    def value(self) -> float: ...

    @property
    def slopes(self) -> FloatArray:
        """The gradient of J at the point, shape (t,): -1/2 of the quadratic forms."""
        ...


EvaluatedT = TypeVar("EvaluatedT", bound=Evaluated)
Evaluate = Callable[[FloatArray, EvaluatedT], EvaluatedT]


def reduced_gradient(weights: FloatArray, slopes: FloatArray) -> FloatArray:
    """Return the descent direction of the reduced gradient for ``slopes`` at a point of the simplex.

    Each entry is the slope of the largest weight minus the slope of the entry, or zero where the step would leave the simplex. The entry of
    the largest weight is minus the sum of the others.
    """
    pivot = int(np.argmax(weights))
    direction = slopes[pivot] - slopes
    direction[(weights == 0) & (direction < 0)] = 0.0
    direction[pivot] = 0.0
    direction[pivot] = -direction.sum()
    return direction


def longest_step(weights: FloatArray, direction: FloatArray) -> float:
    """Return the step at which the first weight reaches zero; at least one entry of the direction must be negative."""
    falling = direction < 0
    return float(np.min(weights[falling] / -direction[falling]))


def clip_direction(weights: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the direction with zeros for the entries that would leave the simplex. The entry of the largest weight is minus the sum of
    the others.
    """
    allowed, pivot = np.where(weights > 0, direction, np.maximum(direction, 0.0)), np.argmax(weights)
    # Never what is left of its own entry: an entry far below it would be lost, and nothing would fall.
    allowed[pivot] = 0.0
    allowed[pivot] = -allowed.sum()
    return allowed


def reduced_step(at: EvaluatedT, evaluate: Evaluate[EvaluatedT], *, flat: float = 0.1) -> EvaluatedT:
    """Take one step of SimpleMKL: move to the boundary of the simplex as long as J falls, then to a stationary point of the line.

    ``evaluate`` maps weights and the last evaluated point (for warm starts) to J. Weights may differ from zero and from sum one by
    round-off; ``evaluate`` decides which weights are zero and returns the weights it used. A line search ends when J's derivative has
    fallen to the share ``flat`` of its initial value. J at the result exceeds J at the start by at most round-off. If no direction
    descends, the start is returned.
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
    """Find the root of J's derivative between the start and the boundary, by bisection and secants."""
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


# Compiled accelerated projected gradients for the weights of cuts: dozens of variables, hundreds of cheap steps.


@compiled(deferred=True)
def inner_product(x: FloatArray, y: FloatArray) -> float:
    """Return ``x @ y``."""
    total = 0.0
    for k in range(x.size):
        total += x[k] * y[k]
    return total


@compiled(deferred=True)
def add_scaled(x: FloatArray, a: float, y: FloatArray) -> FloatArray:
    """Return ``x + a * y``."""
    out = np.empty(x.size)
    for k in range(x.size):
        out[k] = x[k] + a * y[k]
    return out


@compiled
def multiply(matrix: FloatArray, x: FloatArray) -> FloatArray:
    """Return ``matrix @ x``."""
    return matrix @ x


@compiled(deferred=True)
def _support_point(s: FloatArray, elastic: bool, v: float, p: float) -> FloatArray:
    if elastic:
        return elastic_response(s, v)
    return l1_lp_response(s, v, p) if v > 0.0 else power_response(s, p)


@compiled(deferred=True)
def _project_simplex(w: FloatArray) -> FloatArray:
    """Project onto the weights with sum one. For a point above the boundary this equals the projection onto sum at most one."""
    ones = np.ones(w.size)
    lifted = project_elastic(add_scaled(w, 1.0 + greatest_entry(add_scaled(np.zeros(w.size), -1.0, w)), ones), 1.0)
    total = inner_product(lifted, ones)
    for k in range(w.size):
        lifted[k] /= total
    return lifted


@compiled(deferred=True)
def ascend_cut_weights(
    c: FloatArray, S: FloatArray, S_t: FloatArray, p: FloatArray, elastic: bool, v: float, p_norm: float, tol: float, max_iter: int
) -> tuple[FloatArray, FloatArray, int]:
    """Maximise c'p - 1/2 sigma(S'p) over the simplex by accelerated projected gradients with restarts.

    sigma is the support function of an elastic-net set (``elastic``, v < 1), a p-norm ball (v = 0), or an L1LpSet; ``S_t`` is S'. Step
    lengths come from backtracking, and the momentum restarts whenever it points downhill. Returns the best weights, the response with the
    lowest maximum cut, and the number of steps.
    """
    ones, start = np.ones(p.size), add_scaled(p, 0.0, p)
    q, ahead, momentum, step = start, start, 1.0, -1.0
    best, low = -np.inf, np.inf
    best_p, best_theta = start, np.zeros(S.shape[1])
    for steps in range(max_iter + 1):
        # At `ahead`: value, gradient and both sides of the certificate.
        theta = _support_point(multiply(S_t, ahead), elastic, v, p_norm)
        slope = add_scaled(c, -0.5, multiply(S, theta))
        value = inner_product(ahead, slope)
        if value > best and _is_inside(ahead):
            best, best_p = value, ahead
        top = greatest_entry(slope)
        if top < low:
            low, best_theta = top, theta
        if low - best <= tol or steps == max_iter:
            break
        centred = add_scaled(slope, -inner_product(slope, ones) / slope.size, ones)
        if step < 0.0:
            step = 1.0 / max(np.sqrt(inner_product(centred, centred)), 1e-300)
        step *= 1.5
        while True:
            trial = _project_simplex(add_scaled(ahead, step, centred))
            move = add_scaled(trial, -1.0, ahead)
            response = _support_point(multiply(S_t, trial), elastic, v, p_norm)
            reached = inner_product(trial, add_scaled(c, -0.5, multiply(S, response)))
            # A concave function with curvature 1/step lies above this parabola.
            bound = value + inner_product(slope, move) - 0.5 / step * inner_product(move, move)
            if reached >= bound - 1e-14 * abs(value):
                break
            step *= 0.5
        if reached > best:
            best, best_p = reached, trial
        last = add_scaled(trial, -1.0, q)
        turns = inner_product(slope, last) < 0.0
        following = 1.0 if turns else 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = trial if turns else add_scaled(trial, (momentum - 1.0) / following, last)
        if not _is_inside(ahead):
            ahead = _project_simplex(ahead)
        q, momentum = trial, following
    return best_p, best_theta, steps


@compiled(deferred=True)
def _is_inside(p: FloatArray) -> bool:
    lowest = 0.0
    for k in range(p.size):
        lowest = min(lowest, p[k])
    return lowest >= 0.0
