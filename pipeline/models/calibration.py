"""Conversion of decision values to class probabilities: a plain record, saved with its model."""

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
    """The map from the decision value f of every binary model to the probability of its positive class.

    ``logistic``: ``1 / (1 + exp(-f))``, exact for the logistic loss. ``sigmoid``: ``1 / (1 + exp(a f + b))``. ``isotonic``: piecewise
    linear, and constant outside the range of its knots.
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
        """Return the probabilities of the positive and of the negative class, ``(n,)`` each. Both have full relative precision near 0."""
        if self.kind == "isotonic":
            corners = slice(self.starts[machine], self.starts[machine + 1])
            yes = np.interp(f, self.values[corners], self.levels[corners])
            return yes, 1.0 - yes
        z = f if self.kind == "logistic" else -(self.a[machine] * f + self.b[machine])
        return logistic(z), logistic(-z)


def fit_calibration(kind: str, folds: int, values: np.ndarray, codes: np.ndarray, weight: np.ndarray) -> Calibration:
    """Return the calibration of binary models from held-out decision values ``(n_machines, n)``.

    ``codes`` ``(n,)``: classes of the rows. ``weight`` ``(n,)``: positive weights of the rows. A single binary model separates the second
    of two classes from the first; several models separate one class each from the rest.
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
    """Return the class probabilities ``(n, n_classes)`` from decision values ``(n, n_machines)``.

    One-against-rest probabilities are divided by their sum. If all are 0, classes get equal probabilities.
    """
    if values.shape[1] == 1:
        yes, no = calibration.scores(0, values[:, 0])
        return np.column_stack([no, yes])
    raw = np.column_stack([calibration.scores(machine, f)[0] for machine, f in enumerate(values.T)])
    total = raw.sum(axis=1, keepdims=True)
    return np.divide(raw, total, out=np.full_like(raw, 1.0 / raw.shape[1]), where=total > 0.0)


def log_loss(probabilities: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the mean of ``-log p`` over rows with classes ``codes`` ``(n,)``. p is at least the machine epsilon."""
    p = probabilities[np.arange(len(codes)), codes]
    return float(-np.average(np.log(np.clip(p, np.finfo(np.float64).eps, 1.0)), weights=weight))


def brier_score(probabilities: np.ndarray, codes: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return the mean squared difference between probabilities and outcomes: for two classes, of the probability of the second class;
    otherwise summed over classes.
    """
    if probabilities.shape[1] == 2:
        return float(np.average(np.square(probabilities[:, 1] - codes), weights=weight))
    errors = np.sum(np.square(probabilities - np.eye(probabilities.shape[1])[codes]), axis=1)
    return float(np.average(errors, weights=weight))


def probability_names(labels: Sequence[object]) -> list[str]:
    """Return the column names of class probabilities."""
    return [f"probability[{label}]" for label in labels]
