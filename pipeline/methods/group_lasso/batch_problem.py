"""What a batch minimises, what its machines have reached, and what comes out. The states are saved without pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ....kernels.group_lasso.penalty import GroupPenalty
from ....kernels.losses import LossName
from ...inputs.scores import AccuracyTracker, R2Tracker

Engine = Literal["auto", "gram", "working_set", "fista"]


@dataclass(frozen=True)
class BatchProblem:
    """What is to be minimised.

    Attributes
    ----------
    targets
        ``(n_machines, n)``: labels +-1 or values; machines share rows, costs and penalty.
    cost
        ``(n,)`` weights c_i, 0 for rows that are left out; they sum to 1 for the mean loss.
    loss
        ``"logistic"``, ``"squared"`` or ``"hinge"``.
    penalty, lam
        Groups of features and the weight of the penalty.
    fit_bias
        Whether machines have a bias, which bears no penalty.
    tol
        Gap at which a machine ends, relative to its objective.
    max_iter
        Steps of the loop at most.
    engine
        ``"auto"``, ``"gram"``, ``"working_set"`` or ``"fista"``.
    tracker
        What accuracies (R2) are measured of at the end, or ``None``.
    """

    targets: np.ndarray
    cost: np.ndarray
    loss: LossName
    penalty: GroupPenalty
    lam: float
    fit_bias: bool = True
    tol: float = 1e-4
    max_iter: int = 1000
    engine: Engine = "auto"
    tracker: AccuracyTracker | R2Tracker | None = None


@dataclass(frozen=True)
class BatchMachine:
    """What one machine has reached.

    Attributes
    ----------
    groups
        int64 groups of the working set, in the order they joined.
    joined
        int64 how many joined at a time.
    copies
        ``(1, size)`` weights of their copies, group after group.
    biases
        ``(1,)``.
    objective, lower
        P, and the best dual value so far.
    lambda_max
        Least lam without any feature; NaN before it is known.
    inner_tol
        Relative gap to which the set's problem is solved.
    mu
        Smoothing of a hinge.
    stop
        ``"gap"``, ``"max_iter"``, ``"no_progress"`` or ``None``.
    """

    record_name: ClassVar[str] = "BatchMachine"
    groups: np.ndarray
    joined: np.ndarray
    copies: np.ndarray
    biases: np.ndarray
    objective: float
    lower: float
    lambda_max: float
    inner_tol: float
    mu: float = 0.0
    stop: str | None = None

    @property
    def gap(self) -> float:
        """P minus the best dual value; not negative but for round-off, which is cut."""
        return max(self.objective - self.lower, 0.0)


@dataclass(frozen=True)
class BatchState:
    """State of the loop: the engine that runs, and one entry per machine."""

    record_name: ClassVar[str] = "BatchState"
    iteration: int
    engine: str
    machines: tuple[BatchMachine, ...]

    @property
    def stop(self) -> str | None:
        """Reason why every machine has stopped, or ``None``."""
        reasons = [machine.stop for machine in self.machines]
        return None if None in reasons else max(str(reason) for reason in reasons)


class BatchResult(NamedTuple):
    """A finished fit.

    Attributes
    ----------
    weights
        ``(n_machines, n_features)`` of the columns as they were scaled.
    biases
        ``(n_machines,)``.
    active
        Per machine, the groups with weights, ascending.
    objective, gap
        Sums over the machines.
    lambda_max
        Greatest of the machines.
    converged
        Whether every gap is within the tolerance.
    engine
        Which engine ran.
    """

    weights: np.ndarray
    biases: np.ndarray
    active: tuple[np.ndarray, ...]
    objective: float
    gap: float
    lambda_max: float
    converged: bool
    engine: str
