"""Writing of a block store: whole chunks only, with a journal of finished objects, and the manifest last."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import versions
from ..errors import MissingBlock, RunLocked, SchemaError, StorageError, UnalignedWrite, canonical_json, space_for
from ..layout import DenseLayout, StripeLayout
from ..locks import LOCK
from ..manifest import MANIFEST, Journal, write_seal
from ..meta import BlockMeta, ColumnScale
from ..objects import LocalObjects, Objects, require_space, sweep_temporaries
from ..remote import RemoteObjects
from ..source import SOURCE, Source
from ..urls import check_name, local_path, open_objects
from ..versions import JOURNAL, POINTER
from .arrays import ArraySpec, Pieces, Record, check_crc, fill_values, group_json, write_array, write_object
from .store import INDEX_NAME, BlockStore, forget_shared
from .tables import join_texts

Layout = StripeLayout | DenseLayout
_TABLES = {"columns", "rows", "names", "facts", "sequences", "ids", "groups", "row_scale"}
_RESERVED = _TABLES | {"zarr.json", SOURCE, MANIFEST, JOURNAL, POINTER}


class BlockWriter:
    """Writes one block store. Create it with `BlockWriter.create`; its owner calls `commit` at the end.

    A pickled copy can write blocks in another process. The copy has no journal; therefore the owner of the original passes the records that
    the copy returns to `record` (or to `commit`). Writing the same block twice gives the same bytes. ``done`` holds the objects known to be
    written.
    """

    def __init__(self, url: str, meta: BlockMeta, layouts: dict[str, Layout], fsync: bool, version: str) -> None:
        self.url, self.meta, self.fsync, self.version = url, meta, fsync, version
        self.done: Record = {}
        self._layouts = layouts
        self._base = open_objects(url)
        self._objects: Objects = versions.version_objects(self._base, version)
        self._journal: Journal | None = None
        self._pointer: Mapping[str, Any] | None = None

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        meta: BlockMeta,
        columns: Layout,
        rows: Layout | None = None,
        *,
        fsync: bool = False,
        resume: bool = False,
        overwrite: bool = False,
    ) -> "BlockWriter":
        """Begin a store with column stripes and, optionally, row blocks. Raises SchemaError if the location holds a finished store or other
        files.

        ``fsync`` forces every object to disk before its name appears; without it, a power loss can lose objects; checksums reveal such a
        loss. ``resume`` keeps the objects that a killed writer of the same plan finished (local stores); they are checked and appear in
        ``done``. ``overwrite`` replaces a finished store, which stays unchanged and visible to readers until `commit`. Raises OutOfSpace if
        the disk has no room for the blocks; a store that is to be replaced still takes its space.
        """
        layouts = {"columns": columns} if rows is None else {"columns": columns, "rows": rows}
        described = replace(meta, layouts=tuple(layouts), digest="")
        for name, layout in layouts.items():
            _check_fit(described, name, layout)
        base = open_objects(url)
        pointer = versions.pointer_tag(base)
        writer = cls(base.url, described, layouts, fsync, _new_version(base, overwrite))
        writer._pointer = pointer
        writer._begin(resume)
        return writer

    def __reduce__(self) -> tuple[type["BlockWriter"], tuple[str, BlockMeta, dict[str, Layout], bool, str]]:
        return BlockWriter, (self.url, self.meta, self._layouts, self.fsync, self.version)

    def _begin(self, resume: bool) -> None:
        plan, objects = _plan_digest(self.meta, self._layouts), self._objects  # a resumed writer must agree on the plan
        if isinstance(objects, LocalObjects):
            self._take_over(objects, plan, resume)
            require_space(self.url, self._bytes_to_write())
            with space_for(self.url, 0):
                objects.root.mkdir(parents=True, exist_ok=True)
            self._journal = Journal(objects.root / JOURNAL, plan)
        self._describe()

    def _take_over(self, objects: LocalObjects, plan: str, resume: bool) -> None:
        """Keep the objects that a killed writer of the same plan left for this version if ``resume`` is true, else remove them."""
        finished = Journal.read(objects.root / JOURNAL, plan) if resume else None
        if finished is None:
            objects.clear()
            return
        sweep_temporaries(objects.root)
        objects.delete(MANIFEST)
        self.done.update({key: entry for key, entry in finished.items() if self._is_sound(key, entry)})

    def _bytes_to_write(self) -> int:
        """Return the number of bytes of the blocks that are still to be written."""
        total = 0
        for layout in self._layouts.values():
            if isinstance(layout, DenseLayout):
                total += layout.grid[0] * layout.grid[1] * layout.chunk[0] * layout.chunk[1] * self.meta.itemsize
            else:
                total += layout.n_chunks * layout.chunk * (4 + self.meta.itemsize)
        return total - sum(size for key, (size, _) in self.done.items() if "/c/" in key)

    def _is_sound(self, key: str, entry: tuple[int, int]) -> bool:
        with suppress(StorageError):
            check_crc(self.url, key, self._objects.read(key), entry)
            return True
        return False

    def _describe(self) -> None:
        value, n, d = self.meta.dtype, self.meta.n_rows, self.meta.n_cols
        for name, layout in self._layouts.items():
            self._object(f"{name}/zarr.json", group_json())
            if isinstance(layout, DenseLayout):
                self._declare(f"{name}/dense", ArraySpec((n, d), layout.chunk, value))
                continue
            length = (layout.n_chunks * layout.chunk,)
            self._declare(f"{name}/{INDEX_NAME[name]}", ArraySpec(length, (layout.chunk,), "int32"))
            self._declare(f"{name}/values", ArraySpec(length, (layout.chunk,), value))
            for table, vector in (("edges", layout.edges), ("nnz", layout.nnz), ("offsets", layout.offsets)):
                self._write_array(f"{name}/{table}", vector)

    def _declare(self, prefix: str, spec: ArraySpec) -> Record:
        return self._object(f"{prefix}/zarr.json", spec.to_json())

    def _object(self, key: str, *parts: npt.NDArray[Any] | bytes) -> Record:
        return self.record(write_object(self._objects, key, *parts, fsync=self.fsync))

    def record(self, record: Record) -> Record:
        """Record objects as written (including those written by another process) in ``done`` and in the journal; return the record."""
        fresh = {key: (int(entry[0]), int(entry[1])) for key, entry in record.items() if self.done.get(key) != tuple(entry)}
        if self._journal is not None and fresh:
            self._journal.append(fresh)
        self.done.update(fresh)
        return record

    def write_stripe(
        self, index: int, counts: npt.ArrayLike, indices: npt.NDArray[Any], values: npt.NDArray[Any], *, layout: str = "columns"
    ) -> Record:
        """Write one sparse stripe: all entries of its columns (for ``layout="rows"``, of its rows).

        ``counts`` (n_stripe,) are the entries per column. ``indices`` (nnz,) are row numbers, ascending within a column, without
        duplicates. ``values`` (nnz,) are stored without rounding. Raises UnalignedWrite if the lengths differ from those in the layout.
        """
        plan = self._stripes(layout)
        if not 0 <= index < plan.n_stripes:
            raise UnalignedWrite(f"stripe {index} does not exist: {layout} has {plan.n_stripes} stripes")
        lengths = (len(np.asarray(counts)), int(np.sum(counts, dtype=np.int64)), len(indices), len(values))
        nnz = int(plan.nnz[index])
        expected = (int(plan.edges[index + 1] - plan.edges[index]), nnz, nnz, nnz)
        if lengths != expected:
            names = "(columns, sum of counts, indices, values)"
            raise UnalignedWrite(f"stripe {index} of {layout}: {names} = {lengths}; the layout says {expected}")
        written: Record = {}
        for c, lo in enumerate(range(0, nnz, plan.chunk)):
            written |= self.write_chunk(index, c, indices[lo : lo + plan.chunk], values[lo : lo + plan.chunk], layout=layout)
        return written

    def write_chunk(self, index: int, c: int, indices: npt.NDArray[Any], values: npt.NDArray[Any], *, layout: str = "columns") -> Record:
        """Write chunk ``c`` of a sparse stripe, with entries as in `write_stripe`. Raises UnalignedWrite if the number of entries does not
        match the chunk.
        """
        plan = self._stripes(layout)
        length = min(plan.chunk, int(plan.nnz[index]) - c * plan.chunk)
        if not (len(indices) == len(values) == length):
            raise UnalignedWrite(
                f"chunk {c} of stripe {index} of {layout} needs {length} entries; found {len(indices)} indices and {len(values)} values"
            )
        limit = self.meta.n_rows if layout == "columns" else self.meta.n_cols
        written: Record = {}
        for name, vector in ((INDEX_NAME[layout], _index_array(indices, limit)), ("values", self._value_array(values))):
            pad = fill_values(vector.dtype, plan.chunk - len(vector))
            written |= self._object(f"{layout}/{name}/c/{int(plan.offsets[index]) + c}", vector, pad)
        return written

    def stripe_done(self, index: int, *, layout: str = "columns") -> bool:
        """Return whether every object of a sparse stripe is in ``done`` (after a resume)."""
        plan = self._stripes(layout)
        chunks = range(int(plan.offsets[index]), int(plan.offsets[index + 1]))
        return all(f"{layout}/{name}/c/{c}" in self.done for name in (INDEX_NAME[layout], "values") for c in chunks)

    def _stripes(self, layout: str) -> StripeLayout:
        plan = self._layouts.get(layout)
        if not isinstance(plan, StripeLayout):
            known = ", ".join(self._layouts)
            raise SchemaError(f"layout {layout!r} is not a sparse layout of this {self.meta.kind} store; its layouts are: {known}")
        return plan

    def write_dense(self, i: int, j: int, block: npt.NDArray[Any], *, layout: str = "columns") -> Record:
        """Write chunk (i, j) of a dense array: exactly the rows and columns of ``DenseLayout.cell``; padding at the far edges is added
        here.
        """
        plan = self._layouts.get(layout)
        if not isinstance(plan, DenseLayout):
            known = ", ".join(self._layouts)
            raise SchemaError(f"layout {layout!r} is not a dense layout of this {self.meta.kind} store; its layouts are: {known}")
        if not (0 <= i < plan.grid[0] and 0 <= j < plan.grid[1]):
            raise UnalignedWrite(f"chunk ({i}, {j}) of {layout} does not exist: the grid is {plan.grid}")
        rows, cols = plan.cell(i, j)
        shape = (rows.stop - rows.start, cols.stop - cols.start)
        if block.shape != shape:
            raise UnalignedWrite(f"chunk ({i}, {j}) of {layout}: the block has the shape {block.shape}; the whole chunk is {shape}")
        data = self._value_array(block)
        if shape != plan.chunk:
            padded = np.full(plan.chunk, np.nan, dtype=data.dtype)
            padded[: shape[0], : shape[1]] = data
            data = padded
        return self._object(f"{layout}/dense/c/{i}/{j}", data)

    def _value_array(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        array = np.asarray(values)
        if array.dtype.kind != "f" or array.dtype.itemsize > self.meta.itemsize:
            raise SchemaError(f"values have the type {array.dtype}; the store holds {self.meta.dtype} and does not round")
        return np.ascontiguousarray(array, dtype=np.dtype(self.meta.dtype).newbyteorder("<"))

    def write_table(self, name: str, values: npt.ArrayLike | Pieces, *, of: str = "rows") -> Record:
        """Write a table with one number (or one row of numbers) per row or column of the data, in the data type of ``values``; `Pieces` are
        read chunk by chunk.

        ``name`` is "y", "task", "group", "weight", … for rows, or "counts", "norm1", "sumsq", "minimum", "maximum", … for columns. The
        row-wise sparse layout also needs a table with the number of entries of each row, written with ``of="row-layout"``.
        """
        length = self.meta.n_cols if of == "columns" else self.meta.n_rows
        prefix = {"rows": "", "columns": "columns/", "row-layout": "rows/"}[of]
        table = _as_array(values)
        if check_name(name, "table") in (_RESERVED if of == "rows" else {"rows", "columns", "values", "dense", "edges", "nnz", "offsets"}):
            raise SchemaError(f"table name {name!r} is reserved")
        if table.ndim == 0 or table.shape[0] != length:
            raise SchemaError(f"table {name!r} of {of} has the shape {table.shape}; its first length must be {length}")
        return self._write_array(prefix + name, table)

    def write_names(self, names: Sequence[str], group: str = "names") -> Record:
        """Write one text per column: its name, or its facts (``group="facts"``)."""
        if len(names) != self.meta.n_cols:
            raise SchemaError(f"{group} has {len(names)} entries; the data have {self.meta.n_cols} columns")
        letters, lengths = join_texts(names)
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        written = self._object(f"{group}/zarr.json", group_json())
        return written | self._write_array(f"{group}/bytes", letters) | self._write_array(f"{group}/offsets", ends)

    def write_sequences(self, letters: Pieces, ends: Pieces) -> Record:
        """Write one text per row, given as the concatenated UTF-8 bytes and the end of each text; the ends begin with 0."""
        return self._write_texts("sequences", "letters", letters, ends)

    def write_ids(self, letters: Pieces, ends: Pieces) -> Record:
        """Write the name of each row, given as the concatenated UTF-8 bytes and the end of each name; the ends begin with 0."""
        return self._write_texts("ids", "bytes", letters, ends)

    def _write_texts(self, group: str, name: str, letters: Pieces, ends: Pieces) -> Record:
        n, last = self.meta.n_rows, int(ends.read(ends.size - 1, ends.size)[0])
        if ends.shape != (n + 1,) or last != letters.size:
            raise SchemaError(f"{group}: {ends.size - 1} texts end at byte {last}, but there are {n} rows and {letters.size} bytes")
        written = self._object(f"{group}/zarr.json", group_json())
        return written | self._write_array(f"{group}/{name}", letters) | self._write_array(f"{group}/offsets", ends)

    def write_source(self, source: Source) -> Record:
        """Write how the source was read."""
        encoding = source.encoding
        if encoding is not None and encoding.n_features != self.meta.n_cols:
            raise SchemaError(f"the encoding has {encoding.n_features} features; the data have {self.meta.n_cols} columns")
        return self._object(SOURCE, source.to_json())

    def write_groups(self, labels: npt.ArrayLike) -> Record:
        """Write the group label of each column, int64."""
        table = np.asarray(labels, dtype=np.int64)
        if table.shape != (self.meta.n_cols,):
            raise SchemaError(f"groups has the shape {table.shape}; it must be ({self.meta.n_cols},)")
        return self._write_array("groups", table)

    def write_missing(self, counts: npt.ArrayLike) -> Record:
        """Write the number of missing values of each column, if any value is missing; ``meta.n_missing`` becomes the sum of these
        numbers.
        """
        table = np.asarray(counts)
        total = int(table.sum(dtype=np.int64))
        self.meta = replace(self.meta, n_missing=total)
        return self.write_table("missing", table, of="columns") if total else {}

    def write_scale(self, scale: ColumnScale) -> Record:
        """Write the factors of the column scaling; ``meta.scale`` becomes its kind."""
        written: Record = {}
        factors = {"columns/scale": scale.factor, "columns/shift": scale.shift, "row_scale": scale.row_factor}
        for prefix, vector in factors.items():
            length = self.meta.n_rows if prefix == "row_scale" else self.meta.n_cols
            if vector is not None:
                if vector.shape != (length,):
                    raise SchemaError(f"{prefix} has the shape {vector.shape}; it must be ({length},)")
                written |= self._write_array(prefix, _as_array(vector, np.float64))
        self.meta = replace(self.meta, scale=scale.kind)
        return written

    def _write_array(self, prefix: str, table: npt.NDArray[Any] | Pieces) -> Record:
        return self.record(write_array(self._objects, prefix, table, fsync=self.fsync))

    def commit(self, records: Iterable[Record] = ()) -> BlockStore:
        """Write the manifest and open the store. If a chunk or the counts are missing, raises MissingBlock and commits nothing.

        ``records`` are the objects that other processes wrote; the writer knows the objects that it wrote itself.
        """
        for record in records:
            self.record(record)
        missing = [key for key in self._expected() if key not in self.done]
        if missing:
            raise MissingBlock(f"{self.url}: {len(missing)} objects were not written, the first is {missing[0]}; nothing is committed")
        self._object("zarr.json", group_json(self.meta.attributes()))
        digest = write_seal(self._objects, self.done)
        # What this process keeps open for references alone is no reader that an old version must wait for.
        forget_shared(self.url)
        try:
            versions.publish_version(self._base, self.version, digest, self._pointer)
        except RunLocked:
            self.discard()
            raise
        self._close_journal()
        return BlockStore.open(self.url, digest)

    def discard(self) -> None:
        """Remove the objects written for this version. A store that this version would replace stays unchanged."""
        self._close_journal()
        self._objects.clear()
        if isinstance(self._base, LocalObjects):
            with suppress(OSError):
                self._base.root.rmdir()

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.remove()
            self._journal = None

    def _expected(self) -> Iterable[str]:
        for name, layout in self._layouts.items():
            if isinstance(layout, DenseLayout):
                yield from (f"{name}/dense/c/{i}/{j}" for i, j in np.ndindex(*layout.grid))
                continue
            yield f"{name}/counts/zarr.json"
            for part in (INDEX_NAME[name], "values"):
                yield from (f"{name}/{part}/c/{c}" for c in range(layout.n_chunks))


def _plan_digest(meta: BlockMeta, layouts: dict[str, Layout]) -> str:
    digest = hashlib.sha256(canonical_json(meta.attributes()))
    for name, layout in layouts.items():
        digest.update(name.encode())
        if isinstance(layout, DenseLayout):
            digest.update(canonical_json([list(layout.shape), list(layout.chunk)]))
        else:
            digest.update(np.concatenate([layout.edges, layout.nnz, [layout.chunk]]).astype("<i8").tobytes())
    return digest.hexdigest()


def _check_fit(meta: BlockMeta, name: str, layout: Layout) -> None:
    if isinstance(layout, DenseLayout):
        fits = meta.kind == "dense" and layout.shape == (meta.n_rows, meta.n_cols)
    else:
        fits = meta.kind == "sparse" and int(layout.edges[-1]) == (meta.n_cols if name == "columns" else meta.n_rows)
    if not fits:
        raise SchemaError(f"layout {name!r} does not fit {meta.kind} data of {meta.n_rows} rows and {meta.n_cols} columns")


def _as_array(values: npt.ArrayLike | Pieces, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any] | Pieces:
    return values if hasattr(values, "read") else np.asarray(values, dtype)  # pyright: ignore[reportReturnType, reportArgumentType]


def _index_array(indices: npt.NDArray[Any], limit: int) -> npt.NDArray[np.int32]:
    array = np.asarray(indices)
    if array.size and (array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) >= limit):
        raise SchemaError(f"indices run from {array.min()} to {array.max()} ({array.dtype}); they must be integers in 0 … {limit - 1}")
    return np.ascontiguousarray(array, dtype="<i4")


def drop_journal(url: str) -> None:
    """Remove the journal of a finished version, left by a writer that was killed after its last step."""
    if local_path(url) is not None:
        versions.open_version(open_objects(url)).objects.delete(JOURNAL)


def _new_version(base: Objects, overwrite: bool) -> str:
    """Return the name of the version to write. Raises SchemaError if the store must not be replaced, or the folder holds files that do
    not belong to a store.
    """
    if versions.is_finished(base) and not overwrite:
        raise SchemaError(f"{base.url} already holds a finished store; choose another place or overwrite it")
    current = versions.read_versions_or_none(base)
    if isinstance(base, LocalObjects) and base.root.exists():
        versions.refuse_other_stores(base, current)
        versions.refuse_foreign_files(base, current)
    elif not isinstance(base, LocalObjects) and current is None:
        # Objects that no ingest wrote: a store is not mixed with a bucket's other content.
        keys = set(base.listing()) - {LOCK}
        if keys and not any(key.endswith("columns/zarr.json") for key in keys):
            raise SchemaError(f"{base.url} holds objects that are not a store ({min(keys)}, …); choose an empty place")
    # In an object store nobody knows whether what another began is still being written: every writer has a folder of its own.
    return versions.next_version(current, base.folders() if isinstance(base, RemoteObjects) else ())
