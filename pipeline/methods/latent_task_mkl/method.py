"""Latent groups of tasks as a method: problem from a store, model, certificate and tables from the final state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step, ended_early
from ...grams.settings import check_machines
from ...inputs.kernel_checks import emit_warnings, kernel_warnings
from ...inputs.kernels import gram_settings, resolved_kernels, with_decided_kernels
from ...inputs.scores import accuracy_metrics, scores_of
from ...inputs.tasks import TaskInputs, held_out_task_inputs, pooled_problem, with_loss_weight
from ...loops.active_set import FINISHED, ActiveState, active_step
from ...models.build import build_task_model
from ...models.kernel import kernel_names
from ...models.model import Tables
from ...models.tables import heaviest_first
from ...models.task import TaskModel, task_counts
from .config import LatentTaskConfig
from .problem import LatentClassesState, LatentProblem, LatentState, driver_items

MAX_COLUMNS = 20  # kernels whose weights a report shows by group
MAX_GROUPS_LISTED = 100  # groups that a report lists


# What ended a fit before its tolerance was reached.
STOPS = {
    "max_iter": "max_iter={0.max_iter}",
    "max_rounds": "max_rounds={0.max_rounds}",
    "max_nodes": "max_groups={0.max_groups}",
    "stalled": "a cap on the search over groups, or rounding,",
}


class LatentTask(Method[LatentTaskConfig, LatentProblem, LatentState, TaskModel]):
    """SVMs for many tasks with kernels shared by groups of tasks. The target has two classes, is one class against the rest, or is real."""

    name = "latent-task-mkl"
    config = LatentTaskConfig
    state = LatentState
    joint_state = LatentClassesState
    finished = FINISHED
    models = (TaskModel,)

    def read_inputs(self, config: LatentTaskConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[LatentTaskConfig, TaskInputs]:
        """Return the parameters, and the target, weights and tasks of a store; ``extra`` may contain ``test_share``."""
        if config.kernels == "precomputed":
            raise ValueError(
                "kernels='precomputed' needs matrices, which only the estimator takes; a run computes kernels from the rows of its store"
            )
        return config, held_out_task_inputs(resources, self.name, extra)

    def problem(self, config: LatentTaskConfig, inputs: TaskInputs, resources: Resources, machine: int = 0) -> LatentProblem:
        """Return the problem of a fit. With more than two classes, return the problem of the one-vs-rest model ``machine``.

        Raises ValueError for kernels that do not suit the data or a loss that does not suit the target, and MemoryBoundExceeded if kernels
        or rows exceed the memory.
        """
        config = with_decided_kernels(config, inputs.data, resources, inputs.counts).for_tasks(inputs.n_tasks)
        specs = tuple(resolved_kernels(config.kernels, inputs.data, config.normalize))
        config = with_loss_weight(config, inputs, len(specs))
        losses, n = pooled_problem(config, inputs, machine), len(inputs.target)
        settings = gram_settings(config, specs, inputs.data, resources, inputs.counts)
        items = driver_items(settings, n, len(specs), inputs.n_tasks, resources.driver_memory)
        check_machines(settings, items, n, len(specs), resources, self.name)
        return LatentProblem(config, inputs, specs, losses, settings, resources)

    def init(self, problem: LatentProblem, resources: Resources) -> LatentState:
        """Return the initial state: the sources of the lattice of groups, with equal weights."""
        emit_warnings(problem.grams(resources), resources)
        nodes, machine = problem.first_machine()
        return LatentState(ActiveState(nodes), machine)

    def step(self, problem: LatentProblem, state: LatentState, resources: Resources) -> Step[LatentState]:
        """Solve the SVMs once. When the working set is solved, search all groups outside and add the worst violators, or stop."""
        began, unit = time.perf_counter(), problem.unit
        active, machine, figures = active_step(state.active, state.machine, problem, problem.rule, resources)
        if active.stop is None and machine.solves >= problem.config.max_iter:
            active = replace(active, stop="max_iter")
        figures = unit.figures(figures) | accuracy_metrics(problem.fits, {0: unit.values(machine.decision)})
        return Step(LatentState(active, machine), {**figures, "seconds_step": time.perf_counter() - began})

    def result(self, problem: LatentProblem, state: LatentState, resources: Resources) -> Result[TaskModel]:
        """Return the model with the smallest primal value, with its certificate and the numbers of selected groups, kernels and rows."""
        machine, nodes, grams = state.machine, state.active.nodes, problem.grams(resources)
        groups, weights = problem.ranked_groups(state)
        certificate = problem.certify(state)
        figures = {
            "lower_bound": float(machine.upper - certificate.gap),
            "upper_bound": float(machine.upper),
            "iterations": float(state.iteration),
            "converged": float(state.stop in FINISHED),
            "certified_gap": certificate.gap,
            "certified_relative_gap": certificate.relative_gap,
            "certificate_complete": float(certificate.complete),
            "sufficient_relative_gap": certificate.sufficient,
            "search_visits": float(certificate.visits),
            "working_set": float(nodes.size),
        }
        pair_weights, kernels = problem.pair_weights(nodes, machine.best_weights), (problem.specs, grams.normalizations)
        arrays, solution = {"groups": groups.astype(np.uint8), "group_kernel_weights": weights}, (machine.best_beta, machine.biases)
        model = build_task_model(problem.config, problem.inputs, *kernels, pair_weights, *solution, figures, arrays, unit=problem.unit)
        reason = STOPS.get(str(state.stop), str(state.stop))
        return Result(
            model,
            state.stop,
            objective=model.figures["upper_bound"],
            gap=model.figures["certified_gap"],
            certified_over="all groups of tasks" if certificate.complete else "the groups of tasks that were searched",
            figures={
                "relative_gap": model.figures["certified_relative_gap"],
                "certificate_complete": bool(certificate.complete),
                "sufficient_relative_gap": certificate.sufficient,
                "lower_bound": model.figures["lower_bound"],
                "upper_bound": model.figures["upper_bound"],
                "rounds": state.active.rounds,
                "n_nodes": nodes.size,
                "n_selected": len(groups),
                "n_groups": int((groups.sum(axis=1) > 1).sum()),
                **task_counts(model),
            },
            warnings=kernel_warnings(grams),
            unfinished=f"{ended_early(problem.config, reason)}; a relative gap of {certificate.relative_gap:.2g} is certified",
            scores=lambda: scores_of(problem.inputs, self.decision_values(problem, state, resources)),
        )

    def decision_values(self, problem: LatentProblem, state: LatentState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(1, n_samples)``."""
        return problem.unit.values(state.machine.decision)[None]

    def tables(self, model: TaskModel, names: Sequence[str] | None = None, fit: tuple[LatentProblem, LatentState] | None = None) -> Tables:
        """Return four tables: the groups in descending order of weight, the weights that pairs of tasks share, the kernels in descending
        order of weight, and the weights of the kernels in every task.
        """
        tasks, names = model.tasks, kernel_names(model, names)
        groups, weights = model.arrays["groups"].astype(bool), model.arrays["group_kernel_weights"]
        kernel_weights, parts = weights.sum(axis=0), np.diagonal(model.weights, axis1=1, axis2=2)
        order = heaviest_first(kernel_weights)
        return {
            "groups": [
                {
                    "tasks": ", ".join(str(tasks[t]) for t in np.flatnonzero(group).tolist()),
                    "size": int(group.sum()),
                    "weight": float(row.sum()),
                    "heaviest": names[int(row.argmax())],
                }
                for group, row in list(zip(groups, weights, strict=True))[:MAX_GROUPS_LISTED]
            ],
            "task_pairs": [
                {"task": task, **{str(other): float(value) for other, value in zip(tasks, row, strict=True)}}
                for task, row in zip(tasks, model.weights.sum(axis=0), strict=True)
            ],
            "kernels": [{"kernel": names[q], "weight": float(kernel_weights[q])} for q in order],
            "task_kernels": [{"task": task, **{names[q]: float(parts[q, t]) for q in order[:MAX_COLUMNS]}} for t, task in enumerate(tasks)],
        }
