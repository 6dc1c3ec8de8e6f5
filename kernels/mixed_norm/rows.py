"""Access to the rows of a sub-problem (Z, y, C) through operations whose results do not grow with the number of rows.

A solver sees the loss only as a function of the weights: P(omega, g) = sum_i C_i loss(y_i, f_i) with f = Z omega + X g, where X are q
columns without a penalty (a bias is a column of ones) and g is eliminated exactly. So the rows may lie in this process
(:class:`gramplane.kernels.mixed_norm.rows_local.LocalRows`) or in blocks elsewhere
(:class:`gramplane.kernels.mixed_norm.rows_blocked.BlockedRows`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from ..loss_types import SumLoss
from ..losses import sum_loss
from .row_block import RowBlock


class Evaluation(NamedTuple):
    """The loss P at a point and its dual side: U(u), and c = Z'u, minus the gradient of P in omega. ``free``: ``(q,)``, the coefficients of
    the columns without a penalty, argmin P where there are any.
    """

    loss: float
    utility: float
    correlations: FloatArray
    free: FloatArray


class Curvature(NamedTuple):
    """Second derivatives of the loss at the current point: Z'DZ, Z'DX and X'DX, X the columns without a penalty. ``gram`` holds the lower
    triangle in Fortran order; what lies above the diagonal has no meaning. Not to be written.
    """

    gram: FloatArray
    cross: FloatArray
    bends: FloatArray


class LiveColumns(NamedTuple):
    """The live groups of a point, laid out per live column, ``(q,)`` each. ``columns``: their columns in Z, ascending; ``owner``: the group
    of each; ``unit``: v, its entry of omega_h / r_h; ``stiffness``: gamma / r_h.
    """

    columns: IntArray
    owner: IntArray
    unit: FloatArray
    stiffness: FloatArray


class RowCurvature:
    """Second derivatives of the loss at a point as they lie in the rows: Z, the rows with curvature and the square roots of theirs.
    ``columns``: those without a penalty on these rows; ``cross``, ``bends``: Z'DX and X'DX.
    """

    def __init__(self, block: RowBlock, weights: FloatArray, columns: FloatArray) -> None:
        self.block = block
        self.rows: IntArray = np.flatnonzero(weights)
        self.roots: FloatArray = np.sqrt(weights[self.rows])
        self.columns: FloatArray = columns[self.rows]
        bent = columns * weights[:, None]
        self.cross = np.stack([block.transposed(np.ascontiguousarray(x)) for x in bent.T], axis=1) if bent.size else np.zeros((block.p, 0))
        self.bends = columns.T @ bent

    def product(self, direction: FloatArray) -> FloatArray:
        """Return diag(sqrt d) Z d on the rows with curvature."""
        return self.roots * self.block.product(direction)[self.rows]

    def transposed(self, x: FloatArray) -> FloatArray:
        """Return Z' diag(sqrt d) x."""
        u = np.zeros(self.block.n)
        u[self.rows] = self.roots * x
        return self.block.transposed(u)


class Rows(Protocol):
    """The ``n`` rows of one sub-problem with their ``p`` columns and ``q`` columns without a penalty, holding a current point and one
    direction from it.
    """

    n: int
    p: int
    q: int
    loss: SumLoss

    @property
    def class_cost(self) -> tuple[float, float]:
        """Cost of the positive and of the negative rows."""
        ...

    def evaluate(self, omega: FloatArray, free: FloatArray) -> Evaluation:
        """Move to `omega`, recomputing z; `free`, ``(q,)``, is where the search for the best g begins."""
        ...

    def aim(self, direction: FloatArray, shift: FloatArray) -> None:
        """Set the line omega + s direction, g + s shift from the current point."""
        ...

    def line(self, steps: FloatArray) -> FloatArray:
        """Return P, its slope and its curvature on the line at every step, shape (3, n_steps)."""
        ...

    def advance(self, step: float) -> Evaluation:
        """Move along the line and eliminate g there."""
        ...

    def curvature(self, live: int = 0) -> Curvature | RowCurvature:
        """Return the second derivatives at the current point, of use for so many columns."""
        ...

    def residual(self) -> FloatArray:
        """Return u at the current point, shape (n,)."""
        ...


def check_rows(
    y: FloatArray, cost: FloatArray, loss: SumLoss | str, columns: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, SumLoss, FloatArray]:
    """Return labels or targets and costs as float64 copies, the loss, and the columns without a penalty, C-ordered, after checking them."""
    law = sum_loss(loss) if isinstance(loss, str) else loss
    labels, costs = np.array(y, dtype=np.float64), np.array(cost, dtype=np.float64)
    if labels.shape != costs.shape or labels.ndim != 1:
        raise ValueError(f"y has shape {labels.shape} and cost {costs.shape}: must be two vectors of the same length")
    label, cost_row = first_invalid_row(labels, costs, law.of_labels)
    if label >= 0:
        raise ValueError(f"y[{label}]={labels[label]}: {'labels are +1 or -1' if law.of_labels else 'targets are finite'}")
    if cost_row >= 0:
        raise ValueError(f"cost[{cost_row}]={costs[cost_row]}: costs are finite and not negative")
    further = np.zeros((len(labels), 0)) if columns is None else np.ascontiguousarray(columns, np.float64)
    if further.ndim != 2 or len(further) != len(labels):
        raise ValueError(f"columns has shape {further.shape} and y {labels.shape}: must have as many rows")
    return labels, costs, law, further


@compiled(deferred=True)
def first_invalid_row(labels: FloatArray, costs: FloatArray, of_labels: bool) -> tuple[int, int]:
    """Return the first row whose label is not +-1 (whose target is not finite) and the first whose cost is negative, infinite or NaN; -1
    where there is none.
    """
    label, cost = -1, -1
    for i in range(labels.size - 1, -1, -1):
        if (abs(labels[i]) != 1.0) if of_labels else not abs(labels[i]) < np.inf:
            label = i
        if not 0.0 <= costs[i] < np.inf:
            cost = i
    return label, cost
