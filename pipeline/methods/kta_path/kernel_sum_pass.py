"""Weighted sums of one kernel per feature, from the stripes that hold features with a weight: as matrices, or by passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, plan
from ....kernels.alignment.path_cells import Cells
from ....kernels.grams.feature_sums import add_feature_sums, feature_values, mirror_triangles
from ....storage import ArrayRef
from ...passes.blocks import Task, add_parts, column_tasks, columns_of, scale_of, source_of, task_bytes, tasks_holding
from ...passes.scaling import scaled
from ...records.context import RunContext, resolve

MAX_COLUMNS = 256  # columns that are dense at a time
MAX_PARTS_BYTES = 256 << 20  # partial sums of one pass: with larger matrices fewer tasks go into one, which bounds what the driver holds
MAX_RESULT_BYTES = 48 << 20  # matrices that one task of a pass over cells returns
MATRIX_COPIES = 24  # bytes per entry while a matrix is summed: two float64 sums, the matrix, and the copy a solver shrinks

Table = np.ndarray | ArrayRef


def matrix_fits(n: int, driver_memory: int) -> bool:
    """Return whether the driver may hold the matrix of n rows."""
    return MATRIX_COPIES * n * n <= driver_memory


def task_columns(task: Task, ids: np.ndarray) -> np.ndarray:
    """Return the columns ``ids`` (ascending, all of them in the task) with scaling applied, float64 ``(n, len(ids))``."""
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
    """Yield columns, their weights, and widths (none for linear kernels) of a task; ``table`` has rows ids, weights, widths (0: linear)."""
    positions = _positions(task, table[0].astype(np.int64))
    for lo in range(0, len(positions), MAX_COLUMNS):
        ids, weights, widths = table[:, positions[lo : lo + MAX_COLUMNS]]
        yield task_columns(task, ids.astype(np.int64)), weights, widths if widths[0] else None


def sum_chunk(task: Task, table: Table, rows: np.ndarray | None) -> np.ndarray:
    """Return ``sum_i w_i K_i`` over the features of a task, the upper triangle, of all rows or of some."""
    out: np.ndarray | None = None
    for X, weights, widths in _pieces(task, resolve(table)):
        X = X if rows is None else X[rows]
        part = np.zeros((1, len(X), len(X)), np.float64 if widths is None else np.float32)
        add_feature_sums(X, weights[None, :], widths, part)
        # Single precision within a piece, double precision across pieces.
        out = part[0].astype(np.float64) if out is None else out + part[0]
    assert out is not None
    return out


def _sum_program(name: str, chunk: Callable[..., np.ndarray], n: int, result: int) -> BlockProgram[np.ndarray]:
    # A task holds a stripe, a piece of columns with their series, and results.
    bound = 8 * n * 8 * MAX_COLUMNS + 4 * n * 4096 + 3 * result
    return BlockProgram(name, chunk, add_parts, lambda task: 2 * task_bytes(task) + bound, result + 256)


def feature_kernel_sum(ctx: RunContext, ids: np.ndarray, weights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Return ``K = sum_i w_i K_i`` over features ``ids``, ``(n, n)``: float32 for Gaussians, float64 for linear kernels. ``ids`` ascend,
    ``weights`` are >= 0, and ``widths`` those of Gaussian kernels, or all 0 for linear ones; all ``(k,)``.
    """
    n = ctx.data.n_rows
    if not len(ids):
        return np.zeros((n, n))
    table = ctx.broadcast("weights", np.stack([ids.astype(np.float64), weights, widths]))
    tasks = tasks_holding(column_tasks(ctx.data), ids)
    size = max(1, MAX_PARTS_BYTES // (8 * n * n))
    program = _sum_program("feature-kernel-sum", sum_chunk, n, 8 * n * n)
    total = ctx.run_pass(plan(program, tasks[:size], table, None))
    for lo in range(size, len(tasks), size):
        total += ctx.run_pass(plan(program, tasks[lo : lo + size], table, None))
    return mirror_triangles(total[None].astype(np.float32) if widths[0] else total[None])[0]


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
    """``sum_i w_i K_i`` of :func:`feature_kernel_sum` by passes over the columns; solvers ask it for squares and products only."""

    def __init__(self, ctx: RunContext, ids: np.ndarray, weights: np.ndarray, widths: np.ndarray) -> None:
        self._ctx = ctx
        self._table = ctx.broadcast("weights", np.stack([ids.astype(np.float64), weights, widths]))
        self._tasks = tasks_holding(column_tasks(ctx.data), ids)
        gaussian = bool(widths[0])
        self._diagonal = np.full(self.n, weights.sum()) if gaussian else self._pass("feature-diagonal", diagonal_chunk, self.n)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self._ctx.data.n_rows)

    def diag(self) -> np.ndarray:
        """Return the diagonal, float64 ``(n,)``."""
        return self._diagonal

    def rows(self, idx: np.ndarray) -> np.ndarray:
        """Return whole rows, ``(len(idx), n)`` (one pass)."""
        return self._pass("feature-rows", rows_chunk, self.n * len(idx), idx) if len(idx) else np.zeros((0, self.n))

    def square(self, idx: np.ndarray) -> np.ndarray:
        """Return ``K[idx][:, idx]`` (one pass)."""
        return mirror_triangles(self._pass("feature-square", sum_chunk, len(idx) ** 2, idx)[None])[0]

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Return ``K v`` (one pass)."""
        return self._pass("feature-product", product_chunk, self.n, self._ctx.broadcast("vector", v))

    def _pass(self, name: str, chunk: Callable[..., np.ndarray], size: int, *argument: Table) -> np.ndarray:
        return self._ctx.run_pass(plan(_sum_program(name, chunk, self.n, 8 * size), self._tasks, self._table, *argument))


def cells_chunk(task: Task, table: Table, count: int) -> np.ndarray:
    """Return the two matrices of every cell over the features of a task, upper triangles, ``(2 count, n, n)``. ``table`` has rows ids,
    widths (0: linear), cell, weight in the cell's first matrix and in its second.
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
    """The matrices of cells, and their mixtures; ``scales`` of the kernels, ``widths`` of Gaussians (0: linear), both ``(n_features,)``."""

    def __init__(self, ctx: RunContext, cells: Cells, scales: np.ndarray, widths: np.ndarray) -> None:
        self._cells, self._n = cells, int(ctx.data.n_rows)
        item = 4 if widths[cells.members[0]] else 8
        size = max(1, MAX_RESULT_BYTES // (2 * item * self._n**2))
        batches = [range(first, min(first + size, cells.count)) for first in range(0, cells.count, size)]
        self._parts = [(batch.start, _cell_batch(ctx, cells, batch, scales, widths)) for batch in batches]

    @staticmethod
    def max_count(ctx: RunContext, share: float, item: int) -> int:
        """Return how many cells fit in a share of the driver's memory, and in what a point's matrix and vectors leave of it."""
        entries, rows = ctx.data.n_rows**2, 256 * ctx.data.n_rows
        return max(0, int(min(share * ctx.driver_memory, ctx.driver_memory - MATRIX_COPIES * entries - rows) / (2 * item * entries)))

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


def _cell_batch(ctx: RunContext, cells: Cells, batch: range, scales: np.ndarray, widths: np.ndarray) -> np.ndarray:
    columns = []
    for cell, members, shares in cells.members_of(batch):
        order = np.argsort(members)
        ids, t = members[order], shares[order]
        number = np.full(len(ids), cell - batch.start, np.float64)
        columns.append(np.stack([ids.astype(np.float64), widths[ids], number, (1.0 - t) * scales[ids], t * scales[ids]]))
    table = np.concatenate(columns, axis=1)
    tasks = tasks_holding(column_tasks(ctx.data), np.sort(table[0].astype(np.int64)))
    n = int(ctx.data.n_rows)
    program = _sum_program("feature-cells", cells_chunk, n, 2 * len(batch) * (4 if table[1, 0] else 8) * n * n)
    return ctx.run_pass(plan(program, tasks, ctx.broadcast("cells", table), len(batch)))
