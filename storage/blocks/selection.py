"""Choosing columns: checks of ids and ranges, and columns put together in the order asked for."""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import SchemaError
from ..value_types import SparseMatrix
from .arrays import concatenate_ranges


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
