"""The bias, eliminated exactly: the root of the balance sum_i u_i(b), which increases with b."""

from __future__ import annotations

import math
from collections.abc import Callable

BALANCED = 1e-14
"""Balance, relative to sum_i |u_i|, below which the equality of the dual is called satisfied; about the round-off of the sum."""

RESOLVED = 1e-15
"""Relative step of the bias below which it is what a float64 can hold."""


def solve_bias(sums: Callable[[float], tuple[float, float, float]], start: float, reach: float) -> float:
    """Find b with sum_i u_i(b) = 0 by Newton steps kept inside a bracket.

    For the squared hinge the balance is piecewise linear and the search ends after finitely many steps, most often one or two; where the
    balance vanishes on an interval (separable rows) the point where it is entered is returned.

    Parameters
    ----------
    sums : callable
        b -> (balance, its derivative in b, sum_i |u_i|): one pass over the rows.
    start : float
        First trial.
    reach : float
        Longest first step, doubled at every step; infinity where Newton cannot overshoot the data.

    Returns
    -------
    float
    """
    low, high, bias = -math.inf, math.inf, start
    for _ in range(200):
        balance, slope, mass = sums(bias)
        # Without a limit on the step (squared hinge) no slope means no active row: what balance is left then is round-off.
        if abs(balance) <= BALANCED * mass or (slope <= 0 and math.isinf(reach)):
            return bias
        low, high = (low, bias) if balance > 0 else (bias, high)
        trial = bias - _newton_step(balance, slope, reach)
        if abs(trial - bias) <= RESOLVED * max(1.0, abs(bias)):
            return bias
        if not low < trial < high:
            trial = 0.5 * (low + high)
        bias, reach = trial, 2.0 * reach
    return bias


def _newton_step(balance: float, slope: float, reach: float) -> float:
    step = balance / slope if slope > 0 else math.copysign(math.inf, balance)
    return max(-reach, min(reach, step))
