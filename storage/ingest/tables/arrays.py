"""Arrays as input: NumPy and SciPy sparse in memory, and Dask arrays one row block at a time (Dask itself is never imported)."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ...data import in_memory, unmasked
from ...encoding.frames import is_labelled
from ...errors import DataError, Foreign, Matrix, SchemaError, SparseMatrix, StorageError, UserData
from ...sparse_door import admit, admit_chunks, check_shape
from ...temporary import temporary_folder
from ..files import FileArray, by_rows, npy_file, read_declared, release_pages, unpack_arrays
from ..labels import Target
from ..options import COVARIATE, Options
from ..reading import RowSource, check_row_fits, check_width
from ..scratch import Scratch
from ..text.spool import Block, FileDigest
from ..turning import Compressed, check_turning, csr_pieces
from .frames import table_source
from .mat_files import is_version_5, read_variables
from .row_tables import array_digest
from .tabular import Table


class ArraySource(RowSource):
    """Features (n_rows, n_cols) and row tables, in memory or in mapped files. The row tables map "y", "task" and "weight" to vectors
    (n_rows,).
    """

    format = "array"

    def __init__(self, x: UserData, tables: Block, name: str, options: Options) -> None:
        self.name, self.sparse = name, sp.issparse(x)
        self._x: Matrix = _check_csr(x, name) if self.sparse else _check_dense(x, name)
        self._tables, self.tables = tables, list(tables)
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
        return sum(int(values.nbytes) for values in self._arrays().values())

    @cached_property
    def _content(self) -> str:
        return array_digest(self._arrays().items())

    def identity(self) -> str | None:
        return self._content

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield slices of rows."""
        step = max(1, options.budget // 16 // max(1, (self.nbytes or 0) // max(1, self.n_rows)))
        for lo in range(0, self.n_rows, step):
            yield self.with_tables(self._x[lo : lo + step], self._tables, lo, target)
            for mapped in self._arrays().values():
                release_pages(mapped)


def check_matrix(x: Matrix, name: str) -> Matrix:
    """Return an array, in memory or in a file, if it can hold features. Raises SchemaError if it is not a matrix of real numbers."""
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
    """A 2-D Dask array of dense or SciPy sparse blocks, whose chunk sizes may be unknown.

    A row of blocks is computed at a time and must fit in memory. ``tables`` maps "y", "task" and "weight" to vectors, NumPy or Dask.
    """

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
        """Return the memory in bytes that the first row of blocks takes."""
        first: Matrix = self._first
        return int(first.data.nbytes + first.indices.nbytes + first.indptr.nbytes if self.sparse else first.nbytes)

    def identity(self) -> str | None:
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
            raise SchemaError("a tuple as source must be (X, y); leave the option target out")
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
        made = ArraySource(opened, {name: np.asarray(values) for name, values in columns.items()}, f"<{type(source).__name__}>", options)
    made.names = names
    return made


def _names_of_array(data: Foreign) -> list[str] | None:
    """Return the column labels of an xarray array, or None."""
    dim = data.dims[1] if len(data.dims) == 2 else None
    return [str(label) for label in data[dim].values.tolist()] if dim is not None and dim in data.coords else None


# Files of arrays as input: .npz, .npy and .mat. They are unpacked to scratch, and only the piece at hand is in memory.
#
# What a file declares is looked at first, and held against its bytes: no memory is taken for what is not there.

_SPARSE_PARTS = ("data", "indices", "indptr", "shape")
_OLD_MAT_SHARE = 16
COLUMN_BYTES = 16  # bytes of tables for every column of a sparse matrix


@contextmanager
def telling_damage(path: Path, kind: str) -> Iterator[None]:
    """Convert any exception into an error that names the file, because NumPy and SciPy raise many different ones for damaged files."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system refuses the file, whatever it holds
        raise DataError(f"cannot be read as .{kind}: {error}", str(path)) from error


def _read_file(path: Path, kind: str, folder: Path | None) -> dict[str, Any]:
    """Unpack the arrays of a file to a folder; without a folder, return only the declared types and shapes."""
    if kind == "npy":
        return {"X": npy_file(path, str(path))}
    if kind == "mat":
        return read_variables(path, folder)
    return read_declared(path) if folder is None else unpack_arrays(path, folder)


def _as_array(array: FileArray | npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.whole() if isinstance(array, FileArray) else array


def _check_declared(choice: "Choice", found: Mapping[str, Any], options: Options, name: str) -> None:
    """Reject a file that declares so many columns that the column tables, or a single dense row, would exceed the budget. A shape takes
    only a few bytes and can declare any number.
    """
    if not choice.sparse:
        shape = found[choice.key].shape
        if len(shape) == 2:
            check_row_fits(shape[1], options, name)
        return
    columns = check_shape(_as_array(found[choice.key + "shape"]), f"{choice.key}shape", name)[1]
    if options.n_features is None and COLUMN_BYTES * columns > options.budget:
        tables = f"whose tables take {COLUMN_BYTES * columns} bytes, more than the budget of {options.budget}"
        raise DataError(f"has {columns} columns, {tables}; correct the shape, or give --n-features (or a larger --budget)", name)


class Choice(NamedTuple):
    """Which arrays of a file hold the features, and the remaining arrays. ``key``: prefix of the three arrays of a sparse matrix, or name
    of the dense array.
    """

    sparse: bool
    key: str
    rest: dict[str, Any]


def _choose_features(found: dict[str, Any], name: str) -> Choice:
    for prefix in ("X_", ""):
        parts = {prefix + part for part in _SPARSE_PARTS}
        if {prefix + "format", prefix + "shape"} <= set(found):  # (a matrix of SciPy, whatever arrays its form has)
            _sparse_form(found, prefix, name)
        if parts <= set(found):
            return Choice(True, prefix, {key: value for key, value in found.items() if key not in parts})
    key = next((key for key in ("X", "x", "data") if key in found), None)
    if key is None:
        wanted = f"X, or {', '.join(_SPARSE_PARTS)} (also with X_ before them)"
        raise DataError(f"has no features: expected {wanted}; found {sorted(found)}", name)
    return Choice(False, key, {other: value for other, value in found.items() if other != key})


def _sparse_form(found: Mapping[str, Any], prefix: str, name: str) -> str:
    stored = _as_array(found.get(f"{prefix}format", found.get("format", np.array(b"csr"))))
    kind = stored.item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind not in ("csr", "csc"):
        raise DataError(f"format is {kind!r}; csr or csc is expected: save X.tocsr()", name)
    return kind


def _row_vectors(rest: dict[str, Any], options: Options, name: str, *, are_there: bool) -> dict[str, Any]:
    """Return the row tables of a file; for arrays that are only declared (not ``are_there``) only the lengths are checked."""
    tables: dict[str, Any] = {}
    for table, source in ({"y": next((key for key in ("y", "Y") if key in rest), None)} | options.row_columns(rest)).items():
        if source is None:
            continue
        if isinstance(source, str) and source not in rest:
            together = "; save both: numpy.savez(file, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)"
            raise DataError(f"has no variable {source!r} (found: {', '.join(sorted(rest))}){together if 'format' in rest else ''}", name)
        values = rest[source] if isinstance(source, str) else np.asarray(source)
        one = len(values.shape) == 2 and 1 in values.shape
        if table.startswith(COVARIATE) and len(values.shape) == 2 and not one:
            if isinstance(values, FileArray) and not are_there:
                tables |= {f"{table}[{k}]": values.first(len(values)) for k in range(values.shape[1])}
            else:
                tables |= {f"{table}[{k}]": column for k, column in enumerate(_as_array(values).T)}
            continue
        tables[table] = (values.vector() if isinstance(values, FileArray) else values.reshape(-1)) if one else values
    return tables


class FileSource(RowSource):
    """Features and row tables in a .npz, .npy or .mat file (``kind``), unpacked to scratch and read in pieces.

    Features are the array "X", or the three arrays of a CSR or CSC matrix (with or without the prefix "X_"); ``matrix`` holds their
    declared type and shape. Raises DataError if the file is damaged or pickled, has no features, or declares more data than it contains.
    """

    def __init__(self, path: Path, kind: str, options: Options) -> None:
        self.name, self.format, self.digest = str(path), kind, FileDigest(path)
        self._held, self._path, self._kind = ExitStack(), path, kind
        with telling_damage(path, kind):
            if kind == "mat" and not is_version_5(path):
                self._path, self._kind = _convert_old_mat(path, self._held.enter_context(temporary_folder()), options), "npz"
            found = _read_file(self._path, self._kind, None)
            choice = _choose_features(found, self.name)
            _check_declared(choice, found, options, self.name)
            self.sparse = choice.sparse
            self.nbytes = sum(array.nbytes for array in found.values())
            self.matrix = self._matrix(choice, found)
            if isinstance(self.matrix, Compressed):
                check_turning(self.matrix, options)
            n, self.n_cols = self.matrix.shape
            check_width(self.n_cols, options, self.name, self.sparse)
            vectors = _row_vectors(choice.rest, options, self.name, are_there=False)
            self.tables = list(vectors)
            for table, values in vectors.items():
                self.check_table(table, values.shape, n)

    def close(self) -> None:
        """Close the source without reading it."""
        self._held.close()

    def _matrix(self, choice: Choice, found: Mapping[str, Any]) -> "FileArray | Compressed":
        if choice.sparse:
            data, indices, indptr, shape = (found[choice.key + part] for part in _SPARSE_PARTS)
            size = check_shape(_as_array(shape), f"{choice.key}shape", self.name)
            made = Compressed(data, indices, indptr, size, _sparse_form(choice.rest, choice.key, self.name), self.name, choice.key)
            made.check()
            return made
        return check_matrix(found[choice.key], self.name)

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield pieces of rows."""
        assert self.scratch is not None
        with self._held, telling_damage(Path(self.name), self.format):
            arrays = _read_file(self._path, self._kind, self.scratch.folder)
        choice, row = _choose_features(arrays, self.name), 0
        tables = _row_vectors(choice.rest, options, self.name, are_there=True)
        for x in self._pieces(self._matrix(choice, arrays), self.scratch, options):
            yield self.with_tables(x, tables, row, target)
            row += x.shape[0]

    def _pieces(self, x: "FileArray | Compressed", scratch: Scratch, options: Options) -> Iterator[Any]:
        if isinstance(x, Compressed):
            yield from csr_pieces(x, scratch, options, self.fault)
            return
        n = x.shape[0]
        step = max(1, options.budget // 32 // max(1, x.nbytes // max(1, n)))
        matrix = by_rows(x, step, scratch.path("panels.bin"), options.budget)
        for lo in range(0, n, step):
            yield matrix[lo : min(n, lo + step)]


def _convert_old_mat(path: Path, folder: Path, options: Options) -> Path:
    """Convert a MATLAB file of version 4 to .npz. SciPy, in a separate process, reads the file as a whole; files of this version are not
    compressed.
    """
    need = _OLD_MAT_SHARE * path.stat().st_size
    if need > options.budget + (64 << 20):
        whole = f"reading it as a whole takes about {need} bytes, more than the budget of {options.budget}"
        advice = "save it with -v7, or raise the budget (--budget)"
        raise DataError(f"is not a MATLAB file of version 5, and {whole}; {advice}", str(path))
    made, program = folder / "variables.npz", Path(__file__).with_name("mat.py")
    # -P: the folder of the program holds modules that must not hide those of the standard library.
    done = subprocess.run([sys.executable, "-P", str(program), str(path), str(made)], capture_output=True, text=True)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1:] or [f"the reader ended with status {done.returncode}"]
        raise DataError(f"cannot be read as .mat: {reason[0]}", str(path))
    return made
