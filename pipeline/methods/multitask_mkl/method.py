"""Multiple kernel learning for many tasks as a method of the runner: from a store to a loop, from its state to model and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.grams.normalization import Normalization
from ....kernels.tasks.multitask import effective
from ....storage.grams.layout import GramLayout
from ...grams.settings import GramSettings
from ...inputs.kernels import given_grams_or_none, resolved_kernels
from ...inputs.memory import MACHINES, fewer_kernels, vectors_held
from ...inputs.scores import Fit, TargetFit, held_out_rows, with_held_out
from ...inputs.tasks import TaskInputs, TaskProblem, pooled_problem, refuse_empty, store_task_inputs
from ...loops.prepared import Prepared
from ...models.kernel import selected
from ...models.task import TaskModel
from ...models.task_build import build_task_model
from ...records.context import BANK_SHARE, RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .config import MultiTaskMKLConfig
from .loop import UNFINISHED, MultiTaskLoop, MultiTaskState, TaskSearch
from .solve_pass import batch_bytes, batches_of
from .task_blocks_pass import BATCH_BYTES, entries_bytes, task_layout, task_pairs, task_settings

SHOWN = 20
"""Kernels whose weights a report shows by task."""


def task_problem(config: MultiTaskMKLConfig, inputs: TaskInputs) -> TaskProblem:
    """Return the losses of all rows in the order of tasks."""
    found = pooled_problem(config, inputs)
    return TaskProblem(found.problem.part(inputs.order), found.constants)


def build_loop(
    config: MultiTaskMKLConfig,
    inputs: TaskInputs,
    ctx: RunContext,
    fits: Sequence[Fit | TargetFit] = (),
    problems: Sequence[TaskProblem] | None = None,
    configs: Sequence[MultiTaskMKLConfig] | None = None,
) -> MultiTaskLoop:
    """Return the loop of one fit, or of several on the same tasks.

    Parameters
    ----------
    config, inputs
        Parameters and data.
    ctx
        Where it will run.
    fits
        Machines whose accuracy or R2 is followed.
    problems, configs
        Losses and parameters of several fits.

    Raises
    ------
    ValueError
        Kernels that do not suit the data or cannot be formed within tasks, or a loss that does not suit the target.
    gramplane.cluster.MemoryBoundExceeded
        More kernels or rows than the memory allows.
    """
    specs = resolved_kernels(config.kernels, inputs.data, config.normalize)
    layout = task_layout(np.diff(inputs.edges).tolist(), len(specs))
    given = given_grams_or_none(inputs.data)
    policy = "auto" if given is not None and config.grams == "store" else config.grams
    settings = task_settings(ctx, layout, len(specs), policy, None if given is not None else config.gram_store)
    own = [task_problem(config, inputs)] if problems is None else problems
    held = driver_held(settings, layout, len(specs), len(own))
    refuse_beyond(held, ctx.driver_memory, "multitask-mkl", fewer_kernels(settings))
    return MultiTaskLoop(config, specs, own, settings, layout, inputs.order, fits, given, configs)


WITHIN = Held("kernels within the tasks", "4 k q", f"q the sum of the squares of the tasks' sizes; within {BANK_SHARE:g} L")
ONE_STEP = Held("kernels of the tasks of one step", "4 k s^2", f"else; s rows of the largest task, and at least {BATCH_BYTES >> 20} MiB")
LARGEST = Held("weighted sum of the largest task, and the solver's copy of it", "8 s^2")
WEIGHTS = Held("weights of kernels in tasks, forms, and copies of them", "64 k T")

HELD = (WITHIN, ONE_STEP, LARGEST, WEIGHTS, MACHINES)
"""What the driver may hold."""


def driver_held(settings: GramSettings, layout: GramLayout, k: int, fits: int) -> tuple[Holding, ...]:
    """Return what the driver holds of k kernels within T tasks, the largest of s rows: entries or one step's, a task's sum, vectors."""
    largest, n = max(layout.groups), sum(layout.groups)
    whole = entries_bytes(layout, k)
    if settings.policy == "memory":
        kept = WITHIN.taking(whole)
    else:
        kept = ONE_STEP.taking(min(whole, max(BATCH_BYTES, 4 * k * largest**2)))
    return (
        kept,
        LARGEST.of(s=largest),
        WEIGHTS.of(k=k, T=len(layout.groups) * fits),
        vectors_held(n, fits),
    )


def prepare(config: MultiTaskMKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``."""
    if config.kernels == "precomputed":
        raise ValueError("kernels='precomputed': a run computes its kernels from the rows of its store; give matrices to the estimator")
    inputs = store_task_inputs(ctx, "multitask-mkl")
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    refuse_empty(inputs, ctx.data.url)
    fit = TargetFit(0, inputs.target, held_out) if inputs.classes is None else Fit(0, 1, inputs.target, held_out)
    loop = build_loop(config, inputs, ctx, (fit,))
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx),
        summary=lambda state, model: summary(config, state, model),
        tables=lambda state, model: tables(config, state, loop, inputs),
        plan=plan_of(loop, ctx),
    )


