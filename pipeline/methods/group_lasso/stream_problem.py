"""The group lasso on a stream of rows: the position of a fit in its stream, and the problem of one or several fits.

Learners of several fits process a block one after another. If the learners alternated row by row, their sums would not all stay in the
processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ....kernels.losses import mean_loss
from ...core.memory import check_memory, driver_plan
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.labels import Inputs, row_weights
from ...passes.columns import NEEDS_ROWS
from .config import GroupLassoConfig
from .inputs import machine_targets
from .learners import LearnerFactory
from .measures import Measures, decision_rows, measure
from .memory import Data, stream_items
from .rows import STEP_BYTES, RowBlocks, RowRef, advance, block_order, ordered_rows, step_blocks, step_end
from .text import TextData

NAN = float("nan")


@dataclass(frozen=True)
class StreamState:
    """Position of a fit in its stream."""

    record_name: ClassVar[str] = "StreamState"
    iteration: int  # steps so far
    stop: str | None  # "epochs", or "end" of a text
    epoch: int  # passes that are done
    block: int  # blocks of the present one that are done, in its order (of a text: lines)
    rows: int  # taken so far
    offset: int  # bytes of text read, where the stream is a text
    point: StreamPoint
    # (n_steps, 6): of every step its rows, sum of losses suffered, sum of weights, and at its end Omega, non-zero features, groups
    along: np.ndarray = field(default_factory=lambda: np.zeros((0, 6)))
    # (n_steps,) sum of the losses of the last model over the rows of every step; empty until then
    ended: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def start(cls, point: StreamPoint) -> StreamState:
        """Return the initial state, before the first row."""
        return cls(0, None, 0, 0, 0, 0, point)

    def with_step(self, before: Totals, learner: StreamLearner, n_rows: int, average: bool) -> StreamState:
        """Return the state after a step of ``n_rows`` rows, with one more entry in ``along``. ``before`` has the sums before that step."""
        now, (weights, _, omega) = Totals.of(learner), learner.weights(average)
        # Sums over the machines, and unions.
        sparsity = float(omega.sum()), float(np.count_nonzero(weights.any(axis=0))), float(np.count_nonzero(learner.active()))
        row = [n_rows, now.loss - before.loss, now.weight - before.weight, *sparsity]
        return replace(self, along=np.vstack((self.along, row)))

    def metrics(self) -> dict[str, Any]:
        """Return the history record of the latest step: number of rows, losses of rows before the model learned from them, and sparsity."""
        last, weight = self.along[-1], self.along[:, 2].sum()
        mean = last[1] / last[2] if last[2] > 0 else NAN
        objective = {"rows": int(self.along[:, 0].sum()), "objective": mean + last[3], "gap": NAN}
        losses = {"loss": mean, "mean_loss": self.along[:, 1].sum() / weight if weight > 0 else NAN}
        return {**objective, **losses, "penalty": last[3], "n_selected": int(last[4]), "n_groups": int(last[5])}


@dataclass(frozen=True)
class Totals:
    """Sum of the progressive losses and sum of the row weights, over all rows that a learner has read."""

    loss: float
    weight: float

    @classmethod
    def of(cls, learner: StreamLearner) -> Totals:
        """Return the current sums of a learner."""
        return cls(learner.losses.sum(), learner.weight)


class StreamProblem:
    """``algorithm="da"`` and ``"fobos"``: epochs over the rows of a store or of arrays."""

    state_type = StreamState
    distributed = ()
    too_long = ""  # what to tell of steps that were

    def __init__(self, config: GroupLassoConfig, inputs: Inputs, resources: Resources) -> None:
        self.config, self.inputs, data = config, inputs, inputs.data
        self.learners = LearnerFactory.create(config, inputs, int(data.n_cols))
        self.weight, self.targets = row_weights(config, inputs), machine_targets(inputs)
        self.blocks = RowBlocks(data, resources.fit_limit)
        has_rows = "rows" in getattr(data.meta, "layouts", ("rows",))
        remedy = "algorithm='fista', fewer features" if has_rows else NEEDS_ROWS
        check_memory("group-lasso", stream_items(self.learners, data), resources, remedy)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Number of blocks per epoch, bytes read, and memory of the state in bytes."""
        config, data = self.config, self.inputs.data
        rounds = config.epochs * -(-int(np.count_nonzero(self.weight > 0)) // config.batch_size)
        epochs = {"epochs": config.epochs, "rounds_at_most": rounds}
        epochs |= {"bytes_read_per_epoch": int(sum(ref.nbytes for ref in data.column_blocks()))}
        rows = "row blocks" if "rows" in data.meta.layouts else "columns, made into rows once"
        return {**stream_plan(config, self.learners, data), "rows_from": rows, **epochs}

    def init(self, resources: Resources) -> StreamState:
        """Return the initial state, before the first row."""
        return StreamState.start(self.learners.learner().point())

    def step(self, state: StreamState, resources: Resources) -> Step[StreamState]:
        """Learn the rows of some blocks; the last step of a fit measures the model on all rows."""
        refs = self.blocks.refs()
        order = block_order(len(refs), resources.seed, state.epoch, self.config.shuffle)
        end = step_end(refs, order, state.block)
        learner = self.learners.learner(state.point)
        before = Totals.of(learner)
        n_rows = sum(self._take(learner, refs[k], k, state.epoch, resources.seed) for k in order[state.block : end].tolist())
        ends_epoch = end == len(refs)
        self.too_long = self.too_long or learner.watch.message
        if ends_epoch:
            learner.finish()
        state = advance(state, n_rows, None if ends_epoch else end, self.config.epochs)
        state = replace(state, point=learner.point(copy=False)).with_step(before, learner, n_rows, self.config.average)
        measures = self._measure(learner, state, resources)
        state = replace(state, ended=measures.by_step)
        return Step(state, {"epoch": state.epoch, **state.metrics(), **measures.figures})

    def _take(self, learner: StreamLearner, ref: RowRef, number: int, epoch: int, seed: int) -> int:
        """Let a learner process a block of rows; return the number of rows with non-zero weight."""
        span = slice(*ref.rows)
        rows = ordered_rows(self.blocks, ref, number, epoch, seed, self.config.shuffle)
        learner.take(rows, np.ascontiguousarray(self.targets[:, span]), self.weight[span].copy())
        return int(np.count_nonzero(self.weight[span] > 0))

    def _measure(self, learner: StreamLearner, state: StreamState, resources: Resources) -> Measures:
        if state.stop is None:
            return Measures.unknown(self.inputs)
        weights, biases, _ = learner.weights(self.config.average)
        values = decision_rows(self.blocks, weights, biases, self.targets.shape[1])
        losses = (mean_loss(self.learners.loss).values(self.targets, values) * self.weight).sum(axis=0)
        steps = step_blocks(self.blocks.refs(), resources.seed, self.config.epochs, self.config.shuffle)
        return measure(self.inputs, values, losses, self.weight, steps)


def stream_plan(config: GroupLassoConfig, learners: LearnerFactory, data: Data | TextData) -> dict[str, Any]:
    """Return the entries that the plans of all streams have in common."""
    sizes = {"algorithm": config.algorithm, "machines": learners.n_machines, "groups": learners.penalty.n_groups}
    return {**driver_plan(stream_items(learners, data)), **sizes, "state_bytes": int(learners.state_bytes), "task_bytes": 0}


STATE_SHARE = 0.25  # share of the driver's memory that the learners of one pass may take; more points take more passes
MIN_READS_PER_WRITE = 4  # a step reads at least this many times the bytes of the checkpoint it ends with


@dataclass(frozen=True)
class GridState:
    """Position of the learners of a grid in the stream that they share; see :class:`StreamState`."""

    record_name: ClassVar[str] = "GridState"
    iteration: int
    stop: str | None
    epoch: int
    block: int
    rows: int
    points: tuple[StreamPoint, ...]


@dataclass(frozen=True)
class GridFit:
    """One fit: the factory of its learner, and the weights of its rows."""

    learners: LearnerFactory
    weight: np.ndarray


class GridProblem:
    """Epochs over the rows of a store, shared by the learners of all fits."""

    state_type = GridState
    distributed = ()

    def __init__(self, fits: Sequence[GridFit], inputs: Inputs, budget: int) -> None:
        self.grid_fits, self.inputs, self.targets = list(fits), inputs, machine_targets(inputs)
        self.config: GroupLassoConfig = self.grid_fits[0].learners.config
        self.blocks = RowBlocks(inputs.data, budget)
        self.step_bytes = max(STEP_BYTES, MIN_READS_PER_WRITE * sum(fit.learners.state_bytes for fit in self.grid_fits))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Memory of all learners together, in bytes."""
        fits = self.grid_fits
        return {**driver_plan(stream_items(fits[0].learners, self.inputs.data, len(fits))), "task_bytes": 0}

    def init(self, resources: Resources) -> GridState:
        """Return the initial state, before the first row."""
        return GridState(0, None, 0, 0, 0, tuple(fit.learners.learner().point() for fit in self.grid_fits))

    def step(self, state: GridState, resources: Resources) -> Step[GridState]:
        """Let every learner process some blocks."""
        refs = self.blocks.refs()
        order = block_order(len(refs), resources.seed, state.epoch, self.config.shuffle)
        end = step_end(refs, order, state.block, self.step_bytes)
        learners = [fit.learners.learner(point) for fit, point in zip(self.grid_fits, state.points, strict=True)]
        n_rows = sum(self._take(learners, refs[k], k, state.epoch, resources.seed) for k in order[state.block : end].tolist())
        ends_epoch = end == len(refs)
        for learner in learners if ends_epoch else ():
            learner.finish()
        state = advance(state, n_rows, None if ends_epoch else end, self.config.epochs)
        state = replace(state, points=tuple(learner.point() for learner in learners))
        return Step(state, {"epoch": state.epoch, "rows": state.rows, "fits": len(learners)})

    def _take(self, learners: Sequence[StreamLearner], ref: RowRef, number: int, epoch: int, seed: int) -> int:
        """Let all learners process a block of rows; return the number of its rows."""
        span = slice(*ref.rows)
        rows = ordered_rows(self.blocks, ref, number, epoch, seed, self.config.shuffle)
        targets = np.ascontiguousarray(self.targets[:, span])
        for fit, learner in zip(self.grid_fits, learners, strict=True):
            learner.take(rows, targets, fit.weight[span].copy())
        return len(rows.order)

    def values(self, fit: GridFit, learner: StreamLearner) -> np.ndarray:
        """Return the decision values of a learner on all rows, ``(n_machines, n)``."""
        weights, biases, _ = learner.weights(fit.learners.config.average)
        return decision_rows(self.blocks, weights, biases, self.targets.shape[1])

    def decision_values(self, state: GridState, resources: Resources) -> np.ndarray:
        """Return the decision values of all fits on all rows, ``(n_fits * n_machines, n)``."""
        parts = zip(self.grid_fits, state.points, strict=True)
        return np.concatenate([self.values(fit, fit.learners.learner(point)) for fit, point in parts])

    def selected(self, state: GridState) -> list[int]:
        """Return, for every fit, the number of features with non-zero weight."""
        pairs = zip(self.grid_fits, state.points, strict=True)
        weights = (fit.learners.learner(point).weights(fit.learners.config.average)[0] for fit, point in pairs)
        return [int(np.count_nonzero(some.any(axis=0))) for some in weights]


def grid_fits(learners: LearnerFactory, inputs: Inputs, masks: Sequence[np.ndarray]) -> list[GridFit]:
    """Return one fit per mask, on the rows outside the mask."""
    return [GridFit(learners, row_weights(learners.config, inputs.without(mask))) for mask in masks]


def fits_in_a_pass(state_bytes: int, folds: int, driver_memory: int) -> int:
    """Return the number of parameter settings whose learners fit in a share of the driver's memory. Each setting has ``folds`` learners,
    and each learner needs memory for its old and its new state.
    """
    return int(STATE_SHARE * driver_memory) // (2 * folds * state_bytes)
