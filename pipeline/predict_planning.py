"""What predicting takes, told and held against the driver's memory before any of it is done."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from ..cluster import Executor, Plan
from ..kernels import expansions
from ..storage import BlockStore, block_cache, to_arrays
from .methods.kernel_predict import ROWS
from .methods.social_strength_scores import USERS
from .passes.blocks import table_of
from .passes.columns import FETCH_BYTES, column_sizes
from .predict import PIECE_COLUMNS, decision_values
from .records.config import FGMConfig
from .records.context import Emit, RunContext
from .records.fgm import FGMModel
from .records.holdings import Holding, holdings_plan, total_bytes
from .records.linear_model import LinearModel
from .records.rule_model import RuleModel
from .records.social_model import SocialModel
from .records.spectral_model import SpectralModel
from .records.task_model import TaskModel

_OBJECT_BYTES = 40
"""Bytes of a number, or of a short label, as an object of Python with its place in a list."""


class _FirstPass(Exception):
    def __init__(self, work: Plan[Any]) -> None:
        super().__init__(str(work))
        self.work = work


class _Planning(Executor):
    """Runs nothing: the first pass that it is asked for ends the planning."""

    def run(self, plan: Plan[Any]) -> Any:
        raise _FirstPass(plan)


def predict_holdings(model: Any, data: BlockStore, out: str, labels: np.ndarray | None) -> list[Holding]:
    """Return what this process holds while it predicts the rows of a store.

    Parameters
    ----------
    model
        The saved model.
    data
        The store.
    out
        Where predictions go; its ending says in which form they are held last.
    labels
        The classes; ``None`` where there are none.
    """
    n, m = data.n_rows, _machines(model)
    size = 8 if labels is None else 16 + labels.itemsize
    table = []
    if Path(out).suffix.lower() in (".csv", ".parquet"):
        table = [Holding("columns of the table, as they are written", "40 n (m + 1)", _OBJECT_BYTES * n * (m + 1))]
    # What was read is gone when predictions are written.
    return [
        Holding("model, as stored and as read", "2 model", 2 * sum(array.nbytes for array in to_arrays(model)[0].values())),
        Holding("decision values, in parts and together", "24 n m", 24 * n * m),
        Holding("predictions", f"{size} n", size * n),
        *max(_read_here(model, data), table, key=total_bytes),
    ]


def predict_plan(model: Any, data: BlockStore, holdings: list[Holding], limit: int, cluster: str, emit: Emit) -> dict[str, Any]:
    """Return tasks and memory of predicting the rows of a store; nothing is computed.

    Parameters
    ----------
    model, data
        The saved model and the store.
    holdings
        What this process holds.
    limit
        Bytes it may hold.
    cluster
        Kind of cluster; with ``"sync"`` tasks run in this process.
    emit
        Sink of event records.

    Raises
    ------
    ValueError
        The data do not fit the model.
    """
    work = _first_pass(model, RunContext(_Planning(), data, None, limit, emit))
    passes = 0 if work is None else len(_batches(model, data))
    step = 0 if work is None else work.memory_bound
    read = 0 if work is None else sum(block.nbytes for block in data.column_blocks())
    here = total_bytes(holdings)
    if cluster == "sync":
        # Tasks run here, and blocks are kept for the next.
        here += step + min(read, block_cache().limit)
    return {
        "rows": data.n_rows,
        "decision_values_per_row": _machines(model),
        "passes": passes,
        "tasks_per_pass": 0 if work is None else work.n_tasks,
        "task_bytes": step,
        **holdings_plan(holdings),
        "process_bytes": here,
        "driver_memory": limit,
    }


def _first_pass(model: Any, ctx: RunContext) -> Plan[Any] | None:
    if isinstance(model, SocialModel | SpectralModel):
        return None  # the driver reads and computes all by itself
    try:
        decision_values(model, ctx)
    except _FirstPass as found:
        return found.work
    return None  # a model of intercepts alone


def _machines(model: Any) -> int:
    """Return the decision values of a row."""
    if isinstance(model, TaskModel):
        return 1
    if isinstance(model, SocialModel):
        return model.n_train
    if isinstance(model, SpectralModel):
        return model.predictions().shape[1]
    return len(model.intercepts)


# -- what is read here, by model -----------------------------------------------------------------------------------------------


@singledispatch
def _read_here(model: Any, data: BlockStore) -> list[Holding]:
    """Machines on kernels: workers read the rows, and decision values come back."""
    return []


@singledispatch
def _features(model: Any) -> np.ndarray:
    """Return the columns of the store that come to the driver."""
    return np.zeros(0, np.int64)


@_features.register
def _(model: FGMModel | LinearModel) -> np.ndarray:
    return model.features


@_features.register
def _(model: RuleModel) -> np.ndarray:
    return model.columns


def _batches(model: Any, data: BlockStore) -> list[int]:
    """Return the bytes of each pass over columns; a model that reads rows has one pass."""
    features = _features(model)
    step = PIECE_COLUMNS if isinstance(model, LinearModel) else max(1, len(features))
    found: list[int] = []
    for lo in range(0, len(features), step):
        sizes = column_sizes(data, features[lo : lo + step])
        places = np.cumsum(sizes) // FETCH_BYTES
        found += [int(sizes[places == k].sum()) for k in np.unique(places)]
    return found or [0]


def _made(data: BlockStore, features: np.ndarray) -> int:
    """Return the bytes of one column made of some, at most: float64, with row numbers where the data are sparse."""
    if data.meta.kind == "dense" or not len(features):
        return 8 * data.n_rows
    return 12 * max(int(table_of(data, "counts", int(j), int(j) + 1)[0]) for j in features)


@_read_here.register
def _(model: FGMModel, data: BlockStore) -> list[Holding]:
    raw, count = sum(_batches(model, data)), len(model.coordinates)
    copies = 1 if count == len(model.features) else 2
    if model.kind in ("hik", "additive_gaussian"):
        config = FGMConfig.model_validate_json(model.params_json)
        expansion = expansions.Expansion(model.kind, gamma=config.gamma, n_bins=config.n_bins)  # pyright: ignore[reportArgumentType]
        count = max(count, len(model.features) * expansion.width)
    return [
        Holding("columns of the model, as fetched and side by side", "2 columns as stored", 2 * raw),
        Holding("coordinates made of them", f"{copies} coordinates", copies * count * _made(data, model.features)),
    ]


@_read_here.register
def _(model: LinearModel, data: BlockStore) -> list[Holding]:
    largest = max((int(column_sizes(data, part).sum()) for part in _pieces(model.features)), default=0)
    rows = len(model.intercepts)
    return [
        Holding("columns at a time, side by side", "3 columns as stored", 3 * largest),
        Holding("their weights", "8 m columns", 8 * rows * min(PIECE_COLUMNS, len(model.features))),
    ]


def _pieces(features: np.ndarray) -> list[np.ndarray]:
    return [features[lo : lo + PIECE_COLUMNS] for lo in range(0, len(features), PIECE_COLUMNS)]


@_read_here.register
def _(model: RuleModel, data: BlockStore) -> list[Holding]:
    n, rules = data.n_rows, model.n_rules
    return [
        Holding("columns of the rules, side by side", "3 columns as stored", 3 * sum(_batches(model, data))),
        Holding("which rows satisfy which rule, as truth values and numbers", "9 n rules", 9 * n * rules),
    ]


@_read_here.register
def _(model: SocialModel, data: BlockStore) -> list[Holding]:
    rows = min(ROWS, data.n_rows)
    kernels = model.kernels_json.count('"name"') or 1
    return [
        Holding("rows at hand, as read and scaled", "16 rows d", 16 * rows * model.n_features),
        Holding("kernels between some users and those of the model", "16 users n_train kernels", 16 * USERS * model.n_train * kernels),
    ]


@_read_here.register
def _(model: SpectralModel, data: BlockStore) -> list[Holding]:
    if model.data_digest and data.digest == model.data_digest:
        return []
    return [Holding("rows of the store, as read", "16 n d", 16 * data.n_rows * data.n_cols)]
