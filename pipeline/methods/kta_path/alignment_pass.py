"""The alignment pass: ``a_i = y'H K_i H y / trace(H K_i H)`` of one kernel per feature, stripe by stripe.

The alignment of a feature depends on its column alone. Alignments are therefore bit-identical for any division into stripes and tasks, and
for any number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.alignment.alignment import Alignments, alignments
from ....storage import ArrayRef
from ...core.resources import Resources, resolve
from ...passes.blocks import Block, Task, join_lists, load_blocks, source_of, task_bytes
from ...passes.scaling import scaled
from ...records.scale import FeatureScale


def align_chunk(task: Task, table: np.ndarray | ArrayRef, kernel: str) -> list[tuple[int, np.ndarray]]:
    """Return, for every stripe of a task, its offset and an array ``(4, k)``: alignments summed over the targets, traces, widths, and
    errors of the alignments. The last row of ``table`` has the row weights; the other rows are the targets.
    """
    *targets, weight = resolve(table)
    return [(block.offset, _align_block(block, targets, weight, kernel)) for block in load_blocks(task)]


def _align_block(block: Block, targets: Sequence[np.ndarray], weight: np.ndarray, kernel: str) -> np.ndarray:
    X = scaled(block.X, FeatureScale(block.factor, block.shift), source_of(block.ref).scale.row_factor)
    first = alignments(X, targets[0], kernel=kernel, sample_weight=weight)
    values, errors = first.values.copy(), first.errors.copy()
    # The width is the column's own; a constant column takes any.
    widths = None if kernel == "linear" else np.where(first.widths > 0, first.widths, 1.0)
    for target in targets[1:]:
        more = alignments(X, target, kernel=kernel, widths=widths, sample_weight=weight)
        values += more.values
        errors += more.errors
    return np.stack([values, first.traces, first.widths, errors])


def align_features(resources: Resources, tasks: Sequence[Task], targets: np.ndarray, weight: np.ndarray, kernel: str) -> Alignments:
    """Return the alignments of the features of ``tasks``, consecutive tasks of ``column_tasks``, in one column pass.

    ``targets`` are ``(n_targets, n_samples)``; the alignment is summed over the targets, like <K, sum_t y_t y_t'>. ``weight``
    ``(n_samples,)`` has the counts of the rows; rows with weight 0 are ignored. Raises ValueError for non-finite values, fewer than two
    rows, and a constant target.
    """
    table = resources.share("targets", np.concatenate([targets, weight[None, :]]))
    parts = resources.run_pass(alignments_pass(tasks, targets.nbytes, table, kernel))
    return Alignments(*np.concatenate([part for _, part in sorted(parts, key=lambda item: item[0])], axis=1))


def alignments_pass(tasks: Sequence[Task], targets: int, *broadcast: object) -> Plan[list[tuple[int, np.ndarray]]]:
    """Return the pass over ``tasks``; ``targets`` is the size of the targets in bytes."""
    size = 32 * sum(ref.cols[1] - ref.cols[0] for task in tasks for ref in task) + 256
    # A task holds the stripe as read, in float64 with its scaling, and vectors of the length of a column.
    bound = 12 * targets + (8 << 20)
    program = BlockProgram("alignments", align_chunk, join_lists, lambda task: 4 * task_bytes(task) + bound, size, combine_bytes=2 * size)
    return plan(program, tasks, *broadcast)
