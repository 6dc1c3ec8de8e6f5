"""State of an estimator between calls of ``partial_fit``: sums over complete rounds, and the rows of the current round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ....kernels.group_lasso.step_lengths import StepWatch
from ....kernels.group_lasso.task_selection import Diverged, OpenRound, Rounds, TaskRows, TaskStream, run_rounds
from .config import SelectorConfig
from .inputs import divergence_message, look_at, penalty_of, task_rows


@dataclass
class TaskLearner:
    """State from which ``partial_fit`` continues."""

    stream: TaskStream  # sums over the closed rounds
    rows: TaskRows  # those of the open round, in the order of arrival
    slopes: np.ndarray  # derivatives of their losses
    rounds: Rounds  # what the steps minimise
    watch: StepWatch  # of their lengths

    @classmethod
    def after(cls, config: SelectorConfig, stream: TaskStream) -> Self:
        """Return the state after a stream whose last round is complete."""
        penalty, none = penalty_of(config, len(stream.norms)), np.zeros(0)
        rounds = Rounds(penalty, float(config.lam), config.gamma, config.loss, config.fit_intercept, algorithm=config.algorithm)
        return cls(stream, task_rows(np.zeros((0, 1)), none, none, none), none, rounds, StepWatch(config.gamma))

    def learn(self, rows: TaskRows, names: Sequence[Any]) -> None:
        """Learn ``rows``, which follow the rows of the current round. ``names`` are the names of the tasks, for messages. Raises ValueError
        if predictions diverge.
        """
        n_open = self.rows.n
        self.watch.remember(rows.indptr, rows.values, rows.weight)
        together = self.rows.followed_by(rows) if n_open else rows
        order = np.flatnonzero(together.weight > 0)
        opened = OpenRound(np.arange(n_open), self.slopes)
        try:
            progress = run_rounds(self.stream, together, order[order >= n_open], self.rounds, opened)
        except Diverged as error:
            name = names[together.codes[error.row]]
            raise ValueError(divergence_message(self.watch, together, error.row - n_open, name)) from None
        look_at(self.watch, self.rounds, progress, rows, np.flatnonzero(rows.weight > 0))
        opened = progress.open
        self.rows, self.slopes = together.chosen(opened.rows), opened.slopes
