"""Losses and accuracies of a stream's last model on all rows. The losses are summed step by step, to compute the regret."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....kernels.group_lasso.dual_averaging import row_products
from ...inputs.labels import Inputs
from ...inputs.scores import NAN, accuracy_metrics, fit_tracker
from .rows import RowBlocks, RowRef


@dataclass(frozen=True)
class Measures:
    """Losses and accuracies of the last model on all rows."""

    by_step: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (n_steps,) sum of its losses over the rows of every step
    figures: dict[str, Any] = field(default_factory=dict)  # mean loss and accuracy (R2) of the rows learned, and of those held out

    @classmethod
    def unknown(cls, inputs: Inputs) -> Measures:
        """Return measures with the same names as those of a finished stream, but NaN as values."""
        name = "r2" if inputs.classes is None else "accuracy"
        return cls(figures={"final_loss": NAN, f"train_{name}": NAN, f"test_{name}": NAN})


def decision_rows(blocks: RowBlocks, weights: np.ndarray, biases: np.ndarray, n: int) -> np.ndarray:
    """Return the decision values of all n rows, ``(n_machines, n)``."""
    out, flags = np.empty((len(weights), n)), np.packbits(weights != 0.0, axis=1, bitorder="little")
    for ref in blocks.refs():
        rows = blocks.load(ref)
        for machine, bits, values in zip(weights, flags, out, strict=True):
            row_products(rows, machine, bits, values[slice(*ref.rows)])
    out += biases[:, None]
    return out


def measure(inputs: Inputs, values: np.ndarray, losses: np.ndarray, weight: np.ndarray, steps: Iterable[Sequence[RowRef]]) -> Measures:
    """Return the measures of a model from its decision values ``(n_machines, n)`` and weighted losses ``(n,)``. ``steps`` lists the blocks
    of rows of every step.
    """
    by_step = np.array([sum(losses[slice(*ref.rows)].sum() for ref in refs) for refs in steps])
    scores = accuracy_metrics([fit_tracker(inputs, inputs.held_out)], dict(enumerate(values)))
    return Measures(by_step, {"final_loss": float(losses.sum() / weight.sum()), **scores})


def regret_rows(along: np.ndarray, ended: np.ndarray) -> list[dict[str, Any]]:
    """Return a table row per step of the stream: number of rows, progressive losses, sparsity, and the average regret relative to the last
    model.

    The regret after T rows is the mean of ``l_t(w_t) + Omega(w_t)`` minus the same mean for the last model on the same rows. Omega is
    evaluated at the end of each step.
    """
    weight, rows = np.cumsum(along[:, 2]), np.cumsum(along[:, 0])
    mean = _mean(np.cumsum(along[:, 1]), weight)
    regret = np.full(len(along), NAN)
    if len(ended):
        regret = _mean(np.cumsum(along[:, 1] + along[:, 3] * along[:, 2]) - np.cumsum(ended), weight) - along[-1, 3]
    losses, table = _mean(along[:, 1], along[:, 2]), []
    for k, step in enumerate(along):
        figures = {"loss": losses[k], "mean_loss": mean[k], "penalty": step[3], "regret": regret[k]}
        finite = {name: float(value) if np.isfinite(value) else None for name, value in figures.items()}
        table.append({"step": k + 1, "rows": int(rows[k]), **finite, "features": int(step[4]), "groups": int(step[5])})
    return table


def _mean(sums: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.divide(sums, weight, out=np.full(len(sums), NAN), where=weight > 0)
