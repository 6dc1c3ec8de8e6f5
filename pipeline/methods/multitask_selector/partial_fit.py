"""What an estimator keeps between calls of ``partial_fit``: sums over complete rounds, and the rows of the open one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from ....kernels.group_lasso.task_selection import Diverged, OpenRound, Rounds, TaskRows, TaskStream, run_rounds, task_penalty
from .config import SelectorConfig
from .inputs import task_rows, without_bound


@dataclass
class Learned:
    """What ``partial_fit`` goes on from.

    Attributes
    ----------
    stream
        Sums over the closed rounds.
    rows, slopes
        Rows of the open round, in the order of arrival, and the derivatives of their losses.
    rounds
        What the steps minimise.
    """

    stream: TaskStream
    rows: TaskRows
    slopes: np.ndarray
    rounds: Rounds

    @classmethod
    def after(cls, config: SelectorConfig, stream: TaskStream) -> Self:
        """Return what goes on from a stream whose last round is closed."""
        penalty = task_penalty(config.penalty, len(stream.norms), config.r)
        rounds = Rounds(penalty, config.lam, config.gamma, config.loss, config.fit_intercept)
        return cls(stream, task_rows(np.zeros((0, 1)), np.zeros(0, np.int64), np.zeros(0), np.zeros(0)), np.zeros(0), rounds)

    def learn(self, rows: TaskRows, names: Sequence[Any]) -> None:
        """Read rows behind those of the open round; ``names`` of the tasks are for messages.

        Raises
        ------
        ValueError
            Predictions grow without bound.
        """
        had = self.rows.n
        every = self.rows.followed_by(rows) if had else rows
        order = np.flatnonzero(every.weight > 0)
        try:
            left = run_rounds(self.stream, every, order[order >= had], self.rounds, OpenRound(np.arange(had), self.slopes)).open
        except Diverged as error:
            name = names[every.codes[error.row]]
            raise ValueError(without_bound(self.rounds.gamma, error.row - had, name)) from None
        self.rows, self.slopes = every.chosen(left.rows), left.slopes


def first_not_finite(X: Any) -> int | None:
    """Return the first row that holds NaN or infinity; ``None`` if there is none, or rows cannot be told."""
    if sp.issparse(X):
        entries: Any = sp.coo_array(X)
        rows = np.sort(entries.coords[0][~np.isfinite(entries.data)])
        return int(rows[0]) if rows.size else None
    try:
        rows = np.flatnonzero(~np.isfinite(np.asarray(X, np.float64)).all(axis=1))
    except (TypeError, ValueError, np.exceptions.AxisError):
        return None
    return int(rows[0]) if rows.size else None
