"""The group lasso on a stream of rows as a loop: a step takes some blocks of rows; the state is where the stream stands."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....kernels.group_lasso.streams import StreamLearner
from ....kernels.losses import mean_loss
from ...core.result import Step
from ...inputs.labels import Inputs, row_weights
from ...records.context import RunContext
from .config import GroupLassoConfig
from .inputs import machine_targets
from .learners import LearnerFactory
from .measures import Measures, decision_rows, measure
from .rows import RowBlocks, RowRef, advance, block_order, ordered_rows, step_blocks, step_end
from .stream_state import StreamState, Totals


class StreamLoop:
    """Epochs over the rows of a store or of arrays."""

    state_type = StreamState
    too_long = ""  # what to tell of steps that were

    def __init__(self, config: GroupLassoConfig, inputs: Inputs, budget: int) -> None:
        self.config, self.inputs = config, inputs
        self.learners = LearnerFactory.create(config, inputs, int(inputs.data.n_cols))
        self.weight, self.targets = row_weights(config, inputs), machine_targets(inputs)
        self.blocks = RowBlocks(inputs.data, budget)

    def init(self, ctx: RunContext) -> StreamState:
        """Return the state before the first row."""
        return StreamState.start(self.learners.learner().point())

    def step(self, state: StreamState, ctx: RunContext) -> Step[StreamState]:
        """Take the rows of some blocks; the last step of a fit measures the model on all rows."""
        refs = self.blocks.refs()
        order = block_order(len(refs), ctx.seed, state.epoch, self.config.shuffle)
        end = step_end(refs, order, state.block)
        learner = self.learners.learner(state.point)
        before = Totals.of(learner)
        n_rows = sum(self._take(learner, refs[k], k, state.epoch, ctx.seed) for k in order[state.block : end].tolist())
        ends_epoch = end == len(refs)
        self.too_long = self.too_long or learner.watch.message
        if ends_epoch:
            learner.finish()
        state = advance(state, n_rows, None if ends_epoch else end, self.config.epochs)
        state = replace(state, point=learner.point(copy=False)).with_step(before, learner, n_rows, self.config.average)
        measures = self._measure(learner, state, ctx)
        state = replace(state, ended=measures.by_step)
        return Step(state, {"epoch": state.epoch, **state.metrics(), **measures.figures})

    def _take(self, learner: StreamLearner, ref: RowRef, number: int, epoch: int, seed: int) -> int:
        """Let a learner take a block of rows; returns how many of them have a weight."""
        span = slice(*ref.rows)
        rows = ordered_rows(self.blocks, ref, number, epoch, seed, self.config.shuffle)
        learner.take(rows, np.ascontiguousarray(self.targets[:, span]), self.weight[span].copy())
        return int(np.count_nonzero(self.weight[span] > 0))

    def _measure(self, learner: StreamLearner, state: StreamState, ctx: RunContext) -> Measures:
        if state.stop is None:
            return Measures.unknown(self.inputs)
        weights, biases, _ = learner.weights(self.config.average)
        values = decision_rows(self.blocks, weights, biases, self.targets.shape[1])
        losses = (mean_loss(self.learners.loss).values(self.targets, values) * self.weight).sum(axis=0)
        steps = step_blocks(self.blocks.refs(), ctx.seed, self.config.epochs, self.config.shuffle)
        return measure(self.inputs, values, losses, self.weight, steps)
