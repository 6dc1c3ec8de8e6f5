"""Gram stores: many kernels over the same samples, stored on disk as upper triangles of blocks and reused between runs.

A store is a Zarr v3 group. One object holds the blocks of all kernels of a bundle (kernels computed together) at one block pair. The task
that writes an object also writes a record of it, and only recorded objects count. Kernels added later form new bundles, and existing
objects are not rewritten. ``manifest.json`` lists every object with its crc32c; objects finished after the manifest was written are found
by their records.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import versions
from ..blocks.arrays import ArraySpec, ChunkedArray, Record, crc32c, group_json, read_listed, write_array, write_object
from ..blocks.store import VerifyReport
from ..errors import DigestMismatch, MissingBlock, StorageError, UnalignedWrite
from ..manifest import MANIFEST, read_seal
from ..objects import LocalObjects, sweep_temporaries
from ..urls import open_objects
from .bundle import Bundle, GramMeta, GramTask, check_kernels, merge_runs
from .catalog import Digests, GramCatalog, as_digests, check_same, create_store, write_texts
from .layout import OBJECT_BYTES, BlockRecord, GramSums, add_up, block_sums, plan_block, running_crcs
from .reading import copy_kernels, output_array, pad_planes, refuse_values, verify_objects, whole_block

__all__ = ["GramRef", "GramStore", "GramSums", "GramTask", "open_gram"]


@dataclass(frozen=True)
class GramRef:
    """Reference to a stored block pair (i, j), i <= j, of chosen kernels, passed to tasks in place of data.

    ``parts`` holds (bundle, start, stop) of the kernels, in order. Bundle ids are content keys, so they also identify data and kernels.
    ``nbytes`` is the size of the loaded block.
    """

    url: str
    i: int
    j: int
    rows: tuple[int, int]
    cols: tuple[int, int]
    parts: tuple[tuple[str, int, int], ...]
    nbytes: int

    def __reduce__(self) -> tuple[type["GramRef"], tuple[Any, ...]]:
        return GramRef, astuple(self)

    def load(self, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the block (k, rows, cols); ``out`` is as in `GramStore.block`."""
        return open_gram(self.url, [bundle for bundle, _, _ in self.parts])._read(self.parts, self.i, self.j, out)

    def select(self, which: Sequence[int]) -> "GramRef":
        """Return the same block pair for some of its kernels, by position."""
        places = [(bundle, q) for bundle, start, stop in self.parts for q in range(start, stop)]
        return replace(self, parts=merge_runs([places[k] for k in which]), nbytes=self.nbytes // len(places) * len(which))


class GramStore(GramCatalog):
    """Gram matrices of many kernels over the same samples; create it with `GramStore.create` or `GramStore.open`.

    Writing needs no lock as long as each block pair is written by one process at a time; the process that assigns the tasks holds `lock`.
    """

    @classmethod
    def create(
        cls,
        url: str | os.PathLike[str],
        *,
        data_digest: str,
        n: int,
        kernels: Sequence[tuple[str, Any]] = (),
        dtype: str = "float32",
        block: int | None = None,
        budget: int = OBJECT_BYTES,
        groups: Sequence[int] = (),
    ) -> "GramStore":
        """Create a store for some kernels, or open an existing one and add the kernels it lacks.

        ``data_digest`` identifies the samples and everything else the kernels were computed from. ``kernels`` are (digest, JSON) of raw
        kernels, before centring and normalisation. ``block`` is the number of rows of a block [default: planned]; an existing store keeps
        its block size. ``budget`` is the approximate size of one object in bytes; a task that computes or reads an object needs as much
        memory. ``groups`` are the sizes of consecutive groups of samples; give them if only kernel values within groups are needed.

        Raises DigestMismatch if the store was made from other data; SchemaError if the store has another n, type or block size, or ``url``
        holds other files; RunLocked if kernels have to be added while another process writes.
        """
        checked, objects = check_kernels(kernels), open_objects(url)
        if not versions.is_finished(objects):
            itemsize = np.dtype(dtype).itemsize if dtype in ("float32", "float64") else 4
            planned = plan_block(max(groups, default=n), len(checked), itemsize, budget) if block is None else min(block, n)
            create_store(objects, GramMeta(n, planned, dtype, data_digest, budget, tuple(groups)))
        store = cls.open(url)
        objects = store.objects
        same = {"n": n, "dtype": dtype, "block": store.meta.block if block is None else min(block, n)}
        check_same(store, data_digest, same, tuple(groups))
        if any(digest not in store.places for digest, _ in checked):
            with objects.held():
                store.refresh()
                store.extend([kernel for kernel in checked if kernel[0] not in store.places])
        return store

    @classmethod
    def open(cls, url: str | os.PathLike[str]) -> "GramStore":
        """Open the current version of a store, finished or not. Later replacements do not change the opened version. Raises
        MissingBlock if there is no store.
        """
        base = open_objects(url)
        if not versions.is_finished(base):
            return cls(base)
        opened = versions.open_version(base)
        return cls(opened.objects, opened)

    def write(self, task: GramTask, values: npt.NDArray[Any]) -> Record:
        """Write the whole block (k, rows, cols) of a task, and then its record; a block without a record does not count. Any process may
        call this.

        Returns the records of both objects, for `commit`. Raises UnalignedWrite if the values are not the whole block; SchemaError if a
        value would be rounded, or a diagonal block is not exactly symmetric; DataError, with kernel, row and column, if a value is not
        finite. If the disk is full (OutOfSpace) the block is missing, and everything else is unchanged.
        """
        bundle = self._bundle(task)
        planes = whole_block(task, values, self.meta.dtype)
        sums = block_sums(planes, self.meta.block, task.i == task.j)
        refuse_values(task, planes, sums)
        filled = pad_planes(planes, self.meta.block)
        record = BlockRecord(running_crcs(filled), sums)
        key, noted = bundle.block_key(task.i, task.j), bundle.record_key(task.i, task.j)
        self.objects.write(key, filled)
        written: Record = {key: (filled.nbytes, int(record.running[-1]))}
        written |= write_object(self.objects, noted, record.encode(bundle.identity(task.i, task.j)), fsync=False)
        self.reader.forget(bundle, task.i, task.j)
        self.written |= written
        return written

    def _bundle(self, task: GramTask) -> Bundle:
        if task.bundle not in self.bundles:
            self.refresh()
        bundle = self.bundles.get(task.bundle)
        if bundle is None or bundle.task(task.url, task.i, task.j) != task:
            block = f"the block ({task.i}, {task.j}) of this task"
            raise UnalignedWrite(f"{self.url} has no bundle {task.bundle} with {block}: the bundle was replaced")
        return bundle

    @contextmanager
    def lock(self) -> Iterator["GramStore"]:
        """Hold the lock of the store during the ``with`` statement, as the process that assigns tasks; finished objects are committed
        at the end.
        """
        with self.objects.held():
            if isinstance(self.objects, LocalObjects):
                sweep_temporaries(self.objects.root)
            self.refresh()
            yield self
            self.commit()

    def commit(self, records: Iterable[Record] = ()) -> str:
        """Write to the manifest every object that has a record, write the sums of kernels that became complete, and return the digest of
        the manifest.

        ``records`` are the results of `write` in other processes; they are needed only for rewritten blocks (see `damaged`).
        """
        if read_seal(self.objects)[1] != self.digest:
            self.refresh()
        for record in records:
            self.written |= record
        described = write_texts(self.objects, self.meta, self.listed)
        for bundle in self.bundles.values():
            described |= write_texts(self.objects, bundle, self.listed)
            self._note_records(bundle)
        listed = {**self.listed, **described, **self.written}
        for bundle in self.bundles.values():
            listed = self._note_sums(bundle, listed)
        return self.seal(listed)

    def _note_records(self, bundle: Bundle) -> None:
        """Check and note records that are not listed yet. An incomplete record (after a power loss) is removed, so its block counts as
        missing.
        """
        recorded = self.recorded([bundle])
        for i, j in self.meta.layout.pairs():
            noted = bundle.record_key(i, j)
            if noted not in recorded or noted in self.written or noted in self.listed:
                continue
            data = self.objects.read(noted)
            try:
                record = self.reader.decode(bundle, i, j, data)
            except DigestMismatch:
                self.objects.delete(noted)
                continue
            self.written[noted] = (data.nbytes, crc32c(data))
            self.written[bundle.block_key(i, j)] = (bundle.blocks.chunk_bytes, int(record.running[-1]))

    def _note_sums(self, bundle: Bundle, listed: Record) -> Record:
        """Write the sums of a complete bundle, unless sums exist that were computed from the current records."""
        entries = [listed.get(bundle.record_key(i, j)) for i, j in self.meta.layout.pairs()]
        prefix = None if None in entries else f"{bundle.sums_prefix}{crc32c(np.array(entries, dtype='<u8')):08x}"
        if prefix is not None and f"{prefix}/zarr.json" in listed:
            return listed
        updated = {key: entry for key, entry in listed.items() if not key.startswith(bundle.sums_prefix)}
        if prefix is None:
            return updated
        diagonal, row_sums = self._add_up(bundle)
        tables = {"diagonal": diagonal, "row_sums": row_sums, "trace": diagonal.sum(axis=1), "total": row_sums.sum(axis=1)}
        for name, table in tables.items():
            updated |= write_array(self.objects, f"{prefix}/{name}", table, fsync=False)
        return updated | write_object(self.objects, f"{prefix}/zarr.json", group_json(), fsync=False)

    def _add_up(self, bundle: Bundle) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        return add_up(self.meta.layout, len(bundle.kernels), lambda i, j: self.reader.record(bundle, i, j).sums)

    def block(self, digests: Digests, i: int, j: int, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the raw values (k, rows, cols) of chosen kernels at block pair (i, j). For i > j the result is a transposed view of the
        stored block.

        ``out`` is a C-contiguous array to read into (for i <= j only); reusing an array saves time, because allocating memory takes as long
        as reading. Raises MissingBlock if the block was not computed or its object is missing; DigestMismatch if the bytes of a kernel have
        changed (the message names the kernel).
        """
        self.meta.layout.check(i, j)
        if i > j:
            return self.block(digests, j, i).transpose(0, 2, 1)
        return self._read(self._parts(digests), i, j, out)

    def refs(self, digests: Digests | None = None) -> list[GramRef]:
        """Return references to all block pairs of chosen kernels (default: all), row by row. Raises MissingBlock if some were not computed
        yet.
        """
        chosen = self.kernels if digests is None else as_digests(digests)
        self.require(self.bundles_of(chosen))
        parts, layout = self._parts(chosen), self.meta.layout
        refs = []
        for i, j in layout.pairs():
            rows, cols = layout.shape(i, j)
            nbytes = len(chosen) * rows * cols * self.meta.itemsize
            refs.append(GramRef(self.url, i, j, layout.span(i), layout.span(j), parts, nbytes))
        return refs

    def _parts(self, digests: Digests) -> tuple[tuple[str, int, int], ...]:
        places = [self.find(digest) for digest in as_digests(digests)]
        return merge_runs([(bundle.id, q) for bundle, q in places])

    def _read(self, parts: Sequence[tuple[str, int, int]], i: int, j: int, out: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
        shape = (sum(stop - start for _, start, stop in parts), *self.meta.layout.shape(i, j))
        block = output_array(out, shape, np.dtype(self.meta.dtype).newbyteorder("<"))
        at = 0
        for name, start, stop in parts:
            self.reader.read(self.bundles[name], i, j, start, stop, block[at : at + stop - start])
            at += stop - start
        return block

    def sums(self, digest: str) -> GramSums:
        """Return trace, diagonal, row sums and total of a kernel's raw matrix. Raises MissingBlock if blocks were not computed yet."""
        bundle, q = self.find(digest)
        sums = (key for key in self.listed if key.startswith(bundle.sums_prefix) and key.endswith("/zarr.json") and key.count("/") == 3)
        prefix = next((key.rpartition("/")[0] for key in sums), None)
        if prefix is None:
            self.require([bundle])
            diagonal, row_sums = (table[q] for table in self._add_up(bundle))
            return GramSums(float(diagonal.sum()), diagonal, row_sums, float(row_sums.sum()))
        rows: list[npt.NDArray[Any]] = []
        for table in (f"{prefix}/{name}" for name in GramSums._fields):
            spec = ArraySpec.from_json(read_listed(self.objects, self.listed, f"{table}/zarr.json"), f"{self.url}/{table}/zarr.json")
            rows.append(ChunkedArray(self.objects, table, spec, self.listed, self._verified).read(q, q + 1)[0])
        trace, diagonal, row_sums, total = rows
        return GramSums(float(trace), diagonal, row_sums, float(total))

    def verify(self, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        """Compare all listed or recorded objects with their checksums; ``progress`` is called with (bytes read, total bytes)."""
        return verify_objects(self.objects, self.listed, self.known_places(), progress)

    def damaged(self, report: VerifyReport | None = None) -> list[GramTask]:
        """Return tasks that rewrite damaged blocks. Pass the results of `write` for these tasks to `commit`, which also rewrites damaged
        objects that are not blocks.
        """
        keys = [damage.key for damage in (report or self.verify()).damaged]
        places = self.known_places()
        for key in keys:
            if key not in places:
                # Descriptions and sums follow from what is known: commit writes what is not listed.
                self.listed.pop(key, None)
                for sums in (bundle.sums_prefix for bundle in self.bundles.values() if key.startswith(bundle.sums_prefix)):
                    self.listed = {name: entry for name, entry in self.listed.items() if not name.startswith(sums)}
        blocks = {(block[1], block[2], block[0].number): block for key in keys if (block := places.get(key))}  # each once
        return [bundle.task(self.url, i, j) for _, (bundle, i, j) in sorted(blocks.items())]

    def drop(self, digests: Digests) -> None:
        """Remove kernels and free their space; bundles that also contain other kernels are rewritten without the removed ones."""
        gone = set(as_digests(digests))
        self.bundles_of(tuple(gone))
        with self.objects.held():
            self.refresh()
            old = [bundle for bundle in self.bundles.values() if gone.intersection(bundle.digests)]
            self._replace(old, [bundle.without(gone) for bundle in old])

    def _replace(self, old: list[Bundle], new: list[Bundle | None]) -> None:
        others = [bundle for bundle in self.bundles.values() if bundle not in old]
        made = [bundle for bundle in new if bundle is not None]
        recorded = self.recorded(old)
        prefixes = tuple(f"{bundle.prefix}/" for bundle in old)
        listed = {key: entry for key, entry in self.listed.items() if not key.startswith(prefixes)}
        self.bundles |= {bundle.id: bundle for bundle in made}
        for before, after in zip(old, new, strict=True):
            if after is not None:
                listed |= write_texts(self.objects, after, {})
                listed |= copy_kernels(self.url, self.reader, self.write, before, after, recorded)
        self.set_bundles(sorted([*others, *made], key=lambda bundle: bundle.number))
        for bundle in made:
            listed = self._note_sums(bundle, listed)
        self.seal(listed)
        for bundle in old:
            self.objects.below(bundle.prefix).clear()

    def remove_orphans(self) -> list[tuple[str, int]]:
        """Remove orphaned objects and temporary files of killed writers, and return them. Raises RunLocked while another
        process writes.
        """
        with self.objects.held():
            self.refresh()
            if isinstance(self.objects, LocalObjects):
                sweep_temporaries(self.objects.root)
            orphans = self.orphans()
            for key, _ in orphans:
                self.objects.delete(key)
            return orphans


_SHARED_STORES = 16
_shared: "OrderedDict[str, GramStore]" = OrderedDict()


def open_gram(url: str, bundles: Iterable[str] = ()) -> GramStore:
    """Return the store, opened before in this process or opened now. Raises MissingBlock if it lacks one of the given bundles."""
    store = _shared.get(url) or GramStore.open(url)
    if any(bundle not in store.bundles for bundle in bundles):
        store.refresh()
    if any(bundle not in store.bundles for bundle in bundles) and store.url != url and open_objects(url).size(MANIFEST) is not None:
        # The store was replaced; what the reference was made from lies in the folder itself as long as somebody reads it.
        store = GramStore(open_objects(url))
    for bundle in bundles:
        if bundle not in store.bundles:
            raise MissingBlock(f"{url} has no bundle {bundle}: its kernels were dropped, or the store was replaced")
    _shared[url] = store
    _shared.move_to_end(url)
    while len(_shared) > _SHARED_STORES:
        _shared.popitem(last=False)
    return store


def forget_grams() -> None:
    """Close the stores that this process keeps open only because references point to them."""
    _shared.clear()


def begin_replacement(url: str | os.PathLike[str], data_digest: str, dtype: str) -> str | None:
    """Return the URL for a new version of a Gram store; None if there is no store, or if kernels can be added to the existing one.

    The new version is built there like any store, and `end_replacement` makes it current. The unfinished version of a killed process is
    resumed if it has the same samples and type. Raises SchemaError if ``url`` holds something else than a Gram store, or files that do not
    belong to it.
    """
    base = open_objects(url)
    if not versions.is_finished(base) or _is_compatible(base.url, data_digest, dtype):
        return None
    current = versions.read_versions_or_none(base)
    if isinstance(base, LocalObjects):
        versions.refuse_other_stores(base, current, "a Gram store")
        versions.refuse_foreign_files(base, current)
    fresh = versions.version_objects(base, versions.next_version(current))
    if fresh.size(MANIFEST) is not None and not _is_compatible(fresh.url, data_digest, dtype):
        fresh.clear()
    return fresh.url


def _is_compatible(url: str, data_digest: str, dtype: str) -> bool:
    try:
        meta = GramStore.open(url).meta
    except StorageError:
        return False
    return (meta.data, meta.dtype, meta.groups) == (data_digest, dtype, ())


def end_replacement(url: str | os.PathLike[str], place: str) -> None:
    """Make the version from `begin_replacement` current. The old version is removed when no process reads it any more."""
    forget_grams()
    base = open_objects(url)
    versions.publish_version(base, place.rpartition("/")[2], GramStore.open(place).meta.data, versions.pointer_tag(base))
