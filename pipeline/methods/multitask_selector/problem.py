"""Base of the problems of feature selection over many tasks, the memory of the driver, and the batch optimum of sparse rows in memory.

With :mod:`.working_problem`, which all dense rows use, the optimum takes 2.2 to 3.2 times as long on sparse rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from ....kernels.bounds import sound_gap
from ....kernels.group_lasso import on_rows as batch
from ....kernels.group_lasso.row_problem import RowProblem, TaskRows
from ....kernels.losses import mean_loss
from ....storage import BlockStore, MemoryBlocks
from ...core.memory import Item, check_memory, driver_plan, total_bytes
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics, fit_tracker
from ...inputs.tasks import TaskInputs
from ...passes.columns import NEEDS_ROWS, column_sizes, entry_count, has_rows, rows_to_make
from .config import SelectorConfig
from .inputs import Solution, auto_lam, objective_value, penalty_of, penalty_weight, selector_data


class SelectorProblem(ABC):
    """A feature selection problem; ``trackers`` record accuracy or R2, if any."""

    state_type: ClassVar[type[Any]]
    counter: ClassVar[str] = "sweeps"  # what the steps of a fit are counted in
    distributed: tuple[str, ...] = ()  # rounds, and rows in memory, are the work of one process

    def __init__(self, config: SelectorConfig, inputs: TaskInputs, resources: Resources, way: Way) -> None:
        self.config, self.inputs, self.planned, self.way = config, inputs, resources, way
        self.trackers: tuple[AccuracyTracker | R2Tracker, ...] = ()
        remedy = "feed the rows in pieces with MultiTaskSelector.partial_fit"
        if way != "memory":
            remedy = FEWER_COLUMNS if way == "working_set" else remedy if has_rows(inputs.data) else f"{NEEDS_ROWS}, {remedy}"
        self.items = driver_items(inputs.data, inputs.n_tasks, config, resources.driver_memory, way)
        check_memory("multitask-selector", self.items, resources, remedy)
        self.data = selector_data(config, inputs)

    def follow(self) -> None:
        """Record accuracy or R2. This needs the decision values of all rows."""
        self.trackers = (fit_tracker(self.inputs, self.inputs.held_out),)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Algorithm; variant of the fit (in memory or out of core); number of steps, rounds or sweeps; memory in bytes."""
        first = {"learning_tasks": self.inputs.n_tasks, "task_bytes": 0, "engine": self.way}
        return {**first, **driver_plan(self.items), **self.steps_plan()}

    def penalties(self, state: Any) -> tuple[float, float]:
        """Return the weight of the penalty of a phase, and the smallest weight that selects nothing (NaN if it was not computed)."""
        return penalty_weight(self.config, state.phase, state.lam), state.lambda_max

    @abstractmethod
    def steps_plan(self) -> dict[str, Any]:
        """Return the entries of a plan about the steps."""

    @abstractmethod
    def init(self, resources: Resources) -> Any:
        """Return the initial state."""

    @abstractmethod
    def step(self, state: Any, resources: Resources) -> Step[Any]:
        """Return the state after one more step."""

    @abstractmethod
    def solution(self, state: Any) -> Solution:
        """Return the weights with their objective and their gap."""


Data = BlockStore | MemoryBlocks
Way = Literal["memory", "working_set", "blocks"]  # all rows here; columns of a working set and passes; rows block by block

ENTRY_BYTES = 40  # bytes the driver holds per entry while rows are read and evaluated, at most
MOMENT_SHARE = 0.25  # share of the driver's memory that the moments of all tasks may take; beyond it proximal steps read the rows
FIRST_FEATURES = 20  # features that join the empty working set
FIRST_DENSE, ALL_DENSE = 100, 512  # where short dense columns come cheaply; up to ALL_DENSE may all join, if moments solve the problem
FIRST_SHARE = 0.25  # share of the driver's memory that a set of so many may take
WINDOW_SHARE = 0.25  # share of the driver's memory for the rows of the next rounds, as they are stored
STEP_SHARE = 0.0625  # share of it for the rows that one step learns, in float64
FEWER_COLUMNS = "a larger lam, or algorithm='da'"  # what helps where the columns of a working set are too many


def moments_fit(d: int, n_tasks: int, driver_memory: int) -> bool:
    """Return whether the moments of all tasks fit in their share of the driver's memory."""
    return 8 * n_tasks * (d + 2) ** 2 <= MOMENT_SHARE * driver_memory


def choose_way(data: Data, n_tasks: int, config: SelectorConfig, driver_memory: int) -> Way:
    """Return the variant of a fit: with all rows in memory if the driver can hold them, else out of core.

    A batch on dense rows always uses a working set, which takes a tenth of the time up to all of it. So does the path of the hinge loss: it
    takes the moments of its features at every step, and the fewer the better.
    """
    is_batch = config.algorithm == "fista"
    if is_batch and (data.meta.kind == "dense" or config.loss == "hinge"):
        return "working_set"
    if total_bytes(memory_items(data, n_tasks, config.algorithm, driver_memory)) <= driver_memory:
        return "memory"
    return "working_set" if is_batch else "blocks"


