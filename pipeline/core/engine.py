"""The engine: iterates a method, fits it, and derives results and warnings from the outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...kernels.bounds import ROUNDING, SINGLE_ROUNDING, sound_gap, watch_bounds
from ...storage import MemoryBlocks
from ..inputs.fit_warnings import fit_warnings, width_warning
from ..records.began import note_arithmetic
from ..records.config import GramConfig
from .resources import Resources
from .result import Outcome, Result

if TYPE_CHECKING:
    from ...storage import RunStore
    from ..records.config import MethodConfig
    from .method import AnyMethod, Problem

BOUNDS = "bounds"  # stop of a fit whose bounds of the optimum contradict each other
GAPS = ("gap", "outer_gap")  # gaps of a summary that certify its objective


def placed(inputs: Any, resources: Resources) -> Any:
    """Return inputs whose data the passes can read. On a cluster, arrays are first written to a temporary store."""
    if not isinstance(inputs.data, MemoryBlocks):
        return inputs
    return inputs.over(getattr(resources, "data", inputs.data))


def begin_event(method: str, config: MethodConfig) -> dict[str, Any]:
    """Return the event emitted before the first step: the largest number of steps and the tolerance, if the parameters set them."""
    counts = (getattr(config, name, None) for name in ("most_rounds", "max_rounds", "max_iter"))
    at_most = next((count for count in counts if isinstance(count, int)), None)
    tol = getattr(config, "tol", None)
    return {"event": "begin", "method": method, "rounds_at_most": at_most, "tol": tol if isinstance(tol, float) else None}


@dataclass(frozen=True)
class Fitted:
    """A finished fit and its problem."""

    problem: Problem
    outcome: Outcome[Any]
    result: Result[Any]


def fit(method: AnyMethod, config: MethodConfig, inputs: Any, resources: Resources) -> Fitted:
    """Return the fit of a method on inputs.

    Incompatible parameters and inputs, and fits that exceed the memory limit, raise an error before any work starts.
    """
    problem = method.problem(config, placed(inputs, resources), resources)
    outcome = iterate(method, problem, resources)
    return Fitted(problem, outcome, result_of(method, problem, outcome, resources))


def iterate(
    method: AnyMethod, problem: Problem, resources: Resources, *, start: Callable[[], Any] | None = None, store: RunStore | None = None
) -> Outcome[Any]:
    """Iterate a method until its state gives a reason to stop.

    With a ``store``, iteration resumes from the newest valid checkpoint, and every step writes one. ``start`` makes the initial state; by
    default ``method.init`` makes it. Rows of the history hold ``iteration``, the metrics of the step, ``tasks``, ``bytes``, ``retries`` and
    ``seconds``.
    """
    tally = resources.tally
    state, history, resumed_at = (None, list[Mapping[str, Any]](), None) if store is None else _restored(method, problem, resources, store)
    if state is None:
        state = method.init(problem, resources) if start is None else start()
    while state.stop is None:
        began, before = time.perf_counter(), tally.figures()
        step = method.step(problem, state, resources)
        state = step.state
        spent = {name: value - before[name] for name, value in tally.figures().items()}
        row = {"iteration": state.iteration, **step.metrics, **spent, "seconds": time.perf_counter() - began}
        history.append(row)
        getattr(resources, "confirm", tuple)()
        if store is not None:
            # The history row is written first: a kill in between leaves a row too many, which the resume cuts back, never one too few.
            store.append_history(dict(row))
            store.save_checkpoint(state.iteration, state, getattr(problem, "about", dict)())
        resources.emit({"event": "iteration", **row})
    return Outcome(state, tuple(history), resumed_at)


def _restored(
    method: AnyMethod, problem: Problem, resources: Resources, store: RunStore
) -> tuple[Any, list[Mapping[str, Any]], int | None]:
    """Return the state, history and iteration of the newest valid checkpoint. Without a checkpoint, the iteration is ``None``."""
    checkpoint = store.load_checkpoint(getattr(problem, "state_type", None) or method.state)
    store.truncate_history(checkpoint[0] if checkpoint else 0)
    resources.tally.moved = note_arithmetic(store, checkpoint is not None)
    if resources.tally.moved:
        resources.emit({"event": "warning", "message": resources.tally.moved, "moved": resources.tally.moved})
    if checkpoint is None:
        return None, [], None
    iteration, state = checkpoint
    resources.emit({"event": "resume", "iteration": iteration})
    return state, list(store.history()), iteration


def result_of(method: AnyMethod, problem: Problem, outcome: Outcome[Any], resources: Resources) -> Result[Any]:
    """Return the result of a final state, with all its warnings.

    If an upper bound of the optimum is below a lower bound by more than rounding, the fit has no certificate: the result has stop "bounds",
    and its gaps are NaN.
    """
    with watch_bounds(SINGLE_ROUNDING if isinstance(problem.config, GramConfig) else ROUNDING) as crossed:
        result = method.result(problem, outcome.state, resources)
        for gap in (result.gap, result.figures.get("outer_gap")):
            if gap is not None:
                sound_gap(gap, result.objective or 0.0)
    if crossed:
        result = _uncertified(result, *crossed[0])
    return replace(result, warnings=all_warnings(method, problem, outcome, result, resources))


def _uncertified(result: Result[Any], upper: float, lower: float) -> Result[Any]:
    share = (lower - upper) / max(abs(upper), abs(lower))
    unknown = {**dict.fromkeys(GAPS, np.nan), "converged": 0.0}
    figures = {name: unknown.get(name, value) for name, value in getattr(result.model, "figures", {}).items()}
    return replace(
        result,
        model=replace(result.model, figures=figures) if figures else result.model,
        stop=BOUNDS,
        converged=False,
        gap=None,
        figures={name: None if name in GAPS else value for name, value in result.figures.items()},
        unfinished=f"the upper bound of the optimum lies below the lower one by {share:.1e} of it, more than rounding: the fit is not "
        "certified. Kernels or columns of very different scale lose digits: scale='standard', float64 in place of float32, or a larger tol "
        "may help",
    )


def all_warnings(method: AnyMethod, problem: Problem, outcome: Outcome[Any], result: Result[Any], resources: Resources) -> list[str]:
    """Return all warnings of a fit: those of the method, and those derived from target, selection and predictions."""
    own, last = list(result.warnings), outcome.history[-1] if outcome.history else {}
    inputs = problem.inputs
    data = getattr(resources, "data", None) or inputs.data
    if widths := width_warning(problem.config, data):
        own.append(widths)
    rows = getattr(inputs, "labelled", None)
    if rows is None:
        return own  # no rows with a target
    if isinstance(data, MemoryBlocks) and last.get("n_answers") is None and result.scores is not None:
        last = {**last, **result.scores()}
    return [*own, *fit_warnings(method.name, problem.config, rows, result.summary, last, own)]
