"""The rows that feature selection over many tasks reads, scaled, signed, about their offsets, and the objective over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.arrays import Array
from ....kernels.group_lasso.task_selection import TaskRows, task_penalty
from ....kernels.losses import mean_loss
from ....storage import BlockStore, MemoryBlocks
from ...inputs.labels import row_weights
from ...inputs.tasks import TaskInputs
from ...passes.blocks import constant_features, scale_as_given
from ...passes.columns import entry_count
from ...passes.scaling import scaled
from ...records.holdings import Held, Holding
from ...records.scale import FeatureScale
from .config import SelectorConfig

Data = BlockStore | MemoryBlocks

ENTRY_BYTES = 40  # bytes the driver holds per entry while rows are read and evaluated, at most
MOMENT_SHARE = 0.25  # share of the driver's memory that the moments of all tasks may take; beyond it proximal steps read the rows


@dataclass(frozen=True)
class SelectorData:
    """Rows of a fit."""

    rows: TaskRows  # all rows, held-out ones among them with weight 0; targets are signs, or numbers less the offsets
    offsets: np.ndarray  # (n_tasks,) subtracted from the target of every task
    n_features: int
    names: tuple[Any, ...]  # the tasks
    selectable: np.ndarray  # (n_features,) features that may have weights: with intercepts not those that are constant
    scale: FeatureScale  # factors of the columns as they were learned from, which are those of the model

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @property
    def mean_weights(self) -> np.ndarray:
        """``(n,)`` weights of the mean loss: those of every task sum to 1."""
        totals = np.bincount(self.rows.codes, self.rows.weight, self.n_tasks)
        return self.rows.weight / np.where(totals > 0, totals, 1.0)[self.rows.codes]

    @cached_property
    def used_rows(self) -> np.ndarray:
        """Rows of positive weight, task by task, those of a task ascending."""
        used = np.flatnonzero(self.rows.weight > 0)
        return used[np.argsort(self.rows.codes[used], kind="stable")]


ROWS = Held("rows in float64, by rows and while they are put in order", f"{ENTRY_BYTES} entries")
WEIGHTS = Held("sums, weights and copies of them", "40 d T")
VECTORS = Held("labels, tasks, decision values", "64 n")
ORDERED = Held("rows task by task, and copies of them", "28 entries", "`algorithm: fista`")
MOMENTS_WHEN = f"`algorithm: fista`, where half of that is within {MOMENT_SHARE:g} L"
MOMENTS = Held("second moments of every task, and copies of them", "16 T (d + 2)^2", MOMENTS_WHEN)
HELD = (ROWS, WEIGHTS, VECTORS, ORDERED, MOMENTS)  # what the driver holds


def driver_holdings(data: Data, n_tasks: int, algorithm: str, driver_memory: int) -> tuple[Holding, ...]:
    """Return what the driver holds: rounds of one row per task read rows from all over the data, so all of them, and weights."""
    d, entries = data.n_cols, entry_count(data)
    holdings = ROWS.of(entries=entries), WEIGHTS.of(d=d, T=n_tasks), VECTORS.of(n=data.n_rows)
    if algorithm != "fista":
        return holdings
    moments = (MOMENTS.of(d=d, T=n_tasks),) if moments_fit(d, n_tasks, driver_memory) else ()
    return (*holdings, ORDERED.of(entries=entries), *moments)


def moments_fit(d: int, n_tasks: int, driver_memory: int) -> bool:
    """Return whether the moments of all tasks are within their share of the driver's memory."""
    return 8 * n_tasks * (d + 2) ** 2 <= MOMENT_SHARE * driver_memory


def task_rows(X: Array | sp.sparray, codes: np.ndarray, target: np.ndarray, weight: np.ndarray) -> TaskRows:
    """Return rows ``(n, d)`` of any form with their tasks, as compiled loops read them; ``X`` is never changed."""
    rows: Any = sp.csr_array(X, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    parts = rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data
    return TaskRows(*parts, codes.astype(np.int64), np.asarray(target, np.float64), np.asarray(weight, np.float64))


def selector_data(config: SelectorConfig, inputs: TaskInputs) -> SelectorData:
    """Return the rows of a fit. Raises DataError: no row, or none of a class, has a positive weight; ValueError: class weights that do not
    suit the target.
    """
    weight, data, d = row_weights(config, inputs), inputs.data, int(inputs.data.n_cols)
    offsets = task_offsets(config.task_offset, inputs.codes, inputs.signs(), weight, inputs.n_tasks)
    scale, selectable = scale_as_given(data, np.arange(d)), np.ones(d, bool)
    # Rows in memory that have no scales stay as they lie.
    is_raw = isinstance(data, MemoryBlocks) and data.scale.kind == "none"
    X = data.X if is_raw else scaled(data.columns(np.arange(d)), scale, data.scale.row_factor)
    rows = task_rows(X, inputs.codes, inputs.signs() - offsets[inputs.codes], weight)
    if config.fit_intercept:
        selectable[constant_features(data)] = False
    return SelectorData(rows, offsets, d, inputs.names, selectable, scale)


def divergence_message(gamma: float, row: int, name: object, prefix: str = "") -> str:
    """Return the message of a stream whose predictions diverge."""
    reason = f"gamma={gamma:g}: predictions grow without bound ({prefix}row {row}, task {name!r})"
    return f"{reason}; raise gamma to the order of the rows' squared norms, or scale the features"


def task_offsets(kind: str | None, codes: np.ndarray, target: np.ndarray, weight: np.ndarray, n_tasks: int) -> np.ndarray:
    """Return what is subtracted from the target of every task, ``(n_tasks,)``.

    ``"mean"`` is the mean m of all rows; ``"shrunken"`` is ``m + (m_q - m) v_b / (v_b + v_w / n_q)`` with the mean m_q of task q's n_q
    rows, the variance v_w of rows within tasks and v_b that of the tasks' own means: the best linear predictor of a task's mean.
    """
    if kind is None:
        return np.zeros(n_tasks)
    mean = float(np.average(target, weights=weight))
    if kind == "mean":
        return np.full(n_tasks, mean)
    counts, totals = np.bincount(codes, weight > 0, n_tasks), np.bincount(codes, weight, n_tasks)
    means = np.bincount(codes, weight * target, n_tasks) / totals
    scatter = float(weight @ np.square(target - means[codes])) / float(weight.sum())
    within = scatter * counts.sum() / max(counts.sum() - n_tasks, 1.0)
    between = max(0.0, float(np.var(means)) - float(np.mean(within / counts)))
    noise = between + within / counts
    return mean + (means - mean) * np.divide(between, noise, out=np.zeros(n_tasks), where=noise > 0)


@dataclass(frozen=True)
class Solution:
    """Weights of scaled features and what they cost."""

    weights: np.ndarray  # (Q, d)
    intercepts: np.ndarray  # (Q,), without offsets
    objective: float  # mean losses of the tasks, and penalty (4.3)
    gap: float  # distance to the optimum, NaN where nothing bounds it


def objective_value(config: SelectorConfig, data: SelectorData, lam: float, weights: np.ndarray, values: np.ndarray) -> float:
    """Return the sum over tasks of their mean losses at decision values ``(n,)``, and the penalty (4.3)."""
    penalty = task_penalty(config.penalty, data.n_features, config.r)
    return float(data.mean_weights @ mean_loss(config.loss).exact(data.rows.target, values)) + lam * penalty.value(weights)


def penalty_weight(config: SelectorConfig, phase: int) -> float:
    """Return the weight of the penalty while features are selected (phase 0), and when they are fitted again."""
    return config.lam if phase == 0 or config.refit is None else config.refit
