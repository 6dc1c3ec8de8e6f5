"""Independent loops over the same data, side by side: a step is one of each that still runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..core.resources import ignore
from ..core.result import State, Step
from .protocol import joint_stop

if TYPE_CHECKING:
    from ..records.context import RunContext

S = TypeVar("S", bound=State)

SUMS = ("objective", "gap", "lower_bound", "upper_bound", "restricted_gap", "n_added", "looked_at", "machines")  # figures that add up


@dataclass(frozen=True)
class SideState(Generic[S]):
    """Where every loop stands; a method declares a record of its own, with the states of its loops."""

    iteration: int
    parts: tuple[S, ...]
    figures: tuple[dict[str, float], ...]  # of the newest step of each
    stop: str | None = None


class SideBySide(Generic[S]):
    """Loops side by side that read the same matrices, which the first of them makes.

    ``scores(states)``: further figures of their states together; ``unfinished``: reasons of a stop that go before others.
    """

    def __init__(
        self,
        loops: Sequence[Any],
        state_type: type[Any],
        scores: Callable[[Sequence[S]], Mapping[str, Any]],
        unfinished: Callable[[str | None], bool],
    ) -> None:
        self.loops, self.state_type, self.scores, self.unfinished = tuple(loops), state_type, scores, unfinished
        for loop in self.loops[1:]:
            loop.grams = self.loops[0].grams

    def init(self, ctx: RunContext) -> Any:
        """Return the state before the first step; what is to be said of the data is said once."""
        quiet = replace(ctx, emit=ignore)
        parts = tuple(loop.init(quiet if k else ctx) for k, loop in enumerate(self.loops))
        return self.state_type(0, parts, tuple({} for _ in parts))

    def step(self, state: Any, ctx: RunContext) -> Step[Any]:
        """Take a step of every loop that runs."""
        parts, figures, seconds = list(state.parts), list(state.figures), dict[str, float]()
        for k, (loop, part) in enumerate(zip(self.loops, state.parts, strict=True)):
            if part.stop is None:
                step: Step[S] = loop.step(part, ctx)
                parts[k], figures[k] = step.state, {name: float(value) for name, value in step.metrics.items()}
                for name in [name for name in figures[k] if name.startswith("seconds")]:
                    seconds[name] = seconds.get(name, 0.0) + figures[k].pop(name)
        reasons = [part.stop for part in parts]
        stop = joint_stop(reasons, [reason for reason in reasons if reason is not None and self.unfinished(reason)])
        new = self.state_type(state.iteration + 1, tuple(parts), tuple(figures), stop)
        return Step(new, {**joined_figures(figures), **self.scores(parts), **seconds})


def joined_figures(figures: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the figures of all loops as those of one: sums of what adds up, else the largest."""
    return {name: sum(one[name] for one in figures) if name in SUMS else max(one[name] for one in figures) for name in figures[0]}
