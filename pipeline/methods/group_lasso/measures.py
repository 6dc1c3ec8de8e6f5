"""What the last model of a stream does on all rows: losses step by step, for the regret, and accuracies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ....kernels.group_lasso.dual_averaging import row_products
from ....kernels.group_lasso.streams import StreamLearner
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from .rows import RowBlocks, block_order, step_end

if TYPE_CHECKING:
    from .inputs import GroupLassoInputs
    from .stream import StreamLoop

NAN = float("nan")


@dataclass(frozen=True)
class Measures:
    """Figures of a model on all rows.

    Attributes
    ----------
    by_step
        ``(n_steps,)`` sum of the losses of the last model over the rows of every step.
    figures
        Mean loss and accuracy (R2) of the rows learned, and of those held out.
    """

    by_step: np.ndarray = field(default_factory=lambda: np.zeros(0))
    figures: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def nothing(cls, inputs: GroupLassoInputs) -> Measures:
        """Return no figures, by the names they will have."""
        name = "r2" if inputs.classes is None else "accuracy"
        return cls(figures={"final_loss": NAN, f"train_{name}": NAN, f"test_{name}": NAN})


def losses_of(kind: str, targets: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the loss of every decision value."""
    if kind == "squared":
        return 0.5 * np.square(values - targets)
    margins = targets * values
    return np.maximum(1.0 - margins, 0.0) if kind == "hinge" else np.logaddexp(0.0, -margins)


def decision_rows(blocks: RowBlocks, weights: np.ndarray, biases: np.ndarray, n: int) -> np.ndarray:
    """Return the decision values of all n rows, ``(n_machines, n)``."""
    out, flags = np.empty((len(weights), n)), np.packbits(weights != 0.0, axis=1, bitorder="little")
    for ref in blocks.refs():
        rows = blocks.load(ref)
        for machine, bits, values in zip(weights, flags, out, strict=True):
            row_products(rows, machine, bits, values[slice(*ref.rows)])
    out += biases[:, None]
    return out


def measured(loop: StreamLoop, learner: StreamLearner, seed: int) -> Measures:
    """Measure the last model of a fit: one more pass over the rows."""
    weights, biases, _ = learner.weights(loop.config.average)
    values, inputs = decision_rows(loop.blocks, weights, biases, loop.targets.shape[1]), loop.inputs
    losses = (losses_of(loop.machine.loss, loop.targets, values) * loop.weight).sum(axis=0)
    name = {"squared": "r2"} if inputs.classes is None else {}
    fit = R2Tracker(0, inputs.target, inputs.held_out) if name else AccuracyTracker(0, len(values), inputs.target, inputs.held_out)
    scores = accuracy_metrics([fit], dict(enumerate(values)))
    by_step = np.array([sum(losses[slice(*ref.rows)].sum() for ref in refs) for refs in _steps(loop, seed)])
    return Measures(by_step, {"final_loss": float(losses.sum() / loop.weight.sum()), **scores})


def _steps(loop: StreamLoop, seed: int) -> Iterator[list[Any]]:
    """Yield the blocks of every step of the fit."""
    refs = loop.blocks.refs()
    for epoch in range(loop.config.epochs):
        order, start = block_order(len(refs), seed, epoch, loop.config.shuffle), 0
        while start < len(order):
            end = step_end(refs, order, start)
            yield [refs[int(k)] for k in order[start:end]]
            start = end


def regret_rows(along: np.ndarray, ended: np.ndarray) -> list[dict[str, Any]]:
    """Return the stream step by step: rows, losses as they came, sparsity, and the average regret against the last model.

    The regret after T rows is the mean of ``l_t(w_t) + Omega(w_t)`` less that of the last model on the same rows; Omega is taken at the
    ends of the steps.
    """
    weight, rows = np.cumsum(along[:, 2]), np.cumsum(along[:, 0])
    mean = np.divide(np.cumsum(along[:, 1]), weight, out=np.full(len(along), NAN), where=weight > 0)
    found = []
    if len(ended):
        paid = np.cumsum(along[:, 1] + along[:, 3] * along[:, 2]) - np.cumsum(ended)
        regret = np.divide(paid, weight, out=np.full(len(along), NAN), where=weight > 0) - along[-1, 3]
    else:
        regret = np.full(len(along), NAN)
    for k in range(len(along)):
        found.append(
            {
                "step": k + 1,
                "rows": int(rows[k]),
                "loss": _number(along[k, 1] / along[k, 2]) if along[k, 2] > 0 else None,
                "mean_loss": _number(mean[k]),
                "penalty": _number(along[k, 3]),
                "regret": _number(regret[k]),
                "features": int(along[k, 4]),
                "groups": int(along[k, 5]),
            }
        )
    return found


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
