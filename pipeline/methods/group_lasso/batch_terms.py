"""Terms of the batch problem, states of its problems, and the solution. The states are saved without pickle."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ....kernels.bounds import sound_gap
from ....kernels.group_lasso.penalty import GroupPenalty
from ...inputs.scores import AccuracyTracker, R2Tracker
from .config import ClassLoss

Engine = Literal["auto", "gram", "working_set", "fista"]


@dataclass(frozen=True)
class BatchTerms:
    """Terms of the objective: target, row weights, loss and penalty."""

    targets: np.ndarray  # (n_machines, n) labels +-1 or values; machines share rows, costs and penalty
    cost: np.ndarray  # (n,) weights c_i, 0 for rows that are left out; they sum to 1 for the mean loss
    loss: ClassLoss
    penalty: GroupPenalty
    lam: float | None  # None: lam_share of the least lam without any feature, which the first step finds
    fit_bias: bool = True  # it bears no penalty
    tol: float = 1e-4  # gap at which a machine ends, relative to its objective
    max_iter: int = 1000  # steps of the loop at most
    engine: Engine = "auto"
    lam_share: float = math.nan
    tracker: AccuracyTracker | R2Tracker | None = None  # what accuracies (R2) are measured of at the end


@dataclass(frozen=True)
class BatchMachine:
    """State of one problem: working set, weights, and bounds."""

    record_name: ClassVar[str] = "BatchMachine"
    groups: np.ndarray  # int64 groups of the working set, in the order they joined
    joined: np.ndarray  # int64 how many joined at a time
    copies: np.ndarray  # (1, size) weights of their copies, group after group
    biases: np.ndarray  # (1,)
    objective: float  # P
    lower: float  # best dual value so far
    lambda_max: float  # least lam without any feature; NaN before it is known
    inner_tol: float  # relative gap to which the set's problem is solved
    stop: str | None = None  # "gap", "max_iter" or "no_progress"

    @property
    def gap(self) -> float:
        """P minus the best dual value. Negative values, which are rounding errors, are set to 0."""
        return sound_gap(self.objective - self.lower, self.objective)


@dataclass(frozen=True)
class BatchState:
    """State of the fit: the engine that runs, and one entry per problem."""

    record_name: ClassVar[str] = "BatchState"
    iteration: int
    engine: str
    machines: tuple[BatchMachine, ...]
    lam: float = math.nan  # weight of the penalty; NaN before it is known, and in states of versions that did not keep it

    @property
    def stop(self) -> str | None:
        """The reason to stop once all one-vs-rest models have stopped, otherwise None."""
        reasons = [machine.stop for machine in self.machines]
        return None if None in reasons else max(str(reason) for reason in reasons)


def auto_share(weight: float, n_groups: int) -> float:
    """Return ``lam="auto"`` as a fraction of the smallest lam that selects nothing: ``6/10 * log(2 G) / n`` for G groups, at most 3/10.
    Here n is the sum of the row weights, so that a row of weight 2 counts as two rows.

    If G groups are correlated with the target only by chance, their largest squared correlation is about log(2 G)/n, relative to the
    largest possible one.
    """
    return min(0.6 * math.log(2.0 * n_groups) / weight, 0.3)


class BatchSolution(NamedTuple):
    """A finished fit. Objective and gap are summed over the problems."""

    weights: np.ndarray  # (n_machines, n_features) of the columns as they were scaled
    biases: np.ndarray  # (n_machines,)
    active: tuple[np.ndarray, ...]  # per machine, the groups with weights, ascending
    objective: float
    gap: float
    lambda_max: float  # the greatest
    lam: float
    converged: bool  # every gap is within the tolerance
    engine: str
