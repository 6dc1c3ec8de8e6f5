"""Weighted sums of one kernel per feature, as matrices or by passes over the stripes of features with non-zero weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.alignment.path import Cells
from ....kernels.grams.feature_sums import PRODUCT_COLUMNS, add_feature_sums, feature_values, mirror_triangles
from ....kernels.svm.decomposition import MIN_WORKING_SET, ROW_BYTES, WORKING_SET
from ....storage import ArrayRef, BlockStore, MemoryBlocks
from ...core.memory import OVERHEAD
from ...core.resources import Resources, resolve
from ...passes.blocks import Blocks, Task, add_parts, column_tasks, columns_of, scale_of, source_of, task_bytes, tasks_holding
from ...passes.scaling import scaled

MAX_COLUMNS = 256  # columns that are dense at a time
MAX_PARTS_BYTES = 256 << 20  # partial sums of one pass: with larger matrices fewer tasks go into one, which bounds what the driver holds
MAX_RESULT_BYTES = 48 << 20  # matrices that one task of a pass over cells returns
PARTS_SHARE, RESULT_SHARE = 0.125, 0.03125  # of the driver's memory, where tasks may run; merging holds some results at a time
MAX_CELLS_BYTES = 2 << 30  # matrices of cells: where each is large, one sum for every point takes no longer
MATRIX_COPIES = 24  # bytes per entry while a matrix is summed: two float64 sums, the matrix, and the copy a solver shrinks
MERGED = 9  # results that a step holds which merges those of eight tasks

Table = np.ndarray | ArrayRef


def matrix_fits(n: int, d: int, driver_memory: int) -> bool:
    """Return whether the driver's memory holds a matrix of n rows while a task sums kernels of d features in the same process."""
    step = 16 * n * n + _piece_bytes(n, d, waves=True)
    return MATRIX_COPIES * n * n + max(step - OVERHEAD, 0) <= driver_memory


def _within(limit: int, share: float, driver_memory: int) -> int:
    """Return ``limit`` bytes, or less: at most a share of the driver's memory and of the memory of every process."""
    return int(min(limit, share * max(driver_memory, 2 * OVERHEAD)))


def task_columns(task: Task, ids: np.ndarray) -> np.ndarray:
    """Return the columns ``ids`` (ascending, all of them in the task) after scaling, float64 ``(n, len(ids))``."""
    parts = []
    for ref in task:
        lo, hi = np.searchsorted(ids, ref.cols)
        if hi > lo:
            source = source_of(ref)
            columns = scaled(columns_of(ref, ids[lo:hi]), scale_of(source, ids[lo:hi]), source.scale.row_factor)
            parts.append(np.asarray(columns.toarray() if isinstance(columns, sp.csc_array) else columns, np.float64))
    return np.concatenate(parts, axis=1)


def _positions(task: Task, ids: np.ndarray) -> np.ndarray:
    """Return the positions in ``ids`` (in any order) of the features of a task."""
    inside = np.zeros(len(ids), np.bool_)
    for ref in task:
        inside |= (ids >= ref.cols[0]) & (ids < ref.cols[1])
    return np.flatnonzero(inside)


