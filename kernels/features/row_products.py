"""Products of many dense rows with few vectors, in blocks of rows: their bits follow from the numbers and their shapes alone.

BLAS divides a product among its threads, and another number of them may round otherwise. Blocks are cut by the shape of the rows and each
is multiplied by one BLAS thread; how many are multiplied at once, and by whom, changes nothing.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..jit import blas_threads, one_thread

BLOCK_VALUES = 1 << 20
"""Values of a block of rows, 8 MB: enough for a thread to be worth its start, and small enough to stay in a cache while types change."""

MIN_THREADED_BLOCKS = 4  # Blocks from which on threads are worth their start.


def row_edges(n: int, d: int) -> list[int]:
    """Return the rows at which blocks of ``(n, d)`` rows begin, and n."""
    return [*range(0, n, max(64, BLOCK_VALUES // max(d, 1) // 64 * 64)), n]


def row_product(X: Array, vectors: Array) -> Array:
    """Return ``X @ vectors.T``, float64 ``(n, m)``, by as many threads as BLAS had outside of :func:`gramplane.kernels.jit.one_thread`."""
    right = np.ascontiguousarray(vectors.T, dtype=np.float64)
    out = np.empty((len(X), right.shape[1]))
    spans = [slice(*span) for span in pairwise(row_edges(*X.shape))]

    threads = min(blas_threads(), len(spans)) if len(spans) >= MIN_THREADED_BLOCKS else 1

    def multiply(first: int) -> None:
        with one_thread():
            for span in spans[first::threads]:
                # BLAS sums rows that lie one after another in another order than columns that do: the same rows have the same bits.
                np.matmul(np.ascontiguousarray(X[span]), right, out=out[span])

    with one_thread():
        if threads == 1:
            multiply(0)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(multiply, range(threads)))
    return out
