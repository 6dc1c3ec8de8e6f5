"""Shared-subspace multiple kernel learning as a method: problem from a store, model, summary and tables from the final state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.jit import one_thread
from ...core.memory import check_memory, refuse
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...grams.settings import fewer_kernels
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import gram_settings, resolved_kernels, with_decided_kernels, with_gram_store
from ...inputs.scores import accuracy_metrics, scores_of
from ...inputs.tasks import TaskInputs, held_out_task_inputs, pooled_problem, with_loss_weight
from ...loops.protocol import bound_figures
from ...models.build import build_task_model
from ...models.kernel import kernel_names
from ...models.model import Tables
from ...models.task import TaskModel, task_counts, task_table
from .baselines import PROBLEMS
from .config import SharedSubspaceConfig
from .problem import UNFINISHED, SubspaceClassesState, SubspaceProblem, SubspaceState, driver_items

MAX_TASKS_SHOWN = 60  # tasks whose couplings a report shows
MAX_EIGENVALUES_SHOWN = 20  # eigenvalues of a coupling that a report shows


class SharedSubspace(Method[SharedSubspaceConfig, SubspaceProblem, SubspaceState, TaskModel]):
    """SVMs for many tasks that share a subspace of every kernel's feature space, for two classes, one class against the rest, or a real
    target.
    """

    name = "shared-subspace-mkl"
    config = SharedSubspaceConfig
    state = SubspaceState
    joint_state = SubspaceClassesState
    finished = ("tol",)
    models = (TaskModel,)

    def read_inputs(
        self, config: SharedSubspaceConfig, resources: RunContext, extra: Mapping[str, Any]
    ) -> tuple[SharedSubspaceConfig, TaskInputs]:
        """Return the parameters, and the target, weights and tasks of a store; ``extra`` may contain ``test_share``."""
        return with_gram_store(config, held_out_task_inputs(resources, self.name, extra))

    def problem(self, config: SharedSubspaceConfig, inputs: TaskInputs, resources: Resources, machine: int = 0) -> SubspaceProblem:
        """Return the problem of a fit. With more than two classes, return the problem of the one-vs-rest model ``machine``.

        Raises ValueError for kernels that do not suit the data or a loss that does not suit the target, and MemoryBoundExceeded if the
        driver's memory would be exceeded.
        """
        config = with_decided_kernels(config, inputs.data, resources, inputs.counts)
        specs = tuple(resolved_kernels(config.kernels, inputs.data, config.normalize))
        config = with_loss_weight(config, inputs, len(specs))
        n, memory = len(inputs.target), resources.driver_memory
        if config.solver != "auto":
            pooled = f"matrix of {n} pooled rows, 1/{round(1 / MATRIX_SHARE)} of driver_memory at most", int(4 / MATRIX_SHARE) * n * n
            refuse(self.name, [pooled], memory, "fewer rows, or solver='auto'")
        settings = gram_settings(config, specs, inputs.data, resources, inputs.counts)
        remedy = fewer_kernels(settings) if config.solver == "auto" else "solver='auto' needs none of the factors"
        check_memory(self.name, driver_items(config, settings, n, len(specs), inputs.n_tasks, memory), resources, remedy)
        return PROBLEMS[config.solver](config, inputs, specs, pooled_problem(config, inputs, machine), settings, resources)

    def init(self, problem: SubspaceProblem, resources: Resources) -> SubspaceState:
        """Return the initial state, before the first SVM is solved."""
        return problem.first_state(problem.grams(resources))

    def step(self, problem: SubspaceProblem, state: SubspaceState, resources: Resources) -> Step[SubspaceState]:
        """Solve the joint SVM, bound the optimum, and choose the next couplings."""
        grams, unit = problem.grams(resources), problem.unit
        with one_thread():
            state, seconds = problem.advance(state, grams)
        state = problem.finish(replace(state, iteration=state.iteration + 1), grams)
        bounds = {"objective": state.upper, "gap": state.gap, "lower_bound": state.lower, "upper_bound": state.upper}
        scores = accuracy_metrics(problem.fits, {0: unit.values(state.best_decision)})
        figures = {**unit.figures(bounds), "relative_gap": state.relative_gap, "machines": 1, **scores}
        return Step(state, {**figures, "seconds_machines": seconds})

    def result(self, problem: SubspaceProblem, state: SubspaceState, resources: Resources) -> Result[TaskModel]:
        """Return the model with the smallest primal value, with bounds and the number of selected rows."""
        grams, weights = problem.grams(resources), np.einsum("mk,mst->kst", problem.mix, state.best_coupling)
        arrays, solution = {"kernel_weights": np.trace(weights, axis1=1, axis2=2)}, (state.best_beta, state.best_bias)
        figures, kernels = bound_figures([state], state, UNFINISHED), (problem.specs, grams.normalizations)
        model = build_task_model(problem.config, problem.inputs, *kernels, weights, *solution, figures, arrays, unit=problem.unit)
        return Result.bounded(
            model,
            state.stop,
            "all kernels and couplings of tasks",
            task_counts(model),
            warnings=kernel_warnings(grams),
            scores=lambda: scores_of(problem.inputs, self.decision_values(problem, state, resources)),
        )

    def decision_values(self, problem: SubspaceProblem, state: SubspaceState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(1, n_samples)``."""
        return problem.unit.values(state.best_decision)[None]

    def tables(
        self, model: TaskModel, names: Sequence[str] | None = None, fit: tuple[SubspaceProblem, SubspaceState] | None = None
    ) -> Tables:
        """Return the kernels by trace, the eigenvalues of the couplings of each kernel, and the couplings of tasks; if the fit is given,
        also the tasks.
        """
        weights, names, tasks = model.weights, kernel_names(model, names), model.tasks
        traces = np.trace(weights, axis1=1, axis2=2)
        order = np.argsort(-traces, kind="stable")
        spectra = np.linalg.eigvalsh(weights)[:, ::-1][:, :MAX_EIGENVALUES_SHOWN]
        # Weight of the rows of one task in the machine of another.
        shown, coupling = [str(name) for name in tasks[:MAX_TASKS_SHOWN]], weights.sum(axis=0)
        tables = {
            "kernels": [{"kernel": names[q], "weight": float(traces[q])} for q in order],
            "eigenvalues": [{"kernel": names[q], **{str(i): float(v) for i, v in enumerate(spectra[q], 1)}} for q in order],
            "task_pairs": [{"task": task, **dict(zip(shown, map(float, coupling[t]), strict=False))} for t, task in enumerate(shown)],
        }
        if fit is None:
            return tables
        problem, state = fit
        intercepts = problem.unit.values(state.best_bias)
        return {**tables, "tasks": task_table(problem.inputs.names, problem.codes, state.best_beta, intercepts)}
