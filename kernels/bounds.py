"""Gaps between an upper and a lower bound of an optimum.

If the upper bound lies below the lower one by more than rounding, one of the two is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

ROUNDING, SINGLE_ROUNDING = 1e-9, 2e-6
"""Largest amount, as a fraction of the larger bound, by which a lower bound may exceed an upper bound: in double precision, and for
matrices stored in single precision. Single precision rounds each entry by 6e-8, which makes bounds cross by up to 1.5e-7.
"""

_crossings: ContextVar[tuple[list[tuple[float, float]], float] | None] = ContextVar("crossings", default=None)


def sound_gap(gap: float, upper: float) -> float:
    """Return ``gap``, the difference between an upper and a lower bound, or 0 if it is negative. :func:`watch_bounds` records gaps that are
    negative by more than rounding.
    """
    if not gap < 0.0:
        return gap
    lower, (crossings, rounding) = upper - gap, _crossings.get() or ([], ROUNDING)
    if not -gap <= rounding * max(abs(upper), abs(lower)) < math.inf:
        crossings.append((upper, lower))
    return 0.0


@contextmanager
def watch_bounds(rounding: float) -> Generator[list[tuple[float, float]]]:
    """Collect the contradictions found inside the ``with`` block: pairs (upper bound, lower bound) with the lower bound above the upper."""
    found = list[tuple[float, float]]()
    token = _crossings.set((found, rounding))
    try:
        yield found
    finally:
        _crossings.reset(token)
