"""Grids and folds of the group lasso on a stream: one learner per (parameters, fold), and every block of rows is read once for all.

Learners take a block one after another: their sums would not stay in the processor's cache if they took it row by row together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.dual_averaging import Rows
from ....kernels.group_lasso.streams import StreamPoint
from ...inputs.folds import Shared, alike, fold_masks, table_rows
from ...inputs.labels import row_weights
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics, with_held_out
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import GroupLassoConfig
from .inputs import GroupLassoInputs, group_lasso_inputs
from .measures import decision_rows
from .rows import STEP_BYTES, RowBlocks, block_order, moved, row_order, step_end
from .stream import Machine, machine_of, state_bytes

PASS_PARAMETERS = ("epochs", "shuffle")
"""Parameters that change which rows come when: points that differ in them cannot share a pass."""

STATE_SHARE = 0.25
"""Share of the driver's memory that the learners of one pass may take; more points take more passes."""

WRITTEN = 4
"""A step reads at least this many times the bytes of the checkpoint it ends with."""


@dataclass(frozen=True)
class GridState:
    """Where the learners of a grid stand in the stream they share; fields as of a single stream's state."""

    record_name: ClassVar[str] = "GridState"
    iteration: int
    stop: str | None
    epoch: int
    block: int
    rows: int
    points: tuple[StreamPoint, ...]


@dataclass(frozen=True)
class GridFit:
    """One learner: what makes it, the weights of its rows, and who scores it."""

    machine: Machine
    weight: np.ndarray
    score: AccuracyTracker | R2Tracker


class GridLoop:
    """Epochs over the rows of a store that all learners take."""

    state_type = GridState

    def __init__(self, fits: Sequence[GridFit], inputs: GroupLassoInputs, budget: int) -> None:
        self.learned, self.inputs, self.targets = list(fits), inputs, inputs.targets
        self.fits = tuple(fit.score for fit in fits)
        self.config: GroupLassoConfig = self.learned[0].machine.config
        self.blocks = RowBlocks(inputs.data, budget)
        self.step_bytes = max(STEP_BYTES, WRITTEN * sum(state_bytes(fit.machine) for fit in self.learned))

    def init(self, ctx: RunContext) -> GridState:
        """Return the state before the first row."""
        return GridState(0, None, 0, 0, 0, tuple(fit.machine.learner().point() for fit in self.learned))

    def step(self, state: GridState, ctx: RunContext) -> Step[GridState]:
        """Let every learner take some blocks; the last step scores all of them."""
        refs = self.blocks.refs()
        order = block_order(len(refs), ctx.seed, state.epoch, self.config.shuffle)
        end = step_end(refs, order, state.block, self.step_bytes)
        learners = [fit.machine.learner(point) for fit, point in zip(self.learned, state.points, strict=True)]
        rows = 0
        for k in order[state.block : end].tolist():
            rows += self._take(learners, refs[k], k, state.epoch, ctx.seed)
        over = end == len(refs)
        for learner in learners if over else ():
            learner.finish()
        state = moved(state, rows, None if over else end, self.config.epochs)
        state = replace(state, points=tuple(learner.point() for learner in learners))
        metrics = {"epoch": state.epoch, "rows": state.rows, "fits": len(learners)}
        return Step(state, metrics if state.stop is None else {**metrics, **self._scores(learners)})

    def _take(self, learners: Sequence[Any], ref: Any, number: int, epoch: int, seed: int) -> int:
        rows, span = self.blocks.load(ref), slice(*ref.rows)
        order = row_order(ref.rows[1] - ref.rows[0], seed, epoch, number, self.config.shuffle)
        rows, targets = Rows(rows.indptr, rows.indices, rows.values, order), np.ascontiguousarray(self.targets[:, span])
        for fit, learner in zip(self.learned, learners, strict=True):
            learner.take(rows, targets, fit.weight[span].copy())
        return len(order)

    def _scores(self, learners: Sequence[Any]) -> dict[str, Any]:
        tests, selected = [], []
        name = "r2" if self.inputs.classes is None else "accuracy"
        for fit, learner in zip(self.learned, learners, strict=True):
            weights, biases, _ = learner.weights(fit.machine.config.average)
            values = decision_rows(self.blocks, weights, biases, self.targets.shape[1])
            tests.append(accuracy_metrics([fit.score], dict(enumerate(values)))[f"test_{name}"])
            selected.append(int(np.count_nonzero(weights.any(axis=0))))
        return {f"test_{name}": tests, "selected": selected}


def shares(grid: Sequence[GroupLassoConfig]) -> bool:
    """Return whether the fits of a grid share passes: those of streams do, batch fits are done one after another."""
    return all(config.algorithm != "fista" for config in grid)


def shared_loops(ctx: RunContext, grid: Sequence[GroupLassoConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[Shared]:
    """Return the loops that evaluate a grid by cross-validation on row masks."""
    inputs = group_lasso_inputs(ctx, extra)
    masks = fold_masks(inputs.target, inputs.classes, folds, seed)
    return [
        Shared(part, GridLoop([fit for k in part for fit in _fits(grid[k], inputs, masks)], inputs, ctx.driver_memory))
        for points in alike(grid, PASS_PARAMETERS)
        for part in _parts(points, grid, inputs, folds, ctx.driver_memory)
    ]


def _parts(
    points: tuple[int, ...], grid: Sequence[GroupLassoConfig], inputs: GroupLassoInputs, folds: int, memory: int
) -> list[tuple[int, ...]]:
    """Return the points of each pass: as many as the driver can hold learners of."""
    largest = max(state_bytes(machine_of(grid[k], inputs, int(inputs.data.n_cols))) for k in points)
    # A step holds the state it came from and the one it makes.
    count = max(1, int(STATE_SHARE * memory) // (2 * folds * largest))
    return [points[k : k + count] for k in range(0, len(points), count)]


def _fits(config: GroupLassoConfig, inputs: GroupLassoInputs, masks: Sequence[np.ndarray]) -> list[GridFit]:
    machine = machine_of(config, inputs, int(inputs.data.n_cols))
    found = []
    for mask in masks:
        weight = row_weights(config, with_held_out(inputs, mask))
        score = R2Tracker(0, inputs.target, mask) if inputs.classes is None else AccuracyTracker(0, inputs.n_machines, inputs.target, mask)
        found.append(GridFit(machine, weight, score))
    return found


__all__ = ["shared_loops", "shares", "table_rows"]
