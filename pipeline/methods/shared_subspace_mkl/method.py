"""Shared-subspace multiple kernel learning as a method of the runner: from a store to a loop, from its state to model and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...grams.settings import GramSettings
from ...grams.sources import pair_bytes, row_pairs
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.memory import HELD as MACHINES_HELD
from ...inputs.memory import fewer_kernels, machines_held, refuse_pooled
from ...inputs.scores import Fit, TargetFit, held_out_rows, with_held_out
from ...inputs.tasks import TaskInputs, pooled_problem, refuse_empty, store_task_inputs
from ...loops.prepared import Prepared
from ...models.task import TaskModel
from ...models.task_build import build_task_model
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan, refuse_beyond
from .baselines_loop import LOOPS
from .config import SharedSubspaceConfig
from .loop import UNFINISHED, SubspaceLoop, SubspaceState, interior_bytes, interior_fits

SHOWN = 60
"""Tasks whose couplings a report shows."""

EIGENVALUES = 20
"""Eigenvalues of a coupling that a report shows."""


def build_loop(config: SharedSubspaceConfig, inputs: TaskInputs, ctx: RunContext, fits: Sequence[Fit | TargetFit] = ()) -> SubspaceLoop:
    """Return the loop of one fit.

    Parameters
    ----------
    config, inputs
        Parameters and data.
    ctx
        Where it will run.
    fits
        What is followed on training rows and rows held out: accuracy, or R2.

    Raises
    ------
    ValueError
        Kernels that do not suit the data, or a loss that does not suit the target.
    gramplane.cluster.MemoryBoundExceeded
        What must lie on the driver does not fit its budget.
    """
    specs = resolved_kernels(config.kernels, inputs.data, config.normalize)
    n, memory = len(inputs.target), ctx.driver_memory
    refuse_pooled(n, memory, "shared-subspace-mkl", "fewer rows, or multitask-mkl")
    settings = gram_settings(config, specs, inputs.data, ctx)
    remedy = fewer_kernels(settings) if config.solver == "auto" else "solver='auto' needs none of the factors"
    refuse_beyond(driver_held(config, settings, n, len(specs), inputs.n_tasks, memory), memory, "shared-subspace-mkl", remedy)
    own = pooled_problem(config, inputs)
    return LOOPS[config.solver](config, specs, own.problem, own.constants, inputs.n_tasks, settings, fits, given_grams_or_none(inputs.data))


COUPLINGS = Held("couplings of tasks, and copies of them", "96 k T^2")
FACTORS = Held("factors of the pooled kernels", "8 n^2 (2 k + 3)", "`solver: mirror`; `solver: alternate` with k = 1")
INTERIOR = Held("system of the interior path", "8 (6 n^2 + 5 k n T)", f"`solver: auto`, where that is within {MATRIX_SHARE:g} L")

HELD = (*MACHINES_HELD, COUPLINGS, FACTORS, INTERIOR)
"""What the driver may hold."""


def driver_held(
    config: SharedSubspaceConfig, settings: GramSettings, n: int, k: int, n_tasks: int, driver_memory: int
) -> tuple[Holding, ...]:
    """Return what the driver holds: kernels, the pooled sum and its machine, couplings, and what the chosen solver adds to them."""
    held = machines_held(settings, n, k, 1, driver_memory)
    couplings = COUPLINGS.of(k=k, T=n_tasks)
    if config.solver != "auto":
        factors = k if config.solver == "mirror" else 1
        return (*held, couplings, FACTORS.of(n=n, k=factors))
    if not interior_fits(n, k, n_tasks, driver_memory):
        return (*held, couplings)
    return (*held, couplings, INTERIOR.taking(interior_bytes(n, k, n_tasks)))


def prepare(config: SharedSubspaceConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``."""
    inputs = store_task_inputs(ctx, "shared-subspace-mkl")
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    refuse_empty(inputs, ctx.data.url)
    config, found = with_gram_store(config, inputs)
    assert isinstance(found, TaskInputs)
    fit = TargetFit(0, inputs.target, held_out) if inputs.classes is None else Fit(0, 1, inputs.target, held_out)
    loop = build_loop(config, found, ctx, (fit,))
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, found, loop, state, ctx),
        summary=lambda state, model: summary(state, model),
        tables=lambda state, model: tables(state, loop, found),
        plan=plan_of(loop, ctx),
    )


