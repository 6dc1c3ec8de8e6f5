"""The group lasso as a method of the runner: on a stream of rows, or (``algorithm="fista"``) as a batch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....storage.ingest.text.row_text import PIECE
from ...loops.prepared import Prepared
from ...models.linear import LinearModel, raw_coefficients
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .batch import HELD as BATCH_HELD
from .config import GroupLassoConfig
from .inputs import GroupLassoInputs, group_lasso_inputs
from .measures import regret_rows
from .rows import HELD as ROWS_HELD
from .rows import NO_ROWS, rows_held
from .stream import Machine, StreamLoop, StreamState, figures_of, state_bytes
from .text import TextData, TextLoop, text_inputs

SHOWN = 1000
"""Features and groups in the report's tables."""


def engine_of(config: GroupLassoConfig) -> Any:
    """Return the module that fits: with ``build_loop``, ``model_of``, ``summary``, ``tables`` and ``plan_of``, as this one has them."""
    if config.algorithm == "fista":
        return import_module(".group_lasso_batch", __package__)
    return sys.modules[__name__]


def prepare(config: GroupLassoConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``groups``, ``test_share`` and ``held_out``."""
    engine = engine_of(config)
    inputs = text_inputs(config, ctx.data, extra) if isinstance(ctx.data, TextData) else group_lasso_inputs(ctx, extra)
    loop = engine.build_loop(config, inputs, ctx)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: engine.model_of(loop, state, ctx),
        summary=engine.summary,
        tables=lambda state, model: engine.tables(state, model, ctx.data.feature_names()),
        plan=engine.plan_of(loop, ctx),
    )


def build_loop(config: GroupLassoConfig, inputs: GroupLassoInputs, ctx: RunContext) -> StreamLoop | TextLoop:
    """Return the loop of a fit on a stream.

    Raises
    ------
    DataError
        A class without weight, or a store whose rows cannot be read.
    ValueError
        Groups, loss or algorithm that do not suit.
    gramplane.cluster.MemoryBoundExceeded
        Weights, or rows that have to be made, beyond what the driver may hold.
    """
    text = isinstance(inputs.data, TextData)
    loop = TextLoop(config, inputs) if text else StreamLoop(config, inputs, ctx.driver_memory)
    remedy = "algorithm='fista', fewer features" if text or "rows" in getattr(inputs.data.meta, "layouts", ("rows",)) else NO_ROWS
    refuse_beyond(driver_held(loop), ctx.driver_memory, "group-lasso", remedy)
    return loop


SUMS = Held("sums of the learner, and what a checkpoint keeps of them", "3 s", "s bytes of one state: `state_bytes` of the plan")
WEIGHTS = Held("weights as they are measured", "16 d T")
VECTORS = Held("labels and weights of rows, decision values", "(8 T + 32) n")
TEXT = Held("a piece of text and its rows", f"{8 * PIECE}", "of a text that is read once")

STREAM_HELD = (SUMS, WEIGHTS, VECTORS, TEXT, *ROWS_HELD)
"""What the driver may hold of a stream."""

HELD = (*STREAM_HELD, *BATCH_HELD)
"""What the driver may hold, of a stream or a batch."""


def driver_held(loop: StreamLoop | TextLoop) -> tuple[Holding, ...]:
    """Return what the driver holds: the learner and the copy a checkpoint keeps, weights of T machines, rows as they pass."""
    machine, data = loop.machine, loop.inputs.data
    d, n = machine.penalty.n_features, data.n_rows
    held = (
        SUMS.of(s=state_bytes(machine)),
        WEIGHTS.of(d=d, T=machine.n_machines),
        VECTORS.of(n=n, T=machine.n_machines),
    )
    if isinstance(data, TextData):
        return (*held, TEXT.of())
    return (*held, *rows_held(data))


def model_of(loop: StreamLoop | TextLoop, state: StreamState, ctx: RunContext) -> LinearModel:
    """Return the model of the newest round, or of the mean of all iterates."""
    return linear_model(loop.machine, loop.inputs.classes, ctx.data, state)


def plan_of(loop: StreamLoop | TextLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: blocks per epoch, bytes read, memory of the state."""
    config, data = loop.config, ctx.data
    state = state_bytes(loop.machine)
    plan = {
        **holdings_plan(driver_held(loop)),
        "algorithm": config.algorithm,
        "machines": loop.machine.n_machines,
        "groups": loop.machine.penalty.n_groups,
        "state_bytes": int(state),
        "task_bytes": 0,
    }
    if isinstance(data, TextData):
        return {**plan, "rows_from": "standard input" if data.url == "-" else "text", "text_bytes_per_step": PIECE}
    return {
        **plan,
        "rows_from": "row blocks" if "rows" in data.meta.layouts else "columns, made into rows once",
        "epochs": config.epochs,
        "rounds_at_most": config.epochs * -(-int(np.count_nonzero(loop.weight > 0)) // config.batch_size),
        "bytes_read_per_epoch": int(sum(ref.nbytes for ref in data.column_blocks())),
    }


def linear_model(machine: Machine, classes: Any, data: Any, state: StreamState) -> LinearModel:
    """Return the model at a point of a stream, of data with these scales."""
    config = machine.config
    learner = machine.learner(state.point)
    weights, biases, omega = learner.weights(config.average)
    coef, intercepts = raw_coefficients(weights, biases, data.scale.factor, data.scale.shift)
    rounds, last = float(learner.rounds), figures_of(state.along) if len(state.along) else {}
    return LinearModel(
        params_json=config.model_dump_json(),
        classes_json=json.dumps(None if classes is None else list(classes)),
        tasks_json="null",
        n_features=int(data.n_cols),
        coef=coef,
        intercepts=intercepts,
        row_scaled=data.scale.kind == "unit-row",
        figures={"objective": _objective(state, omega), "gap": float("nan"), "rounds": rounds, "rows": float(last.get("rows", 0))},
        arrays={"active_groups": machine.labels[learner.active()]},
    )


def _objective(state: StreamState, omega: np.ndarray) -> float:
    """Return the mean loss of the last model plus Omega, summed over the machines; NaN where the rows are gone."""
    if not len(state.ended):
        return float("nan")
    return float(state.ended.sum() / state.along[:, 2].sum() + omega.sum())


def summary(state: StreamState, model: LinearModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    figures = figures_of(state.along)
    objective = model.figures["objective"]
    return {
        "objective": objective if np.isfinite(objective) else None,
        "gap": None,
        "mean_loss": figures["mean_loss"],
        "rows": figures["rows"],
        "rounds": int(model.figures["rounds"]),
        "epochs": state.epoch,
        "n_selected": len(model.features),
        "n_groups": len(model.arrays["active_groups"]),
        "n_features": model.n_features,
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(state: StreamState, model: LinearModel, names: list[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: the stream step by step, selected groups, selected features with their weights."""
    return {"stream": regret_rows(state.along, state.ended), **selected_tables(model, names)}


def selected_tables(model: LinearModel, names: list[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of selected features, largest weights first, and of selected groups."""
    features = model.features
    coef: Any = model.coef[:, features]
    weights = coef.toarray() if sp.issparse(coef) else coef
    order = np.lexsort((features, -np.abs(weights).sum(axis=0)))[:SHOWN]
    labels = json.loads(model.classes_json)
    rows = [{"feature": f"x{features[j]}" if names is None else names[features[j]], **_weights(weights[:, j], labels)} for j in order]
    groups = [{"group": int(label)} for label in model.arrays.get("active_groups", ())[:SHOWN]]
    return {"selected": rows, "groups": groups}


def _weights(column: np.ndarray, labels: Any) -> dict[str, float]:
    if len(column) == 1:
        return {"weight": float(column[0])}
    return {f"weight[{label}]": float(value) for label, value in zip(labels, column, strict=True)}
