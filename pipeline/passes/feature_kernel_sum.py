"""The matrix of a weighted sum of one kernel per feature, from the stripes that hold features with a weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...cluster import BlockProgram, plan
from ...kernels.feature_sums import weighted_feature_sum
from ..records.context import RunContext, received
from .alignments import scaled_block
from .blocks import Task, column_tasks, load_blocks, task_bytes, tasks_holding

WIDTH = 256
"""Columns taken from a stripe at a time: sparse ones are dense then."""


def sum_chunk(task: Task, table: Any) -> np.ndarray:
    """Return ``sum_i w_i K_i`` over the features of a task; ``table`` has rows ids, weights, widths (0: linear)."""
    ids, weights, widths = received(table)
    out: np.ndarray | None = None
    for block in load_blocks(task):
        lo, hi = np.searchsorted(ids, (block.offset, block.offset + block.width))
        X = scaled_block(block)
        for first in range(lo, hi, WIDTH):
            last = min(first + WIDTH, hi)
            part = X[:, ids[first:last].astype(np.int64) - block.offset]
            columns = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
            found = weighted_feature_sum(columns, weights[first:last], widths[first:last] if widths[first] else None)
            out = found if out is None else out + found
    assert out is not None
    return out


def _added(parts: Sequence[np.ndarray]) -> np.ndarray:
    out = parts[0].copy()
    for part in parts[1:]:
        out += part
    return out


@dataclass(frozen=True)
class _Bound:
    n: int

    def __call__(self, task: Task) -> int:
        return 4 * task_bytes(task) + 4 * 8 * self.n * self.n + 8 * self.n * 8 * WIDTH


def feature_kernel_sum(ctx: RunContext, ids: np.ndarray, weights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return ``K = sum_i w_i K_i`` over features ``ids``, float64 ``(n, n)``.

    Parameters
    ----------
    ctx
        Executor, data and the driver's memory.
    ids
        ``(k,)`` ascending features.
    weights
        ``(k,)`` >= 0.
    widths
        ``(k,)`` widths of Gaussian kernels; all 0 for linear ones.

    Raises
    ------
    ValueError
        If the matrix does not fit in the driver's memory.
    """
    n = ctx.data.n_rows
    # The sum, the partial one to be added, and the copy a solver shrinks.
    if 3 * 8 * n * n > ctx.driver_memory:
        raise ValueError(
            f"the kernel of {n} rows takes {24 * n * n / 2**30:.2f} GiB with its working space, the driver may use "
            f"{ctx.driver_memory / 2**30:.2f} GiB; give it more (driver_memory) or fewer rows"
        )
    if not len(ids):
        return np.zeros((n, n))
    table = np.stack([ids.astype(np.float64), weights, widths])
    program = BlockProgram("feature-kernel-sum", sum_chunk, _added, _Bound(n), 8 * n * n + 256)
    return ctx.run_pass(plan(program, tasks_holding(column_tasks(ctx.data), ids), ctx.share("weights", table)))
