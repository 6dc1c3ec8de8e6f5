"""Multiple kernel learning as a method of the runner: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...grams.grams import pass_groups
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernel_checks import doubtful
from ...inputs.kernels import apart, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import machines_held, refuse_machines
from ...inputs.scores import Fit, TargetFit, held_out_rows, with_held_out
from ...loops.prepared import Prepared
from ...models.kernel import KernelModel, selected
from ...models.kernel_build import build_model
from ...records.context import RunContext
from ...records.holdings import holdings_plan
from .config import MKLConfig
from .loop import UNFINISHED, MKLLoop, MKLState
from .single_kernel_loop import SingleLoop

SHOWN = 20
"""Kernels whose weights a report follows along the iterations."""


def build_loop(
    config: MKLConfig, inputs: Inputs, ctx: RunContext, held_out: np.ndarray | None = None, budget: int | None = None
) -> MKLLoop:
    """Return the loop of a fit.

    Parameters
    ----------
    config, inputs
        Parameters and data.
    ctx
        Where it will run.
    held_out
        ``(n_samples,)`` mask of rows to measure accuracy, or R2, on.
    budget
        Bytes that matrices in memory, and one block pair of all kernels, may take; by default the driver's memory.

    Raises
    ------
    ValueError
        Kernels that do not suit the data.
    gramplane.cluster.MemoryBoundExceeded
        More of them than the memory allows.
    """
    specs = resolved_kernels(config.kernels, inputs.data, config.normalize)
    problems = dual_problems(config, inputs, config.epsilon)
    settings = gram_settings(config, specs, inputs.data, ctx)
    held = machines_held(settings, ctx.data.n_rows, len(specs), len(problems), ctx.driver_memory)
    limit = ctx.driver_memory if budget is None else budget
    refuse_machines(settings, held, ctx.data.n_rows, len(specs), limit, "mkl")
    fit = TargetFit(0, inputs.target, held_out) if inputs.classes is None else Fit(0, inputs.n_machines, inputs.target, held_out)
    kind = SingleLoop if config.solver == "single" else MKLLoop
    return kind(config, specs, problems, settings, (fit,), apart(inputs.data))


def prepare(config: MKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``."""
    config, inputs = with_gram_store(config, store_inputs(ctx, "mkl"))
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    loop = build_loop(config, inputs, ctx, held_out)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx),
        summary=lambda state, model: summary(config, state, model),
        tables=lambda state, model: tables(state, loop, inputs.classes),
        plan=plan_of(config, loop, ctx),
    )


def plan_of(config: MKLConfig, loop: MKLLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: Gram policy, tasks of a pass, memory of a task."""
    settings = loop.settings
    assert settings is not None
    refs = row_pairs(ctx.data if loop.data is None else loop.data, loop.specs, settings.block)
    return {
        **settings.describe(ctx.data.n_rows, len(loop.specs)),
        **holdings_plan(machines_held(settings, ctx.data.n_rows, len(loop.specs), len(loop.problems), ctx.driver_memory)),
        "machines": len(loop.problems),
        "iterations_at_most": config.max_iter,
        "tasks_per_pass": len(pass_groups(refs)),
        "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 8 * ctx.data.n_rows * len(loop.problems),
    }


def model_of(config: MKLConfig, inputs: Inputs, loop: MKLLoop, state: MKLState, ctx: RunContext) -> KernelModel:
    """Return the model of the best weights found."""
    machines = state.machines
    figures = {
        "lower_bound": float(sum(machine.lower for machine in machines)),
        "upper_bound": float(sum(machine.upper for machine in machines)),
        "iterations": float(state.iteration),
        "converged": float(state.stop not in UNFINISHED),
    }
    return build_model(
        config,
        inputs,
        loop.grams(ctx),
        np.stack([machine.best_theta for machine in machines]),
        np.stack([machine.best_beta for machine in machines]),
        np.array([machine.best_bias for machine in machines]),
        figures,
        {f"weights_path_{m}": machine.path for m, machine in enumerate(machines)},
    )


def remarks(loop: MKLLoop, state: MKLState, inputs: Inputs, ctx: RunContext) -> list[str]:
    """Return what the user should know of a fit: kernels that add nothing, or nothing new."""
    return doubtful(loop.grams(ctx))


def summary(config: MKLConfig, state: MKLState, model: KernelModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    upper, lower = model.figures["upper_bound"], model.figures["lower_bound"]
    return {
        "objective": upper,
        "gap": upper - lower,
        "certified_over": "all kernels",
        "lower_bound": lower,
        "upper_bound": upper,
        "n_selected": int(np.sum(np.any([selected(row, config.threshold) for row in model.theta], axis=0))),
        "n_kernels": int(model.theta.shape[1]),
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(state: MKLState, loop: MKLLoop, classes: Sequence[Any] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels by weight, and the weights of the heaviest along the iterations; by class, where several."""
    machines = [str(label) for label in classes or ()] if len(state.machines) > 1 else [""]
    theta = np.stack([machine.best_theta for machine in state.machines])
    order = np.lexsort((np.arange(theta.shape[1]), -theta.max(axis=0)))
    order = order[theta.max(axis=0)[order] > 0]
    names = [str(spec) for spec in loop.specs]
    chosen = [{"kernel": names[q], **_weights(theta[:, q], machines)} for q in order]
    along = [
        {"machine": name, "iteration": t + 1, **{names[q]: float(row[q]) for q in order[:SHOWN]}}
        for name, machine in zip(machines, state.machines, strict=True)
        for t, row in enumerate(machine.path)
    ]
    return {"kernels": chosen, "weights": along}


def _weights(column: np.ndarray, machines: Sequence[str]) -> dict[str, float]:
    if len(column) == 1:
        return {"weight": float(column[0])}
    return {f"weight[{name}]": float(value) for name, value in zip(machines, column, strict=True)}
