"""Common parts of the states of several methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.bounds import sound_gap
from ..core.result import State


class Bounded:
    """Gaps of a state that has bounds of the optimum."""

    upper: float
    lower: float

    @property
    def gap(self) -> float:
        """Absolute gap between the bounds."""
        return sound_gap(self.upper - self.lower, self.upper)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the upper bound."""
        return self.gap / max(self.upper, np.finfo(float).tiny) if np.isfinite(self.gap) else np.inf


class OverActiveSet:
    """Iteration and stop reason of a state that contains the state of an active set."""

    active: Any

    @property
    def iteration(self) -> int:
        """Number of steps taken."""
        return self.active.iteration

    @property
    def stop(self) -> str | None:
        """Reason to stop, or ``None``."""
        return self.active.stop


def joint_stop(reasons: Sequence[str | None], unfinished: Sequence[str]) -> str | None:
    """Return the common stop reason of several binary models, or ``None`` while any of them runs. Reasons in ``unfinished`` take
    precedence.
    """
    if None in reasons:
        return None
    return next((reason for reason in unfinished if reason in reasons), reasons[-1])


def bound_figures(machines: Sequence[Any], state: State, unfinished: Sequence[str]) -> dict[str, float]:
    """Return the numbers that a model with bounds of its optimum stores: the sums of ``lower`` and of ``upper`` over its binary models, the
    number of iterations, and whether the fit converged.
    """
    for one in machines:
        sound_gap(one.upper - one.lower, one.upper)
    bounds = {name: float(sum(getattr(one, name.removesuffix("_bound")) for one in machines)) for name in ("lower_bound", "upper_bound")}
    return {**bounds, "iterations": float(state.iteration), "converged": float(state.stop not in unfinished)}
