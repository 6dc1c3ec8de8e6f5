"""Distances between rows of a sample, for data-dependent kernel widths. The sample depends only on the number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ...kernels.jit import one_thread
from ...storage import BlockStore, MemoryBlocks
from ...storage.errors import Matrix
from .sources import rows_at

SAMPLED_ROWS = 1024  # rows whose distances are looked at; all of fewer
EQUAL_ROWS_SHARE = 1e-12  # squared distances below this share of the largest squared norm are those of equal rows
DIGITS = 6  # significant digits of a width: beyond them it would depend on the type of processor


def sampled_rows(n: int, counts: np.ndarray | None = None) -> np.ndarray:
    """Return the sorted indices of a random sample of n rows, or all rows if there are few. The seed depends on n alone.

    ``counts`` ``(n,)``: multiplicities of the rows; rows with count 0 are never drawn.
    """
    if counts is not None:
        used = np.flatnonzero(counts)
        return used[sampled_rows(len(used))]
    if n <= SAMPLED_ROWS:
        return np.arange(n)
    return np.sort(np.random.default_rng(np.random.SeedSequence((n, 0xD157))).choice(n, SAMPLED_ROWS, replace=False))


def distance_quantiles(rows: Matrix, shares: Sequence[float], counts: np.ndarray | None = None) -> np.ndarray | None:
    """Return quantiles of the squared distances between all pairs of distinct ``rows``, ``(m, d)``; ``None`` if all rows are equal.

    ``shares``: probabilities of the quantiles. ``counts`` ``(m,)``: multiplicities; a row of count 2 counts as two rows. Pairs at distance
    zero are ignored.
    """
    far, is_far = _squared_distances(rows)
    if not far.size:
        return None
    if counts is None:
        return np.quantile(far, shares)
    times = np.multiply.outer(counts, counts)[np.triu_indices(len(counts), 1)][is_far]
    # Pairs that count less than once, on the mean, are as many as they are.
    order, times = np.argsort(far, kind="stable"), times * max(1.0, len(far) / times.sum())
    ends = np.cumsum(times[order])
    places = np.asarray(shares) * max(ends[-1] - 1.0, 0.0)
    low, high = (far[order[np.searchsorted(ends[:-1], ranks, "right")]] for ranks in (np.floor(places), np.ceil(places)))
    return low + (high - low) * (places - np.floor(places))


def _squared_distances(rows: Matrix) -> tuple[np.ndarray, np.ndarray]:
    """Return the squared distances of distinct pairs of rows, and a mask that marks these pairs among all pairs in row order."""
    values = rows.astype(np.float64)
    if not sp.issparse(values):
        # Far from the origin differences would be lost in the products.
        values = values - values.mean(axis=0) if len(values) else values
    with one_thread():
        inner = values @ values.T
    inner = inner.toarray() if sp.issparse(inner) else inner
    squares = np.diag(inner)
    far = (squares[:, None] + squares[None, :] - 2.0 * inner)[np.triu_indices(len(inner), 1)]
    is_far = far > EQUAL_ROWS_SHARE * max(float(squares.max(initial=0.0)), 0.0)
    return far[is_far], is_far


class MedianWidths:
    """Gaussian kernel widths by the median heuristic: the median distance between distinct rows of a sample.

    ``counts``: multiplicities of the rows, ``(n,)``; rows with count 0 are never drawn.
    """

    def __init__(self, data: BlockStore | MemoryBlocks, counts: np.ndarray | None = None) -> None:
        self._data, self._counts = data, counts
        self._sample: Matrix | None = None

    def gamma(self, columns: tuple[int, ...] | None) -> float:
        """Return ``1 / (2 m^2)``, where m is the median distance in the given columns (default: all); 1 if rows are equal in these
        columns.
        """
        return 1.0 if (square := self.square(columns)) is None else float(f"{0.5 / square:.{DIGITS}g}")

    def square(self, columns: tuple[int, ...] | None = None) -> float | None:
        """Return the squared median distance, or ``None`` if all rows are equal."""
        ids = sampled_rows(self._data.n_rows, self._counts)
        rows = self._sample = rows_at(self._data, ids) if self._sample is None else self._sample
        counts = None if self._counts is None else self._counts[ids]
        found = distance_quantiles(rows if columns is None else rows[:, list(columns)], [0.5], counts)
        return None if found is None else float(found[0])
