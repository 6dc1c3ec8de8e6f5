"""Arrays in memory as input: NumPy and SciPy sparse, Dask and frames."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ...errors import DataError, SchemaError
from ...sparse_door import admitted
from ...value_types import Matrix, SparseMatrix, UserData
from ..labels import Target
from ..options import Options, Progress
from ..reading import Reading, check_width, fill_masked, is_inexact, read_rows
from ..scratch import Scratch
from ..text.spool import Block
from .dask_rows import DaskSource
from .row_tables import array_digest, at_row, row_tables
from .tabular import FrameSource


class ArraySource:
    """Features and row tables in memory (or mapped). ``x``: features (n_rows, n_cols); ``tables``: "y", "task", "weight" -> vectors
    (n_rows,); ``name``, ``format``: for messages and the store; ``options``: options; the width must fit; ``identity``: identity by
    content, if a cheaper one than hashing the arrays exists; ``names``: feature names."""

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
        if not self.sparse or (options.n_features or self.n_cols) < self.n_cols:
            check_width(self.n_cols, options, name)
        for table, values in self._tables.items():
            if np.shape(values) != (self._x.shape[0],):
                raise SchemaError(f"{name}: {table} has the shape {np.shape(values)}; it must be ({self._x.shape[0]},), one entry per row")

    @property
    def entries(self) -> int:
        """Stored numbers."""
        return int(self._x.nnz) if self.sparse else int(self._x.size)

    @property
    def n_rows(self) -> int:
        """Rows."""
        return int(self._x.shape[0])

    @property
    def all_bytes(self) -> int:
        """Bytes of features and row tables."""
        parts = _csr_parts(self._x) if self.sparse else {"x": self._x}
        return sum(int(values.nbytes) for values in (*parts.values(), *self._tables.values()))

    def hint(self) -> str | None:
        """Identity for resuming."""
        return self.identity()

    def identity(self) -> str | None:
        """Identity by content."""
        if self._identity is None:
            parts = _csr_parts(self._x) if self.sparse else {"x": self._x}
            digest = array_digest({**parts, **self._tables})
            self._identity = lambda: digest
        return self._identity()

    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        """Read everything."""
        return read_rows(self, scratch, options, target, progress)

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield row slices of about a sixteenth of the budget."""
        n = self._x.shape[0]
        step = max(1, options.budget // 16 // max(1, self.nbytes // max(1, n)))
        for lo in range(0, n, step):
            hi = min(n, lo + step)
            part = {name: values[lo:hi] for name, values in self._tables.items()}
            first = lo
            yield self._x[lo:hi], row_tables(part, target, lambda reason, row, first=first: self.fault(reason, first + row))

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Build the error for a row and column, counted from zero."""
        return at_row(self.name, reason, row, None if column is None else self.names[column] if self.names else column + 1)


def _check_matrix(x: UserData, name: str) -> npt.NDArray[Any]:
    matrix = np.asanyarray(x)
    if matrix.ndim != 2:
        raise SchemaError(f"{name} has the shape {matrix.shape}; features must be a matrix (n_rows, n_cols)")
    if matrix.dtype.kind not in "biuf":
        raise SchemaError(f"{name} has the type {matrix.dtype}; features must be real numbers")
    return _fill_masked(matrix, name) if isinstance(matrix, np.ma.MaskedArray) else matrix


def _fill_masked(x: np.ma.MaskedArray, name: str) -> npt.NDArray[Any]:
    """Numbers with NaN in the place of masked ones."""
    beyond = np.argwhere(is_inexact(np.ma.filled(x, 0)))
    if len(beyond):
        row, column = beyond[0].tolist()
        raise at_row(name, f"value {x[row, column]} is beyond 2^53 and cannot be stored exactly", row, column + 1)
    return fill_masked(x)


def _check_csr(x: SparseMatrix, name: str) -> SparseMatrix:
    matrix: SparseMatrix = sp.csr_array(admitted(x, name))
    if matrix.shape[1] > 2**31 - 2:
        raise SchemaError(f"{name} has {matrix.shape[1]} columns; the limit is 2^31 - 2")
    return matrix


def _csr_parts(x: SparseMatrix) -> Block:
    return {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)}


def object_source(source: UserData, options: Options) -> ArraySource | FrameSource | DaskSource:
    """Open an array, a frame, or a pair (features, target). Raises SchemaError if it is none of these, or the target is given twice."""
    columns = options.row_columns(map(str, getattr(source, "columns", ())))
    if isinstance(source, tuple):
        if len(source) != 2 or "y" in columns:
            raise SchemaError("a tuple as source must be (X, y), with no target given beside it")
        source, columns["y"] = source
    if hasattr(source, "columns") and hasattr(source, "iloc"):
        return FrameSource(admitted(source, f"<{type(source).__name__}>"), columns, options)
    named = [name for name, values in columns.items() if isinstance(values, str)]
    if named:
        raise SchemaError(f"{named[0]} column is {columns[named[0]]!r}, but an array has no column names; pass the values")
    if hasattr(source, "dask") and hasattr(source, "blocks"):
        return DaskSource(source, columns, options)
    tables = {name: np.asarray(values) for name, values in columns.items()}
    return ArraySource(source, tables, f"<{type(source).__name__}>", "array", options)
