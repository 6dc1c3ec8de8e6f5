"""The block of columns that a filter turns into eigenvectors: the interface, and an implementation in memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray

from ..arrays import FloatArray
from ..jit import one_thread
from .operator import PANEL_WIDTH, Panels, SymmetricOperator

# Linear algebra of a tall block of vectors in fixed tiles: the tiles, not the number of threads, decide every sum.
#
# A block V is ``(n, b)``, C-ordered, float32 or float64. Each tile is one BLAS call of one thread; threads only share the tiles out.

T = TypeVar("T")
TILE_COLUMNS = 512  # Columns of a tile of a small matrix; it decides the order of sums.
TILE_ROWS = 1024  # Rows of V read at a time; they decide the order of sums, too.


def usable_cores() -> int:
    """Return the number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_tiles(work: Callable[[int], T], items: Sequence[int], threads: int) -> list[T]:
    """Return ``[work(i) for i in items]``, computed by several threads; BLAS uses one thread in each."""

    def work_alone(item: int) -> T:
        with one_thread():
            return work(item)

    if threads <= 1 or len(items) <= 1:
        with one_thread():
            return [work(item) for item in items]
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work_alone, items))


def gram_matrix(block: Block, threads: int) -> FloatArray:
    """Return ``V'V``, ``(b, b)``: products in V's precision, summed over ``TILE_ROWS`` rows at a time in float64."""
    return inner_product(block, lambda columns: block[:, columns], threads, block.dtype)


def inner_product(block: Block, right: Callable[[slice], Block], threads: int, dtype: DTypeLike) -> FloatArray:
    """Return the symmetric matrix ``V'W``, ``(b, b)``, computing only its upper tiles.

    ``right`` returns some columns of W; ``dtype`` is the precision of the products.
    """
    n, b = block.shape
    out = np.zeros((b, b))

    def tile(lo: int) -> None:
        hi = min(b, lo + TILE_COLUMNS)
        other = right(slice(lo, hi))
        for row in range(0, n, TILE_ROWS):
            rows = slice(row, min(n, row + TILE_ROWS))
            out[:hi, lo:hi] += np.asarray(block[rows, :hi], dtype=dtype).T @ np.asarray(other[rows], dtype=dtype)

    # The largest first, so that threads end together.
    share_tiles(tile, list(range(0, b, TILE_COLUMNS))[::-1], threads)
    for lo in range(0, b, TILE_COLUMNS):
        hi = min(b, lo + TILE_COLUMNS)
        corner = out[lo:hi, lo:hi]
        out[lo:hi, lo:hi] = 0.5 * (corner + corner.T)
        out[lo:hi, :lo] = out[:lo, lo:hi].T
    return out


def solve_columns(block: Block, scale: FloatArray, lower: FloatArray, threads: int) -> None:
    """Overwrite V by ``V diag(scale) L'^{-1}`` for a lower triangular L, ``(b, b)``, in the precision of V."""
    n = len(block)
    triangle, factors = lower.astype(block.dtype), scale.astype(block.dtype)

    def chunk(row: int) -> None:
        rows = block[row : row + TILE_ROWS]
        rows[:] = scipy.linalg.solve_triangular(triangle, (rows * factors).T, lower=True, overwrite_b=True, check_finite=False).T

    share_tiles(chunk, range(0, n, TILE_ROWS), threads)


def rotate_columns(block: Block, weights: FloatArray, threads: int) -> FloatArray:
    """Return ``V W``, ``(n, m)``, in double precision."""
    out = np.empty((len(block), weights.shape[1]))

    def chunk(row: int) -> None:
        rows = slice(row, row + TILE_ROWS)
        out[rows] = np.asarray(block[rows], dtype=np.float64) @ weights

    share_tiles(chunk, range(0, len(block), TILE_ROWS), threads)
    return out


def rotate_in_place(block: Block, weights: FloatArray, count: int, threads: int) -> FloatArray:
    """Overwrite V by ``V W`` and return its first columns, ``(n, count)``, in double precision."""
    n = len(block)
    out = np.empty((n, count))

    def chunk(row: int) -> None:
        rows = slice(row, min(n, row + TILE_ROWS))
        product = np.asarray(block[rows], dtype=np.float64) @ weights
        out[rows] = product[:, :count]
        block[rows] = product

    share_tiles(chunk, range(0, n, TILE_ROWS), threads)
    return out


def solve_lower(lower: FloatArray, right: FloatArray, threads: int, *, transposed: bool = False) -> FloatArray:
    """Return ``L^{-1} B``, or ``L'^{-1} B``, for a lower triangular L, ``(b, b)``, and B ``(b, m)``."""
    out = np.empty_like(right, order="C")

    def tile(lo: int) -> None:
        columns = slice(lo, min(right.shape[1], lo + TILE_COLUMNS))
        out[:, columns] = scipy.linalg.solve_triangular(lower, right[:, columns], lower=True, trans=int(transposed), check_finite=False)

    share_tiles(tile, range(0, right.shape[1], TILE_COLUMNS), threads)
    return out


Block = NDArray[Any]
# `(n, r)`: an array, or what an engine makes of one, with `shape`, `read(lo, hi)` and `column_pieces()`.
Vectors: TypeAlias = Any
# A block of an earlier result: an array `(n, b)`, or a :class:`StoredBlock`; nothing for none.
WarmBlock: TypeAlias = Any

