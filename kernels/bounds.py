"""Gaps between bounds of an optimum. An upper bound below a lower one by more than rounding shows that one of them is false."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

ROUNDING, SINGLE_ROUNDING = 1e-9, 2e-6
"""Shares of the larger bound by which they may cross: in double precision, and where entries of matrices are rounded to single precision
(by 6e-8 each), which makes crossings of up to 1.5e-7."""

_crossings: ContextVar[tuple[list[tuple[float, float]], float] | None] = ContextVar("crossings", default=None)


def sound_gap(gap: float, upper: float) -> float:
    """Return an upper bound minus a lower one, ``gap``, or 0 where they cross: :func:`watch_bounds` keeps those that do so by more than
    rounding.
    """
    if not gap < 0.0:
        return gap
    lower, (crossings, rounding) = upper - gap, _crossings.get() or ([], ROUNDING)
    if not -gap <= rounding * max(abs(upper), abs(lower)) < math.inf:
        crossings.append((upper, lower))
    return 0.0


@contextmanager
def watch_bounds(rounding: float) -> Generator[list[tuple[float, float]]]:
    """Yield a list of the bounds, upper and lower, that turn out to contradict each other meanwhile: false certificates."""
    found = list[tuple[float, float]]()
    token = _crossings.set((found, rounding))
    try:
        yield found
    finally:
        _crossings.reset(token)
