"""Arrays as input: NumPy and SciPy sparse, in memory or in files (.npz, .npy, .mat).

Contents of .npz and .mat files are loaded whole; .npy files are mapped and read by rows.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import DataError, SchemaError
from ..sparse_door import admitted, checked_shape, compressed
from ..temporary import temporary_folder
from .dask_rows import DaskSource
from .labels import Target
from .options import Options, Progress
from .reading import Reading, check_width, inexact, read_rows, unmasked
from .row_tables import array_digest, at_row, row_tables
from .scratch import Scratch
from .spool import Block
from .streams import FileDigest
from .tabular import FrameSource

_SPARSE_PARTS = ("data", "indices", "indptr", "shape")


class ArraySource:
    """Features and row tables in memory (or mapped).

    Parameters
    ----------
    x : ndarray or SciPy sparse
        Features (n_rows, n_cols).
    tables : mapping
        "y", "task", "weight" -> vectors (n_rows,).
    name, format : str
        For messages and the store.
    options : Options
        Options; the width must fit.
    identity : callable, optional
        Identity by content, if a cheaper one than hashing the arrays exists.
    names : list of str, optional
        Feature names.
    """

    def __init__(
        self,
        x: Any,
        tables: Mapping[str, npt.NDArray[Any]],
        name: str,
        format: str,
        options: Options,
        identity: Callable[[], str] | None = None,
        names: list[str] | None = None,
    ) -> None:
        self.name, self.format, self.names = name, format, names
        self.sparse = sp.issparse(x)
        self._x: Any = _csr(x, name) if self.sparse else _matrix(x, name)
        self._tables, self._identity = dict(tables), identity
        self.n_cols = int(self._x.shape[1])
        self.nbytes = 12 * int(self._x.nnz) if self.sparse else int(self._x.nbytes)
        if not self.sparse or (options.n_features or self.n_cols) < self.n_cols:
            check_width(self.n_cols, options, name)
        for table, values in self._tables.items():
            if np.shape(values) != (self._x.shape[0],):
                raise SchemaError(f"{name}: {table} has the shape {np.shape(values)}; it must be ({self._x.shape[0]},), one entry per row")

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


def _matrix(x: Any, name: str) -> npt.NDArray[Any]:
    found = np.asanyarray(x)
    if found.ndim != 2:
        raise SchemaError(f"{name} has the shape {found.shape}; features must be a matrix (n_rows, n_cols)")
    if found.dtype.kind not in "biuf":
        raise SchemaError(f"{name} has the type {found.dtype}; features must be real numbers")
    return _unmasked(found, name) if isinstance(found, np.ma.MaskedArray) else found


def _unmasked(x: np.ma.MaskedArray, name: str) -> npt.NDArray[Any]:
    """Numbers with NaN in the place of masked ones."""
    beyond = np.argwhere(inexact(np.ma.filled(x, 0)))
    if len(beyond):
        row, column = beyond[0].tolist()
        raise at_row(name, f"value {x[row, column]} is beyond 2^53 and cannot be stored exactly", row, column + 1)
    return unmasked(x)


def _csr(x: Any, name: str) -> Any:
    found: Any = sp.csr_array(admitted(x, name))
    if found.shape[1] > 2**31 - 2:
        raise SchemaError(f"{name} has {found.shape[1]} columns; the limit is 2^31 - 2")
    return found


def _csr_parts(x: Any) -> Block:
    return {"data": x.data, "indices": x.indices, "indptr": x.indptr, "shape": np.array(x.shape)}


# -- objects ---------------------------------------------------------------------------------------------------------


def object_source(source: Any, options: Options) -> Any:
    """Open an array, a frame, or a pair (features, target).

    Raises
    ------
    SchemaError
        If it is none of these, or the target is given twice.
    """
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


# -- files -----------------------------------------------------------------------------------------------------------


def file_arrays(path: Path, kind: str, options: Options) -> ArraySource:
    """Open a .npz, .npy or .mat file. Features are "X", or a CSR or CSC triple (with or without the prefix "X_").

    Raises
    ------
    DataError
        If the file is damaged, pickled, or has no features.
    """
    try:
        found = _LOADERS[kind](path)
        x, rest = _features(found, str(path))
    except DataError:
        raise
    except Exception as error:  # damaged files make NumPy and SciPy raise almost anything
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the system refuses the file, whatever it holds
        raise DataError(f"cannot be read as .{kind}: {error}", str(path)) from error
    return ArraySource(x, _file_tables(rest, options, str(path)), str(path), kind, options, FileDigest(path).value)


def _load_npz(path: Path) -> dict[str, Any]:
    archive = np.load(path, allow_pickle=False)
    if isinstance(archive, np.ndarray):
        raise DataError("holds a single array; name it .npy", str(path))
    with archive:
        return {name: archive[name] for name in archive.files}


def _load_npy(path: Path) -> dict[str, Any]:
    return {"X": np.load(path, mmap_mode="r", allow_pickle=False)}


def _load_mat(path: Path) -> dict[str, Any]:
    with temporary_folder() as folder:
        made = folder / "variables.npz"
        # -P: the folder of the program holds modules that must not hide those of the standard library.
        done = subprocess.run(
            [sys.executable, "-P", str(Path(__file__).with_name("_mat.py")), str(path), str(made)], capture_output=True, text=True
        )
        if done.returncode != 0:
            reason = done.stderr.strip().splitlines()[-1:] or [f"the reader ended with status {done.returncode}"]
            raise DataError(f"cannot be read as .mat: {reason[0]}", str(path))
        return _load_npz(made)


_LOADERS: dict[str, Callable[[Path], dict[str, Any]]] = {"npz": _load_npz, "npy": _load_npy, "mat": _load_mat}


def _features(found: dict[str, Any], name: str) -> tuple[Any, dict[str, Any]]:
    """Features, and what is left."""
    for prefix in ("X_", ""):
        parts = [found.get(prefix + part) for part in _SPARSE_PARTS]
        if all(part is not None for part in parts):
            rest = {key: value for key, value in found.items() if key not in {prefix + part for part in _SPARSE_PARTS}}
            return _assemble(parts, rest.get(f"{prefix}format", rest.get("format", b"csr")), name, prefix), rest
    key = next((key for key in ("X", "x", "data") if key in found), None)
    if key is None:
        raise DataError(
            f"has no features: expected X, or {', '.join(_SPARSE_PARTS)} (also with X_ before them); found {sorted(found)}", name
        )
    return found[key], {other: value for other, value in found.items() if other != key}


def _assemble(parts: Sequence[Any], form: Any, name: str, prefix: str) -> Any:
    data, indices, indptr, shape = (np.asarray(part) for part in parts)
    kind = np.asarray(form).item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    make = {"csr": sp.csr_array, "csc": sp.csc_array}.get(kind)
    if make is None:
        raise DataError(f"format is {kind!r}; csr or csc is expected", name)
    n, d = checked_shape(shape, f"{prefix}shape", name)
    parts = compressed((data, indices, indptr), (n, d), kind, name, prefix)
    return sp.csr_array(make(parts, shape=(n, d)))


def _file_tables(rest: dict[str, Any], options: Options, name: str) -> dict[str, npt.NDArray[Any]]:
    tables: dict[str, npt.NDArray[Any]] = {}
    for table, where in ({"y": next((key for key in ("y", "Y") if key in rest), None)} | options.row_columns(rest)).items():
        if where is None:
            continue
        if isinstance(where, str) and where not in rest:
            raise DataError(f"has no variable {where!r}; found {sorted(rest)}", name)
        values = np.asarray(rest[where] if isinstance(where, str) else where)
        tables[table] = values.reshape(-1) if values.ndim == 2 and 1 in values.shape else values
    return tables
