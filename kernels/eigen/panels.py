"""Products of a large symmetric matrix with panels of 64 columns, with scale, shift and a three-term recurrence in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array
from ..jit import compiled
from .operator import SymmetricOperator

Block = NDArray[Any]

PANEL_WIDTH = 64  # Columns of a panel: one gathered row of a float32 panel is four lines of the cache.


@compiled
def filter_step(indptr: Array, indices: Array, data: Array, x: Array, out: Array, scale: float, centre: float, back: float) -> None:
    """``out <- scale (A - centre I) x + back out`` for panels ``(n, 64)``; all scalars and ``data`` of the panels' dtype."""
    total = np.empty(64, x.dtype)
    for i in range(len(indptr) - 1):
        for k in range(64):
            total[k] = -centre * x[i, k]
        for e in range(indptr[i], indptr[i + 1]):
            a = data[e]
            row = x[indices[e]]
            for k in range(64):
                total[k] += a * row[k]
        for k in range(64):
            out[i, k] = scale * total[k] + back * out[i, k]


@dataclass(frozen=True)
class Panels:
    """The matrix, ready to be multiplied by panels of 64 columns in one precision."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    operator: SymmetricOperator

    @classmethod
    def of(cls, operator: SymmetricOperator, dtype: type[np.floating]) -> Panels:
        """Return the panels of an operator in float32 or float64."""
        sparse = operator.sparse
        return cls(sparse.indptr, sparse.indices, sparse.data.astype(dtype), operator)

    def step(self, x: Block, out: Block, scale: float, centre: float, back: float) -> None:
        """``out <- scale (A - centre I) x + back out``."""
        kind = self.data.dtype.type
        filter_step(self.indptr, self.indices, self.data, x, out, kind(scale), kind(centre), kind(back))
        if self.operator.factor is not None:
            out += (scale * self.operator.low_rank(x)).astype(x.dtype)

    def product(self, columns: Block) -> Block:
        """Return ``A X``, ``(n, m)``, panel by panel."""
        n, m = columns.shape
        out = np.empty((n, m), self.data.dtype)
        x, y = np.zeros((n, PANEL_WIDTH), self.data.dtype), np.zeros((n, PANEL_WIDTH), self.data.dtype)
        for lo in range(0, m, PANEL_WIDTH):
            wide = min(PANEL_WIDTH, m - lo)
            x[:, :wide] = columns[:, lo : lo + wide]
            self.step(x, y, 1.0, 0.0, 0.0)
            out[:, lo : lo + wide] = y[:, :wide]
        return out
