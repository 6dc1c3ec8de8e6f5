"""Inputs of feature selection over many tasks: rows after scaling, signs and offsets, and the objective over them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.arrays import Array
from ....kernels.group_lasso.on_rows import share_of_largest
from ....kernels.group_lasso.penalty import GroupPenalty
from ....kernels.group_lasso.step_lengths import StepWatch
from ....kernels.group_lasso.task_selection import Progress, Rounds, TaskRows, task_penalty
from ....kernels.losses import mean_loss
from ....storage import BlockStore, MemoryBlocks
from ...inputs.labels import row_weights
from ...inputs.tasks import TaskInputs
from ...passes.blocks import constant_features, scale_as_given
from ...passes.scaling import scaled
from ...records.scale import FeatureScale
from .config import SelectorConfig

Data = BlockStore | MemoryBlocks


def penalty_of(config: SelectorConfig, n_features: int) -> GroupPenalty:
    """Return the penalty that ``config`` names, over ``n_features`` rows of a coefficient matrix."""
    return task_penalty(config.penalty, n_features, config.r, float(config.p))


@dataclass(frozen=True)
class SelectorData:
    """Data of a fit; the rows are read when a loop first needs them."""

    data: Data
    codes: np.ndarray  # (n,) task of each row
    target: np.ndarray  # (n,) signs, or numbers less the offsets
    weight: np.ndarray  # (n,) factor of each row's loss, 0 for those held out
    offsets: np.ndarray  # (n_tasks,) subtracted from the target of every task
    n_features: int
    names: tuple[Any, ...]  # the tasks
    selectable: np.ndarray  # (n_features,) features that may have weights: with intercepts not those that are constant
    scale: FeatureScale  # factors of the columns as they were learned from, which are those of the model

    @property
    def n_tasks(self) -> int:
        """Number of tasks."""
        return len(self.names)

    @cached_property
    def rows(self) -> TaskRows:
        """All rows in memory, including held-out ones."""
        data = self.data
        # Rows in memory that have no scales stay as they lie.
        if isinstance(data, MemoryBlocks) and data.scale.kind == "none":
            return task_rows(data.X, self.codes, self.target, self.weight)
        X = scaled(data.columns(np.arange(self.n_features)), self.scale, data.scale.row_factor)
        return task_rows(X, self.codes, self.target, self.weight)

    @property
    def mean_weights(self) -> np.ndarray:
        """Weights of the mean loss, ``(n,)``; they sum to 1 for every task."""
        totals = np.bincount(self.codes, self.weight, self.n_tasks)
        return self.weight / np.where(totals > 0, totals, 1.0)[self.codes]

    @cached_property
    def used_rows(self) -> np.ndarray:
        """Rows of positive weight, task by task, ascending within a task."""
        used = np.flatnonzero(self.weight > 0)
        return used[np.argsort(self.codes[used], kind="stable")]


def task_rows(X: Array | sp.sparray, codes: np.ndarray, target: np.ndarray, weight: np.ndarray) -> TaskRows:
    """Return rows ``(n, d)`` of any form with their tasks, in the form that compiled loops read; ``X`` is never changed."""
    rows: Any = sp.csr_array(X, dtype=np.float64)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    parts = rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data
    return TaskRows(*parts, codes.astype(np.int64), np.asarray(target, np.float64), np.asarray(weight, np.float64))


def selector_data(config: SelectorConfig, inputs: TaskInputs) -> SelectorData:
    """Return the data of a fit. Raises DataError if no row, or no row of a class, has positive weight, and ValueError for class weights
    that do not suit the target.
    """
    weight, data, d = row_weights(config, inputs), inputs.data, int(inputs.data.n_cols)
    signs = inputs.signs()
    offsets = task_offsets(config.task_offset, inputs.codes, signs, weight, inputs.n_tasks)
    scale, selectable = scale_as_given(data, np.arange(d)), np.ones(d, bool)
    if config.fit_intercept:
        selectable[constant_features(data)] = False
    codes, target = inputs.codes.astype(np.int64), np.asarray(signs - offsets[inputs.codes], np.float64)
    return SelectorData(data, codes, target, np.asarray(weight, np.float64), offsets, d, inputs.names, selectable, scale)


def divergence_message(watch: StepWatch, rows: TaskRows, row: int, name: object, prefix: str = "") -> str:
    """Return the error message for a stream whose predictions diverge."""
    reason = f"gamma={watch.gamma:g}: predictions grow without bound ({prefix}row {row}, task {name!r})"
    return f"{reason}; {watch.remedy(rows.indptr, rows.values, rows.weight)}"


def look_at(watch: StepWatch, rounds: Rounds, progress: Progress, rows: TaskRows, places: np.ndarray) -> None:
    """Report the rows at ``places``, which the stream has learned, to ``watch``, which detects divergence."""
    places = places[places >= 0]
    if rounds.loss == "squared" and watch.look(progress.loss, progress.weight, rows.target[places]):
        learnt = rows.chosen(places)
        watch.tell(learnt.indptr, learnt.values, learnt.weight)


def task_offsets(kind: str | None, codes: np.ndarray, target: np.ndarray, weight: np.ndarray, n_tasks: int) -> np.ndarray:
    """Return the offset that is subtracted from the target of every task, ``(n_tasks,)``.

    * ``"mean"``: the mean m of all rows.
    * ``"shrunken"``: ``m + (m_q - m) v_b / (v_b + v_w / n_q)``, the best linear predictor of a task's mean. m_q is the mean of the n_q rows
      of task q, v_w the variance of rows within tasks, and v_b the variance of the task means.
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
    """Weights of scaled features, with objective and gap."""

    weights: np.ndarray  # (Q, d)
    intercepts: np.ndarray  # (Q,), without offsets
    objective: float  # mean losses of the tasks, and penalty (4.3)
    gap: float  # distance to the optimum, NaN where nothing bounds it


def objective_value(config: SelectorConfig, data: SelectorData, lam: float, weights: np.ndarray, values: np.ndarray) -> float:
    """Return the objective (4.3): mean losses at decision values ``(n,)``, summed over tasks, plus the penalty."""
    penalty = penalty_of(config, data.n_features)
    return float(data.mean_weights @ mean_loss(config.loss).values(data.target, values)) + lam * penalty.value(weights)


def penalty_weight(config: SelectorConfig, phase: int, found: float = math.nan) -> float:
    """Return the penalty weight of the selection (phase 0) or the refit; ``found`` is the selection's weight with ``lam="auto"``."""
    if phase and config.refit is not None:
        return config.refit
    return found if config.lam == "auto" else config.lam


def auto_lam(data: SelectorData, largest: float) -> float:
    """Return ``lam="auto"``: ``12/10 * Q * log(2 d) / n`` times the smallest lam that selects nothing, but at most 3/10 of that lam. There
    are Q tasks and d features; n is the sum of the row weights.
    """
    share = 1.2 * data.n_tasks * math.log(2.0 * data.n_features) / float(data.weight.sum())
    size = float(np.abs(data.offsets).max(initial=0.0))
    return share_of_largest(min(share, 0.3), largest, data.target, data.weight, size)
