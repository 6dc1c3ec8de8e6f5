"""Rows of a restricted problem, task by task: what a solver knows of them, and the products it asks for.

A solver holds labels, costs and decisions of every row; the conjunctions that hold on a row it reaches through products alone. So these may
lie in this process (:class:`LocalRows`) or in blocks elsewhere (:class:`gramplane.kernels.rules.row_blocks.BlockedRows`), to the same bits
where there is one block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import FloatArray, IntArray
from .bits import Bytes, apply_columns, apply_transpose
from .newton import cost_planes, take_newton_steps, zone_curvature

MERGE_RATIO = 4  # Rows are merged when the different ones are so many times fewer.


class TaskRows:
    """Labels and costs of one task; rows that agree in all conjunctions and in the label may be one row of their common cost."""

    y: FloatArray
    cost: FloatArray
    member: IntArray  # (n,) merged row of every row
    share: FloatArray  # (n,) a row's share of the merged cost

    @cached_property
    def planes(self) -> tuple[IntArray, float]:
        """Costs as integers and their unit, for Hessians."""
        return cost_planes(self.cost)

    def spread(self, alpha: FloatArray) -> FloatArray:
        """Return multipliers of all rows from those of the merged ones."""
        return alpha[self.member] * self.share


def merge_rows(rows: Bytes, positive: Bytes) -> tuple[IntArray, IntArray] | None:
    """Return the first row of each kind of rows that agree in all conjunctions and in the label, and the kind of every row; ``None`` where
    there are too many kinds for merging to pay.
    """
    keys = np.ascontiguousarray(np.column_stack([rows, positive]))
    _, first, member = np.unique(keys.view(f"V{keys.shape[1]}").reshape(-1), return_index=True, return_inverse=True)
    return None if MERGE_RATIO * len(first) > len(rows) else (first, member.reshape(-1).astype(np.int64))


def merged_costs(cost: FloatArray, member: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the common cost of merged rows ``(count,)``, and the share of every row ``(n,)``."""
    total = np.bincount(member, cost, minlength=count).astype(np.float64)
    return total, cost / np.maximum(total[member], np.finfo(float).tiny)


@dataclass(frozen=True)
class MergedRows(TaskRows):
    """Rows of one task with the conjunctions that hold on them."""

    rows: Bytes  # (m, ceil(W / 8))
    y: FloatArray
    cost: FloatArray
    member: IntArray
    share: FloatArray

    @classmethod
    def of(cls, rows: Bytes, y: FloatArray, cost: FloatArray) -> MergedRows:
        """Return the rows, merged where that pays."""
        merged = merge_rows(rows, (y > 0).astype(np.uint8))
        if merged is None:
            return cls(rows, y, cost, np.arange(len(y)), np.ones(len(y)))
        first, member = merged
        total, share = merged_costs(cost, member, len(first))
        return cls(rows[first], y[first], total, member, share)


class NewtonStart(NamedTuple):
    """Where one task's Newton steps begin: weights of its ridge, coefficients, bias."""

    delta: FloatArray  # (W,)
    f: FloatArray  # (W,)
    bias: float


class NewtonEnd(NamedTuple):
    """Where they end, with the decisions there before the bias, and the steps taken."""

    f: FloatArray
    bias: float
    F: FloatArray
    steps: int


class HullRows(Protocol):
    """Products of all tasks' rows with the conjunctions of a hull; every list is by task."""

    @property
    def tasks(self) -> Sequence[TaskRows]:
        """What a solver knows of the rows."""
        ...

    def products(self, coefs: Sequence[FloatArray]) -> list[FloatArray]:
        """Return Phi coef of coefficients ``(W,)``."""
        ...

    def sums(self, vectors: Sequence[FloatArray], size: int) -> list[FloatArray]:
        """Return Phi'u, ``(size,)``, of vectors over the rows."""
        ...

    def curvatures(self, zones: Sequence[IntArray], h: float, keep: IntArray) -> list[FloatArray]:
        """Return Phi_Z' diag(c / h) Phi_Z of some columns over rows Z, with the bias eliminated."""
        ...

    def newton_steps(self, starts: Sequence[NewtonStart], h: float, steps: int) -> list[NewtonEnd]:
        """Take up to ``steps`` Newton steps of every task."""
        ...


@dataclass(frozen=True)
class LocalRows:
    """Rows in this process."""

    tasks: Sequence[MergedRows]

    def products(self, coefs: Sequence[FloatArray]) -> list[FloatArray]:
        """Return Phi coef of coefficients ``(W,)``."""
        return [apply_columns(task.rows, coef) for task, coef in zip(self.tasks, coefs, strict=True)]

    def sums(self, vectors: Sequence[FloatArray], size: int) -> list[FloatArray]:
        """Return Phi'u, ``(size,)``, of vectors over the rows."""
        return [apply_transpose(task.rows, vector, size) for task, vector in zip(self.tasks, vectors, strict=True)]

    def curvatures(self, zones: Sequence[IntArray], h: float, keep: IntArray) -> list[FloatArray]:
        """Return Phi_Z' diag(c / h) Phi_Z of some columns over rows Z, with the bias eliminated."""
        parts = zip(self.tasks, zones, strict=True)
        return [zone_curvature(task.rows, task.planes[0], task.planes[1] / h, zone, keep) for task, zone in parts]

    def newton_steps(self, starts: Sequence[NewtonStart], h: float, steps: int) -> list[NewtonEnd]:
        """Take up to ``steps`` Newton steps of every task."""
        parts = zip(self.tasks, starts, strict=True)
        return [NewtonEnd(*take_newton_steps(task.rows, *task.planes, task.y, task.cost, *start, h, steps)) for task, start in parts]
