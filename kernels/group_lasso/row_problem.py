"""Rows of one task, or of several tasks that share the groups of features, and the minimisation problem on these rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from ..loss_types import RowLoss
from .on_moments import Moments, WorkingColumns, row_moments, target_moments
from .penalty import GroupPenalty


@dataclass(frozen=True)
class TaskRows:
    """The rows of all tasks, float64, dense or CSR, ordered by task: task q has the rows ``edges[q]:edges[q + 1]``, with int64 edges
    ``(n_tasks + 1,)``.
    """

    X: Array | sp.csr_array
    edges: Array

    @property
    def n_tasks(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def spans(self) -> list[slice]:
        return [slice(int(a), int(b)) for a, b in zip(self.edges[:-1], self.edges[1:])]

    @cached_property
    def codes(self) -> Array | None:
        """Task of each row; None if there is one task."""
        return None if self.n_tasks == 1 else np.repeat(np.arange(self.n_tasks), np.diff(self.edges))

    @cached_property
    def shift(self) -> FloatArray | None:
        """Mean of each column, for dense rows; sums of differences from the mean lose no digits."""
        return None if sp.issparse(self.X) or not len(self.X) else self.X.mean(axis=0)

    def decide(self, weights: FloatArray) -> FloatArray:
        """Return ``x_i'w_q`` of each row, for weights ``(n_tasks, p)``."""
        return np.concatenate([np.asarray(self._part(span) @ w) for span, w in zip(self.spans, weights, strict=True)])

    def slopes(self, u: FloatArray) -> FloatArray:
        """Return ``sum_i u_i x_i`` of each task, ``(n_tasks, p)``."""
        return np.stack([np.asarray(self._part(span).T @ u[span]) for span in self.spans])

    def _part(self, span: slice) -> Any:
        return self.X if self.n_tasks == 1 else self.X[span]

    def moments(self, target: FloatArray, cost: FloatArray, fit_bias: bool) -> Moments:
        """Return the moments of a weighted least squares problem on these rows."""
        shift = self.shift if fit_bias else None
        result = target_moments(row_moments(self.X, target, cost, shift=shift, codes=self.codes, n_tasks=self.n_tasks), fit_bias)
        return result if shift is None else replace(result, means=result.means + shift)


@dataclass(frozen=True)
class RowProblem:
    """The problem to minimise: rows with ``y`` (labels +-1 or targets) and ``cost``. For the mean loss, the costs of each task sum to 1.

    ``loss`` is one of :func:`gramplane.kernels.losses.mean_loss`; ``fit_bias`` says whether every task has a bias.
    """

    rows: TaskRows | WorkingColumns
    y: FloatArray
    cost: FloatArray
    loss: RowLoss
    penalty: GroupPenalty
    lam: float
    fit_bias: bool
