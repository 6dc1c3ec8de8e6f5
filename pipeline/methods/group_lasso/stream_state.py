"""Where a fit stands in its stream of rows, and what every step tells of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.streams import StreamLearner, StreamPoint

NAN = float("nan")


@dataclass(frozen=True)
class StreamState:
    """Where a fit stands in its stream."""

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
        """Return the state before the first row."""
        return cls(0, None, 0, 0, 0, 0, point)

    def with_step(self, before: Totals, learner: StreamLearner, n_rows: int, average: bool) -> StreamState:
        """Return the state with one more row of ``along``: the step after ``before`` took ``n_rows`` rows."""
        now, (weights, _, omega) = Totals.of(learner), learner.weights(average)
        # Sums over the machines, and unions.
        sparsity = float(omega.sum()), float(np.count_nonzero(weights.any(axis=0))), float(np.count_nonzero(learner.active()))
        row = [n_rows, now.loss - before.loss, now.weight - before.weight, *sparsity]
        return replace(self, along=np.vstack((self.along, row)))

    def metrics(self) -> dict[str, Any]:
        """Return what a history row holds of the newest step: rows, losses before they were learned, sparsity."""
        last, weight = self.along[-1], self.along[:, 2].sum()
        mean = last[1] / last[2] if last[2] > 0 else NAN
        objective = {"rows": int(self.along[:, 0].sum()), "objective": mean + last[3], "gap": NAN}
        losses = {"loss": mean, "mean_loss": self.along[:, 1].sum() / weight if weight > 0 else NAN}
        return {**objective, **losses, "penalty": last[3], "n_selected": int(last[4]), "n_groups": int(last[5])}


@dataclass(frozen=True)
class Totals:
    """Sums of a learner over all of its rows: losses suffered, and weights."""

    loss: float
    weight: float

    @classmethod
    def of(cls, learner: StreamLearner) -> Totals:
        """Return those of a learner as it is."""
        return cls(learner.losses.sum(), learner.weight)
