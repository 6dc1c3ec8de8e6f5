"""The contract of every iterative method: an explicit state, a step, a model.

Nothing but the state survives a step: so a killed run that is resumed ends bit-equal to an undisturbed one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from ...kernels.bounds import sound_gap

if TYPE_CHECKING:
    from ..records.context import RunContext


class LoopState(Protocol):
    """What every state has: the number of steps behind it, and why it is final (``None``: it is not)."""

    @property
    def iteration(self) -> int:
        """Number of steps behind this state."""
        ...

    @property
    def stop(self) -> str | None:
        """Reason of the stop, or ``None``."""
        ...


S = TypeVar("S", bound=LoopState)


@dataclass(frozen=True)
class Step(Generic[S]):
    """One step: the new state and the figures to show for it."""

    state: S
    metrics: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome(Generic[S]):
    """The end of a loop: its last state, the rows of its history, and the iteration that it was resumed at, if it was."""

    state: S
    history: tuple[Mapping[str, Any], ...]
    resumed_at: int | None = None


class Loop(Protocol[S]):
    """An iteration on an explicit state."""

    state_type: type[S]

    def init(self, ctx: RunContext) -> S:
        """Return the state before the first step."""
        ...

    def step(self, state: S, ctx: RunContext) -> Step[S]:
        """Return the state after one more step."""
        ...


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
