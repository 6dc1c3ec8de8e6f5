"""The alignment pass: ``a_i = y'H K_i H y / trace(H K_i H)`` of one kernel per feature, stripe by stripe.

Every feature's figures follow from its column alone, so they have the same bits for any stripes, tasks and workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.alignment.alignment import Alignments, alignments
from ...passes.blocks import Block, Task, listed, load_blocks, source_of, task_bytes
from ...passes.scaling import scaled
from ...records.context import RunContext, received
from ...records.scale import FeatureScale


def scaled_block(block: Block) -> Any:
    """Return the columns of a stripe with all scaling applied; a constant one is zero."""
    row_factor = source_of(block.ref).scale.row_factor
    return scaled(block.X, FeatureScale(block.factor, block.shift), row_factor)


def align_chunk(task: Task, table: Any, kernel: str) -> list[tuple[int, np.ndarray]]:
    """Return the offset and ``(4, k)`` alignments of every stripe of a task, summed over the targets; the table's last row is weights."""
    *targets, weight = received(table)
    return [(block.offset, _align_block(block, targets, weight, kernel)) for block in load_blocks(task)]


def _align_block(block: Block, targets: Sequence[np.ndarray], weight: np.ndarray, kernel: str) -> np.ndarray:
    X = scaled_block(block)
    first = alignments(X, targets[0], kernel=kernel, sample_weight=weight)
    values, errors = first.values.copy(), first.errors.copy()
    # The width is the column's own; a constant column takes any.
    widths = None if kernel == "linear" else np.where(first.widths > 0, first.widths, 1.0)
    for target in targets[1:]:
        more = alignments(X, target, kernel=kernel, widths=widths, sample_weight=weight)
        values += more.values
        errors += more.errors
    return np.stack([values, first.traces, first.widths, errors])


@dataclass(frozen=True)
class _TaskBound:
    vector_bytes: int

    def __call__(self, task: Task) -> int:
        # The stripe as read, in float64 with its scaling, and vectors of the length of a column.
        return 4 * task_bytes(task) + 12 * self.vector_bytes + (8 << 20)


def align_features(ctx: RunContext, tasks: Sequence[Task], targets: np.ndarray, weight: np.ndarray, kernel: str) -> Alignments:
    """Return the alignments of the features of ``tasks``, consecutive ones of ``column_tasks`` (one column pass).

    ``targets`` are ``(n_targets, n_samples)``; alignments are summed over them, as <K, sum_t y_t y_t'> is. ``weight`` ``(n_samples,)`` is
    how often each row counts; rows of weight 0 are as if they were not there.

    Raises ValueError: values that are not finite, fewer than two rows, or a constant target.
    """
    width = sum(ref.cols[1] - ref.cols[0] for task in tasks for ref in task)
    size = 32 * width + 256
    program = BlockProgram("alignments", align_chunk, listed, _TaskBound(targets.nbytes), size, combine_bytes=2 * size)
    table = ctx.share("targets", np.concatenate([targets, weight[None, :]]))
    parts = ctx.run_pass(plan(program, tasks, table, kernel))
    return Alignments(*np.concatenate([part for _, part in sorted(parts, key=lambda item: item[0])], axis=1))
