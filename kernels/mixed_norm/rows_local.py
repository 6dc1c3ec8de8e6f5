"""The rows of a sub-problem in this process, with everything worth keeping between two steps kept."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..losses import margin_loss
from .bias import solve_bias
from .row_block import Matrix, row_block
from .row_passes import bias_pass, changed_rows, curvature_pass, line_pass, point_pass
from .rows import Curvature, Evaluation, RowCurvature, check_rows

REBUILD_SHARE = 0.8  # Share of changed rows above which Z'DZ is summed anew instead of being updated.
REBUILD_EVERY = 64  # Updates after which Z'DZ is summed anew against the round-off of adding and subtracting.

MANY_COLUMNS, COLUMNS_A_ROW = 512, 2
"""Live columns at least, in all and for every row with curvature, of systems that are solved on the side of the rows."""


class LocalRows:
    """Rows of Z as one block.

    Dense Z in C or F order is used where it lies; sparse Z is brought to row form.

    z and Z direction are kept, so a step costs one product with Z and one with Z', a trial on the line none. For the squared hinge D
    changes only where rows became or ceased to be active, and Z'DZ is updated by those rows. :meth:`evaluate` forgets all that, so what
    follows it is a function of its arguments alone. Memory beside Z: 7 vectors of n and one p x p matrix.
    """

    def __init__(self, matrix: Matrix, y: FloatArray, cost: FloatArray, loss: str) -> None:
        self.loss = loss
        self._y, self._cost = check_rows(y, cost, loss)
        self._block = row_block(matrix)
        self.n, self.p = self._block.n, self._block.p
        if self.n != len(self._y):
            raise ValueError(f"Z has {self.n} rows and y {len(self._y)}: must be equal")
        law = margin_loss(loss)
        self._kind, self._bias_step = int(law.kind), law.first_bias_step
        self._residual, self._weights, self._summed = np.zeros(self.n), np.zeros(self.n), np.zeros(self.n)
        self._gram, self._sums = np.zeros((self.p, self.p), order="F"), np.zeros(self.p)

    @property
    def class_cost(self) -> tuple[float, float]:
        """Cost of the positive and of the negative rows."""
        return float(self._cost[self._y > 0].sum()), float(self._cost[self._y < 0].sum())

    def evaluate(self, omega: FloatArray, bias: float | None) -> Evaluation:
        """Move to `omega`, recomputing z; forget the matrix of second derivatives."""
        self._updates = REBUILD_EVERY
        self._omega, self._z = omega, self._block.product(omega)
        return self._settle(bias)

    def aim(self, direction: FloatArray, shift: float) -> None:
        """Set the line omega + s direction, b + s shift."""
        self._direction, self._shift = direction, shift
        self._move = self._block.product(direction)

    def line(self, steps: FloatArray) -> FloatArray:
        """Return P, its slope and its curvature at every step, shape (3, n_steps)."""
        return line_pass(self._kind, self._z, self._move, self._y, self._cost, self._bias or 0.0, self._shift, steps)

    def advance(self, step: float) -> Evaluation:
        """Move along the line and eliminate the bias there."""
        self._omega = self._omega + step * self._direction
        self._z += step * self._move
        return self._settle(None if self._bias is None else self._bias + step * self._shift)

    def curvature(self, live: int = 0) -> Curvature | RowCurvature:
        """Return the second derivatives at the current point, updating those of the point before where that is cheaper; those of the rows
        as they are where many more columns are live.
        """
        total = curvature_pass(self._kind, self._residual, self._cost, self._weights)
        if live >= MANY_COLUMNS and live > COLUMNS_A_ROW * np.count_nonzero(self._weights):
            return RowCurvature(self._block, self._weights, total)
        rows, changes, used = changed_rows(self._weights, self._summed)
        if self._updates >= REBUILD_EVERY or len(rows) > REBUILD_SHARE * used:
            self._updates = 0
            for summed in (self._gram, self._sums, self._summed):
                summed[:] = 0.0
            rows, changes, _ = changed_rows(self._weights, self._summed)
        self._block.add_gram(rows, changes, self._gram, self._sums)
        self._updates += 1
        self._weights, self._summed = self._summed, self._weights
        return Curvature(self._gram, self._sums, total)

    def residual(self) -> FloatArray:
        """Return u = alpha y at the current point."""
        return self._residual.copy()

    def _settle(self, bias: float | None) -> Evaluation:
        if bias is not None:
            bias = solve_bias(lambda at: bias_pass(self._kind, self._z, self._y, self._cost, at), bias, self._bias_step)
        self._bias = bias
        at = bias or 0.0
        loss, balance = point_pass(self._kind, self._z, self._y, self._cost, at, self._residual)
        correlations = self._block.transposed(self._residual)
        # U(alpha) = P + sum_i alpha_i m_i at a pair (z, alpha): no second formula, no cancellation of logarithms.
        return Evaluation(loss, loss + float(correlations @ self._omega) - at * balance, correlations, at)
