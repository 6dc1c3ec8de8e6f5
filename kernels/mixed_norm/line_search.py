"""One-dimensional minimisation of F along a direction.

F(s) = P(z + s Z d + s X e) + 1/2 (sum_h ||omega_h + s d_h||)^2 is convex, so slopes of opposite sign bracket its minimum. Trials are
evaluated in batches: if the rows are in other processes, a batch takes one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from .rows import Rows

ARMIJO_SHARE = 1e-4  # Least decrease that is accepted, as a share of what the slope promises.
SLOPE_SHARE = 0.1  # A minimum counts as found when the slope has fallen to this share of the first one.
ROUND_OFF = 1e-14  # Relative round-off of F: smaller differences decide nothing, slopes do.


class Trial(NamedTuple):
    """A step, with value, slope and curvature of F."""

    step: float
    value: float
    slope: float
    curvature: float


class Line(Protocol):
    """A convex function of the step length."""

    def at(self, steps: list[float]) -> list[Trial]:
        """Evaluate the function at each step, in one pass over the rows."""
        ...


@dataclass(frozen=True)
class Path:
    """F along the direction set by ``rows.aim``."""

    rows: Rows
    omega: FloatArray
    direction: FloatArray
    starts: IntArray

    def at(self, steps: list[float]) -> list[Trial]:
        """Evaluate F at each step, in one pass over the rows."""
        points = np.array(steps)
        values = self.rows.line(points)
        values += penalty_along(self.omega, self.direction, self.starts, points)
        return [Trial(step, *numbers) for step, numbers in zip(steps, values.T.tolist(), strict=True)]


@compiled(deferred=True)
def penalty_along(omega: FloatArray, direction: FloatArray, starts: IntArray, steps: FloatArray) -> FloatArray:
    """Return 1/2 (sum_h ||omega_h + s d_h||)^2, its right slope and its curvature at each step, shape (3, n_steps)."""
    out = np.empty((3, steps.size))
    for k in range(steps.size):
        total, slope, bend = 0.0, 0.0, 0.0
        for h in range(starts.size - 1):
            square, cross, length = 0.0, 0.0, 0.0
            for j in range(starts[h], starts[h + 1]):
                value = omega[j] + steps[k] * direction[j]
                square += value * value
                cross += value * direction[j]
                length += direction[j] * direction[j]
            norm = math.sqrt(square)
            if norm > 0.0:
                total += norm
                slope += cross / norm
                bend += max(length - cross * cross / square, 0.0) / norm
            else:
                slope += math.sqrt(length)
        out[0, k] = 0.5 * total * total
        out[1, k] = total * slope
        out[2, k] = slope * slope + total * bend
    return out


def descend(path: Line, origin: Trial) -> Trial:
    """Return the full step if it is acceptable, otherwise an approximate minimiser in (0, 1). If no trial is lower than the starting
    point ``origin``, where the slope is negative, return ``origin``.
    """
    full = path.at([1.0])[0]
    return full if is_acceptable(full, origin) else _refine(path, origin, full, origin)


def minimise(path: Line) -> Trial:
    """Return an approximate minimiser of F over s > 0 by two Newton steps from 0, with a bracket if they overshoot. If F does not fall,
    return step 0.
    """
    origin = path.at([0.0])[0]
    if not (origin.slope < 0 and origin.curvature > 0):
        return origin
    first = path.at([-origin.slope / origin.curvature])[0]
    if first.slope < SLOPE_SHARE * origin.slope and first.curvature > 0:
        second = path.at([first.step - first.slope / first.curvature])[0]
        return second if is_acceptable(second, first) else first
    return first if is_acceptable(first, origin) else _refine(path, origin, first, origin)


def is_acceptable(trial: Trial, origin: Trial) -> bool:
    """Return whether a step lowers the function by a sufficient share of the decrease predicted by the slope."""
    length = trial.step - origin.step
    if trial.value <= origin.value + ARMIJO_SHARE * length * origin.slope:
        return True
    # Near the optimum differences of F drown in round-off while slopes are still exact.
    return trial.value <= origin.value + ROUND_OFF * abs(origin.value) and trial.slope <= 0.5 * abs(origin.slope)


def _refine(path: Line, low: Trial, high: Trial, origin: Trial) -> Trial:
    best = origin
    for _ in range(20):
        steps = _candidates(low, high)
        if not steps:
            break
        trials = path.at(steps)
        best = min([best, *trials], key=lambda trial: trial.value)
        low = max([low, *(trial for trial in trials if trial.slope < 0)], key=lambda trial: trial.step)
        high = min([high, *(trial for trial in trials if trial.slope >= 0)], key=lambda trial: trial.step)
        if best is not origin and _is_near_minimum(best, low, high, origin):
            break
    return best


def _is_near_minimum(best: Trial, low: Trial, high: Trial, origin: Trial) -> bool:
    if abs(best.slope) <= SLOPE_SHARE * abs(origin.slope):
        return True
    # At a kink, where a group passes zero, the slope never vanishes; the tangents at the ends bound what is left to gain.
    floor = low.value + low.slope * (_tangent_crossing(low, high) - low.step)
    return best.value - floor <= SLOPE_SHARE * (origin.value - best.value)


def _tangent_crossing(low: Trial, high: Trial) -> float:
    """Return where the tangents at both ends cross: at the kink if the function has two linear pieces, at the midpoint if it is a
    parabola. If the tangents coincide, return the low end.
    """
    if low.slope == high.slope:
        return low.step
    return (high.value - low.value + low.slope * low.step - high.slope * high.step) / (low.slope - high.slope)


def _candidates(low: Trial, high: Trial) -> list[float]:
    width = high.step - low.step
    steps = {low.step + 0.5 * width}
    if high.slope > low.slope:
        steps.update((low.step - low.slope * width / (high.slope - low.slope), _tangent_crossing(low, high)))
    steps.update(end.step - end.slope / end.curvature for end in (low, high) if 0 < end.curvature < math.inf)
    return sorted(step for step in steps if low.step < step < high.step)


# The bias, eliminated exactly: the root of the balance sum_i u_i(b), which increases with b.

BALANCE_TOL = 1e-14
"""Balance, relative to sum_i |u_i|, below which the dual equality counts as satisfied; about the round-off of the sum."""

BIAS_TOL = 1e-15  # Relative step of the bias below which it is what a float64 can hold.


def solve_bias(sums: Callable[[float], tuple[float, float, float]], start: float, max_step: float) -> float:
    """Find b with sum_i u_i(b) = 0 by Newton steps kept inside a bracket.

    For the squared hinge the balance is piecewise linear, and the search ends after finitely many steps, usually one or two. If the balance
    vanishes on an interval (separable rows), the search returns the end at which it enters the interval.

    ``sums`` returns at b the balance, its derivative in b and sum_i |u_i|, in one pass over the rows. The first step is at most
    ``max_step`` long, and the limit doubles at each step; ``max_step`` is infinite if a Newton step cannot leave the range of the data.
    """
    low, high, bias = -math.inf, math.inf, start
    for _ in range(200):
        balance, slope, mass = sums(bias)
        # Without a limit on the step (squared hinge) no slope means no active row: what balance is left then is round-off.
        if abs(balance) <= BALANCE_TOL * mass or (slope <= 0 and math.isinf(max_step)):
            return bias
        low, high = (low, bias) if balance > 0 else (bias, high)
        step = balance / slope if slope > 0 else math.copysign(math.inf, balance)
        trial = bias - max(-max_step, min(max_step, step))
        if abs(trial - bias) <= BIAS_TOL * max(1.0, abs(bias)):
            return bias
        if not low < trial < high:
            trial = 0.5 * (low + high)
        bias, max_step = trial, 2.0 * max_step
    return bias
