"""The group lasso as a method: two engines, on a stream of rows or as a batch, which the parameters choose."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from ....storage.ingest.text.svmlight import PIECE
from ...core.memory import check_memory, driver_plan
from ...inputs.labels import Inputs, row_weights
from ...inputs.scores import fit_tracker
from ...method import Method, name_features, weights_by_label
from ...models.linear import LinearModel
from ...models.linear_predict import LinearPredictor
from ...passes.blocks import column_tasks
from ...passes.columns import columns_bytes
from ...passes.rows import NEEDS_ROWS
from ...records.context import RunContext
from ...records.data_set import source_names
from .batch_loop import BatchLoop
from .batch_problem import BatchProblem, BatchState, auto_share
from .config import GroupLassoConfig
from .grid_loop import GridLoop, GridState, fits_in_a_pass, grid_fits
from .inputs import build_penalty, fit_loss, machine_targets, read_store
from .learners import LearnerFactory, build_model, group_arrays
from .measures import regret_rows
from .memory import FEWER_COLUMNS, batch_items, resolve_engine, stream_items
from .moments_pass import columns_at_once, moment_bytes, raw_moments_pass, row_refs, slopes_pass
from .stream_loop import StreamLoop
from .stream_state import StreamState
from .text import TextData, read_text
from .text_loop import TextLoop

MAX_TABLE_ROWS = 1000  # features and groups in the report's tables


class GroupLasso(Method):
    """Linear machines with few groups of features: what both engines share; :meth:`start` chooses."""

    name = "group-lasso"
    config_type = GroupLassoConfig
    models = {LinearModel: LinearPredictor()}
    fold_tols = {"tol": 1e-2}
    programs = "methods.group_lasso.moments_pass"

    config: GroupLassoConfig
    inputs: Inputs

    @classmethod
    def read_inputs(cls, config: GroupLassoConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[GroupLassoConfig, Inputs]:
        """Return parameters, and target, weights and groups of a store or text. ``extra`` may hold ``groups`` or ``edges``,
        ``test_share`` and ``held_out``. Raises DataError: no target, or one class only; ValueError: a parameter that needs all rows at
        once, and a text.
        """
        data: object = ctx.data
        return config, read_text(config, data, extra) if isinstance(data, TextData) else read_store(ctx, extra)

    @classmethod
    def start(cls, config: GroupLassoConfig, inputs: Inputs, ctx: RunContext) -> Self:
        """Return the engine of the parameters, ready to run on inputs."""
        resolved = config.resolved(is_stream=isinstance(inputs.data, TextData))
        engine: Any = ENGINES[resolved.algorithm]
        return engine(resolved, inputs, engine.build_loop(resolved, inputs, ctx), ctx)

    @classmethod
    def is_logistic(cls, config: GroupLassoConfig) -> bool:
        """Return whether the loss of classes is the logistic one, which it is where nothing else is said."""
        return config.loss in ("auto", "logistic")

    @classmethod
    def shared_fits(cls, configs: Sequence[GroupLassoConfig], inputs: Inputs, masks: Sequence[np.ndarray], ctx: RunContext) -> Self | None:
        """Return one run of fits without the rows of every mask, which read every block of rows once, of a stream; else ``None``."""
        if len(configs) > 1:
            return None
        config = configs[0]
        learners = None if config.resolved().algorithm == "fista" else LearnerFactory.create(config, inputs, int(inputs.data.n_cols))
        if learners is None or not fits_in_a_pass(learners.state_bytes, len(masks), ctx.driver_memory):
            return None
        engine: Any = StreamFolds
        return engine(config, inputs, GridLoop(grid_fits(learners, inputs, masks), inputs, ctx.driver_memory), ctx)

    def _selected_figures(self, model: LinearModel) -> dict[str, Any]:
        return {"n_selected": len(model.features), "n_groups": len(model.arrays["active_groups"]), "n_features": model.n_features}

    def _selected_tables(self, model: LinearModel) -> dict[str, list[dict[str, Any]]]:
        return self.model_tables(model, source_names(self.ctx.data))

    @classmethod
    def model_tables(cls, model: LinearModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return the tables of selected features, largest weights of scaled columns first, and of selected groups."""
        features, labels = model.features, json.loads(model.classes_json)
        texts = name_features(features, names)
        weights = model.scaled_weights()
        rows: list[dict[str, Any]] = []
        for j in np.lexsort((features, -np.abs(weights).sum(axis=0)))[:MAX_TABLE_ROWS]:
            rows.append({"feature": texts[j], **weights_by_label(weights[:, j], labels)})
        return {"selected": rows, "groups": _group_rows(model)}