def first_features(data: Data, n_tasks: int, config: SelectorConfig, driver_memory: int) -> int:
    """Return how many features may join the empty working set."""
    if data.meta.kind == "sparse":
        return FIRST_FEATURES
    many = ALL_DENSE if config.loss == "squared" and data.n_cols <= ALL_DENSE else FIRST_DENSE
    items = set_items(data, np.arange(min(data.n_cols, many)), n_tasks, driver_memory)
    return many if total_bytes(items) <= FIRST_SHARE * driver_memory else FIRST_FEATURES


def driver_items(data: Data, n_tasks: int, config: SelectorConfig, driver_memory: int, way: Way) -> tuple[Item, ...]:
    """Return the memory of the driver. The final number of columns in the working set is not known in advance: all columns are counted if
    they fit, otherwise only the initial set, and each larger one is checked when it is reached.
    """
    if way == "memory":
        return memory_items(data, n_tasks, config.algorithm, driver_memory)
    if way == "working_set":
        whole = set_items(data, np.arange(data.n_cols), n_tasks, driver_memory)
        if total_bytes(whole) <= driver_memory:
            return whole
        first = min(data.n_cols, first_features(data, n_tasks, config, driver_memory))
        return set_items(data, np.arange(first), n_tasks, driver_memory)
    return (*_vector_items(data, n_tasks), ("orders of the rows", 48 * data.n_rows), *_block_items(data, n_tasks, driver_memory))


def _vector_items(data: Data, n_tasks: int) -> tuple[Item, ...]:
    weights = "sums, weights and copies of them", 40 * data.n_cols * n_tasks
    return weights, ("labels, tasks, decision values", 64 * data.n_rows)


