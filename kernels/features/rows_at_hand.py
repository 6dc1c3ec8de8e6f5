"""Rows of a column-major array that dual vectors ask for again and again, copied side by side.

Down the columns every row with a dual variable is another line of memory, and near a solution few rows have one, the same in most rounds:
a pass over 500 of 4,096 rows reads nearly all lines. Rows that lie side by side are read at the speed of memory, or of a cache, with the
same bits (:mod:`gramplane.kernels.features.scores`).
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, FloatArray
from ..jit import compiled
from .scores import accumulate, correlations_many
from .views import dense_view, shape

FEW = 0.5  # Share of rows with a dual variable up to which they are copied.
MOST_BYTES = 32 << 20  # of copied rows, of all their columns


class RowsAtHand:
    """Correlations of the columns of one dense array, some of ``width``, for one stack of dual vectors after the other."""

    def __init__(self, X: Array, width: int) -> None:
        self._X, self._view = X, dense_view(X)
        self._most = 0 if self._view.column_step == 1 else int(min(FEW * len(X), MOST_BYTES // (width * X.itemsize)))
        self._forget()

    def _forget(self) -> None:
        self._count, self._place, self._rows = 0, np.full(len(self._X), -1), np.empty((0, shape(self._X)[1]), self._view.flat.dtype)

    def correlations(self, duals: FloatArray) -> FloatArray:
        """Return ``duals X``, ``(m, k)``, with the bits of :func:`~gramplane.kernels.features.scores.correlations_many`."""
        asked = np.flatnonzero(duals.any(axis=0)) if self._most else np.zeros(0, np.int64)
        if not 0 < len(asked) <= self._most:
            return correlations_many(self._X, duals)
        new = asked[self._place[asked] < 0]
        if self._count + len(new) > self._most:
            self._forget()
            new = asked
        self._copy(new)
        places = self._place[asked]
        own = np.zeros((len(duals), self._count))
        own[:, places] = duals[:, asked]
        sums = np.zeros((len(duals), self._rows.shape[1]))
        accumulate(sums, self._rows[: self._count], own, places)
        return sums

    def _copy(self, new: Array) -> None:
        first, self._count = self._count, self._count + len(new)
        if self._count > len(self._rows):
            rows = np.empty((min(self._most, self._count + self._count // 4), self._rows.shape[1]), self._rows.dtype)
            rows[:first] = self._rows[:first]
            self._rows = rows
        self._place[new] = np.arange(first, self._count)
        _copy_rows(self._view.flat, self._view.column_step, new.view(np.uint64), self._rows[first : self._count])


@compiled
def _copy_rows(x: Array, step: int, rows: Array, out: Array) -> None:
    # Eight columns at a time: so many numbers are written side by side, while as many lines of memory are waited for together.
    for low in range(0, out.shape[1], 8):
        high = min(low + 8, out.shape[1])
        for t in range(rows.size):
            for j in range(low, high):
                out[t, j] = x[np.uint64(j) * np.uint64(step) + rows[t]]
