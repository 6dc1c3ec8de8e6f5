"""Cells as input: AnnData in .h5ad files, in Zarr folders and in memory. The anndata library opens them.

Rows are cells (obs), columns are genes (var). The features are X or a layer, which stays sparse if it is; files are read in pieces.
"""

import difflib
import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ...data import unmasked
from ...encoding.chunks import Unreadable, Words, is_missing, name_of_number, objects_of_words
from ...encoding.frames import open_frame
from ...errors import DataError, Foreign, Matrix, SchemaError, UserData
from ...sparse_door import check_shape
from ..labels import Target
from ..options import OBS, ROW_OPTIONS, VAR, Options
from ..reading import RowSource, check_row_fits, check_width
from ..text.spool import Block, FileDigest
from ..turning import Compressed, check_turning, csr_pieces
from .arrays import ArraySource, DaskSource, check_matrix, telling_damage
from .row_tables import array_digest

CELL_BYTES, GENE_BYTES = 300, 300  # memory that the name of a cell with its columns of obs, and the name of a gene take
CHUNK_SHARE = 16  # a chunk of an array in a file, as a part of the budget
_MAGIC = b"\x89HDF\r\n\x1a\n"
_COUNTS = 50  # whole numbers beyond are taken for raw counts; logarithms of counts are below
_SHOWN = 20


def _anndata() -> Foreign:
    # By name, because it is not among what the tests and the type checker have.
    return importlib.import_module("anndata.io")


def is_anndata(source: UserData) -> bool:
    """Return whether an object is an AnnData."""
    return all(hasattr(source, part) for part in ("obs", "var", "layers", "raw", "isbacked"))


class Annotation:
    """The table about cells (``what="obs"``) or genes ("var"): a frame in memory, or a group of a file, of which columns are read."""

    def __init__(self, what: str, of: Foreign, place: str) -> None:
        self._what, self._of, self._place = what, of, place
        self._is_frame = hasattr(of, "index")
        self.columns: list[str] = [str(name) for name in (of.columns if self._is_frame else of.attrs["column-order"])]

    @property
    def shown(self) -> str:
        """The first columns, for messages."""
        return ", ".join(self.columns[:_SHOWN]) + (", …" if len(self.columns) > _SHOWN else "")

    def _index(self) -> Foreign:
        return self._of.index if self._is_frame else self._of[self._of.attrs["_index"]]

    def __len__(self) -> int:
        index = self._index()
        return int((index["values"] if hasattr(index, "keys") else index).shape[0])

    def _read(self, element: Foreign) -> Foreign:
        return element if self._is_frame else _anndata().read_elem(element)

    def ids(self) -> list[Any]:
        """Return the names of the rows."""
        return np.asarray(self._read(self._index()), object).tolist()

    def values(self, column: str) -> npt.NDArray[Any]:
        """Return a column as numbers or texts, with NaN or None where it is missing."""
        import pandas as pd

        if column not in self.columns:
            near = ", ".join(difflib.get_close_matches(column, self.columns, n=3))
            there = f"the nearest are {near}" if near else f"it has {self.shown}"
            raise SchemaError(f"{self._place}: {self._what} has no column {column!r}; {there}")
        place = f"{self._place}: {self._what}:{column}"
        frame = open_frame(pd.DataFrame({column: self._read(self._of[column])}))
        chunk = frame.chunk(0, 0, frame.n_rows)
        if isinstance(chunk, Unreadable):
            raise DataError(f"the values have the type {chunk.type}; numbers or texts are expected", place)
        return objects_of_words(chunk) if isinstance(chunk, Words) else unmasked(np.ma.asanyarray(chunk), place)


def _check_ids(ids: Sequence[Any], what: str, place: str, advice: str) -> list[str]:
    """Return names as texts. Raises DataError if one is missing or occurs twice."""
    first = dict[str, int]()
    for k, one in enumerate(ids):
        if is_missing(one) or one == "":
            raise DataError(f"{what} {k + 1} has no name; {advice}", place)
        name = one if isinstance(one, str) else name_of_number(one)
        if first.setdefault(name, k) != k:
            raise DataError(f"{what} {name} occurs twice, as number {first[name] + 1} and {k + 1}; {advice}", place)
    return list(first)


