"""Memory plans of predictions, checked against the driver's memory before any work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...cluster import Executor, Plan
from ...storage import BlockStore, to_arrays
from ..core.memory import Item, driver_plan, process_plan, total_bytes
from ..core.resources import Emit, Resources
from ..models.model import Model

_OBJECT_BYTES = 40  # bytes of a number, or of a short label, as an object of Python with its place in a list


class _FirstPass(Exception):
    def __init__(self, work: Plan[Any]) -> None:
        super().__init__(str(work))
        self.work = work


class _Planning(Executor):
    """An executor for plans: it runs nothing, and stops at the first pass."""

    def run(self, plan: Plan[Any]) -> Any:
        raise _FirstPass(plan)


def predict_items(model: Model, data: BlockStore, out: str | None, labels: np.ndarray | None, proba: bool = False) -> tuple[Item, ...]:
    """Return the memory items of this process while it predicts or scores the rows of a store.

    ``out``: output path, whose file extension determines the format of the predictions; ``None`` for scores. ``labels``: the classes, or
    ``None``. ``proba``: whether class probabilities are computed.
    """
    n, m, c = data.n_rows, model.n_values, len(labels) if labels is not None and proba else 0
    size = 16 if labels is None else 24 + labels.itemsize
    table: list[Item] = []
    if out is None:
        table = [("target, predicted classes, and what metrics sort and count", (128 + 16 * m) * n)]
    elif Path(out).suffix.lower() in (".csv", ".parquet"):
        table = [("columns of the table, as they are written", _OBJECT_BYTES * n * (m + c + 2))]
    read = model.memory(data)
    # The table is made once what was read is gone, but both are held where a path is followed after it.
    last = [*read, *table] if out is None and model.keeps_path else max(read, table, key=total_bytes)
    letters = data.id_letters if out is not None else 0
    return (
        model_item(model),
        ("decision values, in parts and together", 24 * n * m),
        ("predictions, and numbers of rows", size * n),
        *([("what names the rows, where it is text", 80 * n + letters)] if letters else []),
        ("probabilities of the classes", 32 * n * c),
        *last,
    )


def model_item(model: object) -> Item:
    """Return the memory item of a model."""
    return "model, as stored and as read", 2 * sum(array.nbytes for array in to_arrays(model)[0].values())


def predict_plan(
    model: Model,
    data: BlockStore,
    items: Sequence[Item],
    limit: int,
    cluster: str,
    emit: Emit,
    covariates: Any = None,
) -> dict[str, Any]:
    """Return the number of tasks and the memory of predicting the rows of a store on a kind of ``cluster``. Nothing is computed.

    Raises ValueError if the data do not match the model.
    """
    work = first_pass(model, data, limit, emit, covariates)
    passes, step = 0 if work is None else len(model.fetched_bytes(data)), step_bytes(work)
    return {
        "rows": data.n_rows,
        "decision_values_per_row": model.n_values,
        "passes": passes,
        "tasks_per_pass": 0 if work is None else work.n_tasks,
        "task_bytes": step,
        **driver_plan(items),
        **process_plan(total_bytes(items), step, () if work is None else data, limit, cluster),
        "driver_memory": limit,
    }


def first_pass(model: Model, data: BlockStore, limit: int, emit: Emit, covariates: Any = None) -> Plan[Any] | None:
    """Return the first pass of a prediction without running it; ``None`` if the driver computes everything itself."""
    if not model.by_passes:
        return None
    return planned_pass(lambda resources: model.decision_values(data, resources, covariates=covariates), limit, emit)


def planned_pass(use: Callable[[Resources], Any], limit: int, emit: Emit) -> Plan[Any] | None:
    """Return the first pass of a function without running it; ``None`` if it has no pass, as for a model of intercepts alone."""
    try:
        use(Resources(_Planning(), driver_memory=limit, emit=emit))
    except _FirstPass as found:
        return found.work
    return None


def step_bytes(work: Plan[Any] | None) -> int:
    return 0 if work is None else work.memory_bound
