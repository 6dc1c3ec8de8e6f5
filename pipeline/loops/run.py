"""``run_loop``: the engine's iteration of a loop whose method is still to be converted."""

from __future__ import annotations

from typing import Any

from ..core.engine import iterate
from ..core.result import Outcome, Step
from ..records.context import RunContext


class Looped:
    """A loop as a method of which it is the problem."""

    @staticmethod
    def init(loop: Any, ctx: RunContext) -> Any:
        """Return the state before the first step."""
        return loop.init(ctx)

    @staticmethod
    def step(loop: Any, state: Any, ctx: RunContext) -> Step[Any]:
        """Return the state after one more step."""
        return loop.step(state, ctx)


def run_loop(loop: Any, ctx: RunContext, *, keep: bool = True) -> Outcome[Any]:
    """Run ``loop`` to its stop; ``keep``: with checkpoints in the run directory, if there is one."""
    return iterate(Looped, loop, ctx, store=ctx.scratch if keep else None)
