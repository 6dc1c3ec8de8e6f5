"""What states of several methods have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.bounds import sound_gap
from ..core.result import State


class Bounded:
    """What a state with bounds of the optimum says of the gap between them."""

    upper: float
    lower: float

    @property
    def gap(self) -> float:
        """Absolute gap between the bounds."""
        return sound_gap(self.upper - self.lower, self.upper)

    @property
    def relative_gap(self) -> float:
        """The gap in units of the upper bound."""
        return self.gap / max(self.upper, np.finfo(float).tiny) if np.isfinite(self.gap) else np.inf


class OverActiveSet:
    """What a state that holds that of an active set says of its steps."""

    active: Any

    @property
    def iteration(self) -> int:
        """Steps so far."""
        return self.active.iteration

    @property
    def stop(self) -> str | None:
        """Reason of the stop, or ``None``."""
        return self.active.stop


def joint_stop(reasons: Sequence[str | None], unfinished: Sequence[str]) -> str | None:
    """Return why machines that go side by side have all stopped, that of an unfinished one first; ``None`` while one still runs."""
    if None in reasons:
        return None
    return next((reason for reason in unfinished if reason in reasons), reasons[-1])


def bound_figures(machines: Sequence[Any], state: State, unfinished: Sequence[str]) -> dict[str, float]:
    """Return the figures of a model with bounds of its optimum: sums of its machines' ``lower`` and ``upper``, and how its search ended."""
    for one in machines:
        sound_gap(one.upper - one.lower, one.upper)
    bounds = {name: float(sum(getattr(one, name.removesuffix("_bound")) for one in machines)) for name in ("lower_bound", "upper_bound")}
    return {**bounds, "iterations": float(state.iteration), "converged": float(state.stop not in unfinished)}
