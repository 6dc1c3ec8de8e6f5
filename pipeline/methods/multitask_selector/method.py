"""Feature selection over many tasks as a method of the runner: from a store to a loop, from its state to model and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.group_lasso.task_selection import Rounds, TaskStream
from ...inputs.scores import AccuracyTracker, R2Tracker, held_out_rows, with_held_out
from ...inputs.tasks import TaskInputs, refuse_empty, store_task_inputs
from ...loops.prepared import Prepared
from ...models.linear import LinearModel, raw_coefficients
from ...records.context import RunContext
from ...records.holdings import holdings_plan, refuse_beyond
from .batch import BatchLoop, BatchState
from .config import SelectorConfig
from .inputs import SelectorData, check_loss, driver_held, selector_data
from .regret import course
from .rounds import RoundsLoop, SelectorState

UNFINISHED = ("max_iter", "no_progress")
"""Reasons of a stop before the tolerance was reached."""

SHOWN = 40
"""Features whose weights a report shows by task."""

Loop = RoundsLoop | BatchLoop
State = SelectorState | BatchState


def build_loop(config: SelectorConfig, inputs: TaskInputs, ctx: RunContext, fits: Sequence[AccuracyTracker | R2Tracker] = ()) -> Loop:
    """Return the loop of a fit.

    Raises
    ------
    ValueError
        A loss that does not suit the target.
    DataError
        No row has a positive weight.
    """
    check_loss(config, inputs)
    held = driver_held(inputs.data, inputs.n_tasks, config.algorithm, ctx.driver_memory)
    refuse_beyond(held, ctx.driver_memory, "multitask-selector", "feed the rows in pieces with MultiTaskSelector.partial_fit")
    data = selector_data(config, inputs)
    return RoundsLoop(config, data, ctx.seed, fits) if config.algorithm == "da" else BatchLoop(config, data, fits)


def prepare(config: SelectorConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``."""
    inputs = store_task_inputs(ctx, "multitask-selector")
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    refuse_empty(inputs, ctx.data.url)
    fit = R2Tracker(0, inputs.target, held_out) if inputs.classes is None else AccuracyTracker(0, 1, inputs.target, held_out)
    loop = build_loop(config, inputs, ctx, (fit,))
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx),
        summary=lambda state, model: summary(state, model),
        tables=lambda state, model: {**tables(model, loop.data, ctx.data.feature_names()), **_course(loop, state)},
        plan=plan_of(loop, ctx),
    )


def _course(loop: Loop, state: Any) -> dict[str, list[dict[str, Any]]]:
    return {} if isinstance(loop, BatchLoop) else {"stream": course(loop, state)}


def plan_of(loop: Loop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: steps, rounds, memory."""
    config, data = loop.config, loop.data
    held = holdings_plan(driver_held(ctx.data, data.n_tasks, config.algorithm, ctx.driver_memory))
    plan: dict[str, Any] = {"learning_tasks": data.n_tasks, "task_bytes": 0, **held}
    if isinstance(loop, BatchLoop):
        return {**plan, "moment_bytes": loop.moment_bytes(), "sweeps_at_most": config.max_iter * (1 if config.refit is None else 2)}
    epochs, parts = loop.plan
    return {**plan, "rounds_per_epoch": loop.n_rounds, "epochs_per_step": epochs, "steps_per_epoch": parts, "epochs": config.epochs}


def model_of(config: SelectorConfig, inputs: TaskInputs, loop: Loop, state: Any, ctx: RunContext) -> LinearModel:
    """Return the model of the last weights; intercepts hold the offsets of the tasks."""
    found, scale = loop.solution(state), loop.data.scale
    coef, intercepts = raw_coefficients(found.weights, found.intercepts + loop.data.offsets, scale.factor, scale.shift)
    figures = {
        "objective": found.objective,
        "gap": found.gap,
        "iterations": float(state.sweeps if isinstance(state, BatchState) else state.t),
        "converged": float(state.stop not in UNFINISHED),
    }
    record = _record(config, inputs.names, inputs.classes, coef, intercepts, figures)
    return replace(record, row_scaled=inputs.data.scale.kind == "unit-row", arrays={"offsets": loop.data.offsets})


def online_model(
    config: SelectorConfig, rounds: Rounds, stream: TaskStream, names: Sequence[Any], classes: Sequence[Any] | None
) -> LinearModel:
    """Return the model of a stream of rows that are not kept: its objective is not known."""
    figures = {"objective": np.nan, "gap": np.nan, "iterations": float(stream.t), "converged": 1.0}
    coef, intercepts = raw_coefficients(rounds.weights(stream), rounds.intercepts(stream), None, None)
    return _record(config, names, classes, coef, intercepts, figures)


def _record(
    config: SelectorConfig,
    names: Sequence[Any],
    classes: Sequence[Any] | None,
    coef: Any,
    intercepts: np.ndarray,
    figures: dict[str, float],
) -> LinearModel:
    return LinearModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(None if classes is None else list(classes)),
        tasks_json=json.dumps(list(names)),
        n_features=coef.shape[1],
        coef=coef,
        intercepts=intercepts,
        figures=figures,
    )


def remarks(loop: Loop, state: Any, inputs: TaskInputs, ctx: RunContext) -> list[str]:
    """Return what the user should know of a fit: that nothing was selected."""
    weights = loop.solution(state).weights
    lam = loop.config.lam
    return [] if weights.any() or lam == 0 else [f"lam={lam:g} selects no feature: every weight is zero; choose a smaller one"]


def chosen_weights(model: LinearModel) -> np.ndarray:
    """Return the weights of the selected features, ``(n_tasks, n_selected)``."""
    found: Any = model.coef[:, model.features]
    return found.toarray() if sp.issparse(found) else found


def summary(state: State, model: LinearModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    gap = model.figures["gap"]
    return {
        "objective": model.figures["objective"],
        "gap": gap if np.isfinite(gap) else None,
        "certified_over": ("all features", "the selected features")[min(state.phase, 1)] if np.isfinite(gap) else None,
        "sweeps" if isinstance(state, BatchState) else "rounds": int(model.figures["iterations"]),
        "n_selected": len(model.features),
        "nonzeros": int(np.count_nonzero(chosen_weights(model))),
        "n_tasks": len(model.intercepts),
        "stop": state.stop,
        "classes": None if model.classes is None else list(model.classes),
    }


def tables(model: LinearModel, data: SelectorData, names: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: features by the norm of their weights over tasks, their weights by task, the tasks."""
    features, weights = model.features, chosen_weights(model)
    norms = np.sqrt(np.square(weights).sum(axis=0))
    order = np.lexsort((features, -norms))
    told = [f"x{j}" if names is None else str(names[j]) for j in features]
    sizes = np.bincount(data.rows.codes, data.rows.weight > 0, data.n_tasks)
    counts = np.count_nonzero(weights, axis=1)
    return {
        "selected": [
            {"feature": told[k], "column": int(features[k]), "norm": float(norms[k]), "tasks": int(np.count_nonzero(weights[:, k]))}
            for k in order
        ],
        "task_features": []
        if not len(order)
        else [{"task": name, **{told[k]: float(weights[q, k]) for k in order[:SHOWN]}} for q, name in enumerate(data.names)],
        "tasks": [
            {"task": name, "rows": int(sizes[q]), "features": int(counts[q]), "intercept": float(model.intercepts[q])}
            for q, name in enumerate(data.names)
        ],
    }
