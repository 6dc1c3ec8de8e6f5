"""The course of a stream over many tasks: losses as they came, average regret against the last model, sparsity."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....kernels.group_lasso.mean_losses import MeanLoss
from .rounds import RoundsLoop, SelectorState


def course(loop: RoundsLoop, state: SelectorState) -> list[dict[str, Any]]:
    """Return a row per step of a finished stream: rows so far, loss of the step and of all rows so far, average regret, features.

    The regret is what was paid so far, losses before they were learnt from and penalties at the ends of steps, less what the last model
    would have paid, per row: the joint form of Theorem 4 over the tasks. It is that of the last fit, where there are two.
    """
    along, last = state.along, state.along[:, 0] == state.phase
    rows, totals = np.cumsum(along[:, 1]), np.cumsum(along[:, 3])
    regrets = np.full(len(along), np.nan)
    paid = along[last, 3] + along[last, 2] * along[last, 4]
    fixed = _last_losses(loop, state, int(last.sum())) + along[last, 2] * along[-1, 4]
    regrets[last] = np.cumsum(paid - fixed) / np.cumsum(along[last, 1])
    return [
        {
            "rows": float(rows[k]),
            "loss": float(along[k, 3] / along[k, 1]),
            "mean_loss": float(totals[k] / rows[k]),
            "regret": float(regrets[k]) if last[k] else None,
            "features": int(along[k, 5]),
        }
        for k in range(len(along))
    ]


def _last_losses(loop: RoundsLoop, state: SelectorState, steps: int) -> np.ndarray:
    """Return the sum of the last model's losses over the rows of every step of the last fit."""
    data, rounds, stream = loop.data, loop.rounds(state), state.stream
    values = data.rows.decide(rounds.weights(stream), rounds.intercepts(stream))
    told = data.rows.weight * MeanLoss(loop.config.loss).exact(data.rows.target, values)
    found, epoch, part = np.zeros(steps), 0, 0
    for k in range(steps):
        order, epoch, part = loop.next_rows(epoch, part)
        found[k] = told[order[order >= 0]].sum()
    return found
