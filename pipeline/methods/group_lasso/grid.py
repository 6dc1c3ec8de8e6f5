"""Grids and folds of the group lasso on a stream: one learner per (parameters, fold), and every block of rows is read once for all.

Learners take a block one after another: their sums would not stay in the processor's cache if they took it row by row together. On a
cluster every fit is a job (`pipeline/runs/jobs.py`) over the same blocks in the same order, and has the bits that it has here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ...inputs.folds import SharedLoop, fold_masks, group_by_parameters, table_rows
from ...inputs.labels import Inputs, row_weights
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics, fit_tracker, with_held_out
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import GroupLassoConfig
from .inputs import machine_targets, read_store
from .learners import LearnerFactory
from .measures import decision_rows
from .rows import STEP_BYTES, RowBlocks, RowRef, advance, block_order, ordered_rows, step_end

PASS_PARAMETERS = ("epochs", "shuffle")  # parameters that change which rows come when: points that differ in them cannot share a pass
STATE_SHARE = 0.25  # share of the driver's memory that the learners of one pass may take; more points take more passes
ON_ONE_PROCESS = True  # rows that are learned one after another are no pass; on a cluster every fit is a job of its own
MIN_READS_PER_WRITE = 4  # a step reads at least this many times the bytes of the checkpoint it ends with


@dataclass(frozen=True)
class GridState:
    """Where the learners of a grid stand in the stream they share, see :class:`~.stream_state.StreamState`."""

    record_name: ClassVar[str] = "GridState"
    iteration: int
    stop: str | None
    epoch: int
    block: int
    rows: int
    points: tuple[StreamPoint, ...]


@dataclass(frozen=True)
class GridFit:
    """One fit: what makes its learner, the weights of its rows, and what scores it."""

    learners: LearnerFactory
    weight: np.ndarray
    tracker: AccuracyTracker | R2Tracker


class GridLoop:
    """Epochs over the rows of a store that the learners of all fits take."""

    state_type = GridState

    def __init__(self, fits: Sequence[GridFit], inputs: Inputs, budget: int) -> None:
        self.grid_fits, self.inputs, self.targets = list(fits), inputs, machine_targets(inputs)
        self.fits = tuple(fit.tracker for fit in fits)
        self.config: GroupLassoConfig = self.grid_fits[0].learners.config
        self.blocks = RowBlocks(inputs.data, budget)
        self.step_bytes = max(STEP_BYTES, MIN_READS_PER_WRITE * sum(fit.learners.state_bytes for fit in self.grid_fits))

    def init(self, ctx: RunContext) -> GridState:
        """Return the state before the first row."""
        return GridState(0, None, 0, 0, 0, tuple(fit.learners.learner().point() for fit in self.grid_fits))

    def step(self, state: GridState, ctx: RunContext) -> Step[GridState]:
        """Let every learner take some blocks; the last step scores all of them."""
        refs = self.blocks.refs()
        order = block_order(len(refs), ctx.seed, state.epoch, self.config.shuffle)
        end = step_end(refs, order, state.block, self.step_bytes)
        learners = [fit.learners.learner(point) for fit, point in zip(self.grid_fits, state.points, strict=True)]
        n_rows = sum(self._take(learners, refs[k], k, state.epoch, ctx.seed) for k in order[state.block : end].tolist())
        ends_epoch = end == len(refs)
        for learner in learners if ends_epoch else ():
            learner.finish()
        state = advance(state, n_rows, None if ends_epoch else end, self.config.epochs)
        state = replace(state, points=tuple(learner.point() for learner in learners))
        metrics = {"epoch": state.epoch, "rows": state.rows, "fits": len(learners)}
        return Step(state, metrics if state.stop is None else {**metrics, **self._scores(learners)})

    def _take(self, learners: Sequence[StreamLearner], ref: RowRef, number: int, epoch: int, seed: int) -> int:
        """Let all learners take a block of rows; returns how many there are."""
        span = slice(*ref.rows)
        rows = ordered_rows(self.blocks, ref, number, epoch, seed, self.config.shuffle)
        targets = np.ascontiguousarray(self.targets[:, span])
        for fit, learner in zip(self.grid_fits, learners, strict=True):
            learner.take(rows, targets, fit.weight[span].copy())
        return len(rows.order)

    def _scores(self, learners: Sequence[StreamLearner]) -> dict[str, Any]:
        tests, selected = [], []
        name = "r2" if self.inputs.classes is None else "accuracy"
        for fit, learner in zip(self.grid_fits, learners, strict=True):
            weights, biases, _ = learner.weights(fit.learners.config.average)
            values = decision_rows(self.blocks, weights, biases, self.targets.shape[1])
            tests.append(accuracy_metrics([fit.tracker], dict(enumerate(values)))[f"test_{name}"])
            selected.append(int(np.count_nonzero(weights.any(axis=0))))
        return {f"test_{name}": tests, "selected": selected}


def shares(grid: Sequence[GroupLassoConfig]) -> bool:
    """Return whether the fits of a grid share passes: those of streams do, batch fits are done one after another."""
    return all(config.algorithm != "fista" for config in grid)


def shared_loops(ctx: RunContext, grid: Sequence[GroupLassoConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[SharedLoop]:
    """Return the loops that evaluate a grid by cross-validation on row masks."""
    inputs = read_store(ctx, extra)
    masks = fold_masks(inputs.target, inputs.classes, folds, seed)
    factories = [LearnerFactory.create(config, inputs, int(inputs.data.n_cols)) for config in grid]
    fits, loops = [_grid_fits(learners, inputs, masks) for learners in factories], []
    for points in group_by_parameters(grid, PASS_PARAMETERS):
        # As many points in a pass as the driver can hold learners of, each with the state it came from and the one it makes.
        state_bytes = max(factories[k].state_bytes for k in points)
        count = max(1, int(STATE_SHARE * ctx.driver_memory) // (2 * folds * state_bytes))
        for part in (points[k : k + count] for k in range(0, len(points), count)):
            loops.append(SharedLoop(part, GridLoop([fit for k in part for fit in fits[k]], inputs, ctx.driver_memory)))
    return loops


def _grid_fits(learners: LearnerFactory, inputs: Inputs, masks: Sequence[np.ndarray]) -> list[GridFit]:
    return [GridFit(learners, row_weights(learners.config, with_held_out(inputs, mask)), fit_tracker(inputs, mask)) for mask in masks]


__all__ = ["shared_loops", "shares", "table_rows"]
