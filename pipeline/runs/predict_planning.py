"""What predicting takes, told and held against the driver's memory before any of it is done."""

from __future__ import annotations

from functools import singledispatch
from pathlib import Path
from typing import Any

import numpy as np

from ...cluster import Executor, Plan
from ...kernels.features import expansions
from ...storage import BlockStore, to_arrays
from ..methods.fgm.config import FGMConfig
from ..methods.fgm.model import FGMModel
from ..methods.rule_ensemble.model import RuleModel
from ..methods.social_strength.model import SocialModel
from ..methods.social_strength.scores import USERS
from ..models.kernel_predict import ROWS
from ..models.linear import LinearModel
from ..models.spectral import SpectralModel
from ..models.task import TaskModel
from ..passes.blocks import table_of
from ..passes.columns import FETCH_BYTES, column_sizes
from ..records.context import Emit, RunContext
from ..records.holdings import Held, Holding, holdings_plan, total_bytes
from .in_process import process_plan
from .predict import PIECE_COLUMNS, decision_values

_OBJECT_BYTES = 40
"""Bytes of a number, or of a short label, as an object of Python with its place in a list."""


MODEL = Held("model, as stored and as read", "2 model")
VALUES = Held("decision values, in parts and together", "24 n m", "m values for a row")
PREDICTIONS = Held("predictions", "s n", "s bytes of a label, and 16; 8 of a number")
TABLE = Held("columns of the table, as they are written", f"{_OBJECT_BYTES} n (m + 1)", "`.csv`, `.parquet`; once what was read is gone")
METRICS = Held("target, predicted classes, and what metrics sort and count", "(128 + 16 m) n", "`score`")
COLUMNS = Held("columns of the model, as fetched and side by side", "2 stored", "`fgm`")
COORDINATES = Held("coordinates made of them", "c", "`fgm`: c bytes, once or twice, of maps and expansions")
PIECES = Held("columns at a time, side by side", "3 stored", f"linear machines; {PIECE_COLUMNS:,} columns at most")
WEIGHTS = Held("their weights", "8 m c", "linear machines; c of these columns")
RULE_COLUMNS = Held("columns of the rules, side by side", "3 stored", "`rule-ensemble`")
SATISFIED = Held("which rows satisfy which rule, as truth values and numbers", "9 n r", "`rule-ensemble`; r rules")
USERS_ROWS = Held("rows at hand, as read and scaled", "16 u d", "`social-strength`; u users")
KERNELS = Held("kernels between some users and those of the model", "16 u t k", "`social-strength`; t users of the model")
IMAGES = Held("rows of the store, as read", "16 n d", "`semantic-ranker`, images that are new to it")

HELD = (
    *(MODEL, VALUES, PREDICTIONS, TABLE, METRICS, COLUMNS, COORDINATES, PIECES, WEIGHTS),
    *(RULE_COLUMNS, SATISFIED, USERS_ROWS, KERNELS, IMAGES),
)
"""What the driver may hold while it predicts."""


class _FirstPass(Exception):
    def __init__(self, work: Plan[Any]) -> None:
        super().__init__(str(work))
        self.work = work


class _Planning(Executor):
    """Runs nothing: the first pass that it is asked for ends the planning."""

    def run(self, plan: Plan[Any]) -> Any:
        raise _FirstPass(plan)


def predict_holdings(model: Any, data: BlockStore, out: str | None, labels: np.ndarray | None) -> list[Holding]:
    """Return what this process holds while it predicts the rows of a store, or scores a model on them.

    Parameters
    ----------
    model
        The saved model.
    data
        The store.
    out
        Where predictions go; its ending says in which form they are held last. ``None``: they are compared with the target.
    labels
        The classes; ``None`` where there are none.
    """
    n, m = data.n_rows, _machines(model)
    size = 8 if labels is None else 16 + labels.itemsize
    table = []
    if out is None:
        table = [METRICS.of(n=n, m=m)]
    elif Path(out).suffix.lower() in (".csv", ".parquet"):
        table = [TABLE.of(n=n, m=m)]
    return [
        MODEL.of(model=sum(array.nbytes for array in to_arrays(model)[0].values())),
        VALUES.of(n=n, m=m),
        PREDICTIONS.of(n=n, s=size),
        *_last(_read_here(model, data), table, out is None and isinstance(model, FGMModel)),
    ]


def _last(read: list[Holding], table: list[Holding], path: bool) -> list[Holding]:
    """Return what is held beside the values: the table once what was read is gone, or both where a path is followed after it."""
    return [*read, *table] if path else max(read, table, key=total_bytes)


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
    work = first_pass(model, data, limit, emit)
    passes, step = 0 if work is None else len(_batches(model, data)), step_bytes(work)
    return {
        "rows": data.n_rows,
        "decision_values_per_row": _machines(model),
        "passes": passes,
        "tasks_per_pass": 0 if work is None else work.n_tasks,
        "task_bytes": step,
        **holdings_plan(holdings),
        **process_plan(total_bytes(holdings), step, () if work is None else data, limit, cluster),
        "driver_memory": limit,
    }


def first_pass(model: Any, data: BlockStore, limit: int, emit: Emit) -> Plan[Any] | None:
    """Return the first pass of a prediction, which is not run; ``None`` where the driver reads and computes all by itself."""
    if isinstance(model, SocialModel | SpectralModel):
        return None
    try:
        decision_values(model, RunContext(_Planning(), data, None, limit, emit))
    except _FirstPass as found:
        return found.work
    return None  # a model of intercepts alone


def step_bytes(work: Plan[Any] | None) -> int:
    """Return the bytes of one step of a pass."""
    return 0 if work is None else work.memory_bound


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
        count = len(model.features) * expansion.width  # whole bases are made, of which the model has some coordinates
    return [
        COLUMNS.of(stored=raw),
        COORDINATES.of(c=copies * count * _made(data, model.features)),
    ]


@_read_here.register
def _(model: LinearModel, data: BlockStore) -> list[Holding]:
    largest = max((int(column_sizes(data, part).sum()) for part in _pieces(model.features)), default=0)
    rows = len(model.intercepts)
    return [
        PIECES.of(stored=largest),
        WEIGHTS.of(m=rows, c=min(PIECE_COLUMNS, len(model.features))),
    ]


def _pieces(features: np.ndarray) -> list[np.ndarray]:
    return [features[lo : lo + PIECE_COLUMNS] for lo in range(0, len(features), PIECE_COLUMNS)]


@_read_here.register
def _(model: RuleModel, data: BlockStore) -> list[Holding]:
    n, rules = data.n_rows, model.n_rules
    return [
        RULE_COLUMNS.of(stored=sum(_batches(model, data))),
        SATISFIED.of(n=n, r=rules),
    ]


@_read_here.register
def _(model: SocialModel, data: BlockStore) -> list[Holding]:
    rows = min(ROWS, data.n_rows)
    kernels = model.kernels_json.count('"name"') or 1
    return [
        USERS_ROWS.of(u=rows, d=model.n_features),
        KERNELS.of(u=USERS, t=model.n_train, k=kernels),
    ]


@_read_here.register
def _(model: SpectralModel, data: BlockStore) -> list[Holding]:
    if model.data_digest and data.digest == model.data_digest:
        return []
    return [IMAGES.of(n=data.n_rows, d=data.n_cols)]
