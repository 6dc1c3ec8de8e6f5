"""How the decision values of a model become probabilities of its classes. A plain record, saved with the model it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np

from ...kernels.calibration import fit_sigmoid, fit_steps, logistic

no_entries = partial(np.zeros, 0)


@dataclass(frozen=True)
class Calibration:
    """The map from every machine's decision value to the probability of what it speaks for.

    ``logistic``: ``1 / (1 + exp(-f))``, exact for machines of the logistic loss; ``sigmoid``: ``1 / (1 + exp(a f + b))``; ``isotonic``:
    linear between corners, constant beyond them.
    """

    record_name: ClassVar[str] = "Calibration"
    kind: str  # logistic, sigmoid or isotonic
    folds: int = 0  # whose decision values it was fitted to; 0: none
    # a, b: `(n_machines,)` of a sigmoid
    a: np.ndarray = field(default_factory=no_entries)
    b: np.ndarray = field(default_factory=no_entries)
    # starts: `(n_machines + 1,)` where the corners of each machine begin; values, levels: `(n_corners,)`
    starts: np.ndarray = field(default_factory=no_entries)
    values: np.ndarray = field(default_factory=no_entries)
    levels: np.ndarray = field(default_factory=no_entries)

    def scores(self, machine: int, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the probability that a machine is right to say yes, and to say no, ``(n,)`` each: both to full precision near 0."""
        if self.kind == "isotonic":
            corners = slice(self.starts[machine], self.starts[machine + 1])
            yes = np.interp(f, self.values[corners], self.levels[corners])
            return yes, 1.0 - yes
        z = f if self.kind == "logistic" else -(self.a[machine] * f + self.b[machine])
        return logistic(z), logistic(-z)


def fit_calibration(kind: str, folds: int, values: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> Calibration:
    """Return the calibration of machines with decision values ``(n_machines, n)`` on rows they were not fitted to.

    ``codes`` ``(n,)`` are the classes of the rows, ``weight`` ``(n,)`` how much each counts, more than 0. One machine speaks for the second
    of two classes, several for one class each.
    """
    positives = [codes == 1] if len(values) == 1 else [codes == machine for machine in range(len(values))]
    if kind == "sigmoid":
        fitted = np.array([fit_sigmoid(f, positive, weight) for f, positive in zip(values, positives, strict=True)])
        return Calibration(kind, folds, a=fitted[:, 0].copy(), b=fitted[:, 1].copy())
    steps = [fit_steps(f, positive, weight) for f, positive in zip(values, positives, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(corners) for corners, _ in steps])]).astype(np.int64)
    corners, levels = (np.concatenate([pair[side] for pair in steps]) for side in (0, 1))
    return Calibration(kind, folds, starts=starts, values=corners, levels=levels)


def class_probabilities(calibration: Calibration, values: np.ndarray) -> np.ndarray:
    """Return the probabilities of the classes ``(n, n_classes)`` from decision values ``(n, n_machines)``.

    Of several machines, one against the rest each, they are divided by their sum; where all are 0 every class has the same.
    """
    if values.shape[1] == 1:
        yes, no = calibration.scores(0, values[:, 0])
        return np.column_stack([no, yes])
    raw = np.column_stack([calibration.scores(machine, f)[0] for machine, f in enumerate(values.T)])
    total = raw.sum(axis=1, keepdims=True)
    return np.divide(raw, total, out=np.full_like(raw, 1.0 / raw.shape[1]), where=total > 0.0)


def log_loss(probabilities: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the mean of ``-log p`` over the classes ``(n,)`` that the rows have; p is at least the rounding of 1."""
    p = probabilities[np.arange(len(codes)), codes]
    return float(-np.average(np.log(np.clip(p, np.finfo(np.float64).eps, 1.0)), weights=weight))


def brier_score(probabilities: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the mean square of probabilities less what is: of the second class of two, else the sum over the classes."""
    if probabilities.shape[1] == 2:
        return float(np.average(np.square(probabilities[:, 1] - codes), weights=weight))
    errors = np.sum(np.square(probabilities - np.eye(probabilities.shape[1])[codes]), axis=1)
    return float(np.average(errors, weights=weight))


def probability_names(labels: Sequence[object]) -> list[str]:
    """Return the names of columns of probabilities."""
    return [f"probability[{label}]" for label in labels]
