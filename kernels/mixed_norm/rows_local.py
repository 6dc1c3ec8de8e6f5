"""The rows of a sub-problem in this process, with all useful intermediate results cached between steps.

Fits of the Feature Generating Machine take 1.1 to 1.4 times as long on one block of :mod:`.rows_blocked`.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ..arrays import FloatArray
from ..loss_types import SumLoss
from .elimination import FreeSums, eliminate
from .row_block import Matrix, row_block
from .rows import Curvature, Evaluation, RowCurvature, changed_rows, check_rows, passes_of

REBUILD_SHARE = 0.8  # Share of changed rows above which Z'DZ is summed anew instead of being updated.
REBUILD_EVERY = 64  # Updates after which Z'DZ is summed anew against the round-off of adding and subtracting.

MANY_COLUMNS, COLUMNS_A_ROW = 512, 2
"""Smallest number of active columns, in total and per row with curvature, for solving systems in the space of the rows."""


class LocalRows:
    """Rows of Z as one block.

    Dense Z in C or F order is not copied; sparse Z is converted to CSR. ``z`` and ``Z @ direction`` are cached, so a step costs one product
    with Z and one with Z', and a trial on the line costs none. For piecewise quadratic losses D changes only where rows became active or
    inactive, and Z'DZ is updated by those rows. :meth:`evaluate` clears the caches, so that later results depend on its arguments alone.
    ``columns`` is X, ``(n, q)``: the unpenalised columns. Memory in addition to Z and X: 9 vectors of n entries and one p x p matrix.
    """

    def __init__(self, matrix: Matrix, y: FloatArray, cost: FloatArray, loss: SumLoss | str, columns: FloatArray | None = None) -> None:
        self._y, self._cost, self.loss, self._columns = check_rows(y, cost, loss, columns)
        self._block, self._passes = row_block(matrix), passes_of(self.loss)
        self.n, self.p, self.q = self._block.n, self._block.p, self._columns.shape[1]
        if self.n != len(self._y):
            raise ValueError(f"Z has {self.n} rows; it needs one for each of the {len(self._y)} entries of y")
        self._residual, self._weights, self._summed = np.zeros(self.n), np.zeros(self.n), np.zeros(self.n)
        self._gram, self._cross = np.zeros((self.p, self.p), order="F"), np.zeros((self.p, self.q))

    @cached_property
    def _lengths(self) -> FloatArray:
        return np.sqrt(np.einsum("ij,ij->j", self._columns, self._columns))

    @property
    def class_cost(self) -> tuple[float, float]:
        """Total cost of the positive and of the negative rows."""
        return float(self._cost[self._y > 0].sum()), float(self._cost[self._y < 0].sum())

    def evaluate(self, omega: FloatArray, free: FloatArray) -> Evaluation:
        """Move to ``omega`` and recompute z; clear the matrix of second derivatives."""
        self._updates = REBUILD_EVERY
        self._omega, self._z = omega, self._block.product(omega)
        return self._settle(free)

    def aim(self, direction: FloatArray, shift: FloatArray) -> None:
        self._direction, self._shift = direction, shift
        self._move = self._block.product(direction)
        self._speed = self._with_free(self._move, shift)

    def line(self, steps: FloatArray) -> FloatArray:
        return self._passes.line(self._f, self._speed, self._y, self._cost, steps)

    def advance(self, step: float) -> Evaluation:
        self._omega = self._omega + step * self._direction
        self._z = self._z + step * self._move
        return self._settle(self._free + step * self._shift)

    def curvature(self, live: int = 0) -> Curvature | RowCurvature:
        """Return the second derivatives at the current point, updated from the previous point if that is cheaper.

        If there are many more active columns than rows with curvature, return the factored form instead.
        """
        self._passes.curvature(self._residual, self._cost, self._weights)
        if live >= MANY_COLUMNS and live > COLUMNS_A_ROW * np.count_nonzero(self._weights):
            return RowCurvature(self._block, self._weights, self._columns)
        rows, changes, used = changed_rows(self._weights, self._summed)
        if self._updates >= REBUILD_EVERY or len(rows) > REBUILD_SHARE * used:
            self._updates = 0
            for summed in (self._gram, self._cross, self._summed):
                summed[:] = 0.0
            rows, changes, _ = changed_rows(self._weights, self._summed)
        self._block.add_gram(rows, changes, self._gram, self._columns, self._cross)
        self._updates += 1
        self._weights, self._summed = self._summed, self._weights
        return Curvature(self._gram, self._cross, self._bent(self._summed))

    def residual(self) -> FloatArray:
        return self._residual.copy()

    def balance(self, g: float) -> tuple[float, float, float]:
        """Return the balance x'u of the single unpenalised column, its negative derivative, and the sum of its absolute terms."""
        return self._passes.balance(self._z, self._columns.reshape(-1), self._y, self._cost, g)

    def free_sums(self, g: FloatArray) -> FreeSums:
        """Return P, X'u and a norm of its terms at z + X g."""
        loss = self._passes.point(self._with_free(self._z, g), self._y, self._cost, self._residual)
        return FreeSums(loss, self._columns.T @ self._residual, self._lengths * float(np.linalg.norm(self._residual)))

    def free_bends(self, g: FloatArray) -> FloatArray:
        """Return X'DX at z + X g."""
        self._passes.point(self._with_free(self._z, g), self._y, self._cost, self._residual)
        weights = np.empty(self.n)
        self._passes.curvature(self._residual, self._cost, weights)
        return self._bent(weights)

    def free_majorant(self) -> FloatArray:
        """Return X'KX, where K holds upper bounds of the second derivatives."""
        return self._bent(self.loss.max_curvature * self._cost)

    def _bent(self, weights: FloatArray) -> FloatArray:
        return self._columns.T @ (self._columns * weights[:, None]) if self.q else np.zeros((0, 0))

    def _with_free(self, z: FloatArray, g: FloatArray) -> FloatArray:
        return z + self._columns @ g if self.q else z

    def _settle(self, start: FloatArray) -> Evaluation:
        self._free = free = eliminate(self, start, self.loss.first_bias_step)
        self._f = self._with_free(self._z, free)
        loss = self._passes.point(self._f, self._y, self._cost, self._residual)
        correlations = self._block.transposed(self._residual)
        # U(u) = P + sum_i u_i f_i at a pair (f, u): no second formula, no cancellation of logarithms.
        upper = loss + float(correlations @ self._omega)
        if self.q:
            upper += float((self._columns.T @ self._residual) @ free)
        return Evaluation(loss, upper, correlations, free)
