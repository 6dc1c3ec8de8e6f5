"""The group lasso on a stream of rows as a loop: a step takes some blocks of rows; the state is where the stream stands."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.dual_averaging import Rows
from ....kernels.group_lasso.groups import Groups, stream_groups
from ....kernels.group_lasso.penalty import GroupPenalty
from ....kernels.group_lasso.streams import StreamLearner, StreamPoint
from ...inputs.labels import row_weights
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import GroupLassoConfig
from .inputs import GroupLassoInputs, loss_of, penalty_of
from .measures import Measures, measured
from .rows import RowBlocks, block_order, moved, row_order, step_end

NAN = float("nan")


@dataclass(frozen=True)
class StreamState:
    """Where a fit stands in its stream.

    Attributes
    ----------
    iteration, stop
        Steps so far; why it is over (``"epochs"``, ``"end"`` of a text), or ``None``.
    epoch, block
        Passes that are done; blocks of the present one that are done, in its order (of a text: lines).
    rows, offset
        Rows taken so far; bytes of text read, where the stream is a text.
    point
        State of the learner.
    along
        ``(n_steps, 6)``: of every step its rows, sum of losses suffered, sum of weights, and at its end Omega, non-zero features, groups.
    ended
        ``(n_steps,)`` sum of the losses of the last model over the rows of every step; empty until then.
    """

    record_name: ClassVar[str] = "StreamState"
    iteration: int
    stop: str | None
    epoch: int
    block: int
    rows: int
    offset: int
    point: StreamPoint
    along: np.ndarray = field(default_factory=lambda: np.zeros((0, 6)))
    ended: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Machine:
    """What makes the learners of a fit.

    Attributes
    ----------
    config, penalty, labels
        Parameters, penalty, and the label of every group.
    loss, n_machines
        The loss, and how many machines share the stream.
    """

    config: GroupLassoConfig
    penalty: GroupPenalty
    labels: np.ndarray
    loss: str
    n_machines: int

    @cached_property
    def groups(self) -> Groups:
        """The penalty as compiled loops read it."""
        return stream_groups(self.penalty, self.config.lam)

    def learner(self, point: StreamPoint | None = None) -> StreamLearner:
        """Return a learner, at a point of its stream."""
        config = self.config
        made = StreamLearner(
            self.penalty,
            config.lam,
            self.n_machines,
            loss=self.loss,
            gamma=config.gamma,
            rho=config.rho,
            batch=config.batch_size,
            intercept=config.fit_intercept,
            average=config.average,
            algorithm="fobos" if config.algorithm == "fobos" else "da",
            groups=self.groups,
        )
        return made if point is None else made.restore(point)


def machine_of(config: GroupLassoConfig, inputs: Any, n_features: int) -> Machine:
    """Return what makes the learners of a fit.

    Raises
    ------
    ValueError
        Groups, loss or algorithm that do not suit.
    """
    penalty, labels = penalty_of(config, n_features, inputs.groups)
    if config.algorithm == "fobos" and penalty.overlapping:
        raise ValueError("groups overlap, but algorithm='fobos' needs a partition of the features; use algorithm='da' or 'fista'")
    return Machine(config, penalty, labels, loss_of(config, inputs.classes), inputs.n_machines)


def state_bytes(machine: Machine) -> int:
    """Return the bytes a learner takes: sums, their mean if it is kept, a bit per feature, two numbers per group."""
    width = machine.penalty.n_features * (2 if machine.config.average else 1)
    return machine.n_machines * (8 * (width + 2 * machine.penalty.n_groups) + machine.penalty.n_features // 8 + 1)


def summed_up(learner: StreamLearner, average: bool) -> tuple[float, float, float]:
    """Return Omega, features and groups with a weight: sums over the machines, and unions."""
    weights, _, omega = learner.weights(average)
    return float(omega.sum()), float(np.count_nonzero(weights.any(axis=0))), float(np.count_nonzero(learner.active()))


def figures_of(along: np.ndarray) -> dict[str, Any]:
    """Return what a history row holds of the newest step: rows, losses before they were learned, sparsity."""
    last, weight = along[-1], along[:, 2].sum()
    mean = last[1] / last[2] if last[2] > 0 else NAN
    return {
        "rows": int(along[:, 0].sum()),
        "objective": mean + last[3],
        "gap": NAN,
        "loss": mean,
        "mean_loss": along[:, 1].sum() / weight if weight > 0 else NAN,
        "penalty": last[3],
        "n_selected": int(last[4]),
        "n_groups": int(last[5]),
    }


class StreamLoop:
    """Epochs over the rows of a store or of arrays."""

    state_type = StreamState

    def __init__(self, config: GroupLassoConfig, inputs: GroupLassoInputs, budget: int) -> None:
        self.config, self.inputs = config, inputs
        self.machine = machine_of(config, inputs, int(inputs.data.n_cols))
        self.weight, self.targets = row_weights(config, inputs), inputs.targets
        self.blocks = RowBlocks(inputs.data, budget)

    def init(self, ctx: RunContext) -> StreamState:
        """Return the state before the first row."""
        return StreamState(0, None, 0, 0, 0, 0, self.machine.learner().point())

    def step(self, state: StreamState, ctx: RunContext) -> Step[StreamState]:
        """Take the rows of some blocks; the last step of a fit measures the model on all rows."""
        refs = self.blocks.refs()
        order = block_order(len(refs), ctx.seed, state.epoch, self.config.shuffle)
        end = step_end(refs, order, state.block)
        learner = self.machine.learner(state.point)
        loss, weight, rows = learner.losses.sum(), learner.weight, 0
        for k in order[state.block : end].tolist():
            rows += self._take(learner, refs[k], k, state.epoch, ctx.seed)
        over = end == len(refs)
        if over:
            learner.finish()
        found = [rows, learner.losses.sum() - loss, learner.weight - weight, *summed_up(learner, self.config.average)]
        state = moved(state, rows, None if over else end, self.config.epochs)
        state = replace(state, point=learner.point(copy=False), along=np.vstack((state.along, found)))
        measures = self._measured(learner, state, ctx)
        state = replace(state, ended=measures.by_step)
        return Step(state, {"epoch": state.epoch, **figures_of(state.along), **measures.figures})

    def _take(self, learner: StreamLearner, ref: Any, number: int, epoch: int, seed: int) -> int:
        rows, span = self.blocks.load(ref), slice(*ref.rows)
        order = row_order(ref.rows[1] - ref.rows[0], seed, epoch, number, self.config.shuffle)
        learner.take(
            Rows(rows.indptr, rows.indices, rows.values, order), np.ascontiguousarray(self.targets[:, span]), self.weight[span].copy()
        )
        return int(np.count_nonzero(self.weight[span] > 0))

    def _measured(self, learner: StreamLearner, state: StreamState, ctx: RunContext) -> Measures:
        if state.stop is None:
            return Measures.nothing(self.inputs)
        return measured(self, learner, ctx.seed)
