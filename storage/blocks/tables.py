"""Columns of a block: chosen ones in the order asked for, and the tables of them that ingest writes beside the stripes."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import SchemaError
from ..value_types import SparseMatrix
from .arrays import concatenate_ranges

COLUMN_TABLES = ("counts", "norm1", "sumsq", "minimum", "maximum")
_PIECE = 1 << 20


def column_tables(block: npt.NDArray[Any] | sp.csc_array) -> dict[str, npt.NDArray[Any]]:
    """Summarise every column of a block (n_rows, k) that holds all its rows; missing values (NaN, of dense blocks) take no part.

    ``counts`` uint32: stored entries (sparse) or non-zeros (dense). ``norm1`` float32: sum_i |x_ij|, rounded up so that it is an upper
    bound. ``sumsq`` float64: sum_i x_ij^2. ``minimum``, ``maximum`` in the type of the values, zeros included; 0 where all values are
    missing. A column's entries are added in an order that does not depend on the other columns, so the tables do not depend on where
    stripes are cut.
    """
    if not isinstance(block, np.ndarray):
        return _sparse_tables(block)
    n, k = block.shape
    tables = {name: np.zeros(k, dtype) for name, dtype in _table_types(block.dtype).items()}
    step = max(1, _PIECE // max(1, n))
    for lo in range(0, k, step):
        _dense_tables(block[:, lo : lo + step], {name: table[lo : lo + step] for name, table in tables.items()})
    return tables


def _table_types(dtype: np.dtype) -> dict[str, Any]:
    return {"counts": np.uint32, "norm1": np.float32, "sumsq": np.float64, "minimum": dtype, "maximum": dtype}


def _dense_tables(block: npt.NDArray[Any], out: dict[str, npt.NDArray[Any]]) -> None:
    by_column = np.ascontiguousarray(block.T, dtype=np.float64)
    gone = np.isnan(by_column)
    if gone.any():
        some = ~gone.all(axis=1)
        out["minimum"][:] = np.where(some, np.fmin.reduce(by_column, axis=1), 0.0)
        out["maximum"][:] = np.where(some, np.fmax.reduce(by_column, axis=1), 0.0)
        by_column = np.where(gone, 0.0, by_column)
    elif by_column.shape[1]:
        out["minimum"][:], out["maximum"][:] = by_column.min(axis=1), by_column.max(axis=1)
    out["counts"][:] = np.count_nonzero(by_column, axis=1)
    out["norm1"][:] = _round_up(np.abs(by_column).sum(axis=1), by_column.shape[1])
    out["sumsq"][:] = np.square(by_column).sum(axis=1)


def _sparse_tables(block: sp.csc_array) -> dict[str, npt.NDArray[Any]]:
    from ..ingest.tables.columns import column_sums  # compiled code, which those who only open a store do without

    (n, k) = (int(s) for s in block.shape or ())
    tables = {name: np.zeros(k, dtype) for name, dtype in _table_types(block.dtype).items()}
    sums, counts = np.zeros(k), np.diff(block.indptr)
    column_sums(block.data, block.indptr.astype(np.int32, copy=False), n, sums, tables["sumsq"], tables["minimum"], tables["maximum"])
    tables["counts"][:] = counts
    tables["norm1"][:] = _round_up(sums, counts)
    return tables


def _round_up(sums: npt.NDArray[np.float64], terms: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Smallest float32 at least the exact sum, given that a float64 sum of m terms is off by less than m 2^-53 relative."""
    bound = np.nextafter(sums * (1.0 + 2.0**-52 * np.asarray(terms)), np.inf, where=sums > 0, out=np.zeros_like(sums))
    with np.errstate(over="ignore"):
        single = bound.astype(np.float32)
    return np.where(single < bound, np.nextafter(single, np.float32(np.inf)), single)


def check_ids(ids: npt.ArrayLike, n_cols: int) -> npt.NDArray[np.int64]:
    """Return feature ids as int64 (k,); SchemaError if they are not integers inside 0 … n_cols - 1."""
    array = np.atleast_1d(np.asarray(ids))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SchemaError(f"ids has the type {array.dtype} and shape {array.shape}; it must be a vector of integers")
    array = array.astype(np.int64)
    bad = np.flatnonzero((array < 0) | (array >= n_cols))
    if bad.size:
        raise SchemaError(f"ids[{bad[0]}] is {array[bad[0]]}; column ids run from 0 to {n_cols - 1}")
    return array


def check_rows(rows: tuple[int, int] | None, n_rows: int) -> tuple[int, int]:
    """Return a half-open range of rows, all of them by default; SchemaError if it is not inside 0 … n_rows."""
    first, last = (0, n_rows) if rows is None else rows
    if not 0 <= first <= last <= n_rows:
        raise SchemaError(f"rows is {rows}; it must be a range inside 0 … {n_rows}")
    return int(first), int(last)


def mark_canonical(block: SparseMatrix) -> SparseMatrix:
    """Mark a sparse block as sorted and free of duplicates, which it is by construction: spares SciPy a pass over the indices."""
    block.has_canonical_format = True
    return block


def reorder_columns(
    parts: tuple[npt.NDArray[Any], npt.NDArray[Any]], lengths: npt.NDArray[np.int64], order: npt.NDArray[np.intp], shape: tuple[int, int]
) -> sp.csc_array:
    """Put columns stored end to end, ``lengths`` entries each (fewer than 2^31), in the given order (with repetition)."""
    indices, values = parts
    if not np.array_equal(order, np.arange(lengths.size)):
        starts = np.cumsum(lengths) - lengths
        take = concatenate_ranges(starts[order], lengths[order])
        indices, values, lengths = indices[take], values[take], lengths[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    if indptr[-1] >= 2**31:
        raise SchemaError(f"the columns asked for hold {indptr[-1]} entries together; fetch fewer than 2^31 at once")
    return mark_canonical(sp.csc_array((values, indices, indptr.astype(np.int32)), shape=shape))
