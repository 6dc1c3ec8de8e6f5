"""The block of columns that a filter turns into eigenvectors: what the solver asks of one, wherever its numbers lie, and one in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..jit import one_thread
from .operator import PANEL_WIDTH, Panels, SymmetricOperator
from .tall_blocks import gram_matrix, inner_product, rotate_columns, rotate_in_place, share_tiles, solve_columns

Block = NDArray[Any]
# `(n, r)`: an array, or what an engine makes of one, with `shape`, `read(lo, hi)` and `column_pieces()`.
Vectors: TypeAlias = Any
# A block of an earlier result: an array `(n, b)`, or a :class:`StoredBlock`; nothing for none.
WarmBlock: TypeAlias = Any

RANDOM_ROWS = 1024  # Rows that are drawn at a time; they decide which number of the generator an entry is.


class ColumnBlock(Protocol):
    """A block V, ``(n, columns)``, float32, of a matrix A, both of which it knows."""

    @property
    def columns(self) -> int:
        """Number of columns."""
        ...

    def driver_bytes(self, columns: int, rank: float) -> int:
        """Return the bytes that this process holds for a block of some columns with so many positive pairs."""
        ...

    def begin(self, columns: int, start: WarmBlock, seed: int) -> bool:
        """Make V of the columns of ``start``, a block of the whole, that are not zero and of random ones; tell whether most were known."""
        ...

    def widen(self, columns: int, seed: int) -> None:
        """Add random columns to V."""
        ...

    def filter(self, degree: int, damped: tuple[float, float], top: float) -> None:
        """Overwrite V as :func:`filter_block` does."""
        ...

    def gram(self) -> FloatArray:
        """Return ``V'V``, products in V's precision."""
        ...

    def exact_gram(self) -> FloatArray:
        """Return ``V'V``, products in double precision."""
        ...

    def form(self) -> FloatArray:
        """Return ``V'AV`` in double precision."""
        ...

    def solve(self, scale: FloatArray, lower: FloatArray) -> None:
        """Overwrite V by ``V diag(scale) L'^{-1}``."""
        ...

    def squared_residuals(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        """Return ``||A u_i - values_i u_i||^2`` of the columns u of ``V weights``."""
        ...

    def rotate(self, weights: FloatArray, count: int) -> Vectors:
        """Overwrite V by ``V weights``, and return its first ``count`` columns in double precision."""
        ...

    def result(self) -> WarmBlock:
        """Return V as a later call may start from it."""
        ...


class BlockEngine(Protocol):
    """A place for blocks outside of this process."""

    def takes(self, n: int, columns: int, rank: float) -> bool:
        """Tell whether a block of ``n`` rows with so many columns and positive pairs goes there."""
        ...

    def open(self, operator: SymmetricOperator, rows: NDArray[np.intp]) -> ColumnBlock:
        """Return a block for a matrix that is the part ``rows`` of the whole."""
        ...

    def assemble(self, n: int, solved: list[tuple[NDArray[np.intp], Any]], order: NDArray[np.intp]) -> tuple[Any, Any]:
        """Return eigenvectors and block of the whole from those of its parts, each with its rows: the pairs of all parts in this order."""
        ...

    def stored(self, name: str) -> StoredBlock:
        """Return the block that an earlier result kept under a name."""
        ...


class StoredBlock(Protocol):
    """A block of an earlier result that lies outside of this process."""

    @property
    def name(self) -> str:
        """Name that it is kept under."""
        ...

    def rows(self, rows: NDArray[np.intp]) -> Block:
        """Return some of its rows."""
        ...


class ArrayBlock:
    """A block in memory, for a matrix that is the part ``rows`` of the whole, and a number of threads, which changes no bit."""

    def __init__(self, operator: SymmetricOperator, threads: int, rows: NDArray[np.intp] | None = None) -> None:
        self._operator, self._threads = operator, threads
        self._rows = np.arange(operator.n) if rows is None else rows
        self._panels = Panels.of(operator, np.float32)
        self.array = np.zeros((operator.n, 0), np.float32)

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self.array.shape[1]

    def driver_bytes(self, columns: int, rank: float) -> int:
        """Return the bytes in use for it."""
        return block_bytes(self._operator.n, columns, rank)

    def begin(self, columns: int, start: WarmBlock, seed: int) -> bool:
        """Make V of the columns of ``start`` that are not zero and of random ones; tell whether most of them were known."""
        return self._fill(
            columns, None if start is None else start[self._rows] if isinstance(start, np.ndarray) else start.rows(self._rows), seed
        )

    def _fill(self, columns: int, start: Block | None, seed: int) -> bool:
        self.array = np.empty((self._operator.n, columns), np.float32)
        known = 0
        if start is not None:
            alive = np.flatnonzero(np.abs(start).max(axis=0, initial=0.0) > 0)[:columns]
            known = len(alive)
            self.array[:, :known] = start[:, alive]
        for rows, drawn in random_rows(len(self.array), columns - known, seed):
            self.array[rows, known:] = drawn
        return 2 * known > columns

    def widen(self, columns: int, seed: int) -> None:
        """Add random columns to V."""
        self._fill(columns, self.array, seed)

    def filter(self, degree: int, damped: tuple[float, float], top: float) -> None:
        """Overwrite V as :func:`filter_block` does."""
        filter_block(self._panels, self.array, degree, damped, top, self._threads)

    def gram(self) -> FloatArray:
        """Return ``V'V``, products in V's precision."""
        return gram_matrix(self.array, self._threads)

    def exact_gram(self) -> FloatArray:
        """Return ``V'V``, products in double precision."""
        return inner_product(self.array, lambda columns: self.array[:, columns], self._threads, np.float64)

    def form(self) -> FloatArray:
        """Return ``V'AV`` in double precision."""
        exact = Panels.of(self._operator, np.float64)
        return inner_product(self.array, lambda columns: exact.product(self.array[:, columns]), self._threads, np.float64)

    def solve(self, scale: FloatArray, lower: FloatArray) -> None:
        """Overwrite V by ``V diag(scale) L'^{-1}``."""
        solve_columns(self.array, scale, lower, self._threads)

    def squared_residuals(self, weights: FloatArray, values: FloatArray) -> FloatArray:
        """Return ``||A u_i - values_i u_i||^2`` of the columns u of ``V weights``."""
        vectors = rotate_columns(self.array, weights, self._threads)
        with one_thread():
            return np.square(self._operator.product(vectors) - vectors * values).sum(axis=0)

    def rotate(self, weights: FloatArray, count: int) -> FloatArray:
        """Overwrite V by ``V weights``, and return its first ``count`` columns in double precision."""
        return rotate_in_place(self.array, weights, count, self._threads)

    def result(self) -> NDArray[np.float32]:
        """Return V."""
        return self.array


def block_bytes(n: int, columns: int, rank: float) -> int:
    """Return the bytes in use for a block of b columns in memory with r positive pairs: ``n (8 b + 16 r) + 40 b^2``."""
    return int(n * (8 * columns + 16 * rank) + 40 * columns**2)


def random_rows(n: int, columns: int, seed: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield the rows of a random block, ``(n, columns)``, some at a time."""
    rng = np.random.default_rng((seed, 3))
    scale = np.float32(n**-0.5)
    for row in range(0, n, RANDOM_ROWS):
        rows = slice(row, min(n, row + RANDOM_ROWS))
        yield rows, scale * rng.standard_normal((rows.stop - row, columns), dtype=np.float32)


def filter_block(panels: Panels, block: Block, degree: int, damped: tuple[float, float], top: float, threads: int) -> None:
    """Overwrite V by ``T_degree(A~) V``, scaled, where A~ maps the damped interval to [-1, 1]: eigenvectors above it grow. With ``e, c``
    half width and centre of the interval: ``sigma_1 = e / (top - c)``, ``Y_1 = (sigma_1 / e)(A - c) V``, then with the running ``sigma' = 1
    / (2 / sigma_1 - sigma)``: ``Y' = (2 sigma' / e)(A - c) Y - sigma sigma' Y_old``. The value at ``top`` stays one. A column depends on
    itself alone.
    """
    n, b = block.shape
    half, centre = 0.5 * (damped[1] - damped[0]), 0.5 * (damped[1] + damped[0])
    first = half / (top - centre)

    def panel(lo: int) -> None:
        columns = slice(lo, min(b, lo + PANEL_WIDTH))
        wide = columns.stop - lo
        x, y = np.zeros((n, PANEL_WIDTH), block.dtype), np.zeros((n, PANEL_WIDTH), block.dtype)
        x[:, :wide] = block[:, columns]
        panels.step(x, y, first / half, centre, 0.0)
        sigma = first
        for _ in range(1, degree):
            later = 1 / (2 / first - sigma)
            panels.step(y, x, 2 * later / half, centre, -sigma * later)
            x, y, sigma = y, x, later
        block[:, columns] = y[:, :wide]

    share_tiles(panel, range(0, b, PANEL_WIDTH), threads)
