"""The rows of a sub-problem in fixed blocks that may lie elsewhere.

Every operation is a pure function of one block and a small query; only sums over the blocks come back, added in a fixed tree, so the bits
do not depend on where or in which order the blocks were worked on. Nothing needs to be kept at the blocks: every operation starts from
omega. Where a block stays in one process, :class:`gramplane.kernels.mixed_norm.row_block.RememberingBlock` spares the repeated products
without changing a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from ..features.views import shape
from ..losses import margin_loss
from .bias import solve_bias
from .row_block import Matrix, RememberingBlock, RowBlock, row_block
from .row_passes import bias_pass, curvature_pass, line_pass, point_pass
from .rows import Curvature, Evaluation, Rows, check_rows
from .rows_local import LocalRows

Source = Matrix | RememberingBlock
Sums = tuple[FloatArray, ...]

ROW_BLOCK = 65_536  # Rows of a block. Part of the definition of the result: another value changes the last bits.
FAN_IN = 8  # Partial sums that are added together at one node of the tree.


@dataclass(frozen=True)
class RowQuery:
    """What the blocks need to know: a point, and for the operation "line" a direction with its steps."""

    loss: str
    omega: FloatArray = field(default_factory=lambda: np.zeros(0))
    bias: float = 0.0
    direction: FloatArray = field(default_factory=lambda: np.zeros(0))
    shift: float = 0.0
    steps: FloatArray = field(default_factory=lambda: np.zeros(0))


Gather = Callable[[str, RowQuery], Sequence[FloatArray]]


def class_costs(matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery) -> Sums:
    """Return the cost of the positive and of the negative rows, shape (2,)."""
    return (np.array([cost[y > 0].sum(), cost[y < 0].sum()], dtype=np.float64),)


def evaluate_block(matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery) -> Sums:
    """Return (P, sum u) and the block's part of Z'u."""
    block, at = _at(matrix, y, cost, query)
    u = np.empty(block.n)
    return np.array(point_pass(*at, query.bias, u)), block.transposed(u)


def bias_sums(matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery) -> Sums:
    """Return (sum u, its derivative in the bias, sum |u|)."""
    return (np.array(bias_pass(*_at(matrix, y, cost, query)[1], query.bias)),)


def line_sums(matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery) -> Sums:
    """Return the losses, slopes and curvatures at every step, shape (3, n_steps)."""
    block, (kind, z, labels, costs) = _at(matrix, y, cost, query)
    return (line_pass(kind, z, block.product(query.direction), labels, costs, query.bias, query.shift, query.steps),)


def curvature_sums(matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery) -> Sums:
    """Return the lower triangle of Z'DZ (p, p), Z'D1 (p,) and sum D (1,)."""
    block, at = _at(matrix, y, cost, query)
    u, weights = np.empty(block.n), np.empty(block.n)
    point_pass(*at, query.bias, u)
    total = curvature_pass(at[0], u, at[3], weights)
    gram, sums, rows = np.zeros((block.p, block.p), order="F"), np.zeros(block.p), np.flatnonzero(weights)
    block.add_gram(rows, weights[rows], gram, sums)
    return gram, sums, np.array([total])


def block_residual(matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery) -> Sums:
    """Return the block's u = alpha y, shape (n_rows,): the only result that is gathered, not summed."""
    block, at = _at(matrix, y, cost, query)
    u = np.empty(block.n)
    point_pass(*at, query.bias, u)
    return (u,)


ROW_OPERATIONS: dict[str, Callable[[Source, FloatArray, FloatArray, RowQuery], Sums]] = {
    "class_cost": class_costs,
    "evaluate": evaluate_block,
    "bias": bias_sums,
    "line": line_sums,
    "curvature": curvature_sums,
    "residual": block_residual,
}


def _at(
    matrix: Source, y: FloatArray, cost: FloatArray, query: RowQuery
) -> tuple[RowBlock, tuple[int, FloatArray, FloatArray, FloatArray]]:
    block = row_block(matrix)
    return block, (int(margin_loss(query.loss).kind), block.product(query.omega), _as_writeable(y), _as_writeable(cost))


def _as_writeable(vector: FloatArray) -> FloatArray:
    # Labels and costs may arrive read-only or as float32; copies are small beside Z and keep one compiled form.
    usable = vector.dtype == np.float64 and vector.flags.writeable and vector.flags.c_contiguous
    return vector if usable else np.array(vector, dtype=np.float64)


