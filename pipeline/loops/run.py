"""``run_loop``: iterate, stop, checkpoint, resume, keep the history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .protocol import Loop, Outcome, S

if TYPE_CHECKING:
    from ..records.context import RunContext


def _start(loop: Loop[S], ctx: RunContext, resume: bool) -> tuple[S, list[Mapping[str, Any]], int | None]:
    found = ctx.run.load_checkpoint(loop.state_type) if ctx.run is not None and resume else None
    if found is None:
        if ctx.run is not None:
            ctx.run.truncate_history(0)
        return loop.init(ctx), [], None
    iteration, state = found
    assert ctx.run is not None
    ctx.run.truncate_history(iteration)
    ctx.emit({"event": "resume", "iteration": iteration})
    return state, list(ctx.run.history()), iteration


def _record(ctx: RunContext, state: S, row: Mapping[str, Any]) -> None:
    # The history row is written first: a kill in between leaves a row too many, which the resume cuts back, never one too few.
    if ctx.run is not None:
        ctx.run.append_history(dict(row))
        ctx.run.save_checkpoint(state.iteration, state)
    ctx.emit({"event": "iteration", **row})


def run_loop(loop: Loop[S], ctx: RunContext, *, resume: bool = True) -> Outcome[S]:
    """Run ``loop`` to its stop, with a checkpoint after every step when ``ctx`` has a run directory.

    Parameters
    ----------
    loop
        The method: ``init`` and ``step`` on an explicit state.
    ctx
        Executor, data, run directory, budget and event sink.
    resume
        Continue from the newest valid checkpoint of ``ctx.run``.

    Returns
    -------
    Outcome
        Last state and history rows; each row holds ``iteration``, ``seconds`` and the metrics of its step.
    """
    state, history, resumed_at = _start(loop, ctx, resume)
    while state.stop is None:
        began = time.perf_counter()
        step = loop.step(state, ctx)
        state = step.state
        row = {"iteration": state.iteration, **step.metrics, "seconds": time.perf_counter() - began}
        history.append(row)
        _record(ctx, state, row)
    return Outcome(state, tuple(history), resumed_at)
