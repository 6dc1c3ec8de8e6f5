"""The problem of feature selection over many tasks: its objective, the weight of its penalty, and what a solution is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....kernels.group_lasso.task_selection import task_penalty
from ....kernels.losses import mean_loss
from .config import SelectorConfig
from .inputs import SelectorData


@dataclass(frozen=True)
class Solution:
    """Weights of scaled features and what they cost.

    Attributes
    ----------
    weights, intercepts
        ``(Q, d)`` and ``(Q,)``, without offsets.
    objective, gap
        Mean losses of the tasks and penalty (4.3); distance to the optimum, NaN where nothing bounds it.
    """

    weights: np.ndarray
    intercepts: np.ndarray
    objective: float
    gap: float


def objective_value(config: SelectorConfig, data: SelectorData, lam: float, weights: np.ndarray, values: np.ndarray) -> float:
    """Return the sum over tasks of their mean losses at decision values ``(n,)``, and the penalty (4.3)."""
    penalty = task_penalty(config.penalty, data.n_features, config.r)
    return float(data.mean_weights @ mean_loss(config.loss).exact(data.rows.target, values)) + lam * penalty.value(weights)


def penalty_weight(config: SelectorConfig, phase: int) -> float:
    """Return the weight of the penalty while features are selected (phase 0), and when they are fitted again."""
    return config.lam if phase == 0 or config.refit is None else config.refit
