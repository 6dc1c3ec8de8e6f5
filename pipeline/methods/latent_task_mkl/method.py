"""Latent groups of tasks as a method of the runner: from a store to a loop, from its state to model, certificate and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....kernels.graphs.norms import dual_bound, dual_exponent
from ....kernels.tasks.group_lattice import group_forms, kernel_norms
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels
from ...inputs.memory import machines_held, refuse_machines, refuse_pooled
from ...inputs.scores import Fit, TargetFit, held_out_rows, with_held_out
from ...inputs.tasks import TaskInputs, pooled_problem, refuse_empty, store_task_inputs
from ...loops.active_set import FINISHED, dual_point
from ...loops.prepared import Prepared
from ...models.task import TaskModel
from ...models.task_build import build_task_model
from ...records.context import RunContext
from ...records.holdings import holdings_plan
from .config import LatentTaskConfig
from .loop import LatentLoop, LatentState

SHOWN = 20
"""Kernels whose weights a report shows by group."""

LISTED = 100
"""Groups a report lists at most."""


def build_loop(
    config: LatentTaskConfig, inputs: TaskInputs, ctx: RunContext, held_out: np.ndarray | None = None, budget: int | None = None
) -> LatentLoop:
    """Return the loop of a fit.

    Parameters
    ----------
    config, inputs
        Parameters and data.
    ctx
        Where it will run.
    held_out
        ``(n_samples,)`` mask of rows that are only scored.
    budget
        Bytes that matrices in memory may take; by default the driver's memory.

    Raises
    ------
    ValueError
        Kernels that do not suit the data, a loss that does not suit the target.
    gramplane.cluster.MemoryBoundExceeded
        More kernels or rows than the driver's memory allows.
    """
    specs = resolved_kernels(config.kernels, inputs.data, config.normalize)
    own = pooled_problem(config, inputs)
    settings = gram_settings(config, specs, inputs.data, ctx)
    refuse_pooled(own.problem.n, ctx.driver_memory, "latent-task-mkl", "fewer rows, or multitask-mkl")
    held = machines_held(settings, own.problem.n, len(specs), 1, ctx.driver_memory)
    limit = ctx.driver_memory if budget is None else budget
    refuse_machines(settings, held, own.problem.n, len(specs), limit, "latent-task-mkl")
    fit = TargetFit(0, inputs.target, held_out) if inputs.classes is None else Fit(0, 1, inputs.target, held_out)
    return LatentLoop(config, specs, own.problem, own.constants, settings, given_grams_or_none(inputs.data), (fit,))


def prepare(config: LatentTaskConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``."""
    if config.kernels == "precomputed":
        raise ValueError("kernels='precomputed': a run computes its kernels from the rows of its store; give matrices to the estimator")
    inputs = store_task_inputs(ctx, "latent-task-mkl")
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    refuse_empty(inputs, ctx.data.url)
    loop = build_loop(config, inputs, ctx, held_out)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx),
        summary=summary,
        tables=lambda state, model: tables(config, loop, state, model),
        plan=plan_of(config, loop, ctx),
    )


