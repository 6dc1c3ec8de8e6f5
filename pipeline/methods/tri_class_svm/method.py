"""The tri-class support vector machine as a method of the runner: from two stores to a loop, from its state to model and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.svm.triclass_search import Machine, row_coefficients
from ....storage import BlockStore, DataError, MemoryBlocks
from ...grams.grams import pass_groups
from ...grams.memory import HELD as GRAMS_HELD
from ...grams.settings import GramSettings
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernels import given_grams_or_none
from ...inputs.labels import Inputs, store_inputs
from ...inputs.memory import refuse_pooled
from ...inputs.scores import held_out_rows
from ...loops.prepared import Prepared
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model, data_scaling
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from ...records.missing import refuse_missing
from .config import TriClassConfig
from .inputs import (
    CLASSES,
    ROWS_SHARE,
    TriClassInputs,
    checked_labels,
    joined_stores,
    kernel_of_rows,
    points_of,
    task_memory,
    validation_masks,
)
from .loop import PATH, RIVALS, TriClassLoop, TriClassState

UNFINISHED = (None, "max_iter")


ROWS = Held("rows of both stores, side by side", "stored", f"with unlabelled rows; within {ROWS_SHARE:g} L")
STARTS = Held("labels, costs, coefficients and decision values of every start", "128 n S", "S starts")
MOVING = Held("matrix of the variables that move", "4 (n + u)^2", "`algorithm: cccp`; u unlabelled rows")

HELD = (ROWS, *GRAMS_HELD, STARTS, MOVING)
"""What the driver may hold."""


def build_loop(config: TriClassConfig, inputs: TriClassInputs, ctx: RunContext) -> TriClassLoop:
    """Return the loop of a fit.

    Raises
    ------
    ValueError
        A kernel that does not suit the data, a balance without unlabelled rows, folds without rows of both classes.
    gramplane.cluster.MemoryBoundExceeded
        More rows than the driver's memory allows.
    """
    data = inputs.data
    spec = kernel_of_rows(config, data, inputs.held_out)
    masks: list[np.ndarray | None] = [inputs.held_out, *validation_masks(config, inputs, ctx.seed)]
    points = [points_of(config, inputs, mask) for mask in masks]
    settings = GramSettings.of(replace(ctx, data=data), [spec], config.grams)
    refuse_memory(config, settings, inputs, ctx)
    return TriClassLoop(config, spec, settings, inputs, points, masks, None if data is ctx.data else data)


def driver_held(config: TriClassConfig, settings: GramSettings, inputs: TriClassInputs, ctx: RunContext) -> tuple[Holding, ...]:
    """Return what the driver holds of n rows, u of them unlabelled: rows of two stores, kernel, the matrix of a convex problem, vectors."""
    data, n, u = inputs.data, inputs.data.n_rows, inputs.n_unlabelled
    joined = data is not ctx.data and isinstance(data, MemoryBlocks)
    held = [
        ROWS.of(stored=sum(block.nbytes for block in data.column_blocks()) if joined else 0),
        *settings.held(n, 1, ctx.driver_memory),
        STARTS.of(n=n, S=2 + config.n_random),
    ]
    if config.algorithm == "cccp" and not config.all_relevant:
        # Rows with two variables are copied as often into the matrix of those that move.
        held.append(MOVING.of(n=n, u=u))
    return tuple(held)


def refuse_memory(config: TriClassConfig, settings: GramSettings, inputs: TriClassInputs, ctx: RunContext) -> None:
    """Refuse what does not fit the driver, or needs the Gram matrix on it where it may not have it.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        Need and limit are named.
    """
    remedy = "fewer rows"
    if config.algorithm != "mm" or config.balance is not None:
        remedy = "fewer rows, or algorithm='mm' without balance"
        refuse_pooled(inputs.data.n_rows, ctx.driver_memory, "tri-class-svm", remedy)
    refuse_beyond(driver_held(config, settings, inputs, ctx), ctx.driver_memory, "tri-class-svm", remedy)


def prepare(config: TriClassConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``unlabelled``, a store, and ``test_share``."""
    inputs, beside = run_inputs(ctx, extra)
    loop = build_loop(config, inputs, ctx)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx),
        summary=lambda state, model: summary(loop, state, model),
        tables=lambda state, model: tables(loop, state),
        plan=plan_of(loop, ctx, None if beside is None else beside.digest),
        beside=() if beside is None else (beside,),
    )


def run_inputs(ctx: RunContext, extra: Mapping[str, Any]) -> tuple[TriClassInputs, BlockStore | None]:
    """Return labels and rows of a run, and its unlabelled store: the version that the run began with.

    Raises
    ------
    DataError
        Labels other than -1, 0 and +1, or unlabelled rows that do not go with them.
    DigestMismatch
        The unlabelled store was replaced since the run began, and the old version is gone.
    """
    found = store_inputs(ctx, "tri-class-svm")
    if found.classes is None:
        raise DataError("the target is real-valued; tri-class-svm needs labels -1, +1 and 0", ctx.data.url)
    labels = checked_labels(np.asarray(found.classes)[found.target], found.sample_weight, ctx.data.url)
    classes = tuple(next(label for label in found.classes if float(label) == side) for side in CLASSES)
    held_out = held_out_rows(extra, found.target, ctx.seed, found.classes)
    place = extra.get("unlabelled")
    decided = {} if ctx.run is None else ctx.run.read_json("decisions") or {}
    store = None if place is None else BlockStore.open(str(place), decided.get("unlabelled_digest"))
    if store is not None:
        refuse_missing(store, "tri-class-svm")
    data: Any = ctx.data
    rows = joined_stores(data, store, task_memory(ctx))
    count = 0 if store is None else store.n_rows
    return TriClassInputs(rows, labels, count, found.sample_weight, classes, held_out), store


