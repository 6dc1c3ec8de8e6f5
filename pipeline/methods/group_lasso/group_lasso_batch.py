"""``algorithm="fista"`` of the group lasso as a method of the runner: from data and parameters to the batch loop, and to a model."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from ....kernels.group_lasso.mean_losses import LossName
from ...inputs.labels import row_weights
from ...inputs.scores import AccuracyTracker, R2Tracker
from ...models.linear import LinearModel, raw_coefficients
from ...passes.blocks import column_tasks
from ...records.context import RunContext
from ...records.holdings import holdings_plan, refuse_beyond
from .batch import FEWER_COLUMNS, BatchLoop, BatchProblem, BatchState, chosen_engine, driver_held
from .config import GroupLassoConfig
from .inputs import GroupLassoInputs, loss_of, penalty_of
from .method import selected_tables
from .moments_pass import moment_bytes, row_refs


class GroupLassoBatch(BatchLoop):
    """The loop of a fit, with what its model is made of.

    Parameters
    ----------
    config
        Parameters.
    inputs
        Target, weights, groups.
    """

    def __init__(self, config: GroupLassoConfig, inputs: GroupLassoInputs) -> None:
        self.config, self.inputs = config, inputs
        penalty, self.labels = penalty_of(config, int(inputs.data.n_cols), inputs.groups)
        weight, targets = row_weights(config, inputs), inputs.targets
        loss: LossName = loss_of(config, inputs.classes)  # pyright: ignore[reportAssignmentType] (one of them)
        if not config.lam > 0:
            raise ValueError(f"lam={config.lam!r}: algorithm='fista' needs a penalty; without one there is no certificate")
        real = inputs.classes is None
        fit = R2Tracker(0, inputs.target, inputs.held_out) if real else AccuracyTracker(0, len(targets), inputs.target, inputs.held_out)
        self.problem = BatchProblem(
            targets,
            weight / weight.sum(),
            loss,
            penalty,
            config.lam,
            fit_bias=config.fit_intercept,
            tol=config.tol,
            max_iter=config.max_iter,
            fit=fit,
        )
        super().__init__(self.problem)


def build_loop(config: GroupLassoConfig, inputs: GroupLassoInputs, ctx: RunContext) -> GroupLassoBatch:
    """Return the loop of a batch fit.

    Raises
    ------
    DataError
        A class without weight.
    ValueError
        Groups or a loss that do not suit, or no penalty.
    gramplane.cluster.MemoryBoundExceeded
        Weights, vectors and the first columns are more than the driver may hold.
    """
    loop = GroupLassoBatch(config, inputs)
    held = driver_held(loop.problem, inputs.data, chosen_engine(loop.problem, ctx))
    refuse_beyond(held, ctx.driver_memory, "group-lasso", FEWER_COLUMNS)
    return loop


def model_of(loop: GroupLassoBatch, state: BatchState, ctx: RunContext) -> LinearModel:
    """Return the model of the last state, for columns as they were given."""
    found, classes, scale = loop.result(state), loop.inputs.classes, ctx.data.scale
    coef, intercepts = raw_coefficients(found.weights, found.biases, scale.factor, scale.shift)
    active = np.unique(np.concatenate(found.active))
    figures = {"objective": found.objective, "gap": found.gap, "lambda_max": found.lambda_max}
    return LinearModel(
        params_json=loop.config.model_dump_json(),
        classes_json=json.dumps(None if classes is None else list(classes)),
        tasks_json="null",
        n_features=int(ctx.data.n_cols),
        coef=coef,
        intercepts=intercepts,
        row_scaled=scale.kind == "unit-row",
        figures={**figures, "rounds": float(state.iteration), "converged": float(found.converged)},
        arrays={"active_groups": loop.labels[active]},
    )


def plan_of(loop: GroupLassoBatch, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: engine, tasks of a pass, bytes read, memory of a task."""
    data, engine = ctx.data, chosen_engine(loop.problem, ctx)
    rows, columns = row_refs(data), column_tasks(data)
    gram = engine == "gram"
    return {
        **holdings_plan(driver_held(loop.problem, data, engine)),
        "algorithm": "fista",
        "engine": engine,
        "machines": len(loop.problem.targets),
        "groups": loop.problem.penalty.n_groups,
        "passes_at_most": 1 if gram else loop.problem.max_iter,
        "tasks_per_pass": len(rows) if gram else len(columns),
        "bytes_read_per_pass": int(sum(ref.nbytes for task in columns for ref in task)),
        "task_bytes": int(max(3 * part.nbytes for part in rows) if gram else max(2 * ref.nbytes for task in columns for ref in task)),
        **({"moment_bytes": moment_bytes(data, len(loop.problem.targets))} if gram else {}),
    }


def summary(state: BatchState, model: LinearModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    return {
        "objective": model.figures["objective"],
        "gap": model.figures["gap"],
        "certified_over": "all groups",
        "lambda_max": model.figures["lambda_max"],
        "engine": state.engine,
        "n_selected": len(model.features),
        "n_groups": len(model.arrays["active_groups"]),
        "n_features": model.n_features,
        "stop": "tol" if state.stop == "gap" else state.stop,
        "classes": json.loads(model.classes_json),
    }


def tables(state: BatchState, model: LinearModel, names: list[str] | None) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: selected features and groups, and the certificate of every machine."""
    classes = json.loads(model.classes_json)
    named = classes if classes is not None and len(state.machines) > 1 else [None] * len(state.machines)
    rows = [
        {
            **({} if label is None else {"class": label}),
            "objective": machine.objective,
            "gap": machine.gap,
            "lambda_max": machine.lambda_max,
            "groups in the set": len(machine.groups),
            "stop": machine.stop,
        }
        for label, machine in zip(named, state.machines, strict=True)
    ]
    return {"certificates": rows, **selected_tables(model, names)}
