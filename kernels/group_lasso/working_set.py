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
    """Batches of columns of rows, task after task; the interface of :class:`gramplane.kernels.group_lasso.row_problem.TaskRows`. ``cost``:
    ``(n,)`` weights of the rows whose Gram matrices are kept; ``centre``: subtract the means (by these weights) from dense columns: a bias
    takes them up, and sums lose no digits; ``edges``: where the tasks begin, int64 ``(n_tasks + 1,)``; one task by default.
    """

    def __init__(self, cost: FloatArray, centre: bool, edges: Array | None = None) -> None:
        self._cost, self._centre = cost, centre
        self._blocks: list[Any] = []
        self.edges = np.array([0, len(cost)]) if edges is None else edges
        self.spans = [slice(int(a), int(b)) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)]
        self.n_tasks = len(self.spans)
        self._grams, self._n_summed = np.zeros((self.n_tasks, 0, 0)), 0
        self.features, self.means = np.zeros(0, np.int64), np.zeros(0)

    @property
    def n_batches(self) -> int:
        """Number of batches."""
        return len(self._blocks)

    def append(self, features: Array, columns: Array | sp.sparray) -> None:
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

    def _part(self, block: Any, span: slice) -> Any:
        return block if self.n_tasks == 1 else block[span]

    def decide(self, weights: FloatArray) -> FloatArray:
        """Return ``x_i'w_q`` of every row, of centred columns, for weights ``(n_tasks, p)``."""
        total, lo = np.zeros(len(self._cost)), 0
        for block in self._blocks:
            for span, part in zip(self.spans, weights[:, lo : lo + block.shape[1]], strict=True):
                if part.any():
                    total[span] += self._part(block, span) @ part
            lo += block.shape[1]
        return total

    def slopes(self, u: FloatArray) -> FloatArray:
        """Return ``sum_i u_i x_i`` of every task, ``(n_tasks, p)``."""
        return np.stack([self._task_slopes(span, u) for span in self.spans])

    def _task_slopes(self, span: slice, u: FloatArray) -> FloatArray:
        return np.concatenate([np.zeros(0), *(self._part(block, span).T @ u[span] for block in self._blocks)])

    def moments(self, target: FloatArray, cost: FloatArray, fit_bias: bool) -> Moments:
        """Return the moments of a weighted least squares problem on centred columns."""
        codes = None if self.n_tasks == 1 else np.repeat(np.arange(self.n_tasks), np.diff(self.edges))
        if cost is self._cost:
            return target_moments(self._cached_moments(target), fit_bias)
        return target_moments(row_moments(self._blocks, target, cost, codes=codes, n_tasks=self.n_tasks), fit_bias)

    def _cached_moments(self, target: FloatArray) -> FloatArray:
        """Return raw moments by the weights whose Gram matrices are kept."""
        while self._n_summed < len(self._blocks):
            self._widen(self._n_summed)
            self._n_summed += 1
        p, all_costs = self._grams.shape[1], self._cost
        raw = np.zeros((self.n_tasks, p + 2, p + 2))
        raw[:, :p, :p] = self._grams
        for task, span in zip(raw, self.spans, strict=True):
            y, cost = target[span], all_costs[span]
            task[:p, p], task[:p, p + 1] = self._task_slopes(span, all_costs * target), self._task_slopes(span, all_costs)
            task[p, :p], task[p + 1, :p] = task[:p, p], task[:p, p + 1]
            task[p, p:] = cost @ (y * y), cost @ y
            task[p + 1, p:] = cost @ y, cost.sum()
        return raw

    def _widen(self, k: int) -> None:
        p, q = self._grams.shape[1], self._grams.shape[1] + self._blocks[k].shape[1]
        grams = np.empty((self.n_tasks, q, q))
        for gram, before, span in zip(grams, self._grams, self.spans, strict=True):
            across = self._products(k, span)
            gram[:p, :p], gram[:, p:] = before, across
            gram[p:, :p] = across[:p].T
        self._grams = grams

    def _products(self, k: int, span: slice) -> FloatArray:
        """Return the weighted products of the columns of batches up to k with those of batch k, over the rows of one task."""
        new, cost = self._part(self._blocks[k], span), self._cost[span]
        flat = float(cost[0]) if len(cost) and (cost == cost[0]).all() else None
        weighted = new if flat is not None else (sp.diags_array(cost) @ new if sp.issparse(new) else new * cost[:, None])
        parts = [self._part(block, span).T @ weighted for block in self._blocks[: k + 1]]
        return np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts]) * (1.0 if flat is None else flat)
