"""Factors of the scaling of columns, from columns that hold all their rows: the same for a store and for arrays in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks.tables import column_tables
from .value_types import Matrix, SparseMatrix

Floats = npt.NDArray[np.float64]

COLUMN_SCALES = ("standard", "max-abs", "unit-column")  # kinds that have a factor per column
_PIECE = 1 << 20  # dense entries that are looked at together


def inverse_root(squares: Floats) -> Floats:
    """1 / sqrt, and 0 where the argument is 0: an empty or constant column gets the factor 0, so its scores are 0."""
    out = np.zeros_like(squares)
    np.divide(1.0, np.sqrt(squares), out=out, where=squares > 0)
    return out


def column_factors(
    block: Matrix, kind: str, tables: Mapping[str, npt.NDArray[Any]], weight: Floats | None = None
) -> tuple[Floats, Floats | None, npt.NDArray[np.int64]]:
    """Return the factors of the columns of a block (ndarray or csc_array, ``(n_rows, k)``, all rows, zeros included) for a kind of scaling,
    their centres (dense "standard" only) and the columns whose squares overflow, for which there are none.

    ``tables``: their column tables; ``weight`` ``(n_rows,)``: how often each row counts in means.
    """
    low, high = (np.asarray(tables[name], np.float64) for name in ("minimum", "maximum"))
    if kind == "max-abs":
        largest = np.maximum(np.abs(low), np.abs(high))
        return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0), None, np.zeros(0, np.int64)
    if kind == "unit-column":
        return inverse_root(tables["sumsq"]), None, np.flatnonzero(~np.isfinite(tables["sumsq"]))
    mean, variance = mean_and_variance(block, weight)
    constant = low == high
    # Rounding can leave a constant column a tiny variance, and the factor would blow the rounding up.
    factor = inverse_root(np.where(constant, 0.0, variance))
    shift = np.where(constant, low, mean) if isinstance(block, np.ndarray) else None
    return factor, shift, np.flatnonzero(~np.isfinite(variance))


def mean_and_variance(block: Matrix, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Mean and variance of the columns of a block, ndarray or csc_array (n_rows, k), that holds all its rows, zeros included."""
    n, k = block.shape
    if isinstance(block, np.ndarray):
        return _dense_moments(block, weight)
    if weight is not None:
        return _weighted_moments(block, weight)
    counts = np.diff(block.indptr)
    filled = np.flatnonzero(counts)
    mean, spread = np.zeros(k), np.zeros(k)
    if filled.size:
        values, starts = block.data.astype(np.float64), block.indptr[filled]
        mean[filled] = np.add.reduceat(values, starts) / n
        spread[filled] = np.add.reduceat(np.square(values - np.repeat(mean, counts)), starts)
    return mean, (spread + (n - counts) * np.square(mean)) / n


def _dense_moments(block: npt.NDArray[Any], weight: Floats | None) -> tuple[Floats, Floats]:
    n, k = block.shape
    mean, variance, step = np.zeros(k), np.zeros(k), max(1, _PIECE // max(1, n))
    for lo in range(0, k, step):
        wide = np.ascontiguousarray(block[:, lo : lo + step].T, dtype=np.float64)
        mean[lo : lo + step] = centre = _mean(wide, weight)
        variance[lo : lo + step] = _mean(np.square(wide - centre[:, None]), weight)
    return mean, variance


def _mean(rows: Floats, weight: Floats | None) -> Floats:
    return rows.mean(axis=1) if weight is None else (rows * weight).sum(axis=1) / weight.sum()


def _weighted_moments(block: SparseMatrix, weight: Floats) -> tuple[Floats, Floats]:
    """Return weighted moments of the columns of a csc_array."""
    total, values, shares = weight.sum(), block.data.astype(np.float64), weight[block.indices]
    owner = np.repeat(np.arange(block.shape[1]), np.diff(block.indptr))
    mean = np.bincount(owner, shares * values, block.shape[1]) / total
    spread = np.bincount(owner, shares * np.square(values - mean[owner]), block.shape[1])
    absent = total - np.bincount(owner, shares, block.shape[1])
    return mean, (spread + absent * np.square(mean)) / total


def factors_of(block: Matrix, kind: str, weight: Floats | None = None) -> tuple[Floats, Floats | None, npt.NDArray[np.int64]]:
    """Return what :func:`column_factors` does, of a block whose column tables nobody has."""
    with np.errstate(over="ignore", invalid="ignore"):
        return column_factors(block, kind, column_tables(block), weight)
