"""Latent groups of tasks as a method: from a store to a loop, from its state to model, certificate and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...core.memory import Item, driver_plan
from ...grams.plans import GramPasses, sum_plan, sum_work
from ...grams.settings import GramSettings, task_forms_items
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels
from ...inputs.memory import check_machines, machines_items
from ...inputs.tasks import TaskInputs, held_out_task_inputs, pooled_problem, task_fit, with_loss_weight
from ...loops.active_set import FINISHED
from ...loops.side_by_side import SideBySide, SideState
from ...method import Method, heaviest_first
from ...models.kernel import kernel_names
from ...models.task import TaskModel, task_counts
from ...models.task_build import build_task_model
from ...models.task_predict import TaskPredictor
from ...one_vs_rest import OneVsRest, class_tables
from ...records.context import RunContext
from .config import LatentTaskConfig
from .loop import LatentLoop, LatentState

MAX_COLUMNS = 20  # kernels whose weights a report shows by group
MAX_GROUPS_LISTED = 100  # groups that a report lists


class LatentTask(Method):
    """Machines of many tasks whose kernels are shared by groups of tasks."""

    name = "latent-task-mkl"
    config_type = LatentTaskConfig
    models = {TaskModel: TaskPredictor()}

    config: LatentTaskConfig
    inputs: TaskInputs
    loop: LatentLoop

    @classmethod
    def read_inputs(cls, config: LatentTaskConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[LatentTaskConfig, TaskInputs]:
        """Return parameters, and target, weights and tasks of a store; ``extra`` may hold ``test_share``."""
        if config.kernels == "precomputed":
            raise ValueError("kernels='precomputed': a run computes its kernels from the rows of its store; give matrices to the estimator")
        return config, held_out_task_inputs(ctx, cls.name, extra)

    @classmethod
    def decided(cls, config: LatentTaskConfig, inputs: TaskInputs, ctx: RunContext) -> LatentTaskConfig:
        """Return parameters with what they leave to the data filled in: kernels, where the search starts, and the weight of the losses."""
        config = super().decided(config, inputs, ctx).for_tasks(inputs.n_tasks)
        return with_loss_weight(config, inputs, len(resolved_kernels(config.kernels, inputs.data, config.normalize)))

    @classmethod
    def start(cls, config: LatentTaskConfig, inputs: TaskInputs, ctx: RunContext) -> Any:
        """Return the method ready to run on inputs: of more than two classes a machine for each against the rest."""
        return super().start(config, inputs, ctx) if inputs.n_machines == 1 else LatentClasses.over(config, inputs, ctx)

    @classmethod
    def build_loop(cls, config: LatentTaskConfig, inputs: TaskInputs, ctx: RunContext, machine: int = 0) -> LatentLoop:
        """Return the loop of a fit, of more than two classes that of one ``machine``.

        Raises ValueError: kernels that do not suit the data, a loss that does not suit the target; MemoryBoundExceeded: more kernels or
        rows than the memory allows.
        """
        specs = resolved_kernels(config.kernels, inputs.data, config.normalize)
        losses = pooled_problem(config, inputs, machine)
        settings, n = gram_settings(config, specs, inputs.data, ctx, inputs.counts), losses.problem.n
        items = driver_items(settings, n, len(specs), inputs.n_tasks, ctx.driver_memory)
        check_machines(settings, items, n, len(specs), ctx, cls.name)
        fits = (task_fit(inputs),) if inputs.n_machines == 1 else ()
        return LatentLoop(config, specs, losses, settings, fits, given_grams_or_none(inputs.data))

    @staticmethod
    def decision_of(state: LatentState) -> np.ndarray:
        """Return the decision values of a state, ``(n_samples,)``."""
        return state.machine.decision

    @staticmethod
    def is_unfinished(stop: str | None) -> bool:
        """Return whether a reason to stop came before the tolerance was reached."""
        return stop not in FINISHED

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task."""
        loop, ctx, n, k = self.loop, self.ctx, self.ctx.data.n_rows, len(self.loop.specs)
        passes = GramPasses(loop.grams.over(ctx), loop.specs, loop.settings)
        return {
            **loop.settings.describe(n, k),
            **driver_plan(driver_items(loop.settings, n, k, loop.n_tasks, ctx.driver_memory)),
            "learning_tasks": loop.n_tasks,
            "groups": 2.0 ** len(loop.learned) - 1.0,
            "iterations_at_most": self.config.max_iter,
            **sum_plan(passes, passes.task_forms(1, loop.n_tasks)),
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return sum_work(self.loop.settings, self.ctx.data.n_rows, self.ctx.driver_memory)

    def model(self, state: LatentState, ctx: RunContext) -> TaskModel:
        """Return the model of the least primal value, with its certificate."""
        machine, nodes, loop = state.machine, state.active.nodes, self.loop
        groups, weights = self._ranked_groups(state)
        certificate = loop.certify(state)
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
        pair_weights, norms = loop.pair_weights(nodes, machine.best_weights), loop.grams(ctx).normalizations
        arrays, solution = {"groups": groups.astype(np.uint8), "group_kernel_weights": weights}, (machine.best_beta, machine.biases)
        return build_task_model(self.config, self.inputs, loop.specs, norms, pair_weights, *solution, figures, arrays, unit=loop.unit)

    def decision_values(self, state: LatentState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return self.loop.unit.values(self.decision_of(state))[None]

    def warnings(self, state: LatentState, model: TaskModel, ctx: RunContext) -> list[str]:
        """Return which kernels add nothing, or nothing new."""
        return kernel_warnings(self.loop.grams(ctx))

    def summary(self, state: LatentState, model: TaskModel) -> dict[str, Any]:
        """Return the certificate, and how many groups, kernels and rows were selected."""
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
            **task_counts(model),
            "stop": state.stop,
        }

    def tables(self, state: LatentState, model: TaskModel) -> dict[str, list[dict[str, Any]]]:
        """Return groups by weight, which tasks work together, kernels by weight, and their part in every task."""
        return self.model_tables(model, self.column_names)

    @classmethod
    def model_tables(cls, model: TaskModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does."""
        if model.n_machines > 1:
            return class_tables(cls, model, names)
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

    def _ranked_groups(self, state: LatentState) -> tuple[np.ndarray, np.ndarray]:
        """Return the groups with weight as ``(n_groups, T)``, the heaviest first, and the weights of their kernels ``(n_groups, k)``."""
        loop, nodes, weights = self.loop, state.active.nodes, state.machine.best_weights
        totals = weights.sum(axis=1)
        heavy = np.flatnonzero(totals > self.config.threshold * totals.max(initial=0.0))
        order = heavy[np.argsort(-totals[heavy], kind="stable")]
        groups = np.zeros((len(order), loop.n_tasks), bool)
        groups[:, loop.learned] = loop.lattice.groups(nodes.keys[order])
        return groups, weights[order]


@dataclass(frozen=True)
class LatentClassesState(SideState[LatentState]):
    """State of the machines of several classes."""

    record_name: ClassVar[str] = "LatentClassesState"
    parts: tuple[LatentState, ...]


class LatentClasses(OneVsRest, LatentTask):
    """Machines of several classes, each with groups of its own."""

    single, state_type = LatentTask, LatentClassesState
    loop: SideBySide[LatentState]  # pyright: ignore[reportIncompatibleVariableOverride]


def driver_items(settings: GramSettings, n: int, k: int, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds: kernels, a pooled sum or the solver's part of it, one machine, forms of pairs of tasks."""
    return *machines_items(settings, n, k, 1, driver_memory), *task_forms_items(n, k, n_tasks, settings.policy)