def plan_of(loop: SubspaceLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: where the entries lie, and what the driver holds."""
    n, k = ctx.data.n_rows, len(loop.specs)
    refs = row_pairs(ctx.data if loop.data is None else loop.data, loop.specs, loop.settings.block)
    return {
        **loop.settings.describe(n, k),
        **holdings_plan(driver_held(loop.config, loop.settings, n, k, loop.n_tasks, ctx.driver_memory)),
        "tasks_per_pass": 0 if loop.settings.policy == "memory" else len(refs),
        "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 16 * n + 24 * k * loop.n_tasks**2,
        "learning_tasks": loop.n_tasks,
        "pooled_matrix_bytes": 4 * n**2,
        "iterations_at_most": loop.config.max_iter,
    }


def couplings(loop: SubspaceLoop, state: SubspaceState) -> np.ndarray:
    """Return the best D of the given kernels, ``(k, T, T)``."""
    return np.einsum("mk,mst->kst", loop.mix, state.best_coupling)


def model_of(config: SharedSubspaceConfig, inputs: TaskInputs, loop: SubspaceLoop, state: SubspaceState, ctx: RunContext) -> TaskModel:
    """Return the model of the best point found."""
    figures = {
        "lower_bound": float(state.lower),
        "upper_bound": float(state.upper),
        "iterations": float(state.iteration),
        "converged": float(state.stop not in UNFINISHED),
    }
    weights = couplings(loop, state)
    arrays = {"kernel_weights": np.trace(weights, axis1=1, axis2=2)}
    norms = loop.grams(ctx).normalizations
    return build_task_model(config, inputs, loop.specs, norms, weights, state.best_beta, state.best_bias, figures, arrays)


def remarks(loop: SubspaceLoop, state: SubspaceState, inputs: TaskInputs, ctx: RunContext) -> list[str]:
    """Return what the user should know of a fit: kernels that add nothing, or nothing new."""
    return kernel_warnings(loop.grams(ctx))


def summary(state: SubspaceState, model: TaskModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    upper, lower = model.figures["upper_bound"], model.figures["lower_bound"]
    return {
        "objective": upper,
        "gap": upper - lower,
        "certified_over": "all kernels and couplings of tasks",
        "lower_bound": lower,
        "upper_bound": upper,
        "n_kernels": len(model.weights),
        "n_tasks": len(model.intercepts),
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(state: SubspaceState, loop: SubspaceLoop, inputs: TaskInputs) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels by trace, eigenvalues of their couplings, couplings of tasks, the tasks."""
    weights = couplings(loop, state)
    traces = np.trace(weights, axis1=1, axis2=2)
    order = np.lexsort((np.arange(len(traces)), -traces))
    names = [str(spec) for spec in loop.specs]
    spectra = np.linalg.eigvalsh(weights)[:, ::-1][:, :EIGENVALUES]
    return {
        "kernels": [{"kernel": names[q], "weight": float(traces[q])} for q in order],
        "eigenvalues": [{"kernel": names[q], **{str(i + 1): float(v) for i, v in enumerate(spectra[q])}} for q in order],
        "task_pairs": pair_table(weights.sum(axis=0), inputs.names),
        "tasks": _task_table(state, loop, inputs),
    }


def pair_table(coupling: np.ndarray, names: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the weight of the rows of one task in the machine of another, a row per task; of the first tasks."""
    shown = [str(name) for name in names[:SHOWN]]
    return [{"task": name, **dict(zip(shown, map(float, coupling[t]), strict=False))} for t, name in enumerate(shown)]


def _task_table(state: SubspaceState, loop: SubspaceLoop, inputs: TaskInputs) -> list[dict[str, Any]]:
    sizes = np.bincount(loop.codes, minlength=loop.n_tasks)
    supports = np.bincount(loop.codes, state.best_beta != 0, minlength=loop.n_tasks)
    return [
        {"task": name, "rows": int(sizes[t]), "support": int(supports[t]), "intercept": float(state.best_bias[t])}
        for t, name in enumerate(inputs.names)
    ]