def _rows_between(matrix: Array | sp.csr_array, low: int, high: int) -> Array | sp.csr_array:
    """Return rows of a dense or CSR matrix as a view."""
    if isinstance(matrix, np.ndarray):
        return matrix[low:high]
    first, last = int(matrix.indptr[low]), int(matrix.indptr[high])
    starts = matrix.indptr[low : high + 1] - matrix.indptr[low]
    block = sp.csr_array((matrix.data[first:last], matrix.indices[first:last], starts), shape=(len(starts) - 1, shape(matrix)[1]))
    block.has_sorted_indices = matrix.has_sorted_indices
    return block


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Add partial results from left to right: one node of the tree."""
    totals = [np.array(array, order="K") for array in parts[0]]
    for part in parts[1:]:
        for total, array in zip(totals, part, strict=True):
            total += array
    return tuple(totals)


def tree_sum(parts: Iterable[Sums]) -> Sums:
    """Add the blocks' results, given in block order, in the fixed tree of :data:`FAN_IN`."""
    level = list(parts)
    while True:
        level = [add_sums(level[start : start + FAN_IN]) for start in range(0, len(level), FAN_IN)]
        if len(level) == 1:
            return level[0]


class BlockedRows:
    """Rows reached through two functions that visit all blocks.

    ``map_reduce(name, query)`` runs ``ROW_OPERATIONS[name]`` on every block and adds the results as :func:`tree_sum` does;
    ``gather(name, query)`` returns the first array of every block's result, in block order.

    A Newton step costs four passes over the blocks (curvature, line, bias, evaluation), more if the line search cuts it or the bias search
    does not end at once. Results to add: p numbers, p^2 for the curvature. This object holds three vectors of p.
    """

    def __init__(self, n: int, p: int, loss: str, map_reduce: Callable[[str, RowQuery], Sums], gather: Gather) -> None:
        self.n, self.p, self.loss = n, p, loss
        self._map_reduce, self._gather = map_reduce, gather
        self._query, self._fitted = RowQuery(loss), False

    @property
    def class_cost(self) -> tuple[float, float]:
        """Cost of the positive and of the negative rows: one pass."""
        positive, negative = self._map_reduce("class_cost", self._query)[0].tolist()
        return positive, negative

    def evaluate(self, omega: FloatArray, bias: float | None) -> Evaluation:
        """Move to `omega`."""
        self._fitted = bias is not None
        return self._settle(RowQuery(self.loss, omega, bias or 0.0))

    def aim(self, direction: FloatArray, shift: float) -> None:
        """Set the line omega + s direction, b + s shift."""
        self._query = replace(self._query, direction=direction, shift=shift)

    def line(self, steps: FloatArray) -> FloatArray:
        """Return P, its slope and its curvature at every step, shape (3, n_steps): one pass for all of them."""
        return self._map_reduce("line", replace(self._query, steps=steps))[0]

    def advance(self, step: float) -> Evaluation:
        """Move along the line and eliminate the bias there."""
        query = self._query
        return self._settle(RowQuery(self.loss, query.omega + step * query.direction, query.bias + step * query.shift))

    def curvature(self, live: int = 0) -> Curvature:
        """Return the second derivatives at the current point."""
        gram, sums, total = self._map_reduce("curvature", replace(self._query, direction=np.zeros(0)))
        return Curvature(np.asfortranarray(gram), sums, float(total[0]))

    def residual(self) -> FloatArray:
        """Return u = alpha y at the current point."""
        return np.concatenate(list(self._gather("residual", replace(self._query, direction=np.zeros(0)))))

    def _settle(self, query: RowQuery) -> Evaluation:
        if self._fitted:
            limit = margin_loss(self.loss).first_bias_step
            bias = solve_bias(lambda at: self._map_reduce("bias", replace(query, bias=at))[0].tolist(), query.bias, limit)
            query = replace(query, bias=bias)
        self._query = query
        sums, correlations = self._map_reduce("evaluate", query)
        loss, balance = sums.tolist()
        return Evaluation(loss, loss + float(correlations @ query.omega) - query.bias * balance, correlations, query.bias)


def blocks_in_process(matrix: Matrix, y: FloatArray, cost: FloatArray, loss: str) -> BlockedRows:
    """Return rows in blocks of :data:`ROW_BLOCK`, worked on one after the other in this process; dense Z is not copied."""
    labels, costs = check_rows(y, cost, loss)
    whole = matrix if isinstance(matrix, np.ndarray | sp.csr_array) else sp.csr_array(matrix)
    cuts = [(low, min(low + ROW_BLOCK, len(labels))) for low in range(0, len(labels), ROW_BLOCK)]
    blocks = [(RememberingBlock(_rows_between(whole, *cut)), labels[slice(*cut)], costs[slice(*cut)]) for cut in cuts]

    def each(name: str, query: RowQuery) -> list[Sums]:
        return [ROW_OPERATIONS[name](*block, query) for block in blocks]

    def gather(name: str, query: RowQuery) -> list[FloatArray]:
        return [part[0] for part in each(name, query)]

    return BlockedRows(len(labels), shape(matrix)[1], loss, lambda name, query: tree_sum(each(name, query)), gather)


def rows_for(matrix: Matrix, y: FloatArray, cost: FloatArray, loss: str) -> Rows:
    """Return access to rows held in this process: one block with everything cached, or fixed blocks when there are more rows."""
    make = LocalRows if shape(matrix)[0] <= ROW_BLOCK else blocks_in_process
    return make(matrix, y, cost, loss)
