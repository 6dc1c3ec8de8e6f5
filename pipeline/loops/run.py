"""``run_loop``: iterate, stop, checkpoint, resume, keep the history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..records.began import note_arithmetic
from .protocol import Loop, LoopState, Outcome, S

if TYPE_CHECKING:
    from ..records.context import RunContext


def begin_event(method: str, config: Any) -> dict[str, Any]:
    """Return the event that comes before the first step: how many there will be at most, and the tolerance, where parameters say so."""
    counts = (getattr(config, name, None) for name in ("most_rounds", "max_rounds", "max_iter"))
    at_most = next((count for count in counts if isinstance(count, int)), None)
    tol = getattr(config, "tol", None)
    return {"event": "begin", "method": method, "rounds_at_most": at_most, "tol": tol if isinstance(tol, float) else None}


def _start(loop: Loop[S], ctx: RunContext, keep: bool) -> tuple[S, list[Mapping[str, Any]], int | None]:
    if ctx.run is None or not keep:
        return loop.init(ctx), [], None
    checkpoint = ctx.run.load_checkpoint(loop.state_type)
    ctx.run.truncate_history(checkpoint[0] if checkpoint else 0)
    ctx.tally.moved = note_arithmetic(ctx.run, checkpoint is not None)
    if ctx.tally.moved:
        ctx.emit({"event": "warning", "message": ctx.tally.moved, "moved": ctx.tally.moved})
    if checkpoint is None:
        return loop.init(ctx), [], None
    iteration, state = checkpoint
    ctx.emit({"event": "resume", "iteration": iteration})
    return state, list(ctx.run.history()), iteration


def _record(loop: Loop[Any], ctx: RunContext, state: LoopState, row: Mapping[str, Any], keep: bool) -> None:
    ctx.confirm()
    # The history row is written first: a kill in between leaves a row too many, which the resume cuts back, never one too few.
    if ctx.run is not None and keep:
        ctx.run.append_history(dict(row))
        ctx.run.save_checkpoint(state.iteration, state, getattr(loop, "about", dict)())
    ctx.emit({"event": "iteration", **row})


def run_loop(loop: Loop[S], ctx: RunContext, *, keep: bool = True) -> Outcome[S]:
    """Run ``loop`` to its stop; with a run directory from its newest valid checkpoint, and with a checkpoint after every step.

    Unless ``keep``, neither checkpoints nor history are read or written: the run directory only carries large vectors to tasks. Rows of the
    history hold ``iteration``, the step's metrics, ``tasks``, ``bytes``, ``retries`` and ``seconds``.
    """
    state, history, resumed_at = _start(loop, ctx, keep)
    while state.stop is None:
        began, before = time.perf_counter(), ctx.tally.figures()
        step = loop.step(state, ctx)
        state = step.state
        spent = {name: value - before[name] for name, value in ctx.tally.figures().items()}
        row = {"iteration": state.iteration, **step.metrics, **spent, "seconds": time.perf_counter() - began}
        history.append(row)
        _record(loop, ctx, state, row, keep)
    return Outcome(state, tuple(history), resumed_at)
