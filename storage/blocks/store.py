"""Block stores: a samples x features matrix on disk in column stripes (optionally also in row blocks), with tables about rows and columns.

A store is a Zarr v3 group with plain chunks. Only objects listed in ``manifest.json`` belong to it.
"""

import os
from bisect import bisect_left
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..encoding.record import TableColumns
from ..errors import DataError, MissingBlock, SchemaError, StorageError, parse_json
from ..layout import DenseLayout, StripeLayout, place_blocks
from ..manifest import read_seal
from ..meta import BlockMeta, ColumnScale, ScaleKind, column_factors
from ..source import SOURCE, Source, table_of
from ..urls import check_name, open_objects, refuse_foreign
from ..versions import Opened, open_version
from .arrays import ArraySpec, ChunkedArray, check_crc, read_listed
from .tables import check_ids, check_rows, join_texts, mark_canonical, reorder_columns, split_texts

__all__ = ["BlockMeta", "BlockRef", "BlockStore", "ColumnScale", "Damage", "VerifyReport"]

Block = npt.NDArray[Any] | sp.csc_array | sp.csr_array
INDEX_NAME = {"columns": "rows", "rows": "columns"}
"""Name of the index array of each layout. Column stripes store row numbers; row blocks store column numbers."""


class Damage(NamedTuple):
    """A damaged object: its key and the damage."""

    key: str
    reason: str


@dataclass(frozen=True)
class VerifyReport:
    """Result of re-reading a store: the number and total bytes of the objects checked, and the objects that are missing or differ from
    their checksums.
    """

    n_objects: int
    nbytes: int
    damaged: tuple[Damage, ...]

    @property
    def ok(self) -> bool:
        """Whether every object is unchanged."""
        return not self.damaged


def verify_all(sizes: Mapping[str, int], check: Callable[[str], None], progress: Callable[[int, int], None] | None) -> VerifyReport:
    """Check objects by key; ``sizes`` gives the sizes of the objects in bytes. A StorageError that ``check`` raises describes the damage of
    the object.
    """
    total, seen, damaged = sum(sizes.values()), 0, []
    for key in sorted(sizes):
        try:
            check(key)
        except StorageError as error:
            damaged.append(Damage(key, str(error)))
        seen += sizes[key]
        if progress is not None:
            progress(seen, total)
    return VerifyReport(len(sizes), total, tuple(damaged))


@dataclass(frozen=True)
class BlockRef:
    """Reference to a block, passed to tasks in place of data.

    * ``layout``: "columns" (all rows of a range of columns) or "rows" (all columns of a range of rows).
    * ``index``: the number of the block in its layout.
    * ``nnz``: the number of stored entries.
    * ``nbytes``: the size when loaded.
    * ``digest``: the digest of the store.
    """

    url: str
    layout: str
    index: int
    rows: tuple[int, int]
    cols: tuple[int, int]
    nnz: int
    nbytes: int
    digest: str

    def __reduce__(self) -> tuple[type["BlockRef"], tuple[Any, ...]]:
        return BlockRef, astuple(self)

    def load(self) -> Block:
        """Return the block with raw values: ndarray (dense), csc_array (column stripe) or csr_array (row block)."""
        return open_shared(self.url, self.digest).load(self)


class BlockSource:
    """Common interface of block stores and blocks in memory.

    ``encoding`` describes how the columns of a table became features; None if the columns are the features.
    """

    meta: BlockMeta
    encoding: TableColumns | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.meta.n_rows, self.meta.n_cols

    @property
    def n_rows(self) -> int:
        return self.meta.n_rows

    @property
    def n_cols(self) -> int:
        return self.meta.n_cols

    @property
    def first_feature(self) -> int:
        """Number that the source gives to its first column (0 or 1)."""
        return 0

    @property
    def holds(self) -> Literal["columns", "strings"]:
        """Whether the rows consist of numbers in columns, or of strings."""
        return "columns" if self.n_cols else "strings"

    def row_table(self, name: str) -> npt.NDArray[Any]:
        """Return a table with one entry per row: "y", "task", "group", "weight", …."""
        raise NotImplementedError

    def target(self) -> npt.NDArray[np.float64]:
        """Return the target of each row, float64 (n_rows,); class codes if ``meta.labels`` is set."""
        return np.asarray(self.row_table("y"), dtype=np.float64)


