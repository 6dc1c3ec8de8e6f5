"""The bias, eliminated exactly: the root of the balance sum_i u_i(b), which increases with b."""

from __future__ import annotations

import math
from collections.abc import Callable

BALANCE_TOL = 1e-14
"""Balance, relative to sum_i |u_i|, below which the equality of the dual is called satisfied; about the round-off of the sum."""

BIAS_TOL = 1e-15  # Relative step of the bias below which it is what a float64 can hold.


def solve_bias(sums: Callable[[float], tuple[float, float, float]], start: float, max_step: float) -> float:
    """Find b with sum_i u_i(b) = 0 by Newton steps kept inside a bracket.

    For the squared hinge the balance is piecewise linear and the search ends after finitely many steps, most often one or two; where the
    balance vanishes on an interval (separable rows) the point where it is entered is returned.

    ``sums`` returns at b the balance, its derivative in b and sum_i |u_i|, by one pass over the rows. The first step is at most
    ``max_step`` long, which doubles at every step; it is infinite where Newton cannot overshoot the data.
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
