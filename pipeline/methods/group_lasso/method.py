"""The group lasso as a method, on a stream of rows or as a batch; the parameters decide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.labels import Inputs
from ...inputs.scores import model_values, scores_of
from ...models.linear import LinearModel
from ...models.model import Tables
from ...models.tables import name_features, weights_by_label
from .batch_problem import BatchProblem
from .batch_terms import BatchState
from .config import GroupLassoConfig
from .inputs import read_store
from .learners import LearnerFactory, selected_figures
from .measures import regret_rows
from .stream_problem import GridProblem, GridState, StreamProblem, StreamState, fits_in_a_pass, grid_fits
from .text import TextData, read_text
from .text_problem import TextProblem

MAX_TABLE_ROWS = 1000  # features and groups in the report's tables

Problem = BatchProblem | StreamProblem | TextProblem | GridProblem
State = BatchState | StreamState | GridState


class GroupLasso(Method[GroupLassoConfig, Problem, State, LinearModel]):
    """Linear models with a few groups of features. A step is one round over all rows of a batch, or some further rows of a stream."""

    name = "group-lasso"
    config = GroupLassoConfig
    models = (LinearModel,)
    programs = "methods.group_lasso.moments_pass"

    def read_inputs(self, config: GroupLassoConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[GroupLassoConfig, Inputs]:
        """Return the parameters, and the target, weights and groups of a store or text. ``extra`` may contain ``groups`` or ``edges``, and
        ``test_share``.

        Raises DataError if there is no target or a single class. Raises ValueError for a text if a parameter needs all rows at once.
        """
        data: object = resources.data
        return config, read_text(config, data, extra) if isinstance(data, TextData) else read_store(resources, extra)

    def problem(self, config: GroupLassoConfig, inputs: Inputs, resources: Resources) -> Problem:
        """Return the problem that the parameters select. Raises an error for unsuitable parameters, and if the driver's memory would be
        exceeded.
        """
        is_text = isinstance(inputs.data, TextData)
        config = config.resolved(is_stream=is_text)
        if config.algorithm == "fista":
            return BatchProblem.of(config, inputs, resources)
        return (TextProblem if is_text else StreamProblem)(config, inputs, resources)

    def init(self, problem: Problem, resources: Resources) -> State:
        """Return the initial state, with zero weights."""
        return problem.init(resources)

    def step(self, problem: Problem, state: Any, resources: Resources) -> Step[Any]:
        """Return the state after one more round over all rows, or after some more rows of a stream."""
        return problem.step(state, resources)

    def result(self, problem: Any, state: Any, resources: Resources) -> Result[LinearModel]:
        """Return the model and, for a batch, its certificate. The model of a stream is the model of the last round, or the mean of all
        iterates.
        """
        if isinstance(problem, BatchProblem):
            return problem.result(state, resources)
        mean_loss = state.ended.sum() / state.along[:, 2].sum() if len(state.ended) else float("nan")
        inputs, n_rows = problem.inputs, int(state.along[:, 0].sum())
        model = problem.learners.model(state.point, inputs.classes, inputs.data.scale, n_rows, mean_loss)
        figures, objective = state.metrics(), model.figures["objective"]
        counts = {"rows": figures["rows"], "rounds": int(model.figures["rounds"]), "epochs": state.epoch}
        return Result(
            model,
            state.stop,
            objective=objective if np.isfinite(objective) else None,
            figures={"mean_loss": figures["mean_loss"], **counts, **selected_figures(model)},
            warnings=[problem.too_long] if problem.too_long else [],
            unfinished="",
            scores=partial(self._scores_at_hand, problem, model, resources),
        )

    def _scores_at_hand(self, problem: Problem, model: LinearModel, resources: Resources) -> dict[str, Any]:
        return scores_of(problem.inputs.labelled, model_values(problem.inputs, model, resources))

    def decision_values(self, problem: Problem, state: Any, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``, ordered by fit."""
        if isinstance(problem, BatchProblem | GridProblem):
            return problem.decision_values(state, resources)
        return super().decision_values(problem, state, resources)

    def selected(self, problem: Problem, state: Any, resources: Resources) -> Sequence[float]:
        """Return the number of selected features of every fit."""
        return problem.selected(state) if isinstance(problem, GridProblem) else super().selected(problem, state, resources)

    def shared_fits(
        self, configs: Sequence[GroupLassoConfig], inputs: Inputs, masks: Sequence[np.ndarray], resources: Resources
    ) -> GridProblem | None:
        """Return one problem for all fits on a stream, which reads each block of rows once; None for a batch, or for too little memory."""
        if not all(config.learns_from_stream for config in configs):
            return None
        factories = [LearnerFactory.create(config, inputs, int(inputs.data.n_cols)) for config in configs]
        largest = max(learners.state_bytes for learners in factories)
        if fits_in_a_pass(largest, len(masks), resources.driver_memory) < len(configs):
            return None
        return GridProblem([fit for learners in factories for fit in grid_fits(learners, inputs, masks)], inputs, resources.driver_memory)

    def follow_path(self, problem: Problem, before: Problem | None) -> None:
        """Reuse the moments and columns of the problem ``before``, which has the same rows."""
        if isinstance(problem, BatchProblem) and isinstance(before, BatchProblem):
            problem.take_over(before)

    def restart(self, problem: Problem, fresh: Any, before: Problem, last: Any) -> State:
        """Return the initial state of a batch fit with the groups and weights of the previous fit. A stream starts anew."""
        return problem.continued(fresh, last) if isinstance(problem, BatchProblem) else fresh

    def tables(self, model: LinearModel, names: Sequence[str] | None = None, fit: tuple[Problem, Any] | None = None) -> Tables:
        """Return the selected features, in descending order of the weights of scaled columns, and the selected groups. If the fit is given,
        also the certificates of a batch, or the stream step by step.
        """
        features, labels = model.features, json.loads(model.classes_json)
        texts = name_features(features, names)
        weights = model.scaled_weights()
        rows: list[dict[str, Any]] = []
        for j in np.lexsort((features, -np.abs(weights).sum(axis=0)))[:MAX_TABLE_ROWS]:
            rows.append({"feature": texts[j], **weights_by_label(weights[:, j], labels)})
        tables = {"selected": rows, "groups": _group_rows(model)}
        if fit is None:
            return tables
        problem, state = fit
        own = problem.tables(state, model) if isinstance(problem, BatchProblem) else {"stream": regret_rows(state.along, state.ended)}
        return {**own, **tables}


def _group_rows(model: LinearModel) -> list[dict[str, Any]]:
    """Return the groups with non-zero weight: the label and, if the model stores them, the norm of the weights and the number of
    features.
    """
    labels = model.arrays["active_groups"][:MAX_TABLE_ROWS].tolist()
    if "group_norms" not in model.arrays:
        return [{"group": label} for label in labels]
    norms, sizes = model.arrays["group_norms"].tolist(), model.arrays["group_sizes"].tolist()
    return [{"group": label, "norm": norm, "size": size} for label, norm, size in zip(labels, norms, sizes, strict=False)]
