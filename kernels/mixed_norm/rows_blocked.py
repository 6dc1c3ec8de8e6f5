"""The rows of a sub-problem in fixed blocks, which may be in other processes.

Every operation is a pure function of one block and a small query. Only sums over the blocks are returned, added in a fixed tree, so the
bits of a sum do not depend on where or in which order the blocks are processed. Blocks keep no state: every operation starts from omega.
For a block that stays in one process, :class:`gramplane.kernels.mixed_norm.row_block.RememberingBlock` avoids repeated products; results
stay bit-identical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from ..features.views import shape
from ..loss_types import SumLoss
from .elimination import FreeSums, eliminate
from .row_block import Matrix, RememberingBlock, RowBlock, row_block
from .rows import Curvature, Evaluation, RowPasses, Rows, check_rows, passes_of
from .rows_local import LocalRows

Source = Matrix | RememberingBlock
Sums = tuple[FloatArray, ...]

ROW_BLOCK = 65_536  # Rows of a block. Part of the definition of the result: another value changes the last bits.
FAN_IN = 8  # Partial sums that are added together at one node of the tree.


@dataclass(frozen=True)
class RowQuery:
    """The query sent to the blocks: a point and, for the operation "line", a direction with its steps."""

    loss: SumLoss
    omega: FloatArray = field(default_factory=lambda: np.zeros(0))
    free: FloatArray = field(default_factory=lambda: np.zeros(0))
    direction: FloatArray = field(default_factory=lambda: np.zeros(0))
    shift: FloatArray = field(default_factory=lambda: np.zeros(0))
    steps: FloatArray = field(default_factory=lambda: np.zeros(0))


Gather = Callable[[str, RowQuery], Sequence[FloatArray]]


class RowData(NamedTuple):
    """Data of a block's rows: labels or targets, costs, and the ``(n, q)`` unpenalised columns."""

    y: FloatArray
    cost: FloatArray
    columns: FloatArray


class _At:
    """A block at the point of a query: z, the decision values f and, on demand, the signed dual variables u."""

    def __init__(self, matrix: Source, data: RowData, query: RowQuery) -> None:
        self.block: RowBlock = row_block(matrix)
        self.passes: RowPasses = passes_of(query.loss)
        self.y, self.cost, self.columns = (_as_writeable(part) for part in data)
        self.z = self.block.product(query.omega)
        self.f = self.with_free(self.z, query.free)

    def with_free(self, z: FloatArray, g: FloatArray) -> FloatArray:
        return z + self.columns @ g if self.columns.size else z

    def point(self) -> tuple[float, FloatArray]:
        u = np.empty(self.block.n)
        return self.passes.point(self.f, self.y, self.cost, u), u

    def weights(self) -> FloatArray:
        weights = np.empty(self.block.n)
        self.passes.curvature(self.point()[1], self.cost, weights)
        return weights

    def bent(self, weights: FloatArray) -> FloatArray:
        return self.columns.T @ (self.columns * weights[:, None])