class BlockStore(BlockSource):
    """A committed version of a block store, read-only. ``url`` is the URL of the store, ``place`` that of this version. Open it with
    `BlockStore.open`.

    Its digest is the digest of the manifest; if a column scaling is applied (`with_scale`), a colon and the scaling follow. Opening the
    store by URL and digest therefore gives the same numbers.
    """

    shown: tuple[ScaleKind, bool] | None = None  # kind, and whether dense columns are centred

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._objects = opened.objects
        self._listed, self.digest = read_seal(opened.objects)
        opened.check(self.digest)
        self.url, self.place = opened.base.url, opened.objects.url
        self._verified: set[str] = set()
        root = parse_json(read_listed(self._objects, self._listed, "zarr.json"), f"{self.url}/zarr.json")
        self.meta = BlockMeta.from_attributes(root.get("attributes"), self.digest, self.url)
        self._arrays = self._open_arrays()
        self._layouts = {name: self._open_layout(name) for name in self.meta.layouts}

    @classmethod
    def open(cls, url: str | os.PathLike[str], digest: str | None = None) -> "BlockStore":
        """Open the current version at a path or URL, or the version with the given digest, even if a newer version has replaced it. Later
        commits do not change the opened version.

        Raises MissingBlock if there is no manifest or an object is absent; SchemaError if ``url`` is not a block store, or has an unknown
        format; DigestMismatch if the manifest or a description is damaged, or no version has the digest.
        """
        refuse_foreign(url)
        version, *shown = (digest or "").split(":")
        store = cls(open_version(open_objects(url), version or None))
        if shown:
            kind: Any = shown[0]
            return store.with_scale(kind, centred=len(shown) == 1)
        return _kept_open(store)

    def with_scale(self, kind: ScaleKind, *, centred: bool = True) -> "BlockStore":
        """Return this version with another column scaling, as if it had been ingested with this scaling; nothing is read or written.

        ``centred`` also shifts dense columns if the kind of scaling does. Raises SchemaError if the store lacks the tables for the factors;
        DataError if the squares of a column overflow.
        """
        scaled = object.__new__(BlockStore)  # (a copy would be this store, as it is opened by its digest)
        vars(scaled).update(vars(self))
        scaled.shown, scaled.meta = (kind, centred), replace(self.meta, scale=kind)
        scaled.digest = f"{self.digest.partition(':')[0]}:{kind}{'' if centred else ':uncentred'}"
        beyond = np.flatnonzero(np.isnan(scaled._factors(kind)))
        if beyond.size:
            raise DataError(f"column {int(beyond[0])}: the sum of its squares overflows, so scale={kind!r} cannot be used", self.url)
        return _kept_open(scaled)

    def _factors(self, kind: ScaleKind) -> npt.NDArray[np.float64]:
        if self.has_table(kind, "columns"):
            return self.column_table(kind)
        if kind == "standard" or not self.has_table("minimum", "columns"):
            raise SchemaError(f"{self.url} lacks the column tables for scale={kind!r}; ingest the source again")
        tables = {name: self.column_table(name) for name in ("minimum", "maximum", "sumsq")}
        factors, _, beyond = column_factors(kind, tables, is_dense=True)
        factors[beyond] = np.nan
        return factors

    def confirm(self) -> None:
        """Raise DigestMismatch if the store was removed, or removed and recreated, since it was opened."""
        self._opened.confirm()

    def __reduce__(self) -> tuple[Callable[[str, str], "BlockStore"], tuple[str, str]]:
        return open_shared, (self.url, self.digest)

    def _open_arrays(self) -> dict[str, ChunkedArray]:
        chunks = Counter(key.partition("/c/")[0] for key in self._listed if "/c/" in key)
        arrays: dict[str, ChunkedArray] = {}
        for key in self._listed:
            prefix, _, name = key.rpartition("/")
            if name != "zarr.json" or not prefix:
                continue
            location, data = f"{self.url}/{key}", read_listed(self._objects, self._listed, key)
            if parse_json(data, location).get("node_type") == "group":
                continue
            spec = ArraySpec.from_json(data, location)
            if prod(spec.grid) != chunks[prefix]:
                raise MissingBlock(f"{location}: the manifest lists {chunks[prefix]} chunks; the grid {spec.grid} has {prod(spec.grid)}")
            arrays[prefix] = ChunkedArray(self._objects, prefix, spec, self._listed, self._verified)
        return arrays

    def _array(self, prefix: str, *lengths: int) -> ChunkedArray:
        """Return the array with this name, whose first axes have these lengths."""
        if prefix not in self._arrays:
            raise SchemaError(f"{self.url} has no array {prefix!r}; it has {', '.join(sorted(self._arrays))}")
        array = self._arrays[prefix]
        if array.spec.shape[: len(lengths)] != lengths:
            raise SchemaError(f"{self.url}: array {prefix} has the shape {array.spec.shape}; it must begin with {lengths}")
        return array

    def _open_layout(self, name: str) -> StripeLayout | DenseLayout:
        if self.meta.kind == "dense":
            spec = self._array(f"{name}/dense", *self.shape).spec
            return DenseLayout(self.shape, (spec.chunk[0], spec.chunk[1]))
        edges, nnz, offsets = (self._table(f"{name}/{table}") for table in ("edges", "nnz", "offsets"))
        chunk = self._array(f"{name}/values").spec.chunk[0]
        layout = StripeLayout(edges, nnz, chunk)
        length = self.meta.n_cols if name == "columns" else self.meta.n_rows
        if len(edges) != len(nnz) + 1 or edges[-1] != length or (np.diff(edges) < 1).any() or not np.array_equal(layout.offsets, offsets):
            raise SchemaError(f"{self.url}: {name}/edges, nnz and offsets must divide {length} {name} into stripes of whole chunks")
        for part in (INDEX_NAME[name], "values"):
            self._array(f"{name}/{part}", layout.n_chunks * chunk)
        self._array(f"{name}/counts", length)
        return layout

    def column_blocks(self) -> list[BlockRef]:
        """Return references to the column stripes, in feature order."""
        return self._blocks("columns")

    def row_blocks(self) -> list[BlockRef]:
        """Return references to the row blocks, in row order. Raises SchemaError if the store has no row-wise layout."""
        if "rows" not in self._layouts:
            raise SchemaError(f"{self.url} has no row-wise layout; ingest it again with layout='both'")
        return self._blocks("rows")

    def _blocks(self, name: str) -> list[BlockRef]:
        places = place_blocks(name, self._layouts[name], self.shape, self.meta.itemsize)
        return [BlockRef(self.url, name, i, *span, self.digest) for i, span in enumerate(places)]

    def load(self, ref: BlockRef) -> Block:
        """Read one block of this store (see `BlockRef.load`)."""
        layout = self._layouts[ref.layout]
        if isinstance(layout, DenseLayout):
            return self._load_dense(layout, ref)
        lo, hi = int(layout.edges[ref.index]), int(layout.edges[ref.index + 1])
        start, nnz = int(layout.offsets[ref.index]) * layout.chunk, int(layout.nnz[ref.index])
        indptr = self._indptr(ref.layout, lo, hi, nnz).astype(np.int32)
        indices = self._array(f"{ref.layout}/{INDEX_NAME[ref.layout]}").read(start, start + nnz)
        values = self._array(f"{ref.layout}/values").read(start, start + nnz)
        if ref.layout == "columns":
            return mark_canonical(sp.csc_array((values, indices, indptr), shape=(self.meta.n_rows, hi - lo)))
        return mark_canonical(sp.csr_array((values, indices, indptr), shape=(hi - lo, self.meta.n_cols)))

    def _indptr(self, name: str, lo: int, hi: int, nnz: int) -> npt.NDArray[np.int64]:
        indptr = np.zeros(hi - lo + 1, dtype=np.int64)
        np.cumsum(self._array(f"{name}/counts").read(lo, hi), out=indptr[1:])
        if indptr[-1] != nnz:
            raise SchemaError(f"{self.url}: {name}/counts sum to {indptr[-1]} over {lo}:{hi}, but the stripe holds {nnz} entries")
        return indptr

    def _load_dense(self, layout: DenseLayout, ref: BlockRef) -> npt.NDArray[Any]:
        array = self._array(f"{ref.layout}/dense")
        down, across = layout.grid
        cells = [(i, ref.index) for i in range(down)] if ref.layout == "columns" else [(ref.index, j) for j in range(across)]
        if len(cells) == 1:
            rows, cols = layout.cell(*cells[0])
            return np.ascontiguousarray(array.read_cell(*cells[0], rows.stop - rows.start)[:, : cols.stop - cols.start])
        out = np.empty((ref.rows[1] - ref.rows[0], ref.cols[1] - ref.cols[0]), dtype=self.meta.dtype)
        for i, j in cells:
            rows, cols = layout.cell(i, j)
            part = array.read_cell(i, j, rows.stop - rows.start)[:, : cols.stop - cols.start]
            out[rows.start - ref.rows[0] : rows.stop - ref.rows[0], cols.start - ref.cols[0] : cols.stop - ref.cols[0]] = part
        return out

    def columns(self, ids: npt.ArrayLike, rows: tuple[int, int] | None = None) -> npt.NDArray[Any] | sp.csc_array:
        """Return raw values of chosen columns, in the order of ``ids`` (duplicates allowed), optionally for a half-open range of rows.

        The result is CSC with int32 indices, or a dense array in C order. If a sparse stripe was already checked in this process, only the
        needed byte ranges are read.
        """
        columns = check_ids(ids, self.meta.n_cols)
        layout, span = self._layouts["columns"], check_rows(rows, self.meta.n_rows)
        if isinstance(layout, DenseLayout):
            return self._dense_columns(layout, columns, *span)
        return self._sparse_columns(layout, columns, *span)

    def _dense_columns(self, layout: DenseLayout, ids: npt.NDArray[np.int64], first: int, last: int) -> npt.NDArray[Any]:
        array = self._array("columns/dense")
        out = np.empty((last - first, ids.size), dtype=self.meta.dtype)
        stripe = ids // layout.chunk[1]
        for j in np.unique(stripe).tolist():
            places = np.flatnonzero(stripe == j)
            local = ids[places] - j * layout.chunk[1]
            for i in range(layout.grid[0]):
                rows, _ = layout.cell(i, j)
                lo, hi = max(first, rows.start), min(last, rows.stop)
                if lo < hi:
                    cell = array.read_cell(i, j, rows.stop - rows.start)
                    out[lo - first : hi - first, places] = cell[lo - rows.start : hi - rows.start, local]
        return out

    def _sparse_columns(self, layout: StripeLayout, ids: npt.NDArray[np.int64], first: int, last: int) -> sp.csc_array:
        unique, inverse = np.unique(ids, return_inverse=True)
        stripes = np.searchsorted(layout.edges, unique, side="right") - 1
        cuts = np.flatnonzero(np.diff(stripes, prepend=-1, append=-1))
        indices = [np.zeros(0, np.int32)]
        values = [np.zeros(0, self.meta.dtype)]
        lengths = np.zeros(unique.size, dtype=np.int64)
        for a, b in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            stripe = int(stripes[a])
            lo, hi = int(layout.edges[stripe]), int(layout.edges[stripe + 1])
            indptr = self._indptr("columns", lo, hi, int(layout.nnz[stripe]))
            local = unique[a:b] - lo
            base = int(layout.offsets[stripe]) * layout.chunk
            starts, lengths[a:b] = self._within(base, indptr[local], indptr[local + 1], first, last)
            filled = lengths[a:b] > 0
            if filled.any():
                for part, target in (("rows", indices), ("values", values)):
                    target.append(self._array(f"columns/{part}").gather(base, starts[filled], lengths[a:b][filled]))
        parts = np.concatenate(indices) - np.int32(first), np.concatenate(values)
        return reorder_columns(parts, lengths, inverse, (last - first, ids.size))

    def _within(
        self, base: int, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], first: int, last: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Narrow each column's range of entries to the rows ``first:last``, by a binary search that reads only a few row numbers per
        column.
        """
        if (first, last) == (0, self.meta.n_rows):
            return starts, ends - starts

        def row_at(entry: int) -> int:
            return int(array.read(base + entry, base + entry + 1)[0])

        array, entries = self._array("columns/rows"), range(int(ends.max(initial=0)))
        lows = [bisect_left(entries, first, int(a), int(b), key=row_at) for a, b in zip(starts, ends, strict=True)]
        highs = [bisect_left(entries, last, a, int(b), key=row_at) for a, b in zip(lows, ends, strict=True)]
        return np.array(lows, np.int64), np.array(highs, np.int64) - np.array(lows, np.int64)

    def row_table(self, name: str) -> npt.NDArray[Any]:
        """Return a table with one entry per row: "y", "task", "group", "weight", …; the table "covariates" has several numbers per row,
        see ``meta.covariates``.
        """
        return self._table(check_name(name), self.meta.n_rows)

    def column_table(self, name: str, lo: int = 0, hi: int | None = None) -> npt.NDArray[Any]:
        """Return a table with one entry per column, "counts", "norm1", "sumsq", "minimum", "maximum", …; only columns ``lo:hi``
        are read.
        """
        array = self._array(f"columns/{check_name(name)}", self.meta.n_cols)
        return array.read(lo, self.meta.n_cols if hi is None else hi)

    def has_table(self, name: str, of: str = "rows") -> bool:
        """Return whether a row table (``of="rows"``) or column table (``of="columns"``) exists."""
        return (check_name(name) if of == "rows" else f"columns/{check_name(name)}") in self._arrays

    def _table(self, prefix: str, *lengths: int) -> npt.NDArray[Any]:
        array = self._array(prefix, *lengths)
        return array.read(0, array.spec.shape[0])

    def feature_names(self) -> list[str] | None:
        """Return the names of the columns, or None if they were not stored."""
        return self._column_texts("names")

    def column_facts(self) -> list[str] | None:
        """Return what is known of each column, with tabs between the `FACTS`; None for data that are no genotypes."""
        return self._column_texts("facts")

    def _column_texts(self, group: str) -> list[str] | None:
        if f"{group}/offsets" not in self._arrays:
            return None
        ends = self._table(f"{group}/offsets", self.meta.n_cols + 1)
        return split_texts(self._table(f"{group}/bytes"), np.diff(ends))

    def sequences(self, lo: int = 0, hi: int | None = None) -> npt.NDArray[np.object_] | None:
        """Return the texts of rows ``lo:hi`` as an object array of str, or None if this is not a store of sequences. Only the bytes of
        these rows are read.
        """
        return self._row_texts("sequences", "letters", lo, hi) if "sequences/offsets" in self._arrays else None

    def ids(self, lo: int = 0, hi: int | None = None) -> npt.NDArray[np.int64] | npt.NDArray[np.object_] | None:
        """Return the names of rows ``lo:hi``, integers or an object array of str; None if rows have no names."""
        if "id" in self._arrays:
            first, last = check_rows((lo, self.meta.n_rows if hi is None else hi), self.meta.n_rows)
            return self._array("id", self.meta.n_rows).read(first, last)
        return self._row_texts("ids", "bytes", lo, hi) if "ids/offsets" in self._arrays else None

    @property
    def has_ids(self) -> bool:
        """Whether rows have names."""
        return "id" in self._arrays or "ids/offsets" in self._arrays

    @property
    def id_letters(self) -> int:
        """Return the total bytes of the texts that name the rows; 0 if the names are numbers, or if rows have no names."""
        return self._array("ids/bytes").spec.shape[0] if "ids/offsets" in self._arrays else 0

    def _row_texts(self, group: str, letters: str, lo: int, hi: int | None) -> npt.NDArray[np.object_]:
        first, last = check_rows((lo, self.meta.n_rows if hi is None else hi), self.meta.n_rows)
        ends = self._array(f"{group}/offsets", self.meta.n_rows + 1).read(first, last + 1)
        texts = np.empty(last - first, dtype=object)
        texts[:] = split_texts(self._array(f"{group}/{letters}").read(int(ends[0]), int(ends[-1])), np.diff(ends))
        return texts

    @cached_property
    def source(self) -> Source:
        """How the rows were read, without names, groups and factors."""
        if SOURCE not in self._listed:  # written by blocks, not by an ingest
            return Source("array", self.meta.kind, self.meta.n_cols)
        return Source.from_json(read_listed(self._objects, self._listed, SOURCE), f"{self.url}/{SOURCE}")

    def whole_source(self) -> Source:
        """Return how the rows were read, with names, groups and the factors used."""
        names = self.feature_names()
        letters, lengths = (None, None) if names is None else join_texts(names)
        about: dict[str, Any] = {"labels": self.meta.labels, "has_target": self.has_table("y"), "place": self.url}
        about |= {"digest": self.digest.partition(":")[0]}
        arrays: dict[str, Any] = {
            "scale": ColumnScale() if self.shown is not None else replace(self.scale, row_factor=None),
            "groups": self.groups(),
            "letters": letters,
            "lengths": lengths,
        }
        facts = self.column_facts()
        if facts is not None:
            arrays["fact_letters"], arrays["fact_lengths"] = join_texts(facts)
        return replace(self.source, n_features=self.n_cols, is_whole=True, **about, **arrays)

    @cached_property
    def encoding(self) -> TableColumns | None:
        """How the columns of the source became features; None if they are the features."""
        return self.source.encoding

    @cached_property
    def table(self) -> TableColumns | None:
        """Return the encoding of a table; if the columns themselves are the features, it says so. Return None if the columns have no names,
        or if there are too many columns.
        """
        return table_of(self.source, self.feature_names)

    @property
    def first_feature(self) -> int:
        """Number that the source gives to its first column; 1 for SVMlight text that counts from one."""
        return self.source.first_index

    def groups(self) -> npt.NDArray[np.int64] | None:
        """Return the group label of each column, int64 (n_cols,), or None if they were not stored."""
        return self._table("groups", self.meta.n_cols) if "groups" in self._arrays else None

    @property
    def scale(self) -> ColumnScale:
        """Factors of the column scaling, to be applied by the reader."""
        if self.shown is not None:
            kind, centred = self.shown
            has_shift = kind == "standard" and centred and self.has_table("centre", "columns")
            return ColumnScale(kind, self._factors(kind), self.column_table("centre") if has_shift else None)
        places = (("columns/scale", self.meta.n_cols), ("columns/shift", self.meta.n_cols), ("row_scale", self.meta.n_rows))
        factors = (self._table(prefix, length) if prefix in self._arrays else None for prefix, length in places)
        return ColumnScale(self.meta.scale, *factors)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        """Compare every listed object with its checksum. After each object, ``progress`` is called with (bytes read, total bytes)."""
        sizes = {key: size for key, (size, _) in self._listed.items()}
        scratch = np.empty(max(sizes.values(), default=0), dtype=np.uint8)

        def check(key: str) -> None:
            data = scratch[: sizes[key]]
            self._objects.read_into(key, data, 0, data.nbytes)
            check_crc(self.url, key, data, self._listed[key])

        return verify_all(sizes, check, progress)


_SHARED_STORES = 16
_shared: "OrderedDict[tuple[str, str], BlockStore]" = OrderedDict()


def _kept_open(store: BlockStore) -> BlockStore:
    _shared[store.url, store.digest] = store
    while len(_shared) > _SHARED_STORES:
        _shared.popitem(last=False)
    return store


def open_shared(url: str, digest: str) -> BlockStore:
    """Return the version of a store with this digest, whether it is current or not; it is opened unless this process has opened it
    before.
    """
    store = _shared.get((url, digest))
    return BlockStore.open(url, digest) if store is None else store


def forget_shared(url: str) -> None:
    """Close the versions of a store that this process keeps open only because references point to them."""
    for key in [key for key in _shared if key[0] == url]:
        del _shared[key]
