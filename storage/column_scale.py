"""Factors of the scaling of columns, from columns that hold all their rows: the same for a store and for arrays in memory."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .blocks.tables import column_tables
from .value_types import Matrix

Floats = npt.NDArray[np.float64]

COLUMN_SCALES = ("standard", "max-abs", "unit-column")  # kinds that have a factor per column


def inverse_root(squares: Floats) -> Floats:
    """1 / sqrt, and 0 where the argument is 0: an empty or constant column gets the factor 0, so its scores are 0."""
    out = np.zeros_like(squares)
    np.divide(1.0, np.sqrt(squares), out=out, where=squares > 0)
    return out


def column_factors(
    kind: str, tables: Mapping[str, npt.NDArray[Any]], *, is_dense: bool
) -> tuple[Floats, Floats | None, npt.NDArray[np.int64]]:
    """Return the factors of columns (all rows, zeros included) for a kind of scaling, their centres (dense "standard" only) and the columns
    whose squares overflow, for which there are none.

    ``tables``: their column tables, with means and variances for "standard".
    """
    low, high = (np.asarray(tables[name], np.float64) for name in ("minimum", "maximum"))
    if kind == "max-abs":
        largest = np.maximum(np.abs(low), np.abs(high))
        return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0), None, np.zeros(0, np.int64)
    if kind == "unit-column":
        return inverse_root(tables["sumsq"]), None, np.flatnonzero(~np.isfinite(tables["sumsq"]))
    constant = low == high
    # Rounding can leave a constant column a tiny variance, and the factor would blow the rounding up.
    factor = inverse_root(np.where(constant, 0.0, tables["variance"]))
    shift = np.where(constant, low, tables["mean"]) if is_dense else None
    return factor, shift, np.flatnonzero(~np.isfinite(tables["variance"]))


def factors_of(block: Matrix, kind: str, weight: Floats | None = None) -> tuple[Floats, Floats | None, npt.NDArray[np.int64]]:
    """Return what :func:`column_factors` does, of a block without column tables; ``weight`` ``(n_rows,)``: how often rows count."""
    tables = column_tables(block, weight, sizes=kind == "unit-column", moments=kind == "standard")
    return column_factors(kind, tables, is_dense=isinstance(block, np.ndarray))