def plan_of(loop: MultiTaskLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: where the entries lie, tasks of a pass, memory of a step."""
    settings, layout, k = loop.settings, loop.layout, len(loop.specs)
    batches = batches_of(task_pairs(ctx.data if loop.data is None else loop.data, loop.specs, layout, loop.order), layout)
    return {
        **holdings_plan(driver_held(settings, layout, k, len(loop.problems))),
        "grams": settings.policy,
        "gram_reason": settings.reason,
        "gram_block_rows": layout.block,
        "kernels": k,
        "gram_bytes": entries_bytes(layout, k),
        "gram_store": settings.store,
        "learning_tasks": loop.n_tasks,
        "machines": loop.n_tasks * len(loop.problems),
        "iterations_at_most": loop.config.max_iter,
        "tasks_per_pass": 0 if settings.policy == "memory" else len(batches),
        "task_bytes": int(max(batch_bytes(batch) for batch in batches)),
    }


def model_of(config: MultiTaskMKLConfig, inputs: TaskInputs, loop: MultiTaskLoop, state: MultiTaskState, ctx: RunContext) -> TaskModel:
    """Return the model of the best point found."""
    search, grams = state.searches[0], loop.grams(ctx)
    beta = np.empty(inputs.order.size)
    beta[inputs.order] = search.best_beta
    figures = {
        "lower_bound": float(search.lower),
        "upper_bound": float(search.upper),
        "iterations": float(state.iteration),
        "converged": float(state.stop not in UNFINISHED),
    }
    arrays = {"kernel_weights": search.best_weights, "task_shares": search.best_shares, "weights_path": search.path}
    norms = [_in_data_order(norm, inputs.order) for norm in grams.normalizations]
    weights = effective(search.best_weights, search.best_shares)
    return build_task_model(config, inputs, loop.specs, norms, weights, beta, search.best_bias, figures, arrays)


def _in_data_order(norm: Normalization, order: np.ndarray) -> Normalization:
    if norm.diag_root is None:
        return norm
    root = np.empty_like(norm.diag_root)
    root[order] = norm.diag_root
    return replace(norm, diag_root=root)


def remarks(loop: MultiTaskLoop, state: MultiTaskState, inputs: TaskInputs, ctx: RunContext) -> list[str]:
    """Return what the user should know of a fit: nothing beyond its history."""
    return []


def summary(config: MultiTaskMKLConfig, state: MultiTaskState, model: TaskModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    upper, lower = model.figures["upper_bound"], model.figures["lower_bound"]
    return {
        "objective": upper,
        "gap": upper - lower,
        "certified_over": "all kernels",
        "lower_bound": lower,
        "upper_bound": upper,
        "n_selected": int(selected(model.arrays["kernel_weights"], config.threshold).sum()),
        "n_kernels": len(model.weights),
        "n_tasks": len(model.intercepts),
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(config: MultiTaskMKLConfig, state: MultiTaskState, loop: MultiTaskLoop, inputs: TaskInputs) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels by weight, their part in every task, the tasks."""
    search = state.searches[0]
    weights = search.best_weights
    order = np.lexsort((np.arange(len(weights)), -weights))
    order = order[selected(weights, config.threshold)[order]]
    names = [str(spec) for spec in loop.specs]
    part = effective(weights, search.best_shares)
    return {
        "kernels": [{"kernel": names[q], "weight": float(weights[q])} for q in order],
        "task_kernels": [{"task": name, **{names[q]: float(part[q, t]) for q in order[:SHOWN]}} for t, name in enumerate(inputs.names)],
        "tasks": _task_table(search, loop, inputs),
    }


def _task_table(search: TaskSearch, loop: MultiTaskLoop, inputs: TaskInputs) -> list[dict[str, Any]]:
    supports = np.add.reduceat(search.best_beta != 0, loop.edges[:-1])
    sizes = np.diff(loop.edges)
    return [
        {"task": name, "rows": int(sizes[t]), "support": int(supports[t]), "intercept": float(search.best_bias[t])}
        for t, name in enumerate(inputs.names)
    ]
