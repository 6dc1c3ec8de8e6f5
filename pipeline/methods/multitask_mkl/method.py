"""Multiple kernel learning for many tasks as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ....kernels.target_unit import TargetUnit
from ....kernels.tasks.multitask import task_kernel_weights
from ....storage.grams.layout import GramLayout
from ...core.memory import Item, check_memory, driver_plan
from ...grams.settings import GramSettings
from ...inputs.kernels import given_grams_or_none, resolved_kernels
from ...inputs.memory import fewer_kernels, vectors_item
from ...inputs.tasks import TaskInputs, TaskProblem, held_out_task_inputs, pooled_problem, task_fit
from ...method import Method, bound_figures, bounds_summary
from ...models.kernel import is_selected, kernel_names
from ...models.task import TaskModel, by_class, machine_stack, task_counts, task_table
from ...models.task_build import build_task_model
from ...models.task_predict import TaskPredictor
from ...records.context import RunContext
from .config import MultiTaskMKLConfig
from .loop import UNFINISHED, MultiTaskLoop, MultiTaskState
from .solve_pass import largest_step, split_batches
from .task_blocks_pass import BATCH_BYTES, entries_bytes, task_layout, task_pairs, task_settings

MAX_COLUMNS = 20  # kernels whose weights a report shows by task


class MultiTaskMKL(Method):
    """Machines of many tasks on kernels that they choose together."""

    name = "multitask-mkl"
    config_type = MultiTaskMKLConfig
    models = {TaskModel: TaskPredictor()}
    fold_tols = {"tol": 1e-2}
    programs = "methods.multitask_mkl.solve_pass"

    config: MultiTaskMKLConfig
    inputs: TaskInputs
    loop: MultiTaskLoop

    @classmethod
    def read_inputs(cls, config: MultiTaskMKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[MultiTaskMKLConfig, TaskInputs]:
        """Return parameters, and target, weights and tasks of a store; ``extra`` may hold ``test_share``."""
        if config.kernels == "precomputed":
            raise ValueError("kernels='precomputed': a run computes its kernels from the rows of its store; give matrices to the estimator")
        return config, held_out_task_inputs(ctx, cls.name, extra)

    @classmethod
    def build_loop(cls, config: MultiTaskMKLConfig, inputs: TaskInputs, ctx: RunContext) -> MultiTaskLoop:
        """Return the loop of a fit. Raises ValueError: kernels that do not suit the data or cannot be formed within tasks, or a loss that
        does not suit the target; MemoryBoundExceeded: more kernels or rows than the memory allows.
        """
        return shared_loop(ctx, [config], inputs, [inputs.held_out])

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Where the entries lie, tasks of a pass, memory of a step."""
        loop, settings, layout, k = self.loop, self.loop.settings, self.loop.layout, len(self.loop.specs)
        data = self.ctx.data if loop.data is None else loop.data
        batches = split_batches(task_pairs(data, loop.specs, layout, loop.order, settings.dtype), layout)
        return {
            **driver_plan(driver_items(settings, layout, k, len(loop.problems))),
            "grams": settings.policy,
            "gram_reason": settings.reason,
            "gram_block_rows": layout.block,
            "kernels": k,
            "gram_bytes": entries_bytes(layout, k, settings.dtype),
            "gram_store": settings.store,
            "learning_tasks": loop.n_tasks,
            "machines": loop.n_tasks * len(loop.problems),
            "iterations_at_most": self.config.max_iter,
            "tasks_per_pass": 0 if settings.policy == "memory" else len(batches),
            "task_bytes": largest_step(batches, k, settings.policy),
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return () if self.loop.settings.policy == "memory" else ("Gram blocks of tasks", "solves of tasks")

    @classmethod
    def shared_fits(
        cls, configs: Sequence[MultiTaskMKLConfig], inputs: TaskInputs, masks: Sequence[np.ndarray], ctx: RunContext
    ) -> Self | None:
        """Return one run of fits without the rows of every mask: they share Gram matrices."""
        return cls(configs[0], inputs, shared_loop(ctx, configs, inputs, masks), ctx)

    def warm_start(self, fresh: MultiTaskState, before: MultiTaskMKL, last: MultiTaskState) -> MultiTaskState:
        """Return what the searches before ended with, as far as it holds for another C."""
        scale, parts = self.config.C / before.config.C, zip(fresh.searches, last.searches, self.loop.problems, strict=True)
        bounds = before.config.model_copy(update={"C": self.config.C}) == self.config
        return replace(fresh, searches=tuple(one.continued(end, losses.problem, scale, bounds) for one, end, losses in parts))

    def model(self, state: MultiTaskState, ctx: RunContext) -> TaskModel:
        """Return the model of the least primal value."""
        searches, back = state.searches, np.argsort(self.inputs.order)  # from the order of tasks to that of the data
        figures = bound_figures(searches, state, UNFINISHED)
        arrays = {
            "kernel_weights": machine_stack([one.best_weights for one in searches]),
            "task_shares": machine_stack([one.best_shares for one in searches]),
            **{"weights_path" if len(searches) == 1 else f"weights_path_{m}": one.path for m, one in enumerate(searches)},
        }
        norms = self.loop.grams(ctx).normalizations
        norms = [norm if norm.diag_root is None else replace(norm, diag_root=norm.diag_root[back]) for norm in norms]
        weights = machine_stack([task_kernel_weights(one.best_weights, one.best_shares) for one in searches])
        solution = machine_stack([one.best_beta[back] for one in searches]), machine_stack([one.best_bias for one in searches])
        return build_task_model(self.config, self.inputs, self.loop.specs, norms, weights, *solution, figures, arrays, unit=self._unit)

    @property
    def _unit(self) -> TargetUnit:
        return self.loop.problems[0].problem.unit

    def decision_values(self, state: MultiTaskState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return self.loop.decision_values(state)

    def summary(self, state: MultiTaskState, model: TaskModel) -> dict[str, Any]:
        """Return bounds, and how many kernels and rows were selected."""
        selected = [is_selected(weights, self.config.threshold) for weights in np.atleast_2d(model.arrays["kernel_weights"])]
        n_selected = int(np.any(selected, axis=0).sum())
        return {**bounds_summary(model, "all kernels"), "n_selected": n_selected, **task_counts(model, state.stop)}

    def tables(self, state: MultiTaskState, model: TaskModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, their part in every task, and the tasks."""
        codes, names = self.inputs.codes[self.loop.order], self.inputs.names
        tasks = [{"tasks": task_table(names, codes, one.best_beta, self._unit.values(one.best_bias))} for one in state.searches]
        return {**self.model_tables(model, self.column_names), **(tasks[0] if len(tasks) == 1 else by_class(tasks, self.inputs.labels))}

    @classmethod
    def model_tables(cls, model: TaskModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and their part in every task."""
        weights = np.atleast_2d(model.arrays["kernel_weights"])
        tables = [_tables(model.machine(m), one, names) for m, one in enumerate(weights)]
        return tables[0] if len(tables) == 1 else by_class(tables, model.labels)


def _tables(model: TaskModel, weights: np.ndarray, names: Sequence[str] | None) -> dict[str, list[dict[str, Any]]]:
    kernels, threshold = kernel_names(model, names), MultiTaskMKLConfig.model_validate_json(model.params_json).threshold
    order = np.argsort(-weights, kind="stable")
    order = order[is_selected(weights, threshold)[order]]
    parts = [{"task": task, **{kernels[q]: float(model.weights[q, t]) for q in order[:MAX_COLUMNS]}} for t, task in enumerate(model.tasks)]
    return {"kernels": [{"kernel": kernels[q], "weight": float(weights[q])} for q in order], "task_kernels": parts}


def shared_loop(
    ctx: RunContext, configs: Sequence[MultiTaskMKLConfig], inputs: TaskInputs, masks: Sequence[np.ndarray | None]
) -> MultiTaskLoop:
    """Return one loop for the fits of every parameters on every mask of rows held out; they share Gram matrices, as do their classes."""
    first, given = configs[0], given_grams_or_none(inputs.data)
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    layout = task_layout(np.diff(inputs.edges).tolist(), len(specs))
    policy = "auto" if given is not None and first.grams == "store" else first.grams
    # For p > 2 kernels may weigh thousands in a task, and the rounding of single precision with them.
    single = all(config.p == 2 for config in configs) or getattr(given and given.source, "dtype", None) == np.float32
    dtype = "float32" if single else "float64"
    settings = task_settings(ctx, layout, len(specs), policy, None if given is not None else first.gram_store, dtype)
    settings = replace(settings, counts=None if inputs.counts is None else inputs.counts[inputs.order])
    problems, fits, fit_configs = [], [], []
    for config in configs:
        for mask in masks:
            part = inputs.without(mask)
            fits.append(task_fit(part, len(problems)))
            for machine in range(inputs.n_machines):
                pooled = pooled_problem(config, part, machine)
                problems.append(TaskProblem(pooled.problem.part(inputs.order), pooled.constants))
                fit_configs.append(config)
    check_memory(MultiTaskMKL.name, driver_items(settings, layout, len(specs), len(problems)), ctx, fewer_kernels(settings))
    return MultiTaskLoop(specs, fit_configs, problems, fits, settings, layout, inputs.order, given)


def driver_items(settings: GramSettings, layout: GramLayout, k: int, fits: int) -> tuple[Item, ...]:
    """Return what the driver holds of k kernels within tasks: all entries or those of one step, a task's sum, vectors."""
    b, whole, largest = np.dtype(settings.dtype).itemsize, entries_bytes(layout, k, settings.dtype), max(layout.groups)
    one_step = "kernels of the tasks of one step", min(whole, max(BATCH_BYTES, b * k * largest**2))
    return (
        ("kernels within the tasks", whole) if settings.policy == "memory" else one_step,
        ("weighted sum of the largest task, and the solver's copy of it", 2 * b * largest**2),
        ("weights of kernels in tasks, forms, and copies of them", 64 * k * len(layout.groups) * fits),
        vectors_item(sum(layout.groups), fits),
    )