class StoredMatrix(RowSource):
    """X or a layer in an open file, dense or sparse, read in pieces. ``path``: the file or Zarr folder, if known."""

    def __init__(self, x: Foreign, place: str, path: Path | None, name: str, options: Options) -> None:
        self.name, self.path, self.sparse, self._options = name, path, hasattr(x, "group"), options
        arrays = {place: x}
        if self.sparse:
            arrays = {f"{place}/{part}": x.group[part] for part in ("data", "indices", "indptr")}
            data, indices, indptr = arrays.values()
            size = check_shape(x.shape, f"the shape of {place}", name)
            self.matrix: Foreign = Compressed(data, indices, indptr, size, x.format, name, f"{place}/")
            self.matrix.check()
            check_turning(self.matrix, options)
            self.entries, self.nbytes = int(self.matrix.data.size), 12 * int(self.matrix.data.size)
        else:
            self.matrix = check_matrix(x, f"{name}: {place}")
            check_row_fits(x.shape[1], options, name)
            self.entries, self.nbytes = int(x.size), max(4, x.dtype.itemsize) * int(x.size)
        for part, array in arrays.items():
            need = int(np.prod(array.chunks or (0,))) * array.dtype.itemsize
            if CHUNK_SHARE * need > options.budget:
                whole = f"a chunk of {part} takes {need} bytes, more than a {CHUNK_SHARE}th of the budget of {options.budget}"
                raise SchemaError(f"{name}: {whole}; raise the budget (--budget), or write the file with smaller chunks")
        self.n_rows, self.n_cols = (int(length) for length in self.matrix.shape)

    @cached_property
    def _content(self) -> str | None:
        if self.path is None or not self.path.is_dir():
            return self.path and FileDigest(self.path).value()
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        texts = [f"{path.relative_to(self.path)} {FileDigest(path).value()}" for path in files]
        return f"folder:{hashlib.sha256(chr(10).join(texts).encode()).hexdigest()[:32]}"

    def identity(self) -> str | None:
        """Return the identity of the file, or of the files of the folder."""
        return self._content

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield pieces of rows."""
        assert self.scratch is not None
        if self.sparse:
            yield from ((x, {}) for x in csr_pieces(self.matrix, self.scratch, options, self.fault))
            return
        step = max(1, options.budget // 32 // max(1, (self.nbytes or 0) // max(1, self.n_rows)))
        height = (self.matrix.chunks or (1,))[0]
        step -= step % height if height < step else 0  # so that no chunk is unpacked twice
        for lo in range(0, self.n_rows, step):
            yield np.asarray(self.matrix[lo : lo + step]), {}


class CellSource(RowSource):
    """AnnData. ``matrix`` holds the features; ``text_bytes``: memory for names and columns of obs, which come from a file.

    Raises DataError if a size does not fit, or a name occurs twice or is missing; SchemaError if a layer or column is not there.
    """

    n_cols: int  # pyright: ignore[reportIncompatibleVariableOverride] (known from the beginning)
    names: list[str]  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, opened: "_Opened", options: Options) -> None:
        self.name, self.format, self.matrix, self._held = opened.name, opened.format, opened.matrix, opened.held
        self.sparse, self._options, self._layer = self.matrix.sparse, options, opened.layer
        obs, var, n, d = opened.obs, opened.var, opened.shape[0], opened.shape[1]
        if (n, d) != (len(obs), len(var)):
            there = f"obs names {len(obs):,} cells and var {len(var):,} genes"
            raise DataError(f"{opened.place} has {n:,} rows and {d:,} columns, but {there}", self.name)
        self.text_bytes = CELL_BYTES * n + GENE_BYTES * d if isinstance(self.matrix, StoredMatrix) else 0
        if 2 * self.text_bytes > options.budget:
            reason = f"names and columns of obs take {self.text_bytes} bytes, more than half of the budget of {options.budget}"
            raise SchemaError(f"{self.name}: {reason}; raise the budget (--budget)")
        self._tables = self._row_tables(obs, n)
        self.tables = list(self._tables)
        column = options.of_cells("names")
        genes = var.ids() if column is None else var.values(column.removeprefix(VAR)).tolist()
        advice = "name another column of var (--names var:NAME)" + ("" if column else ", or make the names unique (var_names_make_unique)")
        self.names, self._places = _check_ids(genes, "gene", self.name, advice), None
        if options.guided is not None and options.guided != self.names:
            self._follow(options.guided)
        self.n_cols, self.nbytes = len(self.names), self.matrix.nbytes
        check_width(self.n_cols, options, self.name, self.sparse)
        # A layer that was chosen, and a scaling, show that somebody thought of it.
        is_chosen = options.of_cells("layer") is not None or options.scale != "none"
        self._may_be_counts = not is_chosen and ("y" in self._tables or options.guide is not None)

    def _row_tables(self, obs: Annotation, n: int) -> dict[str, npt.NDArray[Any]]:
        tables = dict[str, npt.NDArray[Any]]()
        for table, column in self._options.row_columns(OBS + name for name in obs.columns).items():
            if isinstance(column, str) and not column.startswith(OBS):
                what = ROW_OPTIONS.get(table, "covariates")
                raise SchemaError(f"{what} is {column!r}; columns of obs are named {OBS}NAME (it has {obs.shown})")
            tables[table] = obs.values(column.removeprefix(OBS)) if isinstance(column, str) else np.asarray(column)
        advice = "make the names unique (obs_names_make_unique), or name the cells by a column (--id-column obs:NAME)"
        self._cells = obs.ids() if "id" in tables else _check_ids(obs.ids(), "cell", self.name, advice)
        tables.setdefault("id", np.array(self._cells, object))
        for table, values in tables.items():
            self.check_table(table, values.shape, n)
        return tables

    def _follow(self, known: list[str]) -> None:
        """Choose the genes of the training data, in their order. Raises DataError if one is missing."""
        places = {name: k for k, name in enumerate(self.names)}
        missing = [name for name in known if name not in places]
        if missing:
            more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            raise DataError(f"has no gene {missing[0]}{more}, which the training data have", self.name)
        if len(places) > len(known):
            self.messages = [f"{len(places) - len(known):,} genes that are not in the training data are left out"]
        self._places, self.names = np.array([places[name] for name in known], np.int64), known

    def identity(self) -> str | None:
        """Return an identity computed from the file or the matrix, its layer, and the names and row tables."""
        content = self.matrix.identity()
        if content is None:
            return None
        texts = [content, self._layer, array_digest([("names", np.array(self.names, object)), *self._tables.items()])]
        return f"cells:{hashlib.sha256(' '.join(texts).encode()).hexdigest()[:32]}"

    def close(self) -> None:
        """Close the source without reading it."""
        self._held.close()

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Return the error for a cell and a gene, counted from zero."""
        gene = "" if column is None else f", gene {self.names[column]}"
        return DataError(f"cell {self._cells[row]}{gene}: {reason}", self.name)

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield pieces of rows."""
        self.matrix.scratch, row = self.scratch, 0
        is_stored = isinstance(self.matrix, StoredMatrix)
        with self._held, telling_damage(Path(self.name), self.format) if is_stored else nullcontext():
            for x, _ in self.matrix.rows(options, target):
                self._look_for_counts(x)
                yield self.with_tables(x if self._places is None else x[:, self._places], self._tables, row, target)
                row += x.shape[0]

    def _look_for_counts(self, x: Matrix) -> None:
        """Note raw counts. Other data end this in their first rows."""
        values = x.data if sp.issparse(x) else x
        if not self._may_be_counts or not values.size:
            return
        self._may_be_counts = values.min() >= 0 and (values.dtype.kind != "f" or bool(np.all(values == np.rint(values))))
        if self._may_be_counts and (largest := values.max()) > _COUNTS:
            self._may_be_counts = False
            told = f"{self._layer} has whole numbers such as {int(largest):,}, which look like raw counts"
            advice = "divide by the total of each cell, take logarithms, and name that layer (--layer), or scale (--scale)"
            self.messages = [*self.messages, f"{told}; {advice}"]


class _Opened:
    """What there is of an AnnData: the ``matrix`` that is X or a layer, and the tables about rows and columns.

    ``of``: an open file, or the object. Raises SchemaError, with the layers there are, if the layer is not there.
    """

    def __init__(self, of: Foreign, kind: str, path: Path | None, name: str, options: Options, held: ExitStack) -> None:
        self._of, self.format, self.name, self.held = of, kind, name, held
        self.layer = options.of_cells("layer") or "X"
        layers = list(self._get("layers") or ())
        self.place = f"layers/{self.layer}" if self.layer in layers else {"X": "X", "raw": "raw/X"}.get(self.layer, "")
        x = self._get(self.place) if self.place else None
        if x is None:
            known = ", ".join([part for part in ("X", "raw") if self._get(part) is not None] + layers)
            raise SchemaError(f"{name} has no layer {self.layer!r} (--layer); it has {known or 'none'}")
        self.obs, self.var = (Annotation(what, self._need(what), name) for what in ("obs", "var"))
        if self.place == "raw/X":
            self._check_raw()
        alone = replace(options, n_features=None, guide=None)  # (columns are chosen afterwards)
        if hasattr(x, "attrs") and not hasattr(x, "group"):
            x = self._stored(x)
        if hasattr(x, "dask"):
            self.matrix: RowSource = DaskSource(x, {}, alone)
        elif isinstance(x, np.ndarray) or sp.issparse(x):
            self.matrix = ArraySource(x, {}, name, alone)
        else:
            self.matrix = StoredMatrix(x, self.place, path, name, alone)
        self.shape: tuple[int, int] = x.shape

    def _get(self, place: str) -> Foreign:
        """Return a part by its place in a file."""
        if self.format != "array":
            return self._of.get(place)
        first, _, rest = place.partition("/")
        part = getattr(self._of, first)
        return part if not rest or part is None else part[rest] if first == "layers" else getattr(part, rest)

    def _need(self, place: str) -> Foreign:
        part = self._get(place)
        if part is None:
            raise DataError(f"has no {place}, which every AnnData has", self.name)
        return part

    def _check_raw(self) -> None:
        """Raise DataError if raw has other genes than X, as after a choice of genes."""
        own, raw = self.var.ids(), Annotation("raw.var", self._need("raw/var"), self.name).ids()
        if own != raw:
            k = next((k for k, pair in enumerate(zip(own, raw, strict=False)) if pair[0] != pair[1]), min(len(own), len(raw)))
            there, here = (names[k] if k < len(names) else "missing" for names in (raw, own))
            reason = f"raw and X have different genes ({len(raw):,} and {len(own):,}; number {k + 1} is {there} and {here})"
            raise DataError(f"{reason}; write the genes of raw to a file of their own (adata.raw.to_adata())", self.name)

    def _stored(self, element: Foreign) -> Foreign:
        """Return an array of a file as it is, and the three arrays of a sparse matrix as one."""
        kind = element.attrs.get("encoding-type")
        if kind in ("csr_matrix", "csc_matrix"):
            return _anndata().sparse_dataset(element)
        if hasattr(element, "keys"):
            raise DataError(f"{self.place} is stored as {kind!r}; array, csr_matrix and csc_matrix are read", self.name)
        return element


def open_cells(path: Path, kind: str, options: Options) -> CellSource:
    """Open a .h5ad file or a Zarr folder (``kind``).

    Raises DataError if it is damaged or no AnnData; SchemaError if anndata is not installed.
    """
    if kind == "h5ad":
        with path.open("rb") as file:
            magic = file.read(len(_MAGIC))
        if magic != _MAGIC:
            raise DataError(f"is no HDF5 file: it begins with the bytes {magic.hex(' ')}, not {_MAGIC.hex(' ')}", str(path))
    if importlib.util.find_spec("anndata") is None:
        raise SchemaError(f'{path}: cells need anndata: pip install "gramplane[cells]"')
    with telling_damage(path, kind), ExitStack() as held:
        root = _open_root(path, kind, held)
        encoding = root.attrs.get("encoding-type")
        if encoding != "anndata":
            advice = "read it with anndata and write it again"
            raise DataError(f"is no AnnData: the encoding-type of its root is {encoding!r}, not 'anndata'; {advice}", str(path))
        return CellSource(_Opened(root, kind, path, str(path), options, held.pop_all()), options)


def _open_root(path: Path, kind: str, held: ExitStack) -> Foreign:
    if kind == "h5ad":
        return held.enter_context(importlib.import_module("h5py").File(path, "r"))
    import zarr

    return zarr.open_group(path, mode="r")


def cells_in_memory(adata: UserData, options: Options) -> CellSource | None:
    """Open an AnnData object, in memory or backed by a file; None for anything else."""
    if not is_anndata(adata):
        return None
    path = Path(adata.filename) if adata.isbacked else None
    name = f"<{type(adata).__name__}>" if path is None else str(path)
    return CellSource(_Opened(adata, "array", path, name, options, ExitStack()), options)
