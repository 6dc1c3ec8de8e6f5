"""Arrays in memory as input: NumPy and SciPy sparse, Dask and frames."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ...errors import DataError, SchemaError
from ...sparse_door import admit
from ...value_types import Matrix, SparseMatrix, UserData
from ..labels import Target
from ..options import Options
from ..reading import RowSource, check_width, fill_masked, is_inexact
from ..text.spool import Block
from .dask_rows import DaskSource
from .row_tables import array_digest, at_row
from .tabular import FrameSource


class ArraySource(RowSource):
    """Features (n_rows, n_cols) and row tables ("y", "task", "weight" -> (n_rows,)) in memory, or mapped. ``identity``: identity by
    content, if a cheaper one than hashing the arrays exists."""

    def __init__(
        self,
        x: UserData,
        tables: Mapping[str, npt.NDArray[Any]],
        name: str,
        format: str,
        options: Options,
        identity: Callable[[], str] | None = None,
        names: list[str] | None = None,
    ) -> None:
        self.name, self.format, self.names = name, format, names
        self.sparse = sp.issparse(x)
        self._x: Matrix = _check_csr(x, name) if self.sparse else _check_matrix(x, name)
        self._tables, self._identity = dict(tables), identity
        self.n_cols = int(self._x.shape[1])
        self.nbytes = 12 * int(self._x.nnz) if self.sparse else int(self._x.nbytes)
        check_width(self.n_cols, options, name, self.sparse)
        for table, values in self._tables.items():
            if np.shape(values) != (self._x.shape[0],):
                raise SchemaError(f"{name}: {table} has the shape {np.shape(values)}; it must be ({self._x.shape[0]},), one entry per row")

        self.n_rows = int(self._x.shape[0])
        self.entries = int(self._x.nnz) if self.sparse else int(self._x.size)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        x = self._x
        parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)} if self.sparse else {"x": x}
        return parts | self._tables

    @property
    def all_bytes(self) -> int:
        """Bytes of features and row tables."""
        return sum(int(values.nbytes) for values in self._arrays().values())

    def identity(self) -> str | None:
        """Identity by content."""
        if self._identity is None:
            digest = array_digest(self._arrays())
            self._identity = lambda: digest
        return self._identity()

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield slices of rows."""
        step = max(1, options.budget // 16 // max(1, (self.nbytes or 0) // max(1, self.n_rows)))
        for lo in range(0, self.n_rows, step):
            yield self.with_tables(self._x[lo : lo + step], self._tables, lo, target)

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Build the error for a row and column, counted from zero; columns with names go by them."""
        return at_row(self.name, reason, row, None if column is None else self.names[column] if self.names else column + 1)


def _check_matrix(x: UserData, name: str) -> npt.NDArray[Any]:
    matrix = np.asanyarray(x)
    if matrix.ndim != 2:
        raise SchemaError(f"{name} has the shape {matrix.shape}; features must be a matrix (n_rows, n_cols)")
    if matrix.dtype.kind not in "biuf":
        raise SchemaError(f"{name} has the type {matrix.dtype}; features must be real numbers")
    if isinstance(matrix, np.ma.MaskedArray):
        beyond = np.argwhere(is_inexact(np.ma.filled(matrix, 0)))
        if len(beyond):
            row, column = beyond[0].tolist()
            raise at_row(name, f"value {matrix[row, column]} is beyond 2^53 and cannot be stored exactly", row, column + 1)
    return fill_masked(matrix)


def _check_csr(x: SparseMatrix, name: str) -> SparseMatrix:
    matrix: SparseMatrix = sp.csr_array(admit(x, name))
    if matrix.shape[1] > 2**31 - 2:
        raise SchemaError(f"{name} has {matrix.shape[1]} columns; the limit is 2^31 - 2")
    return matrix


def object_source(source: UserData, options: Options) -> ArraySource | FrameSource | DaskSource:
    """Open an array, a frame, or a pair (features, target). Raises SchemaError if it is none of these, or the target is given twice."""
    columns = options.row_columns(map(str, getattr(source, "columns", ())))
    if isinstance(source, tuple):
        if len(source) != 2 or "y" in columns:
            raise SchemaError("a tuple as source must be (X, y), with no target given beside it")
        source, columns["y"] = source
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return FrameSource(admit(source, f"<{type(source).__name__}>"), columns, options)
    named = [name for name, values in columns.items() if isinstance(values, str)]
    if named:
        raise SchemaError(f"{named[0]} column is {columns[named[0]]!r}, but an array has no column names; pass the values")
    if hasattr(source, "dask") and hasattr(source, "blocks"):
        return DaskSource(source, columns, options)
    tables = {name: np.asarray(values) for name, values in columns.items()}
    return ArraySource(source, tables, f"<{type(source).__name__}>", "array", options)
