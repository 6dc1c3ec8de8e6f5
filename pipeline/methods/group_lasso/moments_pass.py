"""Passes of linear models: slopes ``X'u`` over all columns, and second moments of the rows.

Slopes are sums over ascending rows, column by column. Moments are summed by blocks of 65,536 rows, which depend on the data alone, and
added in one fixed tree. Both are bit-identical wherever they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.features.rows_at_hand import row_product
from ....kernels.features.scores import correlations_many
from ....kernels.group_lasso.on_moments import row_moments
from ....storage import BlockStore, MemoryBlocks, MemoryRef, block_cache
from ...core.resources import Resources, Shared, resolve
from ...passes.blocks import Columns, Ref, Task, add_parts, column_tasks, scale_as_given, source_of, task_bytes
from ...passes.scaling import fetch_scaled, scaled

Data = BlockStore | MemoryBlocks

ROWS = 1 << 16  # rows of a block whose moments are summed by one task; chunks of dense stores end at its multiples
MIN_SHARE_OF_ROWS = 0.1  # share of the columns with weights from which whole rows are read rather than these columns
FIRST_ROWS = 1024  # rows whose mean is the shift


def slopes_chunk(task: Task, vectors: Shared) -> np.ndarray:
    """Return ``U @ X`` for the columns of one task, ``(m, k)`` (on a worker). U is ``vectors``, already multiplied by the row factors."""
    U = resolve(vectors)
    return _side_by_side([_block_slopes(ref, U) for ref in _in_long_pieces(task)])


def _in_long_pieces(task: Task) -> Task:
    """Return the stripes of a task. Stripes of arrays in memory are joined into one, because a pass over longer pieces of rows takes a
    third of the time.
    """
    first = task[0]
    return (replace(first, cols=(first.cols[0], task[-1].cols[1])),) if isinstance(first, MemoryRef) else task


def _block_slopes(ref: Ref, U: np.ndarray) -> np.ndarray:
    scale, slopes = scale_as_given(source_of(ref), slice(*ref.cols)), correlations_many(block_cache().load(ref), U)
    if scale.shift is not None:
        slopes -= U.sum(axis=1)[:, None] * scale.shift
    if scale.factor is not None:
        slopes *= scale.factor
    return slopes


def _side_by_side(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts, axis=1)


def feature_slopes(data: Data, resources: Resources, U: np.ndarray) -> np.ndarray:
    """Return ``U @ X`` over all (scaled) columns, ``(m, n_features)``, for vectors U ``(m, n)`` over the rows, in one pass."""
    row_factor = data.scale.row_factor
    duals, tasks = U if row_factor is None else U * row_factor, column_tasks(data)
    return resources.run_pass(slopes_pass(data, len(U), resources.share("slopes", duals, len(tasks))))


def slopes_pass(data: Data, m: int, *broadcast: object) -> Plan[np.ndarray]:
    """Return the pass that computes the slopes of m vectors over the rows."""
    result = 8 * m * data.n_cols

    def memory(task: Task) -> int:
        columns = sum(ref.cols[1] - ref.cols[0] for ref in task)
        # The largest stripe as read and as held, the vectors, their sums over every column, by stripe and joined, scales and
        # positions of columns.
        return 2 * task_bytes(task) + 8 * m * data.n_rows + (16 * m + 24) * columns

    program = BlockProgram("slopes", slopes_chunk, _side_by_side, memory, result, combine_bytes=2 * result)
    return plan(program, column_tasks(data), *broadcast)


@dataclass(frozen=True)
class RowsRef:
    """Reference to a block of rows, with all columns."""

    ref: Ref = field(repr=False)  # any block of the data
    rows: tuple[int, int]  # half-open range
    nbytes: int  # in float64

    def load(self) -> Columns:
        """Return the scaled rows of all columns; a view if dense data in memory have no scaling."""
        data = source_of(self.ref)
        if isinstance(data, MemoryBlocks) and data.meta.kind == "dense":
            raw = data.X[slice(*self.rows)]
        else:
            raw = data.columns(np.arange(data.n_cols), self.rows)
        row_factor = None if data.scale.row_factor is None else data.scale.row_factor[slice(*self.rows)]
        return scaled(raw, scale_as_given(data, slice(0, data.n_cols)), row_factor)


def row_refs(data: Data) -> list[RowsRef]:
    """Return the blocks of rows of the data, in order."""
    ref, n = data.column_blocks()[0], data.n_rows
    ranges = [(lo, min(lo + ROWS, n)) for lo in range(0, n, ROWS)]
    return [RowsRef(ref, span, 8 * (span[1] - span[0]) * data.n_cols) for span in ranges]


def moments_chunk(part: RowsRef, targets: Shared, cost: Shared, shift: np.ndarray | None) -> np.ndarray:
    """Return the raw moments of a block of rows (on a worker)."""
    span = slice(*part.rows)
    return row_moments(part.load(), resolve(targets)[span], resolve(cost)[span], shift=shift)


def moment_bytes(data: Data, n_targets: int) -> int:
    """Return the memory in bytes of the moments."""
    return 8 * (int(data.n_cols) + n_targets + 1) ** 2


def moments_pass(
    data: Data, resources: Resources, targets: np.ndarray, cost: np.ndarray, *, centre: bool
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the raw moments of all rows (see :func:`gramplane.kernels.group_lasso.on_moments.row_moments`), and the shift that is
    subtracted from the columns.

    ``targets`` are ``(n, m)``, ``cost`` ``(n,)``. With ``centre``, the shift of dense columns is the mean of the first rows; otherwise it
    is None.
    """
    refs, shift = row_refs(data), None
    if centre and data.meta.kind == "dense":
        first = RowsRef(refs[0].ref, (0, min(FIRST_ROWS, data.n_rows)), 0).load()
        shift = np.asarray(first, dtype=np.float64).mean(axis=0)
    shared = resources.share("targets", targets, len(refs)), resources.share("costs", cost, len(refs))
    return resources.run_pass(raw_moments_pass(data, targets.shape[1], *shared, shift)), shift


