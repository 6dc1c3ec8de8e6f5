"""Decision values of rule ensembles: from arrays, or from a store by one column pass."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ....storage import BlockStore
from ...core.memory import Item
from ...inputs.tasks import known_codes, store_tasks
from ...models.predictor import Predictor, check_width, column_batches
from ...passes.columns import Columns
from ...records.context import RunContext
from .data import raw_columns, rule_flags
from .model import RuleModel
from .proposition_pass import dense_column


class RulePredictor(Predictor):
    """Rule ensembles: the columns that rules read come to the driver."""

    def decision_values(self, model: RuleModel, ctx: RunContext, task: ArrayLike | None = None) -> np.ndarray:
        """Return the votes of the rules that hold, ``(n_samples, n_machines)``; with tasks one value, that of the row's task.

        Raises ValueError: the data has another width than the training data, or a task that was not there at fit.
        """
        data = ctx.data
        check_width(model.n_features, False, data)
        raw = raw_columns(data, ctx, model.columns)
        unseen = unseen_values(model, raw)
        if unseen:
            ctx.emit({"event": "warning", "message": unseen_message(unseen)})
        values = rule_values(model, raw, data.n_rows)
        return of_tasks(model, values, store_tasks(data) if task is None and model.tasks is not None else task)

    def items(self, model: RuleModel, data: BlockStore) -> list[Item]:
        """Return the columns, and which rows satisfy which rule."""
        columns = "columns of the rules, side by side", 3 * sum(self.fetched_bytes(model, data))
        return [columns, ("which rows satisfy which rule, as truth values and numbers", 9 * data.n_rows * model.n_rules)]

    def fetched_bytes(self, model: RuleModel, data: BlockStore) -> list[int]:
        """Return the bytes of each pass over columns."""
        return column_batches(data, model.columns)


def rule_matrix(model: RuleModel, raw: Columns, n: int) -> np.ndarray:
    """Return which rows satisfy which rule, ``(n, n_rules)`` booleans, from the raw values of ``model.columns``."""
    items = [model.items(r).tolist() for r in range(model.n_rules)]
    return rule_flags(model.propositions, items, model.columns, raw, n)


def rule_values(model: RuleModel, raw: Columns, n: int) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values from the raw values of ``model.columns``."""
    return rule_matrix(model, raw, n).astype(np.float64) @ model.weights + model.intercepts


def unseen_values(model: RuleModel, raw: Columns) -> dict[int, int]:
    """Return how many values of each categorical column training did not have."""
    counts = {int(column): model.propositions.unseen(int(column), dense_column(raw, k)) for k, column in enumerate(model.columns)}
    return {column: count for column, count in counts.items() if count}


def of_tasks(model: RuleModel, values: np.ndarray, task: ArrayLike | None) -> np.ndarray:
    """Return the values of each row's task, ``(n, 1)``; all values where there are no tasks."""
    if model.tasks is None:
        if task is not None:
            raise ValueError("task is given; the model was fitted without tasks")
        return values
    codes = known_codes(task, model.tasks, len(values))
    return values[np.arange(len(values)), codes][:, None]


def unseen_message(unseen: dict[int, int]) -> str:
    """Return what to say of categories that training did not have."""
    return (
        f"{sum(unseen.values())} values of {len(unseen)} categorical columns (first: column {min(unseen)}) were not there at fit; every "
        "comparison with them is false"
    )
