"""Learners of several fits on a stream of rows: every block of rows is read once for all.

Learners take a block one after another: their sums would not stay in the processor's cache if they took it row by row together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ...core.memory import driver_plan
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.labels import Inputs, row_weights
from .config import GroupLassoConfig
from .inputs import machine_targets
from .learners import LearnerFactory
from .measures import decision_rows
from .memory import stream_items
from .rows import STEP_BYTES, RowBlocks, RowRef, advance, block_order, ordered_rows, step_end

STATE_SHARE = 0.25  # share of the driver's memory that the learners of one pass may take; more points take more passes
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
    """One fit: what makes its learner, and the weights of its rows."""

    learners: LearnerFactory
    weight: np.ndarray


class GridProblem:
    """Epochs over the rows of a store that the learners of all fits take."""

    state_type = GridState
    distributed = ()

    def __init__(self, fits: Sequence[GridFit], inputs: Inputs, budget: int) -> None:
        self.grid_fits, self.inputs, self.targets = list(fits), inputs, machine_targets(inputs)
        self.config: GroupLassoConfig = self.grid_fits[0].learners.config
        self.blocks = RowBlocks(inputs.data, budget)
        self.step_bytes = max(STEP_BYTES, MIN_READS_PER_WRITE * sum(fit.learners.state_bytes for fit in self.grid_fits))

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Memory of all learners together."""
        fits = self.grid_fits
        return {**driver_plan(stream_items(fits[0].learners, self.inputs.data, len(fits))), "task_bytes": 0}

    def init(self, resources: Resources) -> GridState:
        """Return the state before the first row."""
        return GridState(0, None, 0, 0, 0, tuple(fit.learners.learner().point() for fit in self.grid_fits))

    def step(self, state: GridState, resources: Resources) -> Step[GridState]:
        """Let every learner take some blocks."""
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
        """Let all learners take a block of rows; returns how many there are."""
        span = slice(*ref.rows)
        rows = ordered_rows(self.blocks, ref, number, epoch, seed, self.config.shuffle)
        targets = np.ascontiguousarray(self.targets[:, span])
        for fit, learner in zip(self.grid_fits, learners, strict=True):
            learner.take(rows, targets, fit.weight[span].copy())
        return len(rows.order)

    def values(self, fit: GridFit, learner: StreamLearner) -> np.ndarray:
        """Return what a learner decides on all rows, ``(n_machines, n)``."""
        weights, biases, _ = learner.weights(fit.learners.config.average)
        return decision_rows(self.blocks, weights, biases, self.targets.shape[1])

    def decision_values(self, state: GridState, resources: Resources) -> np.ndarray:
        """Return what all fits decide on all rows, ``(n_fits * n_machines, n)``."""
        parts = zip(self.grid_fits, state.points, strict=True)
        return np.concatenate([self.values(fit, fit.learners.learner(point)) for fit, point in parts])

    def selected(self, state: GridState) -> list[int]:
        """Return of every fit how many features have a weight."""
        pairs = zip(self.grid_fits, state.points, strict=True)
        weights = (fit.learners.learner(point).weights(fit.learners.config.average)[0] for fit, point in pairs)
        return [int(np.count_nonzero(some.any(axis=0))) for some in weights]


def grid_fits(learners: LearnerFactory, inputs: Inputs, masks: Sequence[np.ndarray]) -> list[GridFit]:
    """Return one fit for the rows outside of every mask."""
    return [GridFit(learners, row_weights(learners.config, inputs.without(mask))) for mask in masks]


def fits_in_a_pass(state_bytes: int, folds: int, driver_memory: int) -> int:
    """Return how many points of so many folds the driver can hold learners of, with the states they come from and those they make."""
    return int(STATE_SHARE * driver_memory) // (2 * folds * state_bytes)
