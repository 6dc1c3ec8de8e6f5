"""The tri-class support vector machine as a method: from two stores to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.triclass_search import SearchState, row_coefficients
from ....storage import BlockStore, DataError
from ....storage.data import opened
from ...core.memory import Item, check_memory, driver_plan, total_bytes
from ...grams.plans import GramPasses
from ...grams.settings import PLACES, GramSettings
from ...grams.sources import group_pairs
from ...grams.weighted_sum import MATRIX_SHARE, working_set_item
from ...inputs.labels import Inputs, store_inputs
from ...inputs.scores import held_out_rows
from ...method import Method
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...passes.blocks import Rows
from ...records.context import RunContext
from ...records.joined import JoinedStores
from .config import TriClassConfig
from .inputs import TriClassInputs, join_stores, make_points, resolve_kernel, rows_bytes, split_labels, validation_masks
from .linear_pass import rows_task_bytes, stripe_tasks, suits
from .loop import BASELINES, PATH_COLUMNS, Layout, TriClassLoop, TriClassState, start_names

UNFINISHED = (None, "max_iter", "stalled")  # reasons of a stop before the tolerance was reached
WHOLE_NUMBERS = ("iteration", "minus", "zero", "plus", "flips")  # columns of the path that count

ROWS_SHARE = 0.25  # share of the driver's memory that the rows of two stores may take where they are read into this process

DISTRIBUTED = {
    "matrix": ("Gram blocks",),
    "blocks": ("Gram blocks", "products with the Gram matrix", "its entries between rows of a working set"),
    "rows": ("products of the rows with vectors", "rows of a working set"),
}


class TriClass(Method):
    """A support vector machine that learns from unlabelled rows, some of which may belong to neither class."""

    name = "tri-class-svm"
    config_type = TriClassConfig
    models = {KernelModel: KernelPredictor()}

    config: TriClassConfig
    inputs: TriClassInputs
    loop: TriClassLoop

    @classmethod
    def read_inputs(cls, config: TriClassConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[TriClassConfig, TriClassInputs]:
        """Return parameters, and labels and rows of a run; ``extra`` may hold ``unlabelled``, a store, and ``test_share``.

        The unlabelled store is opened in the version that the run began with.

        Raises DataError: labels of other than two classes and rows of neither, or unlabelled rows that do not go with them;
        DigestMismatch: the unlabelled store was replaced since the run began, and the old version is gone.
        """
        stored = store_inputs(ctx, cls.name)
        if stored.classes is None:
            raise DataError(f"the target is real-valued; {cls.name} needs labels of two classes", ctx.data.url)
        y = np.asarray(stored.classes)[stored.target]
        url = extra.get("unlabelled")
        labels, classes = split_labels(y, config.irrelevant_label, stored.sample_weight, ctx.data.url, has_unlabelled=url is not None)
        held_out = held_out_rows(extra, stored.target, ctx.seed, stored.classes)
        decisions = {} if ctx.scratch is None else ctx.scratch.read_json("decisions") or {}
        store = None if url is None else opened(str(url), cls.name, decisions.get("unlabelled_digest"))
        rows, count = join_stores(stored.data, store), 0 if store is None else store.n_rows
        return config, TriClassInputs(rows, labels, count, stored.sample_weight, classes, held_out, store)

    @classmethod
    def start(cls, config: TriClassConfig, inputs: TriClassInputs, ctx: RunContext) -> Self:
        """Return the method ready to run on inputs."""
        # An estimator's rows may have been written to a store for workers: then those are the rows of the fit.
        return super().start(config, inputs if inputs.unlabelled_store is not None else replace(inputs, data=ctx.data), ctx)

    @classmethod
    def build_loop(cls, config: TriClassConfig, inputs: TriClassInputs, ctx: RunContext) -> TriClassLoop:
        """Return the loop of a fit. Raises ValueError: a kernel that does not suit the data, a balance without unlabelled rows, folds
        without rows of both classes; MemoryBoundExceeded: more rows than the driver's memory allows.
        """
        return cls.loop_over(config, inputs, [inputs.held_out], validation_masks(config, inputs, ctx.seed), ctx)

    @classmethod
    def loop_over(
        cls,
        config: TriClassConfig,
        inputs: TriClassInputs,
        fits: Sequence[np.ndarray | None],
        folds: Sequence[np.ndarray],
        ctx: RunContext,
    ) -> TriClassLoop:
        """Return the loop of fits without the labelled rows of a mask each, and of the folds of a validation of the first.

        Folds that nobody asked for are left out where they do not fit the memory, or the solver reads by passes.
        """
        data, spec, is_asked = inputs.data, resolve_kernel(config, inputs.data, inputs.held_out, inputs.counts), config.validation != "auto"
        machines = count_machines(config, len(fits), len(folds) if is_asked else 0)
        layout = _decide(config, spec, inputs, ctx, machines)
        check_memory(cls.name, _driver_items(config, layout, inputs, ctx.driver_memory, machines), ctx, "fewer rows")
        if not is_asked and folds:
            more = _driver_items(config, layout, inputs, ctx.driver_memory, count_machines(config, len(fits), len(folds)))
            folds = folds if layout.solver_reads == "matrix" and total_bytes(more) <= ctx.driver_memory else ()
        masks = [*fits, *folds]
        points = [make_points(config, inputs, mask) for mask in masks]
        return TriClassLoop(config, spec, layout, inputs, points, masks, None if data is ctx.data else data, len(fits))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Rows, where the Gram matrix lies and who solves with it, tasks, memory of a task."""
        loop, inputs, layout = self.loop, self.inputs, self.loop.layout
        n_folds = len(loop.points) - loop.n_fits
        machines = count_machines(self.config, loop.n_fits, n_folds)
        return {
            **layout.settings.describe(inputs.data.n_rows, 1),
            **driver_plan(_driver_items(self.config, layout, inputs, self.ctx.driver_memory, machines)),
            "kernel": str(loop.spec),
            "labelled": len(inputs.labels),
            "unlabelled": inputs.n_unlabelled,
            "unlabelled_digest": None if inputs.unlabelled_store is None else inputs.unlabelled_store.digest,
            "starts": list(loop.names),
            "validation_folds": n_folds,
            "iterations_at_most": (1 + self.config.max_iter) * (2 if loop.is_brief else 1),
            "solver_reads": layout.solver_reads,
            **self._tasks(),
        }

    def _tasks(self) -> dict[str, int]:
        data, layout = self.inputs.data, self.loop.layout
        if layout.solver_reads == "rows":
            rows = cast("Rows", data)
            return {"tasks_per_pass": len(stripe_tasks(rows)), "task_bytes": rows_task_bytes(rows, self.ctx.driver_memory)}
        passes = GramPasses(replace(self.ctx, data=data), [self.loop.spec], layout.settings)
        if layout.solver_reads == "blocks":
            step = passes.solver(repeats=2 if _is_twofold(self.config) else 1)
            return {"tasks_per_pass": len(group_pairs(passes.refs)), "task_bytes": max(passes.load(), step)}
        return {"tasks_per_pass": passes.tasks, "task_bytes": max(passes.load(), passes.sum())}

    @property
    def beside(self) -> tuple[BlockStore, ...]:
        """The unlabelled store."""
        return () if self.inputs.unlabelled_store is None else (self.inputs.unlabelled_store,)

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return DISTRIBUTED[self.loop.layout.solver_reads]

    def model(self, state: TriClassState, ctx: RunContext) -> KernelModel:
        """Return the model of the best start."""
        config, inputs, loop, best = self.config, self.inputs, self.loop, self.loop.best(state)
        figures = {
            "objective": best.objective / config.C,
            "gap": best.gap / config.C,
            "eps": config.eps,
            "iterations": float(state.iteration),
            "converged": float(state.stop not in UNFINISHED),
        }
        objectives = [machine.objective / config.C for machine in state.machines[: len(loop.names)]]
        validation = [
            [row["accuracy"], np.nan if row["deviation"] is None else row["deviation"], row["folds"]] for row in loop.validation(state)
        ]
        arrays = {
            "assignment": best.labels[inputs.unlabelled].astype(np.int64),
            "starts": np.array(objectives),
            "validation": np.array(validation, dtype=np.float64).reshape(-1, 3),
        }
        kernel_inputs, beta = Inputs(inputs.data, inputs.labels, inputs.classes), row_coefficients(loop.points[0], best)
        return build_model(config, kernel_inputs, loop.grams(ctx), np.ones((1, 1)), beta[None], np.array([best.bias]), figures, arrays)

    @classmethod
    def for_folds(cls, config: TriClassConfig) -> TriClassConfig:
        """Return parameters without a validation beside the fit."""
        return config.model_copy(update={"validation": 0})

    @classmethod
    def shared_fits(
        cls, configs: Sequence[TriClassConfig], inputs: TriClassInputs, masks: Sequence[np.ndarray], ctx: RunContext
    ) -> Self | None:
        """Return one run of fits without the rows of every mask: they share the Gram matrix."""
        if len(configs) > 1:
            return None
        config, inputs = configs[0], inputs if inputs.unlabelled_store is not None else replace(inputs, data=ctx.data)
        parts = [inputs.without(mask).held_out for mask in masks]
        return cls(config, inputs, cls.loop_over(config, inputs, parts, (), ctx), ctx)

    def decision_values(self, state: TriClassState, ctx: RunContext) -> np.ndarray:
        """Return what the best machine of every fit decides on the labelled rows, ``(n_fits, n_labelled)``."""
        parts = range(self.loop.n_fits)
        return np.stack([self.loop.best(state, part).decision[: len(self.inputs.labels)] for part in parts])

    def warnings(self, state: TriClassState, model: KernelModel, ctx: RunContext) -> list[str]:
        """Return whether the unlabelled rows did not help, where that was measured."""
        better = self.loop.better_baseline(state)
        if better is None:
            return []
        name, lost, won = better
        rows = {row["machine"]: row for row in self.loop.validation(state)}
        which = "labelled rows alone" if name == "SVM" else "all unlabelled rows irrelevant"
        of_folds = f" in {rows[name]['folds']} folds" if rows[name]["folds"] > 1 else ""
        return [
            f"the unlabelled rows did not help on rows held out{of_folds}: accuracy {rows['3C-SVM']['accuracy']:.4f}, of the {name} "
            f"{rows[name]['accuracy']:.4f} ({which}), which is right on {lost} rows where this machine is wrong, and wrong on {won} where "
            "it is right; lower C_unlabelled, or leave them out"
        ]

    def summary(self, state: TriClassState, model: KernelModel) -> dict[str, Any]:
        """Return objective, certificate, and how the unlabelled rows were assigned."""
        accuracies = {row["machine"]: row["accuracy"] for row in self.loop.validation(state)}
        return {
            "objective": model.figures["objective"],
            "gap": model.figures["gap"],
            "certified_over": "the last convex problem of the best start",
            "start": self.loop.names[int(np.argmin(model.arrays["starts"]))],
            **self.loop.counts(self.loop.best(state)),
            "n_kernels": 1,
            "n_support": len(model.support_ids),
            "stop": state.stop,
            "classes": json.loads(model.classes_json),
            **({"validation": accuracies} if accuracies else {}),
            **({"remark": text} if (text := " ".join(self.warnings(state, model, self.ctx))) else {}),
        }

    def tables(self, state: TriClassState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return the validation beside the baselines, the starts, and every start step by step."""
        names = self.loop.names
        steps = [{**dict(zip(PATH_COLUMNS, row, strict=True)), "start": names[int(row[1])]} for row in state.path.tolist()]
        return {
            "validation": self.loop.validation(state),
            "starts": [self._start_row(name, machine) for name, machine in zip(names, state.machines, strict=False)],
            "assignments": [{key: int(value) if key in WHOLE_NUMBERS else value for key, value in row.items()} for row in steps],
        }

    def _start_row(self, name: str, machine: SearchState) -> dict[str, Any]:
        mask = self.inputs.held_out
        accuracy = self.loop.accuracy(machine, np.zeros(len(self.inputs.labels), dtype=bool) if mask is None else mask)
        return {
            "start": name,
            "objective": machine.objective / self.config.C,
            "gap": machine.gap / self.config.C,
            "convex_problems": machine.solves,
            **self.loop.counts(machine),
            "stop": machine.stop,
            "test_accuracy": None if np.isnan(accuracy) else accuracy,
        }


def _decide(config: TriClassConfig, spec: KernelSpec, inputs: TriClassInputs, ctx: RunContext, machines: int) -> Layout:
    """Return the matrix in this process where it and what is made of it fit the driver's memory, else passes over its blocks."""
    data, limit = inputs.data, ctx.driver_memory
    near = replace(GramSettings.of(replace(ctx, data=data), [spec], config.grams), counts=inputs.counts)
    here = Layout(near, rows_here=rows_bytes(data) <= ROWS_SHARE * limit)
    if 4 * data.n_rows**2 <= MATRIX_SHARE * limit and total_bytes(_driver_items(config, here, inputs, limit, machines)) <= limit:
        return here
    if suits(spec, data):
        return Layout(replace(near, policy="recompute", reason="never made: a linear kernel is known by its rows"), "rows")
    if config.grams != "auto" or near.in_place:
        return Layout(near, "blocks")
    # The passes of a solver would not look at a bank in memory.
    reason = f"{PLACES['recompute']}, or once into the run directory: {near.reason.partition(': ')[2]}"
    return Layout(replace(near, policy="recompute", reason=reason), "blocks")


def _is_twofold(config: TriClassConfig) -> bool:
    """Return whether unlabelled rows have two variables of a convex problem each."""
    return config.algorithm != "mm" and not config.all_relevant


def count_machines(config: TriClassConfig, fits: int, folds: int) -> int:
    """Return the machines of some fits and of the folds of a validation: every start, and the two they begin from."""
    starts = len(start_names(config))
    return fits * (starts + len(BASELINES)) + folds * ((1 if config.validation == "auto" else starts) + len(BASELINES))


def _driver_items(config: TriClassConfig, layout: Layout, inputs: TriClassInputs, limit: int, machines: int) -> tuple[Item, ...]:
    """Return what the driver holds of n rows, u of them unlabelled: rows, kernel, the matrix of a convex problem, vectors, model."""
    data, n, u = inputs.data, inputs.data.n_rows, inputs.n_unlabelled
    is_twofold, nbytes = _is_twofold(config), rows_bytes(data)
    vectors = (
        ("variables of a convex problem, and vectors over them", 256 * (n + (u if is_twofold else 0))),
        ("labels, costs, coefficients and decision values of every machine", 64 * n * machines),
        ("rows of the model", nbytes),
    )
    if layout.solver_reads == "rows":
        return (working_set_item(limit), ("weights of the features", 40 * data.n_cols), *vectors)
    matrices = layout.settings.items(n, 1, limit)
    if layout.solver_reads == "blocks":
        return (matrices[0], working_set_item(limit), *vectors)
    if layout.rows_here and isinstance(data, JoinedStores):
        matrices = (("rows of both stores, side by side", nbytes), *matrices)
    if config.balance is not None:
        matrices = (*matrices, ("matrix with the mean of the unlabelled rows", 4 * n * n))
    if is_twofold:
        # Rows with two variables are copied as often into the matrix of those that move.
        matrices = (*matrices, ("matrix of the variables that move", 4 * (n + u) ** 2))
    return (*matrices, *vectors)


def validation_rows(array: np.ndarray) -> list[dict[str, Any]]:
    """Return the rows of a validation from those of a model's array: accuracy, deviation (NaN where there is none), folds."""
    names = (*BASELINES, "3C-SVM")
    return [
        {"machine": name, "accuracy": accuracy, "deviation": None if deviation != deviation else deviation, "folds": int(folds)}
        for name, (accuracy, deviation, folds) in zip(names, array.tolist(), strict=False)
    ]