def _moments_items(d: int, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    moments = "second moments of every task, and copies of them", 16 * n_tasks * (d + 2) ** 2
    return (moments,) if moments_fit(d, n_tasks, driver_memory) else ()


def memory_items(data: Data, n_tasks: int, algorithm: str, driver_memory: int) -> tuple[Item, ...]:
    """Return the memory of the driver if all rows are in memory; a batch also holds the rows sorted by task, and moments."""
    entries = entry_count(data)
    items = ("rows in float64, by rows and while they are put in order", ENTRY_BYTES * entries), *_vector_items(data, n_tasks)
    if algorithm != "fista":
        return items
    return (*items, ("rows task by task, and copies of them", 28 * entries), *_moments_items(data.n_cols, n_tasks, driver_memory))


def set_items(data: Data, features: np.ndarray, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    """Return the memory of the driver with a working set of these features: its columns, and their moments if these fit in their share."""
    p = len(features)
    nbytes = 20 * data.n_rows * p if data.meta.kind == "dense" else 3 * int(column_sizes(data, features).sum())
    return (
        *_vector_items(data, n_tasks),
        ("costs, slopes and orders of the rows", 128 * data.n_rows),
        ("bounds of the features' norms", 64 * data.n_cols),
        (f"{p} columns of a working set", nbytes),
        *_moments_items(p, n_tasks, driver_memory),
    )


def step_entries(data: Data, n_tasks: int, driver_memory: int) -> int:
    """Return the number of entries of the rows that one step learns if rows are read in blocks. It is the number that fits in a share of
    the memory, but at least about the number of entries of one round.
    """
    return max(int(STEP_SHARE * driver_memory) // ENTRY_BYTES, n_tasks * -(-entry_count(data) // data.n_rows))


def window_bytes(data: Data, driver_memory: int) -> int:
    """Return the size in bytes, as stored, of the rows that are gathered at a time from blocks of rows."""
    size = data.meta.itemsize if data.meta.kind == "dense" else data.meta.itemsize + 4
    return min(entry_count(data) * size, int(WINDOW_SHARE * driver_memory))


def _block_items(data: Data, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    learned = "rows of a step in float64, and copies of them", ENTRY_BYTES * step_entries(data, n_tasks, driver_memory)
    if isinstance(data, MemoryBlocks):
        return (learned,)
    if not has_rows(data):
        return rows_to_make(data), learned
    window = "rows of the next rounds, as stored, and while they are gathered", 2 * window_bytes(data, driver_memory)
    block = max((ref.nbytes for ref in data.row_blocks()), default=0)
    return window, ("a block of rows as it is read, and what is chosen of it", 2 * block), learned


STEP_LIMITS = {"squared": 500, "logistic": 5, "hinge": 100}  # sweeps, Newton steps or steps on the path of a step of the loop, by loss
CUT_SHORT = 2  # phase of a second fit after a selection that max_iter ended: however it ends, the fit is unfinished


@dataclass(frozen=True)
class BatchState:
    """State of the batch solver."""

    record_name: ClassVar[str] = "BatchState"
    iteration: int
    phase: int  # 0 while features are selected, 1 while they are fitted again, or CUT_SHORT
    sweeps: int  # sweeps, Newton steps or proximal steps of this phase
    weights: np.ndarray  # (Q, d)
    intercepts: np.ndarray  # (Q,)
    objective: float  # primal value
    gap: float  # its distance to the dual value
    kept: np.ndarray  # (d,) features that may have weights
    stop: str | None = None
    lam: float = math.nan  # weight of the penalty of the selection, and the least that selects nothing; NaN where the data did not decide
    lambda_max: float = math.nan


class BatchProblem(SelectorProblem):
    """Batch optimum in memory: descends until the gap closes; then, with ``refit``, again on the selected features alone."""

    state_type = BatchState

    def init(self, resources: Resources) -> BatchState:
        """Return the initial state: zero weights, and the weight of the penalty if it is derived from the data."""
        start = self._empty(0, 0, self.data.selectable)
        if self.config.lam != "auto":
            return start
        largest = batch.lambda_max(self.rows_problem(replace(start, lam=1.0)))
        return replace(start, lam=auto_lam(self.data, largest), lambda_max=largest)

    def _empty(self, iteration: int, phase: int, selectable: np.ndarray) -> BatchState:
        weights = np.zeros((self.data.n_tasks, self.data.n_features))
        return BatchState(iteration, phase, 0, weights, np.zeros(self.data.n_tasks), np.inf, np.inf, selectable)

    @cached_property
    def _sorted_rows(self) -> sp.csr_array:
        rows = self.data.rows
        return sp.csr_array((rows.values, rows.indices, rows.indptr), shape=(rows.n, self.data.n_features))[self.data.used_rows]

    def rows_problem(self, state: BatchState) -> RowProblem:
        """Return the problem of a phase, over the features that may have non-zero weights."""
        config, rows, order = self.config, self.data.rows, self.data.used_rows
        edges = np.concatenate([[0], np.cumsum(np.bincount(rows.codes[order], minlength=self.data.n_tasks))]).astype(np.int64)
        X = self._sorted_rows if state.kept.all() else self._sorted_rows[:, np.flatnonzero(state.kept)]
        penalty = penalty_of(config, int(np.count_nonzero(state.kept)))
        losses = rows.target[order], self.data.mean_weights[order], mean_loss(config.loss)
        return RowProblem(TaskRows(X, edges), *losses, penalty, self.penalties(state)[0], config.fit_intercept)

    def steps_plan(self) -> dict[str, Any]:
        """Return the memory in bytes of the moments of all tasks, and the largest number of sweeps of the fit and the refit together."""
        fits = 1 if self.config.refit is None else 2
        return {"moment_bytes": 8 * self.data.n_tasks * (self.data.n_features + 2) ** 2, "sweeps_at_most": self.config.max_iter * fits}

    def step(self, state: BatchState, resources: Resources) -> Step[BatchState]:
        """Descend until the gap closes, or for a fixed number of sweeps."""
        config, columns = self.config, np.flatnonzero(state.kept)
        method = "auto" if moments_fit(self.data.n_features, self.data.n_tasks, resources.driver_memory) else "fista"
        limit = min(STEP_LIMITS[config.loss], config.max_iter - state.sweeps)
        warm = {"warm": state.weights[:, columns], "biases": state.intercepts}
        solution = batch.solve_rows(self.rows_problem(state), **warm, tol=config.tol, max_iter=limit, method=method)
        weights = np.zeros_like(state.weights)
        weights[:, columns] = solution.copies
        after = replace(state, iteration=state.iteration + 1, sweeps=state.sweeps + solution.steps, weights=weights)
        after = replace(after, intercepts=solution.biases, objective=solution.objective, gap=solution.gap)
        return Step(self._next_phase(after, solution.stop), self._metrics(after))

    def _next_phase(self, state: BatchState, reason: str) -> BatchState:
        """Return the state with its reason to stop, or the initial state of the refit."""
        if reason == "max_iter" and state.sweeps < self.config.max_iter:
            return state
        # A model without the second fit is of another problem. Where round-off forbids the tolerance the selection is as good as it gets.
        if state.phase == 0 and self.config.refit is not None and state.weights.any():
            second = self._empty(state.iteration, CUT_SHORT if reason == "max_iter" else 1, np.asarray(state.weights.any(axis=0)))
            return replace(second, lam=state.lam, lambda_max=state.lambda_max)
        if state.phase == CUT_SHORT:
            return replace(state, stop="max_iter")
        return replace(state, stop="tol" if reason == "gap" else reason)

    def _metrics(self, state: BatchState) -> dict[str, Any]:
        selected = state.weights.any(axis=0)
        values = self.data.rows.decide(state.weights, state.intercepts) + self.data.offsets[self.data.codes]
        return {
            "phase": min(state.phase, 1),
            "objective": state.objective,
            "gap": state.gap,
            "sweeps": state.sweeps,
            "n_selected": int(selected.sum()),
            "nonzeros": int(np.count_nonzero(state.weights)),
            **accuracy_metrics(self.trackers, {0: values}),
        }

    def solution(self, state: BatchState) -> Solution:
        """Return the weights with their objective, summed again over the rows, and their gap."""
        values = self.data.rows.decide(state.weights, state.intercepts)
        value = objective_value(self.config, self.data, self.penalties(state)[0], state.weights, values)
        return Solution(state.weights, state.intercepts, value, sound_gap(state.gap, state.objective))