def plan_of(loop: TriClassLoop, ctx: RunContext, digest: str | None) -> dict[str, Any]:
    """Return what the run will do: rows, where the Gram matrix lies, tasks, memory of a task."""
    data = ctx.data if loop.data is None else loop.data
    refs = row_pairs(data, [loop.spec], loop.settings.block)
    return {
        **loop.settings.describe(data.n_rows, 1),
        **holdings_plan(driver_held(loop.config, loop.settings, loop.inputs, ctx)),
        "kernel": str(loop.spec),
        "labelled": len(loop.inputs.labels),
        "unlabelled": loop.inputs.n_unlabelled,
        "unlabelled_digest": digest,
        "starts": list(loop.names),
        "iterations_at_most": 1 + loop.config.max_iter,
        "tasks_per_pass": len(pass_groups(refs)),
        "task_bytes": int(max(pair_bytes(ref) for ref in refs)),
    }


def model_of(config: TriClassConfig, inputs: TriClassInputs, loop: TriClassLoop, state: TriClassState, ctx: RunContext) -> KernelModel:
    """Return the model of the best start."""
    best = loop.best(state)
    figures = {
        "objective": best.objective / config.C,
        "gap": best.gap / config.C,
        "eps": config.eps,
        "iterations": float(state.iteration),
        "converged": float(state.stop not in UNFINISHED),
    }
    beta = row_coefficients(loop.points[0], best)
    kernel = Inputs(inputs.data, inputs.labels, inputs.classes)
    arrays = {
        "assignment": best.labels[inputs.unlabelled].astype(np.int64),
        "starts": np.array([machine.objective / config.C for machine in state.machines[: len(loop.names)]]),
        "validation": validation_array(loop.validation(state)),
    }
    found = build_model(config, kernel, loop.grams(ctx), np.ones((1, 1)), beta[None], np.array([best.bias]), figures, arrays)
    # Rows that were read from a store are scaled; rows to come are not.
    own = {} if given_grams_or_none(inputs.data) is not None or loop.data is None or not inputs.data.n_cols else data_scaling(ctx.data)
    return replace(found, **own)


def validation_array(rows: list[dict[str, Any]]) -> np.ndarray:
    """Return the rows of a validation as ``(rows, 3)``: accuracy, deviation (NaN where there is none), folds."""
    found = [[row["accuracy"], np.nan if row["deviation"] is None else row["deviation"], row["folds"]] for row in rows]
    return np.array(found, dtype=np.float64).reshape(-1, 3)


def validation_rows(array: np.ndarray) -> list[dict[str, Any]]:
    """Return the rows of a validation as they were."""
    names = (*RIVALS, "3C-SVM")
    return [
        {"machine": name, "accuracy": accuracy, "deviation": None if deviation != deviation else deviation, "folds": int(folds)}
        for name, (accuracy, deviation, folds) in zip(names, array.tolist(), strict=False)
    ]


def remarks(loop: TriClassLoop, state: TriClassState) -> list[str]:
    """Return what the user should know of a fit: whether the unlabelled rows did not help where it was measured."""
    rows = loop.validation(state)
    if not rows:
        return []
    own, rival = rows[-1], max(rows[:-1], key=lambda row: row["accuracy"])
    if own["accuracy"] >= rival["accuracy"]:
        return []
    return [
        f"the unlabelled rows did not help on rows held out: accuracy {own['accuracy']:.4f}, of the {rival['machine']} "
        f"{rival['accuracy']:.4f} ({'labelled rows alone' if rival['machine'] == 'SVM' else 'all unlabelled rows irrelevant'})"
    ]


def summary(loop: TriClassLoop, state: TriClassState, model: KernelModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    best = loop.best(state)
    minus, zero, plus = loop.counts(best)
    checked = {row["machine"]: row["accuracy"] for row in loop.validation(state)}
    return {
        "objective": model.figures["objective"],
        "gap": model.figures["gap"],
        "certified_over": "the last convex problem of the best start",
        "start": loop.names[int(np.argmin(model.arrays["starts"]))],
        "minus": minus,
        "zero": zero,
        "plus": plus,
        "n_kernels": 1,
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
        **({"validation": checked} if checked else {}),
        **({"remark": text} if (text := " ".join(remarks(loop, state))) else {}),
    }


def tables(loop: TriClassLoop, state: TriClassState) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: validation beside the rivals, the starts, and every start step by step."""
    steps = [{**dict(zip(PATH, row, strict=True)), "start": loop.names[int(row[1])]} for row in state.path.tolist()]
    whole = ("iteration", "minus", "zero", "plus", "flips")
    return {
        "validation": loop.validation(state),
        "starts": [_start_row(loop, name, machine) for name, machine in zip(loop.names, state.machines, strict=False)],
        "assignments": [{key: int(value) if key in whole else value for key, value in row.items()} for row in steps],
    }


def _start_row(loop: TriClassLoop, name: str, machine: Machine) -> dict[str, Any]:
    minus, zero, plus = loop.counts(machine)
    held = np.zeros(len(loop.inputs.labels), dtype=bool) if loop.masks[0] is None else loop.masks[0]
    accuracy = loop.accuracy(machine, held)
    return {
        "start": name,
        "objective": machine.objective / loop.config.C,
        "gap": machine.gap / loop.config.C,
        "convex_problems": machine.solves,
        "minus": minus,
        "zero": zero,
        "plus": plus,
        "stop": machine.stop,
        "test_accuracy": accuracy if accuracy == accuracy else None,
    }
