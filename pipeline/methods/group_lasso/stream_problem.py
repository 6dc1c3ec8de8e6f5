"""The group lasso on a stream of rows: a step takes some blocks of rows; the state is where the stream stands."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ....kernels.group_lasso.streams import StreamLearner
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
from .rows import RowBlocks, RowRef, advance, block_order, ordered_rows, step_blocks, step_end
from .stream_state import StreamState, Totals
from .text import TextData


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
        """Blocks per epoch, bytes read, memory of the state."""
        config, data = self.config, self.inputs.data
        rounds = config.epochs * -(-int(np.count_nonzero(self.weight > 0)) // config.batch_size)
        epochs = {"epochs": config.epochs, "rounds_at_most": rounds}
        epochs |= {"bytes_read_per_epoch": int(sum(ref.nbytes for ref in data.column_blocks()))}
        rows = "row blocks" if "rows" in data.meta.layouts else "columns, made into rows once"
        return {**stream_plan(config, self.learners, data), "rows_from": rows, **epochs}

    def init(self, resources: Resources) -> StreamState:
        """Return the state before the first row."""
        return StreamState.start(self.learners.learner().point())

    def step(self, state: StreamState, resources: Resources) -> Step[StreamState]:
        """Take the rows of some blocks; the last step of a fit measures the model on all rows."""
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
        """Let a learner take a block of rows; returns how many of them have a weight."""
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
    """Return what a plan of every stream says."""
    sizes = {"algorithm": config.algorithm, "machines": learners.n_machines, "groups": learners.penalty.n_groups}
    return {**driver_plan(stream_items(learners, data)), **sizes, "state_bytes": int(learners.state_bytes), "task_bytes": 0}