def raw_moments_pass(data: Data, n_targets: int, *broadcast: object) -> Plan[np.ndarray]:
    """Return the pass that computes the moments of all rows."""
    # A task holds a block as read and scaled; a sparse one as CSC and CSR may weigh half as much again.
    program = BlockProgram("moments", moments_chunk, add_parts, lambda part: 3 * part.nbytes, moment_bytes(data, n_targets))
    return plan(program, row_refs(data), *broadcast)


def decision_values(data: Data, resources: Resources, weights: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """Return ``(n_machines, n)`` decision values of all rows; columns with non-zero weights are fetched, a few at a time."""
    features, width = np.flatnonzero(weights.any(axis=0)), columns_at_once(data.n_rows, resources.driver_memory)
    if isinstance(data, MemoryBlocks) and data.meta.kind == "dense" and len(features) > MIN_SHARE_OF_ROWS * data.n_cols:
        return _whole_rows(data, weights, biases)
    values = np.tile(biases[:, None], (1, data.n_rows))
    for lo in range(0, len(features), width):
        part = features[lo : lo + width]
        values += np.asarray(fetch_scaled(data, resources, part) @ weights[:, part].T).T
    return values


def _whole_rows(data: MemoryBlocks, weights: np.ndarray, biases: np.ndarray) -> np.ndarray:
    """Return decision values of dense rows in memory. The rows are read in place and unscaled; the weights are scaled instead."""
    scale, row_factor = scale_as_given(data, slice(0, data.n_cols)), data.scale.row_factor
    plain = weights if scale.factor is None else weights * scale.factor
    centres = 0.0 if scale.shift is None else plain @ scale.shift
    values = row_product(data.X, plain).T
    if row_factor is None:
        return values + (biases - centres)[:, None]
    return (values - np.reshape(centres, (-1, 1))) * row_factor + biases[:, None]


def columns_at_once(n: int, driver_memory: int) -> int:
    """Return the number of columns that are fetched at a time to compute decision values."""
    return max(1, driver_memory // (32 * n))