def _pieces(task: Task, table: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """Yield columns of a task with their weights and widths (None for linear kernels). The rows of ``table`` are ids, weights, and widths
    (0: linear).
    """
    positions = _positions(task, table[0].astype(np.int64))
    for lo in range(0, len(positions), MAX_COLUMNS):
        ids, weights, widths = table[:, positions[lo : lo + MAX_COLUMNS]]
        yield task_columns(task, ids.astype(np.int64)), weights, widths if widths[0] else None


def sum_chunk(task: Task, table: Table, alone: bool) -> np.ndarray:
    """Return the upper triangle of ``sum_i w_i K_i`` over the features of a task. ``alone`` is true if no other task adds to the sum."""
    chosen, out = resolve(table), None
    # Single precision within a piece, double precision across pieces and tasks; the sum of two is the same, rounded at once or later.
    is_single = alone and chosen.shape[1] <= 2 * MAX_COLUMNS
    for X, weights, widths in _pieces(task, chosen):
        part = np.zeros((1, len(X), len(X)), np.float64 if widths is None else np.float32)
        add_feature_sums(X, weights[None, :], widths, part)
        if out is None:
            out = part[0] if is_single else part[0].astype(np.float64, copy=False)
        else:
            out += part[0]
    assert out is not None
    return out


def _piece_bytes(n: int, d: int, *, waves: bool) -> int:
    """Bound the memory in bytes of a piece of columns, counting the columns as read, as scaled and as ordered. With ``waves``, also count
    the terms of the series that gives the matrix of a kernel.
    """
    return 64 * n * min(MAX_COLUMNS, d) + (8 * PRODUCT_COLUMNS * n if waves else 80 * n)


def sums_pass(
    name: str, chunk: Callable[..., np.ndarray], tasks: Sequence[Task], result: int, *broadcast: object, waves: bool, copies: int
) -> Plan[np.ndarray]:
    """Return a pass that adds results of ``result`` bytes. A task holds ``copies`` of the results. With ``waves``, they are matrices."""
    source = source_of(tasks[0][0])
    bound = _piece_bytes(source.n_rows, source.n_cols, waves=waves) + copies * result

    def memory(task: Task) -> int:
        return 2 * task_bytes(task) + bound

    return plan(BlockProgram(name, chunk, add_parts, memory, result + 256), tasks, *broadcast)


def _matrix_pass(tasks: Sequence[Task], *broadcast: object) -> Plan[np.ndarray]:
    result = 8 * source_of(tasks[0][0]).n_rows ** 2
    return sums_pass("feature-kernel-sum", sum_chunk, tasks, result, *broadcast, waves=True, copies=2)


def _tasks_at_once(n: int, driver_memory: int) -> int:
    """Return the number of tasks of a pass that sums matrices. The number decreases with the size of the matrices, so that the memory of
    the driver is bounded.
    """
    return max(1, _within(MAX_PARTS_BYTES, PARTS_SHARE, driver_memory) // (8 * n * n))


def feature_kernel_sum(data: Blocks, resources: Resources, ids: np.ndarray, weights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return ``K = sum_i w_i K_i`` over features ``ids``, ``(n, n)``: float32 for Gaussians, float64 for linear kernels.

    ``ids``, ``weights`` and ``widths`` are ``(k,)``. ``ids`` ascend, and ``weights`` are >= 0. ``widths`` are the widths of Gaussian
    kernels, or all 0 for linear kernels.
    """
    n = data.n_rows
    if not len(ids):
        return np.zeros((n, n))
    table = resources.share("weights", np.stack([ids.astype(np.float64), weights, widths]))
    tasks = tasks_holding(column_tasks(data), ids)
    size, alone = _tasks_at_once(n, resources.driver_memory), len(tasks) == 1
    total = resources.run_pass(_matrix_pass(tasks[:size], table, alone))
    for lo in range(size, len(tasks), size):
        total += resources.run_pass(_matrix_pass(tasks[lo : lo + size], table, alone))
    return mirror_triangles(total[None].astype(np.float32 if widths[0] else np.float64, copy=False))[0]


def product_chunk(task: Task, table: Table, vector: Table) -> np.ndarray:
    """Return ``sum_i w_i K_i v`` over the features of a task, ``(n,)``."""
    v, total = resolve(vector)[None, :], 0.0
    for X, weights, widths in _pieces(task, resolve(table)):
        total = total + feature_values(X, X, weights, widths, v)[0]
    return np.asarray(total)


def rows_chunk(task: Task, table: Table, rows: np.ndarray) -> np.ndarray:
    """Return rows of ``sum_i w_i K_i`` over the features of a task, ``(len(rows), n)``."""
    total = 0.0
    for X, weights, widths in _pieces(task, resolve(table)):
        total = total + feature_values(X, X[rows], weights, widths, np.eye(len(rows)))
    return np.asarray(total)


def diagonal_chunk(task: Task, table: Table) -> np.ndarray:
    """Return the diagonal of ``sum_i w_i x_i x_i'`` over the features of a task."""
    total = 0.0
    for X, weights, _ in _pieces(task, resolve(table)):
        total = total + np.square(X) @ weights
    return np.asarray(total)


class FeatureGram:
    """Matrix-free ``sum_i w_i K_i`` of :func:`feature_kernel_sum`: passes over the columns give the rows and products that solvers need."""

    def __init__(self, data: Blocks, resources: Resources, ids: np.ndarray, weights: np.ndarray, widths: np.ndarray) -> None:
        self.n, self._resources = data.n_rows, resources
        self._table = resources.share("weights", np.stack([ids.astype(np.float64), weights, widths]))
        self._tasks = tasks_holding(column_tasks(data), ids)
        gaussian = bool(widths[0])
        self._diagonal = np.full(self.n, weights.sum()) if gaussian else self._pass("feature-diagonal", diagonal_chunk, self.n)

    def diag(self) -> np.ndarray:
        """Return the diagonal, float64 ``(n,)``."""
        return self._diagonal

    def rows(self, idx: np.ndarray) -> np.ndarray:
        """Return whole rows, ``(len(idx), n)`` (one pass)."""
        return self._pass("feature-rows", rows_chunk, self.n * len(idx), idx) if len(idx) else np.zeros((0, self.n))

    @property
    def working(self) -> int:
        """Size of a solver's working set: the number of rows that fit in memory at once."""
        return rows_at_once(self.n, self._resources.driver_memory)

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Return ``K v`` (one pass)."""
        return self._pass("feature-product", product_chunk, self.n, self._resources.share("vector", v))

    def _pass(self, name: str, chunk: Callable[..., np.ndarray], size: int, *argument: Table) -> np.ndarray:
        return self._resources.run_pass(values_pass(name, chunk, self._tasks, size, self._table, *argument))


def values_pass(name: str, chunk: Callable[..., np.ndarray], tasks: Sequence[Task], size: int, *broadcast: object) -> Plan[np.ndarray]:
    """Return a pass that computes ``size`` values from a sum of kernels without forming the matrix of the sum."""
    return sums_pass(name, chunk, tasks, 8 * size, *broadcast, waves=False, copies=3)


def rows_at_once(n: int, driver_memory: int) -> int:
    """Return the number of whole rows of a sum that one pass returns."""
    return min(n, max(MIN_WORKING_SET, min(WORKING_SET, _within(ROW_BYTES, RESULT_SHARE, driver_memory) // (8 * n))))


def sum_passes(data: BlockStore | MemoryBlocks, item: int, cells: int, driver_memory: int) -> Iterator[Plan[np.ndarray]]:
    """Yield the passes of a fit over sums of the kernels of all features, without running them. ``cells`` is the largest number of cells
    (see :class:`CellSums`), and ``item`` the size of a matrix entry in bytes.
    """
    n, tasks = data.n_rows, column_tasks(data)
    if not matrix_fits(n, data.n_cols, driver_memory):
        yield values_pass("planned", product_chunk, tasks, n * rows_at_once(n, driver_memory))
        return
    yield _matrix_pass(tasks[: _tasks_at_once(n, driver_memory)])
    if cells:
        yield _cells_pass(tasks, min(cells, _cells_at_once(n, item, driver_memory)), item)


def cells_chunk(task: Task, table: Table, count: int) -> np.ndarray:
    """Return, for every cell, the upper triangles of its two matrices, summed over the features of a task, ``(2 count, n, n)``. The rows of
    ``table`` are ids of features, their widths (0: linear), their cells, and their weights in the first and second matrix of the cell.
    """
    ids, widths, cells, low, high = resolve(table)
    positions, n = _positions(task, ids.astype(np.int64)), source_of(task[0]).n_rows
    out = np.zeros((2 * count, n, n), np.float32 if widths[0] else np.float64)
    for cell in np.unique(cells[positions]).astype(np.int64):
        inside = positions[cells[positions] == cell]
        for lo in range(0, len(inside), MAX_COLUMNS):
            at = inside[lo : lo + MAX_COLUMNS]
            X = task_columns(task, ids[at].astype(np.int64))
            add_feature_sums(X, np.stack([low[at], high[at]]), widths[at] if widths[0] else None, out[2 * cell : 2 * cell + 2])
    return out


class CellSums:
    """Sums of kernels by cells. A cell contains kernels of similar alignment; their weighted sum at any point of the path is a mixture of
    two matrices. ``scales`` of the kernels and ``widths`` of Gaussians (0: linear) are ``(n_features,)``.
    """

    def __init__(self, data: Blocks, resources: Resources, cells: Cells, scales: np.ndarray, widths: np.ndarray) -> None:
        self._cells, self._n = cells, int(data.n_rows)
        item = 4 if widths[cells.members[0]] else 8
        size = _cells_at_once(self._n, item, resources.driver_memory)
        batches = [range(first, min(first + size, cells.count)) for first in range(0, cells.count, size)]
        self._parts = [(batch.start, _cell_batch(data, resources, cells, batch, scales, widths)) for batch in batches]

    @staticmethod
    def max_count(data: Blocks, resources: Resources, share: float, item: int) -> int:
        """Return the number of cells that fit both in a share of the driver's memory and in the memory that the matrix and the vectors of
        one point leave free.
        """
        n, memory = data.n_rows, resources.driver_memory
        # Where tasks run here, so do those that merge what they found.
        step = MERGED * 2 * item * n**2 * _cells_at_once(n, item, memory) + _piece_bytes(n, data.n_cols, waves=True)
        left = memory - MATRIX_COPIES * n**2 - 256 * n - max(step - OVERHEAD, 0)
        return max(0, int(min(share * memory, left, MAX_CELLS_BYTES) / (2 * item * n**2)))

    def at(self, point: int, factor: float) -> np.ndarray:
        """Return ``factor sum_i w_i K_i`` with the weights of a point, ``(n, n)``."""
        ends = factor * np.stack([self._cells.low[point], self._cells.high[point]], axis=1)
        out = np.zeros((1, self._n * self._n), self._parts[0][1].dtype)
        for first, part in self._parts:
            mix = ends[first : first + len(part) // 2].ravel()
            used = np.flatnonzero(mix)
            if len(used):
                # Active cells are the last ones.
                out[0] += mix[used[0] :].astype(part.dtype) @ part[used[0] :].reshape(len(mix) - used[0], -1)
        return mirror_triangles(out.reshape(1, self._n, self._n))[0]


def _cell_batch(data: Blocks, resources: Resources, cells: Cells, batch: range, scales: np.ndarray, widths: np.ndarray) -> np.ndarray:
    columns = []
    for cell, members, shares in cells.members_of(batch):
        order = np.argsort(members)
        ids, t = members[order], shares[order]
        number = np.full(len(ids), cell - batch.start, np.float64)
        columns.append(np.stack([ids.astype(np.float64), widths[ids], number, (1.0 - t) * scales[ids], t * scales[ids]]))
    table = np.concatenate(columns, axis=1)
    tasks = tasks_holding(column_tasks(data), np.sort(table[0].astype(np.int64)))
    item = 4 if table[1, 0] else 8
    return resources.run_pass(_cells_pass(tasks, len(batch), item, resources.share("cells", table), len(batch)))


def _cells_pass(tasks: Sequence[Task], count: int, item: int, *broadcast: object) -> Plan[np.ndarray]:
    result = 2 * count * item * source_of(tasks[0][0]).n_rows ** 2
    return sums_pass("feature-cells", cells_chunk, tasks, result, *broadcast, waves=True, copies=2)


def _cells_at_once(n: int, item: int, driver_memory: int) -> int:
    """Return the number of cells per pass."""
    return max(1, _within(MAX_RESULT_BYTES, RESULT_SHARE, driver_memory) // (2 * item * n**2))
