"""Arrays as input: NumPy and SciPy sparse in memory, dask arrays one row block at a time (dask itself is never imported)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ...data import in_memory, unmasked
from ...encoding.frames import is_labelled
from ...errors import SchemaError
from ...sparse_door import admit, admit_chunks
from ...value_types import Foreign, Matrix, SparseMatrix, UserData
from ..files import release_pages
from ..labels import Target
from ..options import Options
from ..reading import RowSource, check_width
from ..text.spool import Block
from ..text.streams import FileDigest
from .frames import table_source
from .row_tables import array_digest
from .tabular import Table


class ArraySource(RowSource):
    """Features (n_rows, n_cols) and row tables ("y", "task", "weight" -> (n_rows,)) in memory, or mapped; ``digest``: of the file they
    are from, which costs less than hashing the arrays."""

    def __init__(self, x: UserData, tables: Block, name: str, format: str, options: Options, digest: FileDigest | None = None) -> None:
        self.name, self.format, self.digest = name, format, digest
        self.sparse = sp.issparse(x)
        self._x: Matrix = _check_csr(x, name) if self.sparse else _check_dense(x, name)
        self._tables, self.tables = dict(tables), list(tables)
        self.n_rows, self.n_cols = (int(length) for length in self._x.shape)
        self.entries = int(self._x.nnz) if self.sparse else int(self._x.size)
        self.nbytes = 12 * self.entries if self.sparse else int(self._x.nbytes)
        check_width(self.n_cols, options, name, self.sparse)
        for table, values in self._tables.items():
            self.check_table(table, np.shape(values), self.n_rows)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        x = self._x
        parts = {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)} if self.sparse else {"x": x}
        return parts | self._tables

    @property
    def all_bytes(self) -> int:
        """Bytes of features and row tables."""
        return sum(int(values.nbytes) for values in self._arrays().values())

    @cached_property
    def _content(self) -> str:
        return array_digest(self._arrays().items())

    def identity(self) -> str | None:
        """Identity by content."""
        return super().identity() or self._content

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield slices of rows."""
        step = max(1, options.budget // 16 // max(1, (self.nbytes or 0) // max(1, self.n_rows)))
        for lo in range(0, self.n_rows, step):
            yield self.with_tables(self._x[lo : lo + step], self._tables, lo, target)
            for mapped in self._arrays().values():
                release_pages(mapped)


def check_matrix(x: Matrix, name: str) -> Matrix:
    """Return an array, in memory or in a file, if it can hold features. Raises SchemaError if it is no matrix of real numbers."""
    if x.ndim != 2:
        raise SchemaError(f"{name} has the shape {x.shape}; features must be a matrix (n_rows, n_cols)")
    if x.dtype.kind not in "biuf":
        raise SchemaError(f"{name} has the type {x.dtype}; features must be real numbers")
    return x


def _check_dense(x: UserData, name: str) -> npt.NDArray[Any]:
    matrix = check_matrix(np.asanyarray(x), name)
    return unmasked(matrix, name) if isinstance(matrix, np.ma.MaskedArray) else matrix


def _check_csr(x: SparseMatrix, name: str) -> SparseMatrix:
    matrix: SparseMatrix = sp.csr_array(admit(x, name))
    if matrix.shape[1] > 2**31 - 2:
        raise SchemaError(f"{name} has {matrix.shape[1]} columns; the limit is 2^31 - 2")
    return matrix


class DaskSource(RowSource):
    """A 2-D dask array of dense or SciPy sparse blocks; chunk sizes may be unknown. A row of blocks is computed at once and must fit
    memory. ``tables``: "y", "task", "weight" -> vectors, NumPy or dask."""

    format = "array"

    def __init__(self, x: Foreign, tables: Mapping[str, Any], options: Options) -> None:
        if x.ndim != 2:
            raise SchemaError(f"the dask array has {x.ndim} dimensions; features must be a matrix (n_rows, n_cols)")
        self._x, self._tables = x, tables
        self.name = f"<dask.array {x.name}>"
        self._chunks = admit_chunks(x, self.name)
        self._first = self._compute(0)
        self.sparse = sp.issparse(self._first)
        self.n_cols = int(self._first.shape[1])
        check_width(self.n_cols, options, self.name, self.sparse)

    def _compute(self, i: int) -> Matrix:
        parts = [in_memory(self._chunks.blocks[i, j].compute(), self.name) for j in range(self._x.numblocks[1])]
        if any(sp.issparse(part) for part in parts):
            return sp.csr_array(sp.hstack(parts, format="csr"))
        return np.hstack(parts)

    @property
    def held_bytes(self) -> int:
        """Bytes of the first row of blocks."""
        first: Matrix = self._first
        return int(first.data.nbytes + first.indices.nbytes + first.indptr.nbytes if self.sparse else first.nbytes)

    def identity(self) -> str | None:
        """dask's own name of the computation, which is a hash of it, with the tables."""
        names = [str(getattr(values, "name", "")) or array_digest([(name, values)]) for name, values in self._tables.items()]
        return " ".join(["dask", self._x.name, *names])

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield the row blocks."""
        tables = {name: np.asarray(in_memory(values, name)) for name, values in self._tables.items()}
        for values in tables.values():
            if values.ndim != 1:
                raise SchemaError(f"a row table has the shape {values.shape}; it must be a vector")
        row = 0
        for i in range(self._x.numblocks[0]):
            x, self._first = (self._compute(i) if self._first is None else self._first), None
            for name, values in tables.items():
                if len(values) < row + x.shape[0]:
                    raise SchemaError(f"{name} has {len(values)} entries; the dask array has at least {row + x.shape[0]} rows")
            yield self.with_tables(x, tables, row, target)
            row += x.shape[0]
        for name, values in tables.items():
            if len(values) != row:
                raise SchemaError(f"{name} has {len(values)} entries; the dask array has {row} rows")


def object_source(source: UserData, options: Options) -> ArraySource | Table | DaskSource:
    """Open an array, a frame, or a pair (features, target). Raises SchemaError if it is none of these, or the target is given twice."""
    if isinstance(source, tuple):
        if len(source) != 2 or options.target is not None:
            raise SchemaError("a tuple as source must be (X, y), with no target given beside it")
        source, target = source
        options = replace(options, target=target)
    table = table_source(source, options)
    if table is not None:
        return table
    columns = options.row_columns()
    named = [name for name, values in columns.items() if isinstance(values, str)]
    if named:
        raise SchemaError(f"{named[0]} column is {columns[named[0]]!r}, but an array has no column names; pass the values")
    opened, names = source, None
    if is_labelled(source):  # an array of xarray, which may lie in one of Dask
        opened, names = source.data, _names_of_array(source)
    if hasattr(opened, "dask") and hasattr(opened, "blocks"):
        made = DaskSource(opened, columns, options)
    else:
        made = ArraySource(
            opened, {name: np.asarray(values) for name, values in columns.items()}, f"<{type(source).__name__}>", "array", options
        )
    made.names = names
    return made


def _names_of_array(data: Foreign) -> list[str] | None:
    """Labels of the columns of an xarray array, if it has any."""
    dim = data.dims[1] if len(data.dims) == 2 else None
    return [str(label) for label in data[dim].values.tolist()] if dim is not None and dim in data.coords else None
