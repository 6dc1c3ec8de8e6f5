"""Feature selection over many tasks as a method: choice of the algorithm, and the results of a fit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.group_lasso.on_rows import check_solvable
from ....storage.errors import Matrix
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step, ended_early
from ...inputs.labels import resolve_loss
from ...inputs.scores import model_values, scores_of
from ...inputs.tasks import TaskInputs, held_out_task_inputs, refuse_more_classes
from ...models.linear import LinearModel, raw_coefficients
from ...models.model import Tables
from ...models.tables import name_features
from .config import SelectorConfig
from .inputs import penalty_of
from .partial_fit import TaskLearner
from .problem import CUT_SHORT, BatchProblem, BatchState, SelectorProblem, choose_way
from .rounds_problem import RoundsProblem, SelectorState
from .working_problem import WorkingProblem, WorkingState

UNFINISHED = ("max_iter", "no_progress")  # reasons of a stop before the tolerance was reached
MAX_TASK_FEATURES = 40  # features whose weights a report shows by task

State = SelectorState | BatchState | WorkingState


class Selector(Method[SelectorConfig, Any, Any, LinearModel]):
    """Linear models for many tasks, which select their features jointly."""

    name = "multitask-selector"
    config = SelectorConfig
    models = (LinearModel,)
    programs = "methods.multitask_selector.norms_pass"

    def read_inputs(self, config: SelectorConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[SelectorConfig, TaskInputs]:
        """Return the parameters, and the target, weights and tasks of a store; ``extra`` may contain ``test_share``."""
        return config, held_out_task_inputs(resources, self.name, extra)

    def problem(self, config: SelectorConfig, inputs: TaskInputs, resources: Resources) -> SelectorProblem:
        """Return the problem of a fit; an automatic lam of a batch is computed in its first step. Raises ValueError for a loss that does
        not suit the target, DataError if no row has positive weight, and MemoryBoundExceeded if weights and rows or columns exceed the
        driver's memory.
        """
        config = config.resolved()
        refuse_more_classes(inputs)
        resolve_loss(config.loss, inputs.classes, ["squared"], ["logistic", "hinge"])
        if config.algorithm == "fista":
            check_solvable(config.loss, penalty_of(config, 1))
        way = choose_way(inputs.data, inputs.n_tasks, config, resources.driver_memory)
        batch = WorkingProblem if way == "working_set" else BatchProblem
        return (batch if config.algorithm == "fista" else RoundsProblem)(config, inputs, resources, way)

    def init(self, problem: SelectorProblem, resources: Resources) -> State:
        """Return the initial state, with zero weights."""
        return problem.init(resources)

    def step(self, problem: SelectorProblem, state: State, resources: Resources) -> Step[State]:
        """Return the state after some more rounds, sweeps or steps."""
        return problem.step(state, resources)

    def result(self, problem: SelectorProblem, state: State, resources: Resources) -> Result[LinearModel]:
        """Return the model with the last weights, with the certificate of a batch; intercepts include the offsets of the tasks."""
        solution, data, inputs = problem.solution(state), problem.data, problem.inputs
        scale, (lam, largest) = data.scale, problem.penalties(state)
        coef, intercepts = raw_coefficients(solution.weights, solution.intercepts + data.offsets, scale.factor, scale.shift)
        count = state.t if isinstance(state, SelectorState) else state.sweeps
        converged = state.stop not in UNFINISHED and np.isfinite(solution.gap)
        figures = {"objective": solution.objective, "gap": solution.gap, "iterations": float(count)}
        figures |= {"converged": float(converged), "lam": lam, "lambda_max": largest}
        model = _linear_model(problem.config, inputs.names, inputs.classes, coef, intercepts, figures)
        model = replace(model, row_scaled=inputs.data.scale.kind == "unit-row", arrays={"offsets": data.offsets})
        model = model.scaled_by(scale.factor)
        gap = solution.gap if np.isfinite(solution.gap) else None
        return Result(
            model,
            state.stop,
            objective=solution.objective,
            gap=gap,
            certified_over="" if gap is None else ("all features", "the selected features")[min(state.phase, 1)],
            figures={
                problem.counter: int(count),
                "lam": lam,
                "n_selected": len(model.features),
                "nonzeros": int(np.count_nonzero(selected_weights(model))),
                "n_tasks": len(model.intercepts),
                "classes": None if model.classes is None else list(model.classes),
            },
            warnings=_warnings(problem, model),
            unfinished="" if gap is None else _unfinished(problem.config, state),
            scores=partial(self._scores_at_hand, problem, model, resources),
        )

    def _scores_at_hand(self, problem: SelectorProblem, model: LinearModel, resources: Resources) -> dict[str, Any]:
        return scores_of(problem.inputs.labelled, _own_values(problem.inputs, model, resources))

    def decision_values(self, problem: SelectorProblem, state: Any, resources: Resources) -> np.ndarray:
        """Return the decision value of each row, by the model of its task, ``(1, n_samples)``."""
        return _own_values(problem.inputs, self.result(problem, state, resources).model, resources)

    def tables(self, model: LinearModel, names: Sequence[str] | None = None, fit: tuple[SelectorProblem, Any] | None = None) -> Tables:
        """Return the features by the norm of their weights over tasks, and their weights by task. If the fit is given, also the tasks, and
        the steps of a stream.
        """
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
        tables = {"selected": selected, "task_features": by_task}
        if fit is None:
            return tables
        problem, state = fit
        data, tasks, counts = problem.data, problem.inputs.names, np.count_nonzero(selected_weights(model), axis=1)
        sizes = np.bincount(data.codes, data.weight > 0, len(tasks))
        rows = [
            {"task": name, "rows": int(sizes[q]), "features": int(counts[q]), "intercept": float(model.intercepts[q])}
            for q, name in enumerate(tasks)
        ]
        steps = {"stream": problem.regret_curve(state)} if isinstance(problem, RoundsProblem) else {}
        return {**tables, "tasks": rows, **steps}


def _own_values(inputs: TaskInputs, model: LinearModel, resources: Resources) -> np.ndarray:
    values = model_values(inputs, replace(model, tasks_json="null"), resources)
    return np.take_along_axis(values.T, inputs.codes[:, None], axis=1).T


def _unfinished(config: SelectorConfig, state: Any) -> str:
    reason = "rounding" if state.stop == "no_progress" else "max_iter={0.max_iter}"
    if state.phase == CUT_SHORT:
        ended = f"{reason.format(config)} ended the selection before tol={config.tol:g} was reached"
        return f"{ended}; the second fit is on the features it had by then"
    return ended_early(config, reason)


def _warnings(problem: SelectorProblem, model: LinearModel) -> list[str]:
    """Return warnings: steps that were too long, or no feature selected."""
    lam = model.figures["lam"]
    if isinstance(problem, RoundsProblem) and problem.watch.message:
        return [problem.watch.message]
    if lam == 0 or len(model.features):
        return []
    return [f"lam={lam:g} selects no feature: every weight is zero; choose a smaller one"]


def stream_model(config: SelectorConfig, learner: TaskLearner, names: Sequence[Any], classes: Sequence[Any] | None) -> LinearModel:
    """Return the model of a stream whose rows are no longer available, so that its objective is unknown."""
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
