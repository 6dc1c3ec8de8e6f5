"""From the columns of a table, as numbers, to its features."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .record import ColumnEncoding, TableEncoding

Floats = npt.NDArray[np.float64]


def dense_features(encoding: TableEncoding, block: npt.NDArray[np.floating]) -> Floats:
    """Return ``(n_features, n)`` features of the source columns ``(n_sources, n)``: numbers, numbers of levels, NaN where missing."""
    out, at = np.empty((encoding.n_features, block.shape[1])), 0
    for column, values in zip(encoding.sources, block, strict=True):
        end = at + len(column.features)
        _fill_features(column, encoding.form, values, out[at:end])
        at = end
    return out


def _fill_features(column: ColumnEncoding, form: str, values: npt.NDArray[np.floating], out: Floats) -> None:
    gone = np.isnan(values)
    if column.has_indicator:
        out[-1] = gone
        out = out[:-1]
    if column.kind == "nominal" and form == "one-hot":
        out[:] = 0.0
        rows = np.flatnonzero(values >= 0)
        out[values[rows].astype(np.int64), rows] = 1.0
    else:
        out[0] = values if column.fill is None else np.where(gone, column.fill, values)


def sparse_features(encoding: TableEncoding, block: npt.NDArray[np.floating]) -> sp.csr_array:
    """The same as CSR rows ``(n, n_features)`` without zeros."""
    slots = list(_slots(encoding, block))
    n = block.shape[1]
    cols = np.stack([cols for cols, _ in slots], axis=1) if slots else np.zeros((n, 0), np.int64)
    values = np.stack([values for _, values in slots], axis=1) if slots else np.zeros((n, 0))
    ends = np.arange(0, n * len(slots) + 1, max(1, len(slots)))[: n + 1] if slots else np.zeros(n + 1, np.int64)
    rows = sp.csr_array((values.ravel(), cols.ravel().astype(np.int32), ends.astype(np.int32)), shape=(n, encoding.n_features))
    rows.eliminate_zeros()
    return rows


def _slots(encoding: TableEncoding, block: npt.NDArray[np.floating]) -> Iterator[tuple[npt.NDArray[np.int64], Floats]]:
    """Yield column and value of the entries that a source column may have in every row, in the order of columns."""
    at = 0
    for column, values in zip(encoding.sources, block, strict=True):
        gone, end = np.isnan(values), at + len(column.features)
        if column.kind != "nominal":
            yield np.full(len(values), at), np.where(gone, column.fill or 0.0, values).astype(np.float64)
        elif column.levels:
            known = values >= 0
            yield at + np.where(known, values, 0.0).astype(np.int64), known.astype(np.float64)
        if column.has_indicator:
            yield np.full(len(values), end - 1), gone.astype(np.float64)
        at = end