def class_costs(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return the total cost of the positive and of the negative rows, shape (2,)."""
    y, cost = data.y, data.cost
    return (np.array([cost[y > 0].sum(), cost[y < 0].sum()], dtype=np.float64),)


def evaluate_block(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return P, and the block's part of Z'u and X'u."""
    at = _At(matrix, data, query)
    loss, u = at.point()
    return np.array([loss]), at.block.transposed(u), at.columns.T @ u


def balance_sums(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return x'u, its negative derivative, and sum |x_i u_i| for a single unpenalised column x."""
    at = _At(matrix, data, query)
    return (np.array(at.passes.balance(at.z, at.columns.reshape(-1), at.y, at.cost, float(query.free[0]))),)


def free_sums(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return (P, sum u^2), X'u and the squared lengths of the columns X."""
    at = _At(matrix, data, query)
    loss, u = at.point()
    return np.array([loss, u @ u]), at.columns.T @ u, np.einsum("ij,ij->j", at.columns, at.columns)


def free_bends(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return X'DX, shape (q, q)."""
    at = _At(matrix, data, query)
    return (at.bent(at.weights()),)


def free_majorant(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return X'KX, where K holds upper bounds of the second derivatives, shape (q, q)."""
    columns, cost = (_as_writeable(part) for part in (data.columns, data.cost))
    return (columns.T @ (columns * (query.loss.max_curvature * cost)[:, None]),)


def line_sums(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return losses, slopes and curvatures at each step, shape (3, n_steps)."""
    at = _At(matrix, data, query)
    speed = at.with_free(at.block.product(query.direction), query.shift)
    return (at.passes.line(at.f, speed, at.y, at.cost, query.steps),)


def curvature_sums(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return the lower triangle of Z'DZ (p, p), Z'DX (p, q) and X'DX (q, q)."""
    at = _At(matrix, data, query)
    block, weights = at.block, at.weights()
    gram, cross, rows = np.zeros((block.p, block.p), order="F"), np.zeros((block.p, at.columns.shape[1])), np.flatnonzero(weights)
    block.add_gram(rows, weights[rows], gram, at.columns, cross)
    return gram, cross, at.bent(weights)


def block_residual(matrix: Source, data: RowData, query: RowQuery) -> Sums:
    """Return the block's u, shape (n_rows,): the only result that is concatenated instead of summed."""
    return (_At(matrix, data, query).point()[1],)


ROW_OPERATIONS: dict[str, Callable[[Source, RowData, RowQuery], Sums]] = {
    "class_cost": class_costs,
    "evaluate": evaluate_block,
    "balance": balance_sums,
    "free": free_sums,
    "free_bends": free_bends,
    "free_majorant": free_majorant,
    "line": line_sums,
    "curvature": curvature_sums,
    "residual": block_residual,
}


def _as_writeable(vector: FloatArray) -> FloatArray:
    # Labels, costs and columns may arrive read-only or as float32; copies are small beside Z and keep one compiled form.
    usable = vector.dtype == np.float64 and vector.flags.writeable and vector.flags.c_contiguous
    return vector if usable else np.array(vector, dtype=np.float64)


def _rows_between(matrix: Array | sp.csr_array, low: int, high: int) -> Array | sp.csr_array:
    if isinstance(matrix, np.ndarray):
        return matrix[low:high]
    first, last = int(matrix.indptr[low]), int(matrix.indptr[high])
    starts = matrix.indptr[low : high + 1] - matrix.indptr[low]
    block = sp.csr_array((matrix.data[first:last], matrix.indices[first:last], starts), shape=(len(starts) - 1, shape(matrix)[1]))
    block.has_sorted_indices = matrix.has_sorted_indices
    return block


def add_sums(parts: Sequence[Sums]) -> Sums:
    """Add partial results from left to right; one node of the tree."""
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
    """Rows accessed through two functions that visit all blocks.

    ``map_reduce(name, query)`` runs ``ROW_OPERATIONS[name]`` on every block and adds the results as :func:`tree_sum` does. ``gather(name,
    query)`` returns the first array of every block's result, in block order.

    A Newton step takes four passes over the blocks (curvature, line, elimination, evaluation). More passes are needed if the line search
    shortens the step or the search for the unpenalised coefficients takes several iterations. Each block returns p + q numbers per pass,
    and (p + q)^2 numbers for the curvature. This object holds three vectors of length p.
    """

    def __init__(self, n: int, p: int, loss: SumLoss, map_reduce: Callable[[str, RowQuery], Sums], gather: Gather, q: int = 0) -> None:
        self.n, self.p, self.q, self.loss = n, p, q, loss
        self._map_reduce, self._gather = map_reduce, gather
        self._query = RowQuery(loss)

    @property
    def class_cost(self) -> tuple[float, float]:
        """Total cost of the positive and of the negative rows, from one pass."""
        positive, negative = self._map_reduce("class_cost", RowQuery(self.loss))[0].tolist()
        return positive, negative

    def evaluate(self, omega: FloatArray, free: FloatArray) -> Evaluation:
        return self._settle(RowQuery(self.loss, omega, free))

    def aim(self, direction: FloatArray, shift: FloatArray) -> None:
        self._query = replace(self._query, direction=direction, shift=shift)

    def line(self, steps: FloatArray) -> FloatArray:
        """Return P and its first and second derivatives at each step, shape (3, n_steps), in one pass."""
        return self._map_reduce("line", replace(self._query, steps=steps))[0]

    def advance(self, step: float) -> Evaluation:
        """Move along the line and eliminate g there."""
        query = self._query
        return self._settle(RowQuery(self.loss, query.omega + step * query.direction, query.free + step * query.shift))

    def curvature(self, live: int = 0) -> Curvature:
        gram, cross, bends = self._map_reduce("curvature", replace(self._query, direction=np.zeros(0)))
        return Curvature(np.asfortranarray(gram), cross, bends)

    def residual(self) -> FloatArray:
        return np.concatenate(list(self._gather("residual", replace(self._query, direction=np.zeros(0)))))

    def balance(self, g: float) -> tuple[float, float, float]:
        """Return x'u of the single unpenalised column, its negative derivative and the sum of its absolute terms, in one pass."""
        balance, slope, mass = self._ask("balance", np.array([g]))[0].tolist()
        return balance, slope, mass

    def free_sums(self, g: FloatArray) -> FreeSums:
        """Return P, X'u and a norm of its terms, in one pass."""
        (loss, square), pulls, lengths = self._ask("free", g)
        return FreeSums(float(loss), pulls, np.sqrt(lengths * square))

    def free_bends(self, g: FloatArray) -> FloatArray:
        """Return X'DX, in one pass."""
        return self._ask("free_bends", g)[0]

    def free_majorant(self) -> FloatArray:
        """Return X'KX, where K holds upper bounds of the second derivatives, in one pass."""
        return self._ask("free_majorant", self._query.free)[0]

    def _ask(self, name: str, g: FloatArray) -> Sums:
        return self._map_reduce(name, replace(self._query, free=g))

    def _settle(self, query: RowQuery) -> Evaluation:
        self._query = query
        free = eliminate(self, query.free, self.loss.first_bias_step)
        self._query = replace(query, free=free)
        (loss,), correlations, pulls = self._map_reduce("evaluate", self._query)
        return Evaluation(float(loss), float(loss) + float(correlations @ query.omega) + float(pulls @ free), correlations, free)


def blocks_in_process(
    matrix: Matrix, y: FloatArray, cost: FloatArray, loss: SumLoss | str, columns: FloatArray | None = None
) -> BlockedRows:
    """Return rows in blocks of :data:`ROW_BLOCK`, processed one after the other in this process; dense Z is not copied."""
    labels, costs, law, further = check_rows(y, cost, loss, columns)
    whole = matrix if isinstance(matrix, np.ndarray | sp.csr_array) else sp.csr_array(matrix)
    cuts = [(low, min(low + ROW_BLOCK, len(labels))) for low in range(0, len(labels), ROW_BLOCK)]
    data = [RowData(labels[slice(*cut)], costs[slice(*cut)], further[slice(*cut)]) for cut in cuts]
    blocks = [(RememberingBlock(_rows_between(whole, *cut)), part) for cut, part in zip(cuts, data, strict=True)]

    def each(name: str, query: RowQuery) -> list[Sums]:
        return [ROW_OPERATIONS[name](*block, query) for block in blocks]

    def gather(name: str, query: RowQuery) -> list[FloatArray]:
        return [part[0] for part in each(name, query)]

    sizes = len(labels), shape(matrix)[1], law
    return BlockedRows(*sizes, lambda name, query: tree_sum(each(name, query)), gather, further.shape[1])


def rows_for(matrix: Matrix, y: FloatArray, cost: FloatArray, loss: SumLoss | str, columns: FloatArray | None = None) -> Rows:
    """Return access to rows in this process: one block with all caches for up to :data:`ROW_BLOCK` rows, fixed blocks for more rows."""
    make = LocalRows if shape(matrix)[0] <= ROW_BLOCK else blocks_in_process
    return make(matrix, y, cost, loss, columns)