def _group_rows(model: LinearModel) -> list[dict[str, Any]]:
    """Return the groups with a weight: their label and, of models that have it, the length of their weights and their features."""
    labels = model.arrays["active_groups"][:MAX_TABLE_ROWS].tolist()
    if "group_norms" not in model.arrays:
        return [{"group": label} for label in labels]
    norms, sizes = model.arrays["group_norms"].tolist(), model.arrays["group_sizes"].tolist()
    return [{"group": label, "norm": norm, "size": size} for label, norm, size in zip(labels, norms, sizes, strict=False)]


class StreamGroupLasso(GroupLasso):
    """``algorithm="da"`` and ``"fobos"``: rows are learnt as they come, of a store, of arrays, or of a text."""

    loop: StreamLoop | TextLoop

    @classmethod
    def build_loop(cls, config: GroupLassoConfig, inputs: Inputs, ctx: RunContext) -> StreamLoop | TextLoop:
        """Return the loop of a fit on a stream. What does not suit is refused, and weights or made rows beyond what the driver may hold."""
        data = inputs.data
        is_text = isinstance(data, TextData)
        loop = TextLoop(config, inputs) if is_text else StreamLoop(config, inputs, ctx.fit_limit)
        has_rows = is_text or "rows" in getattr(data.meta, "layouts", ("rows",))
        remedy = "algorithm='fista', fewer features" if has_rows else NEEDS_ROWS
        check_memory(cls.name, stream_items(loop.learners, data), ctx, remedy)
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Blocks per epoch, bytes read, memory of the state."""
        loop, config, data = self.loop, self.config, self.inputs.data
        learners, held = loop.learners, driver_plan(stream_items(loop.learners, data))
        sizes = {"algorithm": config.algorithm, "machines": learners.n_machines, "groups": learners.penalty.n_groups}
        plan = {**held, **sizes, "state_bytes": int(learners.state_bytes), "task_bytes": 0}
        if isinstance(loop, TextLoop):
            return {**plan, "rows_from": "standard input" if data.url == "-" else "text", "text_bytes_per_step": PIECE}
        rounds = config.epochs * -(-int(np.count_nonzero(loop.weight > 0)) // config.batch_size)
        epochs = {"epochs": config.epochs, "rounds_at_most": rounds}
        epochs |= {"bytes_read_per_epoch": int(sum(ref.nbytes for ref in data.column_blocks()))}
        return {**plan, "rows_from": "row blocks" if "rows" in data.meta.layouts else "columns, made into rows once", **epochs}

    def model(self, state: StreamState, ctx: RunContext) -> LinearModel:
        """Return the model of the newest round, or of the mean of all iterates."""
        mean_loss = state.ended.sum() / state.along[:, 2].sum() if len(state.ended) else float("nan")
        n_rows = int(state.along[:, 0].sum())
        return self.loop.learners.model(state.point, self.inputs.classes, ctx.data.scale, n_rows, mean_loss)

    def summary(self, state: StreamState, model: LinearModel) -> dict[str, Any]:
        """Return losses, rounds, and what was selected; a stream has no certificate."""
        figures, objective = state.metrics(), model.figures["objective"]
        losses = {"objective": objective if np.isfinite(objective) else None, "gap": None, "mean_loss": figures["mean_loss"]}
        counts = {"rows": figures["rows"], "rounds": int(model.figures["rounds"]), "epochs": state.epoch}
        end = {"stop": state.stop, "classes": json.loads(model.classes_json)}
        return {**losses, **counts, **self._selected_figures(model), **end}

    def warnings(self, state: StreamState, model: LinearModel, ctx: RunContext) -> list[str]:
        """Return that steps were too long."""
        return [self.loop.too_long] if self.loop.too_long else []

    def tables(self, state: StreamState, model: LinearModel) -> dict[str, list[dict[str, Any]]]:
        """Return the stream step by step, selected features with their weights, selected groups."""
        return {"stream": regret_rows(state.along, state.ended), **self._selected_tables(model)}


class StreamFolds(GroupLasso):
    """Fits on a stream without some rows each, which read every block of rows once."""

    loop: GridLoop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Memory of all learners together."""
        fits = self.loop.grid_fits
        return {**driver_plan(stream_items(fits[0].learners, self.inputs.data, len(fits))), "task_bytes": 0}

    def decision_values(self, state: GridState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``, fit after fit."""
        return self.loop.decision_values(state)


class BatchGroupLasso(GroupLasso):
    """``algorithm="fista"``: the optimum over all rows, with its duality gap."""

    loop: BatchLoop

    @classmethod
    def build_loop(cls, config: GroupLassoConfig, inputs: Inputs, ctx: RunContext) -> BatchLoop:
        """Return the loop of a batch fit. What does not suit is refused, and weights, vectors and first columns beyond what the driver may
        hold.
        """
        penalty, labels = build_penalty(config, int(inputs.data.n_cols), inputs.groups)
        weight, loss = row_weights(config, inputs), fit_loss(config, inputs.classes)
        if config.lam == 0:
            raise ValueError(f"lam={config.lam!r}: algorithm='fista' needs a penalty; without one there is no certificate")
        targets, cost, tracker = machine_targets(inputs), weight / weight.sum(), fit_tracker(inputs, inputs.held_out)
        limits = config.fit_intercept, config.tol, config.max_iter
        lam, share = (None, auto_share(weight.sum(), penalty.n_groups)) if config.lam == "auto" else (config.lam, math.nan)
        problem = BatchProblem(targets, cost, loss, penalty, lam, *limits, lam_share=share, tracker=tracker)
        items = batch_items(inputs.data, inputs.n_machines, _batch_engine(problem, inputs, ctx))
        check_memory(cls.name, items, ctx, FEWER_COLUMNS)
        return BatchLoop(problem, labels)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Engine, tasks of a pass, bytes read, memory of a task."""
        problem, data = self.loop.problem, self.ctx.data
        engine, machines = _batch_engine(problem, self.inputs, self.ctx), len(problem.targets)
        rows, columns = row_refs(data), column_tasks(data)
        stripes = [ref.nbytes for task in columns for ref in task]
        method = {"algorithm": "fista", "engine": engine, "machines": machines, "groups": problem.penalty.n_groups}
        plan = {**driver_plan(batch_items(data, machines, engine)), **method}
        if engine == "gram":
            passes = {"passes_at_most": 1, "tasks_per_pass": len(rows), "bytes_read_per_pass": int(sum(stripes))}
            return {**plan, **passes, "task_bytes": self._step(engine), "moment_bytes": moment_bytes(data, machines)}
        passes = {"passes_at_most": problem.max_iter, "tasks_per_pass": len(columns), "bytes_read_per_pass": int(sum(stripes))}
        return {**plan, **passes, "task_bytes": self._step(engine)}

    def _step(self, engine: str) -> int:
        """Return the bytes of the largest step: of moments, or slopes, and of columns that are fetched."""
        data, machines = self.ctx.data, len(self.loop.problem.targets)
        # A set may come to all columns that the driver may hold twice; decisions fetch those with weights some at a time.
        count, most = data.n_cols, self.ctx.fit_limit // 2
        if engine == "gram":
            count = columns_at_once(data.n_rows, self.ctx.driver_memory)
        work = raw_moments_pass(data, machines) if engine == "gram" else slopes_pass(data, machines)
        return max(0 if engine == "fista" else work.memory_bound, columns_bytes(data, count, most))

    def follow_path(self, before: BatchGroupLasso | None) -> None:
        """Take over the moments of the rows."""
        if before is not None:
            self.loop.take_over(before.loop)

    def warm_start(self, fresh: BatchState, before: BatchGroupLasso, last: BatchState) -> BatchState:
        """Return the groups and weights that the fit before ended with."""
        return self.loop.continued(fresh, last)

    def decision_values(self, state: BatchState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return self.loop.decision_values(state, ctx)

    def scores_at_hand(self, state: BatchState, model: LinearModel, ctx: RunContext, rows: Inputs) -> dict[str, Any]:
        """Return R2 from the moments of the rows, where these are held and count alike; else what decisions on all rows say."""
        has_alike = rows.classes is None and rows.sample_weight is None
        explained = self.loop.explained_share(state) if has_alike else None
        if explained is None:
            return super().scores_at_hand(state, model, ctx, rows)
        return {"train_r2": explained, "n_answers": 2 if len(model.features) else 1}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        return ("second moments of rows",) if self.plan["engine"] == "gram" else ("gradients of features",)

    def model(self, state: BatchState, ctx: RunContext) -> LinearModel:
        """Return the model of the last state, for columns without scaling."""
        result = self.loop.result(state)
        figures = {"objective": result.objective, "gap": result.gap, "lambda_max": result.lambda_max, "lam": result.lam}
        figures |= {"rounds": float(state.iteration), "converged": float(result.converged)}
        active = np.unique(np.concatenate(result.active))
        groups = group_arrays(self.loop.problem.penalty, self.loop.labels, active, result.weights)
        return build_model(self.config, self.inputs.classes, ctx.data.scale, result.weights, result.biases, figures, groups)

    def warnings(self, state: BatchState, model: LinearModel, ctx: RunContext) -> list[str]:
        """Return whether nothing is selected."""
        if len(model.features):
            return []
        lam, largest = model.figures["lam"], model.figures["lambda_max"]
        return [f"nothing is selected: lam={lam:g}, and lam_max={largest:g} is the least that selects nothing"]

    def summary(self, state: BatchState, model: LinearModel) -> dict[str, Any]:
        """Return the certificate, and what was selected."""
        figures, stop = model.figures, "tol" if state.stop == "gap" else state.stop
        certificate = {"objective": figures["objective"], "gap": figures["gap"], "certified_over": "all groups"}
        engine = {"lambda_max": figures["lambda_max"], "lam": figures["lam"], "engine": state.engine}
        return {**certificate, **engine, **self._selected_figures(model), "stop": stop, "classes": json.loads(model.classes_json)}

    def tables(self, state: BatchState, model: LinearModel) -> dict[str, list[dict[str, Any]]]:
        """Return the certificate of every machine, selected features and groups."""
        classes = json.loads(model.classes_json)
        labels = classes if classes is not None and len(state.machines) > 1 else [None] * len(state.machines)
        rows: list[dict[str, Any]] = []
        for label, machine in zip(labels, state.machines, strict=True):
            certificate = {"objective": machine.objective, "gap": machine.gap, "lambda_max": machine.lambda_max}
            end = {"groups in the set": len(machine.groups), "stop": machine.stop}
            rows.append({**({} if label is None else {"class": label}), **certificate, **end})
        return {"certificates": rows, **self._selected_tables(model)}


ENGINES: dict[str, type[GroupLasso]] = {"da": StreamGroupLasso, "fobos": StreamGroupLasso, "fista": BatchGroupLasso}


def _batch_engine(problem: BatchProblem, inputs: Inputs, ctx: RunContext) -> str:
    return resolve_engine(problem.engine, problem.loss, inputs.data, len(problem.targets), ctx.driver_memory)
