"""Feature selection over many tasks as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ....storage.errors import Matrix
from ...core.memory import check_memory, driver_plan
from ...inputs.labels import resolve_loss
from ...inputs.tasks import TaskInputs, held_out_task_inputs, refuse_more_classes, task_fit
from ...method import Method, name_features
from ...models.linear import LinearModel, raw_coefficients
from ...models.linear_predict import LinearPredictor
from ...passes.rows import NEEDS_ROWS, has_rows
from ...records.context import RunContext
from ...records.data_set import source_names
from .batch_loop import BatchLoop, BatchState
from .config import SelectorConfig
from .inputs import selector_data
from .memory import FEWER_COLUMNS, Way, choose_way, driver_items
from .partial_fit import TaskLearner
from .rounds_loop import RoundsLoop, SelectorState
from .rows import BlockRows
from .working_loop import WorkingLoop, WorkingState

UNFINISHED = ("max_iter", "no_progress")  # reasons of a stop before the tolerance was reached
MAX_TASK_FEATURES = 40  # features whose weights a report shows by task

State = SelectorState | BatchState | WorkingState
SelectorLoop = RoundsLoop | BatchLoop | WorkingLoop


class Selector(Method):
    """Linear machines of many tasks that choose their features together."""

    name = "multitask-selector"
    config_type = SelectorConfig
    models = {LinearModel: LinearPredictor()}
    programs = "methods.multitask_selector.norms_pass"

    config: SelectorConfig
    inputs: TaskInputs
    loop: Any  # (a SelectorLoop, each with its own state)

    @classmethod
    def read_inputs(cls, config: SelectorConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[SelectorConfig, TaskInputs]:
        """Return parameters, and target, weights and tasks of a store; ``extra`` may hold ``test_share``."""
        return config, held_out_task_inputs(ctx, cls.name, extra)

    @classmethod
    def decided(cls, config: SelectorConfig, inputs: TaskInputs, ctx: RunContext) -> SelectorConfig:
        """Return the parameters with the algorithm; the lam of a batch is found when it begins."""
        return config.resolved()

    @classmethod
    def build_loop(cls, config: SelectorConfig, inputs: TaskInputs, ctx: RunContext) -> SelectorLoop:
        """Return the loop of a fit. Raises ValueError: a loss that does not suit the target; DataError: no row has a positive weight;
        MemoryBoundExceeded: weights, and rows or columns, are more than the driver may hold.
        """
        refuse_more_classes(inputs)
        resolve_loss(config.loss, inputs.classes, ["squared"], ["logistic", "hinge"])
        way = _way(config, inputs, ctx)
        items = driver_items(inputs.data, inputs.n_tasks, config.algorithm, ctx.driver_memory, way)
        remedy = "feed the rows in pieces with MultiTaskSelector.partial_fit"
        if way != "memory":
            remedy = FEWER_COLUMNS if way == "working_set" else remedy if has_rows(inputs.data) else f"{NEEDS_ROWS}, {remedy}"
        check_memory(cls.name, items, ctx, remedy)
        data = selector_data(config, inputs)
        if config.algorithm == "da":
            return RoundsLoop(config, data, ctx.seed, BlockRows(data, ctx.driver_memory) if way == "blocks" else None)
        return WorkingLoop(config, data, ctx.driver_memory) if way == "working_set" else BatchLoop(config, data)

    @classmethod
    def prepare(cls, config: SelectorConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Self:
        """Return the method ready to run on ``ctx.data``; a run follows accuracy or R2, which takes decisions on all rows."""
        run = super().prepare(config, ctx, extra)
        run.loop.trackers = (task_fit(run.inputs),)
        return run

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Which way the fit goes, steps, rounds or sweeps, memory."""
        way = _way(self.config, self.inputs, self.ctx)
        items = driver_items(self.inputs.data, self.inputs.n_tasks, self.config.algorithm, self.ctx.driver_memory, way)
        return {"learning_tasks": self.inputs.n_tasks, "task_bytes": 0, "engine": way, **driver_plan(items), **self.loop.plan}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do: of a working set the passes over all features; rounds, and rows in memory, are the work of one process."""
        return ("gradients of the tasks, feature by feature",) if self.plan["engine"] == "working_set" else ()

    def model_values(self, model: LinearModel, ctx: RunContext) -> np.ndarray:
        """Return the decision value of each row's task, ``(1, n_samples)``."""
        values = super().model_values(replace(model, tasks_json="null"), ctx)
        return np.take_along_axis(values.T, self.inputs.codes[:, None], axis=1).T

    def values_at_hand(self, state: State, model: LinearModel, ctx: RunContext) -> np.ndarray:
        """Return the decision values of the model."""
        return self.model_values(model, ctx)

    def model(self, state: State, ctx: RunContext) -> LinearModel:
        """Return the model of the last weights; intercepts hold the offsets of the tasks."""
        solution, data = self.loop.solution(state), self.loop.data
        scale, intercepts = data.scale, solution.intercepts + data.offsets
        coef, intercepts = raw_coefficients(solution.weights, intercepts, scale.factor, scale.shift)
        iterations, converged = float(self.loop.count(state)), float(state.stop not in UNFINISHED and np.isfinite(solution.gap))
        figures = {"objective": solution.objective, "gap": solution.gap, "iterations": iterations, "converged": converged}
        known = (float(self.config.lam), np.nan) if isinstance(state, SelectorState) else (self.loop.lam(state), state.lambda_max)
        figures |= dict(zip(("lam", "lambda_max"), known, strict=True))
        model = _linear_model(self.config, self.inputs.names, self.inputs.classes, coef, intercepts, figures)
        model = replace(model, row_scaled=self.inputs.data.scale.kind == "unit-row", arrays={"offsets": data.offsets})
        return model.scaled_by(scale.factor)

    def warnings(self, state: State, model: LinearModel, ctx: RunContext) -> list[str]:
        """Return that steps were too long, or that nothing was selected."""
        lam = model.figures["lam"]
        if isinstance(self.loop, RoundsLoop) and self.loop.watch.message:
            return [self.loop.watch.message]
        if lam == 0 or len(model.features):
            return []
        return [f"lam={lam:g} selects no feature: every weight is zero; choose a smaller one"]

    def summary(self, state: State, model: LinearModel) -> dict[str, Any]:
        """Return the certificate of a batch, and what was selected."""
        gap = model.figures["gap"] if np.isfinite(model.figures["gap"]) else None
        return {
            "objective": model.figures["objective"],
            "gap": gap,
            "certified_over": None if gap is None else ("all features", "the selected features")[min(state.phase, 1)],
            self.loop.counter: int(model.figures["iterations"]),
            "lam": model.figures["lam"],
            "n_selected": len(model.features),
            "nonzeros": int(np.count_nonzero(selected_weights(model))),
            "n_tasks": len(model.intercepts),
            "stop": state.stop,
            "classes": None if model.classes is None else list(model.classes),
        }

    def tables(self, state: State, model: LinearModel) -> dict[str, list[dict[str, Any]]]:
        """Return features by the norm of their weights over tasks, their weights by task, the tasks; of a stream also its steps."""
        data, tasks, counts = self.loop.data, self.inputs.names, np.count_nonzero(selected_weights(model), axis=1)
        sizes = np.bincount(data.codes, data.weight > 0, len(tasks))
        rows = [
            {"task": name, "rows": int(sizes[q]), "features": int(counts[q]), "intercept": float(model.intercepts[q])}
            for q, name in enumerate(tasks)
        ]
        return {**self.model_tables(model, source_names(self.ctx.data)), "tasks": rows, **self.loop.tables(state)}

    @classmethod
    def model_tables(cls, model: LinearModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return features by the norm of their weights over tasks, and their weights by task."""
        features, weights = model.features, model.scaled_weights()
        texts, norms = name_features(features, names), np.sqrt(np.square(weights).sum(axis=0))
        order = np.lexsort((features, -norms))
        selected = [
            {"feature": texts[k], "column": int(features[k]), "norm": float(norms[k]), "tasks": int(np.count_nonzero(weights[:, k]))}
            for k in order
        ]
        by_task = [
            {"task": name, **{texts[k]: float(weights[q, k]) for k in order[:MAX_TASK_FEATURES]}}
            for q, name in enumerate(model.tasks or ())
            if len(order)
        ]
        return {"selected": selected, "task_features": by_task}


def _way(config: SelectorConfig, inputs: TaskInputs, ctx: RunContext) -> Way:
    """Return the way that a run was decided to go, or goes if it begins now."""
    decided = None if ctx.scratch is None else ctx.scratch.read_json("decisions")
    if isinstance(decided, dict):
        return decided.get("engine", "memory")  # (runs of earlier versions have all rows in memory)
    if config.loss == "hinge" and config.algorithm == "fista":
        return "working_set"  # a path takes the moments of its features at every step: the fewer the better
    return choose_way(inputs.data, inputs.n_tasks, config.algorithm, ctx.driver_memory)


def stream_model(config: SelectorConfig, learner: TaskLearner, names: Sequence[Any], classes: Sequence[Any] | None) -> LinearModel:
    """Return the model of a stream of rows that are gone: its objective is not known."""
    rounds, stream = learner.rounds, learner.stream
    figures = {"objective": np.nan, "gap": np.nan, "iterations": float(stream.t), "converged": 0.0, "lam": learner.rounds.lam}
    coef, intercepts = raw_coefficients(rounds.weights(stream), rounds.intercepts(stream), None, None)
    return _linear_model(config, names, classes, coef, intercepts, figures)


def _linear_model(
    config: SelectorConfig,
    names: Sequence[Any],
    classes: Sequence[Any] | None,
    coef: Matrix,
    intercepts: np.ndarray,
    figures: dict[str, float],
) -> LinearModel:
    classes_json, tasks_json = json.dumps(None if classes is None else list(classes)), json.dumps(list(names))
    return LinearModel(config.model_dump_json(), classes_json, tasks_json, coef.shape[1], coef, intercepts, figures=figures)


def selected_weights(model: LinearModel) -> np.ndarray:
    """Return the weights of the selected features, ``(n_tasks, n_selected)``."""
    weights: Matrix = model.coef[:, model.features]
    return weights.toarray() if sp.issparse(weights) else weights
