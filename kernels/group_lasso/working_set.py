"""Columns of a working set that only grows: what a solver asks of them, without copying what is there when more join.

Columns join in batches, and every product is taken batch by batch: the bits depend on the batches, so a run that is resumed joins the same
ones. Their Gram matrix is kept for the weights it is asked for again and again, and only its new entries are computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from .on_moments import Moments, row_moments, target_moments


class WorkingColumns:
    """Batches of columns of the rows of one task; the interface of :class:`gramplane.kernels.group_lasso.on_rows.TaskRows`. ``cost``:
    ``(n,)`` weights of the rows whose Gram matrix is kept; ``centre``: subtract the means (by these weights) from dense columns: a bias
    takes them up, and sums lose no digits.
    """

    n_tasks = 1

    def __init__(self, cost: FloatArray, centre: bool) -> None:
        self._cost, self._centre = cost, centre
        self._blocks: list[Any] = []
        self._gram, self._n_summed = np.zeros((0, 0)), 0
        self.features, self.means = np.zeros(0, np.int64), np.zeros(0)
        self.edges, self.spans = np.array([0, len(cost)]), [slice(0, len(cost))]

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return len(self._blocks)

    def append(self, features: Array, columns: Any) -> None:
        """Let columns join: ``(n, k)`` dense or sparse, of these features."""
        if sp.issparse(columns):
            block, means = sp.csr_array(columns, dtype=np.float64), np.zeros(len(features))
            block.sort_indices()
        else:
            block = np.array(columns, dtype=np.float64, order="F")
            means = self._cost @ block / max(float(self._cost.sum()), np.finfo(float).tiny) if self._centre else np.zeros(len(features))
            block -= means
        self._blocks.append(block)
        self.features, self.means = np.concatenate([self.features, features]), np.concatenate([self.means, means])

    def decide(self, weights: FloatArray) -> FloatArray:
        """Return ``x_i'w`` of every row, of centred columns, for weights ``(1, p)``."""
        total, lo = np.zeros(len(self._cost)), 0
        for block in self._blocks:
            part = weights[0, lo : lo + block.shape[1]]
            if part.any():
                total += block @ part
            lo += block.shape[1]
        return total

    def slopes(self, u: FloatArray) -> FloatArray:
        """Return ``sum_i u_i x_i``, ``(1, p)``."""
        return np.concatenate([np.zeros(0), *(block.T @ u for block in self._blocks)])[None]

    def moments(self, target: FloatArray, cost: FloatArray, fit_bias: bool) -> Moments:
        """Return the moments of a weighted least squares problem on centred columns."""
        raw = self._cached_moments(target) if cost is self._cost else row_moments(self._blocks, target, cost)
        return target_moments(raw, fit_bias)

    def _cached_moments(self, target: FloatArray) -> FloatArray:
        """Return raw moments by the weights whose Gram matrix is kept."""
        while self._n_summed < len(self._blocks):
            self._widen(self._n_summed)
            self._n_summed += 1
        p, cost = len(self._gram), self._cost
        raw = np.zeros((1, p + 2, p + 2))
        raw[0, :p, :p] = self._gram
        raw[0, :p, p], raw[0, :p, p + 1] = self.slopes(cost * target)[0], self.slopes(cost)[0]
        raw[0, p, :p], raw[0, p + 1, :p] = raw[0, :p, p], raw[0, :p, p + 1]
        raw[0, p, p:] = cost @ (target * target), cost @ target
        raw[0, p + 1, p:] = cost @ target, cost.sum()
        return raw

    def _widen(self, k: int) -> None:
        new = self._blocks[k]
        flat = float(self._cost[0]) if (self._cost == self._cost[0]).all() else None
        weighted = new if flat is not None else (sp.diags_array(self._cost) @ new if sp.issparse(new) else new * self._cost[:, None])
        parts = [block.T @ weighted for block in self._blocks[: k + 1]]
        across = np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts]) * (1.0 if flat is None else flat)
        p, q = len(self._gram), len(across)
        gram = np.empty((q, q))
        gram[:p, :p], gram[:, p:] = self._gram, across
        gram[p:, :p] = across[:p].T
        self._gram = gram
