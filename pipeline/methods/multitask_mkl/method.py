"""Multiple kernel learning for many tasks as a method: problem from a store, model, summary and tables from the final state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....kernels.svm.smo import Accuracy
from ....kernels.tasks.multitask import task_kernel_weights
from ...core.memory import check_memory
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...grams.given import GivenGrams
from ...grams.settings import fewer_kernels
from ...inputs.kernels import resolved_kernels, with_decided_kernels
from ...inputs.scores import fit_tracker, scores_of
from ...inputs.tasks import TaskInputs, TaskProblem, held_out_task_inputs, pooled_problem
from ...loops.protocol import bound_figures
from ...models.build import build_task_model
from ...models.kernel import is_selected, kernel_names
from ...models.model import Tables
from ...models.task import TaskModel, by_class, machine_stack, task_counts, task_table
from .config import MultiTaskMKLConfig
from .problem import FIRST_TOL, UNFINISHED, MultiTaskProblem, MultiTaskState, driver_items
from .task_blocks_pass import task_layout, task_settings

MAX_COLUMNS = 20  # kernels whose weights a report shows by task


class MultiTaskMKL(Method[MultiTaskMKLConfig, MultiTaskProblem, MultiTaskState, TaskModel]):
    """SVMs for many tasks, which select their kernels jointly."""

    name = "multitask-mkl"
    config = MultiTaskMKLConfig
    state = MultiTaskState
    models = (TaskModel,)
    programs = "methods.multitask_mkl.solve_pass"

    def read_inputs(
        self, config: MultiTaskMKLConfig, resources: RunContext, extra: Mapping[str, Any]
    ) -> tuple[MultiTaskMKLConfig, TaskInputs]:
        """Return the parameters, and the target, weights and tasks of a store; ``extra`` may contain ``test_share``."""
        if config.kernels == "precomputed":
            raise ValueError(
                "kernels='precomputed' needs matrices, which only the estimator takes; a run computes kernels from the rows of its store"
            )
        return config, held_out_task_inputs(resources, self.name, extra)

    def decided(self, config: MultiTaskMKLConfig, inputs: TaskInputs, resources: Resources) -> MultiTaskMKLConfig:
        """Return the parameters with all kernels specified explicitly."""
        return with_decided_kernels(config, inputs.data, resources, inputs.counts)

    def problem(self, config: MultiTaskMKLConfig, inputs: TaskInputs, resources: Resources) -> MultiTaskProblem:
        """Return the problem of a fit. Raises ValueError for kernels that do not suit the data or cannot be computed within tasks, and for
        a loss that does not suit the target. Raises MemoryBoundExceeded if kernels or rows exceed the memory.
        """
        return shared_problem([self.decided(config, inputs, resources)], inputs, [inputs.held_out], resources)

    def init(self, problem: MultiTaskProblem, resources: Resources) -> MultiTaskState:
        """Return the initial state: equal weights and shares for every fit."""
        problem.grams(resources)
        return MultiTaskState(0, tuple(problem.initial_search(config) for config in problem.configs))

    def step(self, problem: MultiTaskProblem, state: MultiTaskState, resources: Resources) -> Step[MultiTaskState]:
        """Solve the SVMs of every running fit, bound the optimum, and choose the next weights."""
        grams, searches = problem.grams(resources), list(state.searches)
        running = [m for m, search in enumerate(searches) if search.stop is None]
        seconds = 0.0
        for m in running:
            began = time.perf_counter()
            search = searches[m]
            accuracy = Accuracy(FIRST_TOL, search.machine_aim(problem.configs[m].tol) / problem.inputs.n_tasks)
            weights = task_kernel_weights(search.weights, search.shares)
            machines = grams.solve(problem.losses[m].problem, search.beta, weights, accuracy, search.dual_beta)
            seconds += time.perf_counter() - began
            searches[m] = problem.advance(m, search, machines, state.iteration + 1)
        new = MultiTaskState(state.iteration + 1, tuple(searches))
        return Step(new, {**problem.metrics(new, len(running)), "seconds_machines": seconds})

    def result(self, problem: MultiTaskProblem, state: MultiTaskState, resources: Resources) -> Result[TaskModel]:
        """Return the model with the smallest primal value, with bounds and the numbers of selected kernels and rows."""
        searches, inputs = state.searches, problem.inputs
        back = np.argsort(inputs.order)  # from the order of tasks to that of the data
        figures = bound_figures(searches, state, UNFINISHED)
        arrays = {
            "kernel_weights": machine_stack([one.best_weights for one in searches]),
            "task_shares": machine_stack([one.best_shares for one in searches]),
            **{"weights_path" if len(searches) == 1 else f"weights_path_{m}": one.path for m, one in enumerate(searches)},
        }
        norms = problem.grams(resources).normalizations
        norms = [norm if norm.diag_root is None else replace(norm, diag_root=norm.diag_root[back]) for norm in norms]
        weights = machine_stack([task_kernel_weights(one.best_weights, one.best_shares) for one in searches])
        solution = machine_stack([one.best_beta[back] for one in searches]), machine_stack([one.best_bias for one in searches])
        model = build_task_model(problem.config, inputs, problem.specs, norms, weights, *solution, figures, arrays, unit=problem.unit)
        selected = [is_selected(one.best_weights, problem.config.threshold) for one in searches]
        counts = {"n_selected": int(np.any(selected, axis=0).sum()), **task_counts(model)}
        scores = partial(self._scores, problem, state)
        return Result.bounded(model, state.stop, "all kernels", counts, scores=scores)

    def _scores(self, problem: MultiTaskProblem, state: MultiTaskState) -> dict[str, Any]:
        return scores_of(problem.inputs, problem.decision_values(state))

    def decision_values(self, problem: MultiTaskProblem, state: MultiTaskState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return problem.decision_values(state)

    def selected(self, problem: MultiTaskProblem, state: MultiTaskState, resources: Resources) -> Sequence[int]:
        """Return, for every fit, the number of kernels with non-zero weight; with several one-vs-rest models, the largest number."""
        return problem.selected(state)

    def tables(
        self, model: TaskModel, names: Sequence[str] | None = None, fit: tuple[MultiTaskProblem, MultiTaskState] | None = None
    ) -> Tables:
        """Return tables of the kernels by weight, and of their weights in every task; if the fit is given, also of the tasks."""
        weights = np.atleast_2d(model.arrays["kernel_weights"])
        tables = [_tables(model.machine(m), one, names) for m, one in enumerate(weights)]
        own = tables[0] if len(tables) == 1 else by_class(tables, model.labels)
        if fit is None:
            return own
        problem, state = fit
        named, codes = problem.inputs.names, problem.inputs.codes[problem.inputs.order]
        tasks = [{"tasks": task_table(named, codes, one.best_beta, problem.unit.values(one.best_bias))} for one in state.searches]
        more = tasks[0] if len(tasks) == 1 else by_class(tasks, problem.inputs.labels)
        return {**own, **more}

    # -- fits that leave rows out ------------------------------------------------------------------------------------------------------

    def shared_fits(
        self, configs: Sequence[MultiTaskMKLConfig], inputs: TaskInputs, masks: Sequence[np.ndarray], resources: Resources
    ) -> MultiTaskProblem | None:
        """Return one problem for several fits, each without the rows of one mask. The fits share Gram matrices, as the one-vs-rest fits of
        several classes do. Return None for several parameter sets.
        """
        return shared_problem(configs, inputs, masks, resources) if len(configs) == 1 else None

    def restart(self, problem: MultiTaskProblem, fresh: MultiTaskState, before: MultiTaskProblem, last: MultiTaskState) -> MultiTaskState:
        """Return those results of the previous searches that remain valid for another C."""
        scale, parts = problem.config.C / before.config.C, zip(fresh.searches, last.searches, problem.losses, strict=True)
        bounds = before.config.model_copy(update={"C": problem.config.C}) == problem.config
        return replace(fresh, searches=tuple(one.continued(end, losses.problem, scale, bounds) for one, end, losses in parts))


def shared_problem(
    configs: Sequence[MultiTaskMKLConfig], inputs: TaskInputs, masks: Sequence[np.ndarray | None], resources: Resources
) -> MultiTaskProblem:
    """Return one problem with a fit for every pair of a parameter set and a mask of held-out rows. The fits share Gram matrices, as the
    one-vs-rest fits of several classes do.
    """
    first, given = configs[0], inputs.data if isinstance(inputs.data, GivenGrams) else None
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    layout = task_layout(np.diff(inputs.edges).tolist(), len(specs))
    policy = "auto" if given is not None and first.grams == "store" else first.grams
    # For p > 2 kernels may weigh thousands in a task, and the rounding of single precision with them.
    single = all(config.p == 2 for config in configs) or getattr(given and given.source, "dtype", None) == np.float32
    dtype = "float32" if single else "float64"
    store = None if given is not None else first.gram_store
    settings = task_settings(resources, layout, len(specs), policy, store, dtype, inputs.data)
    settings = replace(settings, counts=None if inputs.counts is None else inputs.counts[inputs.order])
    losses, fits, fit_configs = [], [], []
    for config in configs:
        for mask in masks:
            part = inputs.without(mask)
            fits.append(fit_tracker(part, part.held_out, len(losses)))
            for machine in range(inputs.n_machines):
                pooled = pooled_problem(config, part, machine)
                losses.append(TaskProblem(pooled.problem.part(inputs.order), pooled.constants))
                fit_configs.append(config)
    check_memory(MultiTaskMKL.name, driver_items(settings, layout, len(specs), len(losses)), resources, fewer_kernels(settings))
    matrices = tuple(specs), tuple(losses), settings, layout
    return MultiTaskProblem(first, inputs, *matrices, resources, tuple(fits), tuple(fit_configs))


def _tables(model: TaskModel, weights: np.ndarray, names: Sequence[str] | None) -> Tables:
    kernels, threshold = kernel_names(model, names), MultiTaskMKLConfig.model_validate_json(model.params_json).threshold
    order = np.argsort(-weights, kind="stable")
    order = order[is_selected(weights, threshold)[order]]
    parts = [{"task": task, **{kernels[q]: float(model.weights[q, t]) for q in order[:MAX_COLUMNS]}} for t, task in enumerate(model.tasks)]
    return {"kernels": [{"kernel": kernels[q], "weight": float(weights[q])} for q in order], "task_kernels": parts}
