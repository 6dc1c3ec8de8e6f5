"""The Feature Generating Machine as a method of the runner: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ....storage import DataError
from ...inputs.labels import Inputs
from ...inputs.scores import AccuracyTracker, held_out_rows, with_held_out
from ...loops.prepared import Prepared
from ...passes.blocks import column_tasks, task_bytes
from ...records.context import RunContext
from ...records.holdings import holdings_plan
from .config import FGMConfig
from .designs import driver_held, refuse_columns, rows_step, solve_at
from .fgm_setup import build_atoms, build_loop, build_model, refit
from .loop import FGMLoop, FGMState
from .model import FGMModel
from .remote_design import design_bytes


def _refuse(message: str) -> None:
    raise ValueError(f"{message} (--set B=NUMBER)")


def store_inputs(ctx: RunContext, extra: Mapping[str, Any]) -> Inputs:
    """Return a store's labels, weights and groups.

    Raises
    ------
    DataError
        A store without a target, with a real-valued one, or with one class only.
    """
    data = ctx.data
    labels = data.meta.labels
    if not data.has_table("y"):
        raise DataError(
            "there is no target; fgm needs class labels (ingest a file that has them; --target names their column or array)", data.url
        )
    if labels is None:
        raise DataError("the target is real-valued; fgm needs class labels (ingest with --task classification)", data.url)
    codes = data.target().astype(np.int64)
    if len(np.unique(codes)) < 2:
        raise DataError(f"the target holds one class only ({labels[int(codes[0])]!r}); fgm needs at least two", data.url)
    weight = data.row_table("weight") if data.has_table("weight") else None
    groups = extra.get("groups")
    return Inputs(data, codes, tuple(labels), weight, data.groups() if groups is None else groups)


def prepare(config: FGMConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``.

    Parameters
    ----------
    config
        Parameters.
    ctx
        Executor and data.
    extra
        ``groups`` (labels or index arrays), ``test_share`` and ``seed`` of a held-out part.
    """
    inputs = store_inputs(ctx, extra)
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    loop = build_loop(config, inputs, warn=_refuse)
    held = driver_held(inputs.data, *loop.columns, len(loop.machines), ctx.driver_memory)
    refuse_columns(held, ctx.driver_memory)
    loop.fits = (AccuracyTracker(0, len(loop.machines), inputs.target, held_out),)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: build_model(config, inputs, loop, state, refit(loop, state, ctx) if config.debias else None),
        summary=lambda state, model: summary(state, model),
        tables=lambda state, model: tables(state, model),
        plan={**plan_of(config, inputs, ctx.driver_memory), **holdings_plan(held)},
    )


def plan_of(config: FGMConfig, inputs: Inputs, driver_memory: int) -> dict[str, Any]:
    """Return what the run will do: tasks and bytes per round, memory of a task and of the driver."""
    atoms, available = build_atoms(config, inputs)
    tasks = column_tasks(inputs.data)
    n_machines = inputs.n_machines
    read = int(sum(ref.nbytes for task in tasks for ref in task))
    vectors = 8 * int(inputs.data.n_rows) * n_machines
    columns = n_machines * config.B * config.max_rounds * atoms.width
    scoring = int(max((task_bytes(task) for task in tasks), default=0)) * 2 + vectors
    return {
        "atoms": atoms.kind,
        "solve_at": solve_at(inputs.data, columns, driver_memory),
        "design_bytes_at_most": design_bytes(inputs.data, columns),
        "n_atoms": available,
        "machines": n_machines,
        "rounds_at_most": config.max_rounds,
        "passes_at_most": config.max_rounds + 1,
        "tasks_per_pass": len(tasks),
        "bytes_read_per_pass": read,
        "task_bytes": max(scoring, rows_step(inputs.data, columns, driver_memory)),
    }


def summary(state: FGMState, model: FGMModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    return {
        "objective": float(sum(machine.objective for machine in state.machines)),
        "gap": float(sum(machine.gap for machine in state.machines)),
        "certified_over": "what was chosen so far; outer_gap is over all features",
        "outer_gap": float(sum(machine.outer_gap for machine in state.machines)),
        "rounds": max((len(machine.rounds) for machine in state.machines), default=0),
        "n_selected": len(_union(state)),
        "n_features": model.n_features,
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def _union(state: FGMState) -> np.ndarray:
    parts = [machine.selected() for machine in state.machines if machine.cuts]
    return np.unique(np.concatenate(parts), axis=0) if parts else np.zeros(0, np.int64)


def tables(state: FGMState, model: FGMModel) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: selected coordinates with names and weights."""
    names = coordinate_names(model)
    norms = np.abs(model.weights).sum(axis=0)
    order = np.lexsort((np.arange(len(norms)), -norms))
    rows = [{"feature": names[j], **_weights(model, j)} for j in order]
    return {"selected": rows}


def _weights(model: FGMModel, j: int) -> dict[str, float]:
    if len(model.weights) == 1:
        return {"weight": float(model.weights[0, j])}
    classes = json.loads(model.classes_json)
    return {f"weight[{label}]": float(w) for label, w in zip(classes, model.weights[:, j], strict=True)}


def coordinate_names(model: FGMModel) -> list[str]:
    """Return a readable name of every coordinate of a model."""
    if model.names is None:
        known = {int(j): f"x{j}" for j in model.features}
    else:
        known = {int(j): name for j, name in zip(model.features, model.names, strict=True)}
    if model.kind == "poly2":
        return [known[int(a)] if b < 0 else f"{known[int(a)]}*{known[int(b)]}" for a, b in model.coordinates]
    if model.kind in ("linear", "groups"):
        return [known[int(j)] for j in model.coordinates]
    width = max(1, len(model.coordinates) // max(len(model.features), 1))
    return [f"{known[int(c) // width]}[{int(c) % width}]" for c in model.coordinates]


__all__ = ["FGMLoop", "coordinate_names", "plan_of", "prepare", "store_inputs", "summary", "tables"]
