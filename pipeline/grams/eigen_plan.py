"""Memory plan of the eigensolver. The rank is unknown before the fit, so the plan states a lower and an upper bound of the memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...kernels.eigen import positive_part
from ...kernels.eigen.block_lanczos import dense_bytes
from ...kernels.eigen.chebyshev import RANK_MARGINS, SPARE_COLUMNS
from ..core.memory import Item
from . import eigen_blocks
from .eigen_blocks import WIDENING
from .eigen_steps import Shape, matrix_bytes, task_columns, tiles_bytes

WORK = "the eigensolver's block of columns: filter, products, rotations"


@dataclass(frozen=True)
class EigenPlan:
    """Memory plan of the eigensolver on a symmetric matrix of n rows.

    * ``rank``: largest number of positive eigenvalues.
    * ``entries``: stored values of the sparse part.
    * ``factor``: columns of the low-rank part.
    * ``adds``: whether proximal steps add known eigenvectors.
    * ``pairs(n, columns, rank)``: memory item of the eigenpairs and a block of columns.
    * ``memory``: bytes that the driver has left for the eigenpairs and the block.
    * ``here``: whether passes run in this process.
    """

    n: int
    rank: int
    entries: int
    pairs: Callable[[int, float, float], Item]
    memory: int
    here: bool = True
    factor: int = 0
    adds: bool = False

    @property
    def in_tiles(self) -> bool:
        """Whether the block is certain to be stored in tiles for workers, because the matrix has many rows."""
        return not self._is_dense and self.n >= eigen_blocks.WORKER_ROWS

    @property
    def may_use_tiles(self) -> bool:
        """Whether the block is stored in tiles, or may have to be because the widest possible block exceeds the memory of this process."""
        return self.in_tiles or self._may_exceed

    @property
    def _may_exceed(self) -> bool:
        columns, rank = WIDENING * self._most_columns, WIDENING * self.rank
        return not self._is_dense and self.pairs(self.n, columns, rank)[1] > self.memory

    @property
    def _is_dense(self) -> bool:
        return self.n <= positive_part.MAX_DENSE_ROWS

    @property
    def _most_columns(self) -> int:
        return min(self.n, int(RANK_MARGINS[-1] * self.rank) + SPARE_COLUMNS)

    def least_item(self) -> Item:
        """Return the smallest possible memory item of the driver: a dense matrix if there are few rows, otherwise a single eigenpair."""
        columns = SPARE_COLUMNS + 1
        if self._is_dense:
            return dense_matrix_item(self.n)
        tiles = "small matrices of a block in tiles", 40 * columns**2 + 1024 * self.n
        return tiles if self.in_tiles else self.pairs(self.n, columns, 1)

    def most_bytes(self) -> int:
        """Return the memory in bytes for ``rank`` eigenpairs: of a block of columns, or of the dense matrix instead of a wide block."""
        if self._is_dense:
            return dense_bytes(self.n)
        if RANK_MARGINS[0] * self.rank + SPARE_COLUMNS > positive_part.MAX_BLOCK_SHARE * self.n:
            widest = int((positive_part.MAX_BLOCK_SHARE * self.n - SPARE_COLUMNS) / RANK_MARGINS[0])
            return max(dense_bytes(self.n), self._block_bytes(max(1, widest)))
        return self._block_bytes(self.rank)

    def _block_bytes(self, rank: int) -> int:
        columns = min(self.n, int(RANK_MARGINS[-1] * rank) + SPARE_COLUMNS)
        return tiles_bytes(self.n, columns) if self.in_tiles else self.pairs(self.n, columns, rank)[1]

    def task_figures(self, others: int) -> dict[str, int]:
        """Return the memory in bytes of the largest task, for the narrowest and for the widest possible block.

        ``others``: bytes of the tasks of other passes. They are the only entry of the result if no block can be stored in tiles.
        """
        if not (self._may_exceed if self.here else self.may_use_tiles):
            return {"task_bytes": others}
        least, most = SPARE_COLUMNS + 1, self._widest()
        factor = self.factor + (min(self.rank, most) if self.adds else 0)
        # Eigenvectors of small parts, which every task that puts the parts together has: their numbers, rows and ends.
        small = 16 * self.n * min(self.rank, positive_part.MAX_DENSE_ROWS) + 8 * self.rank
        bytes_of = (self._step_bytes(least, self.factor, 0), self._step_bytes(most, factor, small))
        return {name: max(others, given) for name, given in zip(("task_bytes", "task_bytes_at_most"), bytes_of, strict=True)}

    def _step_bytes(self, columns: int, factor: int, small: int) -> int:
        matrix = matrix_bytes(self.n, self.entries, factor)
        return Shape(self.n, columns).most(matrix, task_columns(columns, self.here), small)

    def _widest(self) -> int:
        """Return the largest number of columns of a block. Either a wider block would be replaced by a dense matrix, or its small matrices
        (one row and one column per column of the block) would exceed the driver's memory.
        """
        prefers_dense = dense_bytes(self.n) <= self.memory
        share = min(positive_part.MAX_LAST_SHARE, positive_part.MAX_BLOCK_SHARE if prefers_dense else 1.0)
        rank = min(self.rank, max(0, int((share * self.n - SPARE_COLUMNS) / RANK_MARGINS[0])))
        columns = min(self.n, int(RANK_MARGINS[-1] * rank) + SPARE_COLUMNS)
        return max(SPARE_COLUMNS + 1, min(columns, math.isqrt(max(0, self.memory) // tiles_bytes(0, 1))))

    def work(self) -> tuple[str, ...]:
        """Return descriptions of the tasks on workers."""
        if self.in_tiles or not self.may_use_tiles:
            return (WORK,) if self.in_tiles else ()
        return (f"{WORK}, where it is more than the driver may hold",)

    def describe(self, others: int) -> dict[str, Any]:
        """Return the eigensolver's part of a plan. ``others`` is the memory in bytes that the driver uses for everything else."""
        place = "in tiles, on workers where there are some"
        beyond = "in this process, or in tiles where it is more than is left there"
        return {
            "eigensolver": place if self.in_tiles else beyond if self.may_use_tiles else "in this process",
            "eigenpairs_at_most": self.rank,
            "driver_bytes_at_most": others + max(self.least_item()[1], self.most_bytes()),
        }


def dense_matrix_item(n: int) -> Item:
    """Return the memory item of a dense matrix of n rows."""
    return "a small matrix as a dense one", 32 * n * n