def plan_of(config: LatentTaskConfig, loop: LatentLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: Gram policy, tasks of a pass, memory of a task."""
    settings, n = loop.settings, ctx.data.n_rows
    assert settings is not None
    refs = row_pairs(ctx.data if loop.data is None else loop.data, loop.specs, settings.block)
    return {
        **settings.describe(n, len(loop.specs)),
        **holdings_plan(machines_held(settings, n, len(loop.specs), 1, ctx.driver_memory)),
        "learning_tasks": loop.n_tasks,
        "groups": 2.0 ** len(loop.learned) - 1.0,
        "iterations_at_most": config.max_iter,
        "tasks_per_pass": len(refs),
        "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 8 * n + 16 * len(loop.specs) * loop.n_tasks**2,
    }


@dataclass(frozen=True)
class Certificate:
    """What is proven of a fit.

    Attributes
    ----------
    gap
        Distance of the objective to the optimum over all groups, at most.
    relative_gap
        The same, as a share of the objective.
    complete
        Whether no group above the threshold escaped the search: neither its caps nor those of the loop cut it off.
    sufficient
        Relative gap by the thesis' sufficient condition, sums over descendants of the groups next to the working set (6.6); usually
        useless.
    visits
        Groups that the last search looked at, of ``2^T - 1``.
    """

    gap: float
    relative_gap: float
    complete: bool
    sufficient: float
    visits: int


def certificate_of(loop: LatentLoop, state: LatentState) -> Certificate:
    """Return the certificate of a state: a function of it, so that a resumed run says the same."""
    active, machine, config = state.active, state.machine, loop.config
    nodes, mu = active.nodes, config.mu
    own = kernel_norms(group_forms(loop.lattice.groups(nodes.keys), machine.forms, mu), dual_exponent(config.p))
    bound = dual_bound(nodes.hull, own, config.q, np.full(nodes.size, 1.0 / nodes.size), passes=200).value
    found = loop.search(nodes, machine, max(bound, active.worst))
    outside = ~nodes.holds(loop.lattice.keys(found.groups))
    frontier = loop.lattice.groups(loop.lattice.frontier(nodes.keys))
    sums = loop.lattice.descendant_bounds(frontier, machine.forms.sum(axis=0), mu)
    reached = dual_point(loop.problem, machine.beta).value(max(bound, float(sums.max(initial=0.0))))
    scale = machine.upper if machine.upper > 0 else 1.0
    gap = machine.upper - active.certified if np.isfinite(active.certified) else machine.upper
    complete = found.complete and not outside.any() and active.stop in FINISHED
    sufficient = max(machine.upper - reached, 0.0) / scale
    return Certificate(max(gap, 0.0), max(gap, 0.0) / scale, complete, sufficient, found.visits)


def model_of(config: LatentTaskConfig, inputs: TaskInputs, loop: LatentLoop, state: LatentState, ctx: RunContext) -> TaskModel:
    """Return the model of the best point found."""
    machine, nodes, grams = state.machine, state.active.nodes, loop.grams(ctx)
    groups, weights = ranked_groups(config, loop, state)
    proven = certificate_of(loop, state)
    figures = {
        "lower_bound": float(machine.upper - proven.gap),
        "upper_bound": float(machine.upper),
        "iterations": float(state.iteration),
        "converged": float(state.stop in FINISHED),
        "certified_gap": proven.gap,
        "certified_relative_gap": proven.relative_gap,
        "certificate_complete": float(proven.complete),
        "sufficient_relative_gap": proven.sufficient,
        "search_visits": float(proven.visits),
        "working_set": float(nodes.size),
    }
    arrays = {"groups": groups.astype(np.uint8), "group_kernel_weights": weights}
    shares = loop.shares(nodes, machine.best_weights)
    return build_task_model(config, inputs, loop.specs, grams.normalizations, shares, machine.best_beta, machine.biases, figures, arrays)


def ranked_groups(config: LatentTaskConfig, loop: LatentLoop, state: LatentState) -> tuple[np.ndarray, np.ndarray]:
    """Return the groups with weight as ``(n_groups, T)``, the heaviest first, and the weights of their kernels ``(n_groups, k)``."""
    nodes, weights = state.active.nodes, state.machine.best_weights
    total = weights.sum(axis=1)
    kept = np.flatnonzero(total > config.threshold * total.max(initial=0.0))
    order = kept[np.argsort(-total[kept], kind="stable")]
    groups = np.zeros((len(order), loop.n_tasks), bool)
    groups[:, loop.learned] = loop.lattice.groups(nodes.keys[order])
    return groups, weights[order]


def remarks(loop: LatentLoop, state: LatentState, inputs: TaskInputs, ctx: RunContext) -> list[str]:
    """Return what the user should know of a fit: kernels that add nothing, or nothing new."""
    return kernel_warnings(loop.grams(ctx))


def summary(state: LatentState, model: TaskModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    figures, groups = model.figures, model.arrays["groups"]
    return {
        "objective": figures["upper_bound"],
        "gap": figures["certified_gap"],
        "relative_gap": figures["certified_relative_gap"],
        "certified_over": "all groups of tasks" if figures["certificate_complete"] else "the groups of tasks that were searched",
        "certificate_complete": bool(figures["certificate_complete"]),
        "sufficient_relative_gap": figures["sufficient_relative_gap"],
        "lower_bound": figures["lower_bound"],
        "upper_bound": figures["upper_bound"],
        "rounds": state.active.rounds,
        "n_nodes": state.active.nodes.size,
        "n_selected": len(groups),
        "n_groups": int((groups.sum(axis=1) > 1).sum()),
        "n_kernels": len(model.weights),
        "n_tasks": len(model.intercepts),
        "n_support": len(model.support_ids),
        "stop": state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(config: LatentTaskConfig, loop: LatentLoop, state: LatentState, model: TaskModel) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: groups by weight, which tasks work together, kernels by weight, their part in every task."""
    names, texts = model.tasks, [str(spec) for spec in loop.specs]
    groups, weights = model.arrays["groups"].astype(bool), model.arrays["group_kernel_weights"]
    of_kernels, part = weights.sum(axis=0), np.diagonal(model.weights, axis1=1, axis2=2)
    order = np.lexsort((np.arange(len(texts)), -of_kernels))
    order = order[of_kernels[order] > 0]
    return {
        "groups": [
            {
                "tasks": ", ".join(map(str, _members(names, w))),
                "size": int(w.sum()),
                "weight": float(own.sum()),
                "heaviest": texts[int(own.argmax())],
            }
            for w, own in list(zip(groups, weights, strict=True))[:LISTED]
        ],
        "task_pairs": [
            {"task": name, **{str(other): float(value) for other, value in zip(names, row, strict=True)}}
            for name, row in zip(names, model.weights.sum(axis=0), strict=True)
        ],
        "kernels": [{"kernel": texts[q], "weight": float(of_kernels[q])} for q in order],
        "task_kernels": [{"task": name, **{texts[q]: float(part[q, t]) for q in order[:SHOWN]}} for t, name in enumerate(names)],
    }


def _members(names: Sequence[Any], group: np.ndarray) -> list[Any]:
    return [names[t] for t in np.flatnonzero(group).tolist()]
