"""Access to the rows of a sub-problem (Z, y, C) through operations whose results do not grow with the number of rows.

A solver sees the loss only as a function of the weights: P(omega, b) = sum_i C_i loss(y_i (z_i - b)) with z = Z omega. So the rows may lie
in this process (:class:`gramplane.kernels.mixed_norm.rows_local.LocalRows`) or in blocks elsewhere
(:class:`gramplane.kernels.mixed_norm.rows_blocked.BlockedRows`).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from ..losses import margin_loss
from .row_block import RowBlock


class Evaluation(NamedTuple):
    """The loss P(Z omega, b) at a point and its dual side: U(alpha), and c = Z'u, u = alpha y, minus the gradient of P in omega. When a
    bias is fitted it is argmin P; otherwise 0.
    """

    loss: float
    utility: float
    correlations: FloatArray
    bias: float


class Curvature(NamedTuple):
    """Second derivatives of the loss at the current point: Z'DZ, Z'D1 and the sum of D. ``gram`` holds the lower triangle in Fortran order;
    what lies above the diagonal has no meaning. Not to be written.
    """

    gram: FloatArray
    sums: FloatArray
    total: float


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
    ``sums``, ``total``: Z'D1 and the sum of D.
    """

    def __init__(self, block: RowBlock, weights: FloatArray, total: float) -> None:
        self.block, self.total = block, total
        self.rows: IntArray = np.flatnonzero(weights)
        self.roots: FloatArray = np.sqrt(weights[self.rows])
        self.sums = block.transposed(weights)

    def product(self, direction: FloatArray) -> FloatArray:
        """Return diag(sqrt d) Z d on the rows with curvature."""
        return self.roots * self.block.product(direction)[self.rows]

    def transposed(self, x: FloatArray) -> FloatArray:
        """Return Z' diag(sqrt d) x."""
        u = np.zeros(self.block.n)
        u[self.rows] = self.roots * x
        return self.block.transposed(u)


class Rows(Protocol):
    """The ``n`` rows and ``p`` columns of one sub-problem, holding a current point and one direction from it."""

    n: int
    p: int
    loss: str

    @property
    def class_cost(self) -> tuple[float, float]:
        """Cost of the positive and of the negative rows."""
        ...

    def evaluate(self, omega: FloatArray, bias: float | None) -> Evaluation:
        """Move to `omega`, recomputing z; `bias` is None (no bias) or the first trial of the search for the best one."""
        ...

    def aim(self, direction: FloatArray, shift: float) -> None:
        """Set the line omega + s direction, b + s shift from the current point."""
        ...

    def line(self, steps: FloatArray) -> FloatArray:
        """Return P, its slope and its curvature on the line at every step, shape (3, n_steps)."""
        ...

    def advance(self, step: float) -> Evaluation:
        """Move along the line and eliminate the bias there."""
        ...

    def curvature(self, live: int = 0) -> Curvature | RowCurvature:
        """Return the second derivatives at the current point, of use for so many columns."""
        ...

    def residual(self) -> FloatArray:
        """Return u = alpha y at the current point, shape (n,)."""
        ...


def check_rows(y: FloatArray, cost: FloatArray, loss: str) -> tuple[FloatArray, FloatArray]:
    """Return labels and costs as float64 copies after checking them."""
    margin_loss(loss)
    labels, costs = np.array(y, dtype=np.float64), np.array(cost, dtype=np.float64)
    if labels.shape != costs.shape or labels.ndim != 1:
        raise ValueError(f"y has shape {labels.shape} and cost {costs.shape}: must be two vectors of the same length")
    label, cost_row = first_invalid_row(labels, costs)
    if label >= 0:
        raise ValueError(f"y[{label}]={labels[label]}: labels are +1 or -1")
    if cost_row >= 0:
        raise ValueError(f"cost[{cost_row}]={costs[cost_row]}: costs are finite and not negative")
    return labels, costs


@compiled
def first_invalid_row(labels: FloatArray, costs: FloatArray) -> tuple[int, int]:
    """Return the first row whose label is not +-1 and the first whose cost is negative, infinite or NaN; -1 where there is none."""
    label, cost = -1, -1
    for i in range(labels.size - 1, -1, -1):
        if abs(labels[i]) != 1.0:
            label = i
        if not 0.0 <= costs[i] < np.inf:
            cost = i
    return label, cost
