"""Distances between rows of a sample, which widths of kernels follow: drawn by the number of rows alone, so the same wherever rows lie."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...kernels.jit import one_thread
from ...storage import BlockStore, MemoryBlocks
from ...storage.value_types import Matrix
from .sources import rows_at

SAMPLED_ROWS = 1024  # rows whose distances are looked at; all of fewer
EQUAL_ROWS_SHARE = 1e-12  # squared distances below this share of the largest squared norm are those of equal rows
DIGITS = 6  # significant digits of a width: beyond them it would depend on the type of processor


def sampled_rows(n: int) -> np.ndarray:
    """Return some of n rows, ascending: all, or as many as are looked at, drawn at random from a seed that n alone gives."""
    if n <= SAMPLED_ROWS:
        return np.arange(n)
    return np.sort(np.random.default_rng(np.random.SeedSequence((n, 0xD157))).choice(n, SAMPLED_ROWS, replace=False))


def squared_distances(rows: Matrix) -> np.ndarray:
    """Return the squared distances of all pairs of different rows ``(m, d)``; equal ones are at distance zero and do not count."""
    values = rows.astype(np.float64)
    if not sp.issparse(values):
        # Far from the origin differences would be lost in the products.
        values = values - values.mean(axis=0) if len(values) else values
    with one_thread():
        inner = values @ values.T
    inner = inner.toarray() if sp.issparse(inner) else inner
    squares = np.diag(inner)
    far = (squares[:, None] + squares[None, :] - 2.0 * inner)[np.triu_indices(len(inner), 1)]
    return far[far > EQUAL_ROWS_SHARE * max(float(squares.max(initial=0.0)), 0.0)]


class MedianWidths:
    """The widths of a data set's Gaussians by the median heuristic: the median distance of different rows of the sample."""

    def __init__(self, data: BlockStore | MemoryBlocks) -> None:
        self._data = data
        self._sample: Matrix | None = None

    def gamma(self, columns: tuple[int, ...] | None) -> float:
        """Return ``1 / (2 m^2)``, m the median distance in some columns, or all of them; 1 where all rows are equal there."""
        return 1.0 if (square := self.square(columns)) is None else float(f"{0.5 / square:.{DIGITS}g}")

    def square(self, columns: tuple[int, ...] | None = None) -> float | None:
        """Return the square of the median distance, ``None`` where all rows are equal."""
        rows = self._sample = rows_at(self._data, sampled_rows(self._data.n_rows)) if self._sample is None else self._sample
        far = squared_distances(rows if columns is None else rows[:, list(columns)])
        return float(np.median(far)) if far.size else None
