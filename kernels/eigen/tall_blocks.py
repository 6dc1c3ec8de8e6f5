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
from numpy.typing import NDArray

from ..jit import one_thread

FloatArray = NDArray[np.float64]
Block = NDArray[Any]
T = TypeVar("T")

TILE = 512
ROWS = 1024
"""Columns of a tile of a small matrix, and rows of V read at a time; both decide the order of sums."""


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shared_out(work: Callable[[int], T], items: Sequence[int], threads: int) -> list[T]:
    """Return ``[work(i) for i in items]``, by some threads; BLAS runs one thread in each."""

    def alone(item: int) -> T:
        with one_thread():
            return work(item)

    if threads <= 1 or len(items) <= 1:
        with one_thread():
            return [work(item) for item in items]
    with one_thread(), ThreadPoolExecutor(threads) as pool:
        return list(pool.map(alone, items))


def gram(block: Block, threads: int) -> FloatArray:
    """Return ``V'V``, ``(b, b)``: products of V's precision, added up over ``ROWS`` rows at a time in float64."""
    return inner_product(block, lambda columns: block[:, columns], threads, block.dtype)


def inner_product(block: Block, right: Callable[[slice], Block], threads: int, dtype: Any) -> FloatArray:
    """Return the symmetric ``V'W``, ``(b, b)``; only its upper tiles are computed.

    Parameters
    ----------
    block
        V, ``(n, b)``.
    right
        Gives some columns of W.
    threads
        How many work at a time.
    dtype
        Precision of the products.
    """
    n, b = block.shape
    out = np.zeros((b, b))

    def tile(lo: int) -> None:
        hi = min(b, lo + TILE)
        other = right(slice(lo, hi))
        for row in range(0, n, ROWS):
            rows = slice(row, min(n, row + ROWS))
            left = np.asarray(block[rows, :hi], dtype=dtype)
            out[:hi, lo:hi] += left.T @ np.asarray(other[rows], dtype=dtype)

    # The largest first, so that threads end together.
    shared_out(tile, list(range(0, b, TILE))[::-1], threads)
    for lo in range(0, b, TILE):
        hi = min(b, lo + TILE)
        corner = out[lo:hi, lo:hi]
        out[lo:hi, lo:hi] = 0.5 * (corner + corner.T)
        out[lo:hi, :lo] = out[:lo, lo:hi].T
    return out


def divided(block: Block, scale: FloatArray, lower: FloatArray, threads: int) -> None:
    """Overwrite V by ``V diag(scale) L'^{-1}`` for a lower triangular L, ``(b, b)``, in the precision of V."""
    n = len(block)
    triangle, factors = lower.astype(block.dtype), scale.astype(block.dtype)

    def chunk(row: int) -> None:
        rows = block[row : row + ROWS]
        rows[:] = scipy.linalg.solve_triangular(triangle, (rows * factors).T, lower=True, overwrite_b=True, check_finite=False).T

    shared_out(chunk, range(0, n, ROWS), threads)


def rotated(block: Block, weights: FloatArray, threads: int) -> FloatArray:
    """Return ``V W``, ``(n, m)``, in double precision."""
    out = np.empty((len(block), weights.shape[1]))

    def chunk(row: int) -> None:
        rows = slice(row, row + ROWS)
        out[rows] = np.asarray(block[rows], dtype=np.float64) @ weights

    shared_out(chunk, range(0, len(block), ROWS), threads)
    return out


def rotated_apart(block: Block, weights: FloatArray, kept: int, threads: int) -> FloatArray:
    """Overwrite V by ``V W``, and return its first columns, ``(n, kept)``, in double precision."""
    n = len(block)
    out = np.empty((n, kept))

    def chunk(row: int) -> None:
        rows = slice(row, min(n, row + ROWS))
        product = np.asarray(block[rows], dtype=np.float64) @ weights
        out[rows] = product[:, :kept]
        block[rows] = product

    shared_out(chunk, range(0, n, ROWS), threads)
    return out


def solved_lower(lower: FloatArray, right: FloatArray, threads: int, *, transposed: bool = False) -> FloatArray:
    """Return ``L^{-1} B``, or ``L'^{-1} B``, for a lower triangular L, ``(b, b)``, and B ``(b, m)``."""
    out = np.empty_like(right, order="C")

    def tile(lo: int) -> None:
        columns = slice(lo, min(right.shape[1], lo + TILE))
        out[:, columns] = scipy.linalg.solve_triangular(lower, right[:, columns], lower=True, trans=int(transposed), check_finite=False)

    shared_out(tile, range(0, right.shape[1], TILE), threads)
    return out
