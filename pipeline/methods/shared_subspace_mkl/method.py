"""Shared-subspace multiple kernel learning as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...core.memory import Item, check_memory, driver_plan, refuse
from ...grams.plans import GramPasses, sum_plan, sum_work
from ...grams.settings import GramSettings, task_forms_items
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.memory import fewer_kernels, machines_items
from ...inputs.tasks import TaskInputs, held_out_task_inputs, pooled_problem, task_fit, with_loss_weight
from ...loops.side_by_side import SideBySide, SideState
from ...method import Method, bound_figures, bounds_summary
from ...models.kernel import kernel_names
from ...models.task import TaskModel, task_counts, task_table
from ...models.task_build import build_task_model
from ...models.task_predict import TaskPredictor
from ...one_vs_rest import OneVsRest, class_tables
from ...records.context import RunContext
from .baselines_loop import LOOPS
from .config import SharedSubspaceConfig
from .interior import interior_bytes, interior_fits
from .loop import UNFINISHED, SubspaceLoop, SubspaceState

MAX_TASKS_SHOWN = 60  # tasks whose couplings a report shows
MAX_EIGENVALUES_SHOWN = 20  # eigenvalues of a coupling that a report shows


class SharedSubspace(Method):
    """Machines of many tasks that share a subspace of every kernel's feature space."""

    name = "shared-subspace-mkl"
    config_type = SharedSubspaceConfig
    models = {TaskModel: TaskPredictor()}

    config: SharedSubspaceConfig
    inputs: TaskInputs
    loop: SubspaceLoop

    @classmethod
    def read_inputs(
        cls, config: SharedSubspaceConfig, ctx: RunContext, extra: Mapping[str, Any]
    ) -> tuple[SharedSubspaceConfig, TaskInputs]:
        """Return parameters, and target, weights and tasks of a store; ``extra`` may hold ``test_share``."""
        return with_gram_store(config, held_out_task_inputs(ctx, cls.name, extra))

    @classmethod
    def decided(cls, config: SharedSubspaceConfig, inputs: TaskInputs, ctx: RunContext) -> SharedSubspaceConfig:
        """Return parameters with what they leave to the data filled in: kernels, and the weight of the losses."""
        config = super().decided(config, inputs, ctx)
        return with_loss_weight(config, inputs, len(resolved_kernels(config.kernels, inputs.data, config.normalize)))

    @classmethod
    def start(cls, config: SharedSubspaceConfig, inputs: TaskInputs, ctx: RunContext) -> Any:
        """Return the method ready to run on inputs: of more than two classes a machine for each against the rest."""
        return super().start(config, inputs, ctx) if inputs.n_machines == 1 else SubspaceClasses.over(config, inputs, ctx)

    @classmethod
    def build_loop(cls, config: SharedSubspaceConfig, inputs: TaskInputs, ctx: RunContext, machine: int = 0) -> SubspaceLoop:
        """Return the loop of a fit, of more than two classes that of one ``machine``.

        Raises ValueError: kernels that do not suit the data, or a loss that does not suit the target; MemoryBoundExceeded: what must
        lie on the driver is more than it may hold.
        """
        specs = resolved_kernels(config.kernels, inputs.data, config.normalize)
        n, memory = len(inputs.target), ctx.driver_memory
        if config.solver != "auto":
            pooled = f"matrix of {n} pooled rows, 1/{round(1 / MATRIX_SHARE)} of driver_memory at most", int(4 / MATRIX_SHARE) * n * n
            refuse(cls.name, [pooled], memory, "fewer rows, or solver='auto'")
        settings = gram_settings(config, specs, inputs.data, ctx, inputs.counts)
        remedy = fewer_kernels(settings) if config.solver == "auto" else "solver='auto' needs none of the factors"
        check_memory(cls.name, driver_items(config, settings, n, len(specs), inputs.n_tasks, memory), ctx, remedy)
        losses, data = pooled_problem(config, inputs, machine), given_grams_or_none(inputs.data)
        fits = (task_fit(inputs),) if inputs.n_machines == 1 else ()
        return LOOPS[config.solver](config, specs, losses, settings, fits, data)

    @staticmethod
    def decision_of(state: SubspaceState) -> np.ndarray:
        """Return the decision values of a state, ``(n_samples,)``."""
        return state.best_decision

    @staticmethod
    def is_unfinished(stop: str | None) -> bool:
        """Return whether a reason to stop came before the tolerance was reached."""
        return stop in UNFINISHED

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Where the entries lie, and what the driver holds."""
        loop, ctx, n, k = self.loop, self.ctx, self.ctx.data.n_rows, len(self.loop.specs)
        passes = GramPasses(loop.grams.over(ctx), loop.specs, loop.settings)
        # Losses without curvature ask for the forms of two machines; the interior path for products of every task.
        forms = passes.task_forms(1 if loop.problem.ridge is not None else 2, loop.n_tasks)
        has_path = self.config.solver == "auto" and interior_fits(n, k, loop.n_tasks, ctx.driver_memory)
        return {
            **loop.settings.describe(n, k),
            **driver_plan(driver_items(self.config, loop.settings, n, k, loop.n_tasks, ctx.driver_memory)),
            **sum_plan(passes, forms, passes.products(loop.n_tasks) if has_path else 0),
            "learning_tasks": loop.n_tasks,
            "pooled_matrix_bytes": 4 * n**2,
            "iterations_at_most": self.config.max_iter,
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return sum_work(self.loop.settings, self.ctx.data.n_rows, self.ctx.driver_memory)

    def model(self, state: SubspaceState, ctx: RunContext) -> TaskModel:
        """Return the model of the least primal value."""
        figures, weights = (
            bound_figures([state], state, UNFINISHED),
            np.einsum("mk,mst->kst", self.loop.mix, state.best_coupling),
        )
        arrays, norms = {"kernel_weights": np.trace(weights, axis1=1, axis2=2)}, self.loop.grams(ctx).normalizations
        solution = state.best_beta, state.best_bias
        return build_task_model(self.config, self.inputs, self.loop.specs, norms, weights, *solution, figures, arrays, unit=self.loop.unit)

    def decision_values(self, state: SubspaceState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return self.loop.unit.values(self.decision_of(state))[None]

    def warnings(self, state: SubspaceState, model: TaskModel, ctx: RunContext) -> list[str]:
        """Return which kernels add nothing, or nothing new."""
        return kernel_warnings(self.loop.grams(ctx))

    def summary(self, state: SubspaceState, model: TaskModel) -> dict[str, Any]:
        """Return bounds, and how many rows were selected."""
        return {**bounds_summary(model, "all kernels and couplings of tasks"), **task_counts(model), "stop": state.stop}

    def tables(self, state: SubspaceState, model: TaskModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by trace, eigenvalues of their couplings, couplings of tasks, and the tasks."""
        intercepts = self.loop.unit.values(state.best_bias)
        return {
            **self.model_tables(model, self.column_names),
            "tasks": task_table(self.inputs.names, self.loop.codes, state.best_beta, intercepts),
        }

    @classmethod
    def model_tables(cls, model: TaskModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by trace, eigenvalues of their couplings, and couplings of tasks."""
        if model.n_machines > 1:
            return class_tables(cls, model, names)
        weights, names, tasks = model.weights, kernel_names(model, names), model.tasks
        traces = np.trace(weights, axis1=1, axis2=2)
        order = np.argsort(-traces, kind="stable")
        spectra = np.linalg.eigvalsh(weights)[:, ::-1][:, :MAX_EIGENVALUES_SHOWN]
        # Weight of the rows of one task in the machine of another.
        shown, coupling = [str(name) for name in tasks[:MAX_TASKS_SHOWN]], weights.sum(axis=0)
        return {
            "kernels": [{"kernel": names[q], "weight": float(traces[q])} for q in order],
            "eigenvalues": [{"kernel": names[q], **{str(i): float(v) for i, v in enumerate(spectra[q], 1)}} for q in order],
            "task_pairs": [{"task": task, **dict(zip(shown, map(float, coupling[t]), strict=False))} for t, task in enumerate(shown)],
        }


@dataclass(frozen=True)
class SubspaceClassesState(SideState[SubspaceState]):
    """State of the machines of several classes."""

    record_name: ClassVar[str] = "SubspaceClassesState"
    parts: tuple[SubspaceState, ...]


class SubspaceClasses(OneVsRest, SharedSubspace):
    """Machines of several classes, each with couplings of its own."""

    single, state_type = SharedSubspace, SubspaceClassesState
    loop: SideBySide[SubspaceState]  # pyright: ignore[reportIncompatibleVariableOverride]


def driver_items(
    config: SharedSubspaceConfig, settings: GramSettings, n: int, k: int, n_tasks: int, driver_memory: int
) -> tuple[Item, ...]:
    """Return what the driver holds: kernels, the pooled sum and its machine, couplings, and what the chosen solver adds to them."""
    forms = task_forms_items(n, k, n_tasks, settings.policy)
    couplings = "couplings of tasks, and copies of them", 96 * k * n_tasks**2
    common = (*machines_items(settings, n, k, 1, driver_memory), *forms, couplings)
    if config.solver != "auto":
        kernels = k if config.solver == "mirror" else 1
        return (*common, ("factors of the pooled kernels", 8 * n * n * (2 * kernels + 3)))
    if not interior_fits(n, k, n_tasks, driver_memory):
        return common
    return (*common, ("system of the interior path", interior_bytes(n, k, n_tasks)))
