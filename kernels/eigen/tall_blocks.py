"""Linear algebra of a tall block of vectors in fixed tiles: the tiles, not the number of threads, decide every sum.

A block V is ``(n, b)``, C-ordered, float32 or float64. Each tile is one BLAS call of one thread; threads only share the tiles out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import scipy.linalg
from numpy.typing import DTypeLike, NDArray

from ..arrays import FloatArray
from ..jit import one_thread

Block = NDArray[Any]
T = TypeVar("T")
TILE_COLUMNS = 512  # Columns of a tile of a small matrix; it decides the order of sums.
TILE_ROWS = 1024  # Rows of V read at a time; they decide the order of sums, too.


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_tiles(work: Callable[[int], T], items: Sequence[int], threads: int) -> list[T]:
    """Return ``[work(i) for i in items]``, shared by some threads; BLAS runs one thread in each."""

    def work_alone(item: int) -> T:
        with one_thread():
            return work(item)

    if threads <= 1 or len(items) <= 1:
        with one_thread():
            return [work(item) for item in items]
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work_alone, items))


def gram_matrix(block: Block, threads: int) -> FloatArray:
    """Return ``V'V``, ``(b, b)``: products of V's precision, added up over ``TILE_ROWS`` rows at a time in float64."""
    return inner_product(block, lambda columns: block[:, columns], threads, block.dtype)


def inner_product(block: Block, right: Callable[[slice], Block], threads: int, dtype: DTypeLike) -> FloatArray:
    """Return the symmetric ``V'W``, ``(b, b)``; only its upper tiles are computed. ``right`` returns some columns of W; ``dtype`` is the
    precision of the products.
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
    """Overwrite V by ``V W``, and return its first columns, ``(n, count)``, in double precision."""
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