RANDOM_ROWS = 1024  # Rows that are drawn at a time; they decide which number of the generator an entry is.


class ColumnBlock(Protocol):
    """A block V, ``(n, columns)``, float32; a filter turns its columns into eigenvectors of a matrix A."""

    @property
    def columns(self) -> int: ...

    def driver_bytes(self, columns: int, rank: float) -> int:
        """Return the memory in bytes that a block of ``columns`` columns and ``rank`` positive pairs takes in this process."""
        ...

    def begin(self, columns: int, start: WarmBlock, seed: int) -> bool:
        """Initialise V with the non-zero columns of ``start``, a block of the whole matrix, and fill the rest with random columns. Return
        whether most columns came from ``start``.
        """
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
        """Return ``||A u_i - values_i u_i||^2`` for the columns u_i of ``V weights``."""
        ...

    def rotate(self, weights: FloatArray, count: int) -> Vectors:
        """Overwrite V by ``V weights`` and return its first ``count`` columns in double precision."""
        ...

    def result(self) -> WarmBlock:
        """Return V in a form that a later call can start from."""
        ...


class BlockEngine(Protocol):
    """Storage for blocks outside of this process."""

    def takes(self, n: int, columns: int, rank: float) -> bool:
        """Return whether the engine accepts a block of ``n`` rows, ``columns`` columns and ``rank`` positive pairs."""
        ...

    def open(self, operator: SymmetricOperator, rows: NDArray[np.intp]) -> ColumnBlock:
        """Return a block for the submatrix that consists of the given ``rows`` of the whole matrix."""
        ...

    def assemble(self, n: int, solved: list[tuple[NDArray[np.intp], Any]], order: NDArray[np.intp]) -> tuple[Any, Any]:
        """Return the eigenvectors and the block of the whole matrix. ``solved`` holds the rows and the result of each part; ``order`` sorts
        the eigenpairs of all parts.
        """
        ...

    def stored(self, name: str) -> StoredBlock:
        """Return the block that an earlier result stored under ``name``."""
        ...


class StoredBlock(Protocol):
    """A block of an earlier result, stored outside of this process."""

    @property
    def name(self) -> str: ...

    def rows(self, rows: NDArray[np.intp]) -> Block:
        """Return the given rows of the block."""
        ...


class ArrayBlock:
    """A block in memory for the submatrix of some ``rows`` of the whole matrix; the number of threads does not change results."""

    def __init__(self, operator: SymmetricOperator, threads: int, rows: NDArray[np.intp] | None = None) -> None:
        self._operator, self._threads = operator, threads
        self._rows = np.arange(operator.n) if rows is None else rows
        self._panels = Panels.of(operator, np.float32)
        self.array = np.zeros((operator.n, 0), np.float32)

    @property
    def columns(self) -> int:
        return self.array.shape[1]

    def driver_bytes(self, columns: int, rank: float) -> int:
        """Return the memory in bytes that the block takes."""
        return block_bytes(self._operator.n, columns, rank)

    def begin(self, columns: int, start: WarmBlock, seed: int) -> bool:
        """Initialise V with the non-zero columns of ``start``, and fill the rest with random columns. Return whether most columns came from
        ``start``.
        """
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
        """Return ``||A u_i - values_i u_i||^2`` for the columns u_i of ``V weights``."""
        vectors = rotate_columns(self.array, weights, self._threads)
        with one_thread():
            return np.square(self._operator.product(vectors) - vectors * values).sum(axis=0)

    def rotate(self, weights: FloatArray, count: int) -> FloatArray:
        """Overwrite V by ``V weights`` and return its first ``count`` columns in double precision."""
        return rotate_in_place(self.array, weights, count, self._threads)

    def result(self) -> NDArray[np.float32]:
        """Return V."""
        return self.array


def block_bytes(n: int, columns: int, rank: float) -> int:
    """Return the memory in bytes that a block of b columns and r positive pairs takes: ``n (8 b + 16 r) + 40 b^2``."""
    return int(n * (8 * columns + 16 * rank) + 40 * columns**2)


def random_rows(n: int, columns: int, seed: int) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Yield a random block, ``(n, columns)``, some rows at a time."""
    rng = np.random.default_rng((seed, 3))
    scale = np.float32(n**-0.5)
    for row in range(0, n, RANDOM_ROWS):
        rows = slice(row, min(n, row + RANDOM_ROWS))
        yield rows, scale * rng.standard_normal((rows.stop - row, columns), dtype=np.float32)


def filter_block(panels: Panels, block: Block, degree: int, damped: tuple[float, float], top: float, threads: int) -> None:
    """Overwrite V by ``T_degree(A~) V``, scaled, where A~ is A with the damped interval mapped to [-1, 1]. Components along eigenvectors
    above this interval grow.

    With half width e and centre c of the interval: ``sigma_1 = e / (top - c)``, ``Y_1 = (sigma_1 / e)(A - c) V``, then with the running
    ``sigma' = 1 / (2 / sigma_1 - sigma)``: ``Y' = (2 sigma' / e)(A - c) Y - sigma sigma' Y_old``. The filter value at ``top`` stays one.
    The result for a column does not depend on the other columns.
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
