"""Reading of Gram matrix blocks, and checks of arrays that enter or leave a store.

Only the bytes of the requested kernels are read, and each kernel is checked once per process.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..blocks.arrays import Record, check_crc
from ..blocks.store import VerifyReport, verify_all
from ..errors import DataError, DigestMismatch, MissingBlock, SchemaError, StorageError, UnalignedWrite
from ..objects import Bytes, Objects, as_bytes, describe_key
from .bundle import Bundle, GramTask
from .layout import BlockRecord

_STRIP = 64
BlockPair = tuple[Bundle, int, int]


class BlockReader:
    """Reads objects and records of a Gram store, and remembers which kernels of which objects were checked."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._running: dict[str, npt.NDArray[np.uint32]] = {}
        self._checked: dict[str, int] = {}

    def forget(self, bundle: Bundle, i: int, j: int) -> None:
        """Mark an object as unchecked because it was rewritten; its next read checks it again."""
        key = bundle.block_key(i, j)
        self._running.pop(key, None)
        self._checked.pop(key, None)

    def read(self, bundle: Bundle, i: int, j: int, start: int, stop: int, out: npt.NDArray) -> None:
        """Fill ``out`` (stop - start, rows, cols) with the blocks of kernels ``start:stop``. Raises DigestMismatch if bytes have
        changed; the message names the kernel.
        """
        b, key = bundle.meta.block, bundle.block_key(i, j)
        whole = out if out.shape[1:] == (b, b) else np.empty((stop - start, b, b), out.dtype)
        requested = (1 << stop) - (1 << start)
        known = self._checked.get(key, 0)
        # The record first: an object without one does not count, whatever it holds.
        running = self._running_of(bundle, i, j) if requested & ~known else None
        self._objects.read_into(key, as_bytes(whole), start * bundle.plane_bytes, bundle.blocks.chunk_bytes)
        if running is not None:
            self._check(bundle, i, j, start, whole)
            self._checked[key] = known | requested
        if whole is not out:
            out[...] = whole[:, : out.shape[1], : out.shape[2]]

    def _check(self, bundle: Bundle, i: int, j: int, start: int, planes: npt.NDArray) -> None:
        running = self._running_of(bundle, i, j)
        if _wrong_planes(running, start, planes):
            # Another process may have written the object again, with another record.
            self.forget(bundle, i, j)
            running = self._running_of(bundle, i, j)
        wrong = _wrong_planes(running, start, planes)
        if wrong:
            raise DigestMismatch(f"{self._objects.url}: {_describe_planes(bundle, bundle.block_key(i, j), wrong)}")

    def _running_of(self, bundle: Bundle, i: int, j: int) -> npt.NDArray[np.uint32]:
        key = bundle.block_key(i, j)
        if key not in self._running:
            self._running[key] = self.record(bundle, i, j).running
        return self._running[key]

    def record(self, bundle: Bundle, i: int, j: int) -> BlockRecord:
        """Return the record of an object. Raises MissingBlock if there is none: the block was not computed."""
        try:
            data = self._objects.read(bundle.record_key(i, j))
        except MissingBlock as error:
            location = f"{self._objects.url}: block ({i}, {j}) of kernel {bundle.digests[0]} (bundle {bundle.id})"
            raise MissingBlock(f"{location} was not computed yet, or its record is absent") from error
        return self.decode(bundle, i, j, data)

    def decode(self, bundle: Bundle, i: int, j: int, data: Bytes) -> BlockRecord:
        """Check and decode the bytes of a record."""
        location = f"{self._objects.url}: {describe_key(bundle.record_key(i, j))}"
        return BlockRecord.decode(data, bundle.identity(i, j), len(bundle.kernels), bundle.meta.block, location)

    def verify(self, bundle: Bundle, i: int, j: int, listed: tuple[int, int] | None) -> None:
        """Compare each kernel of an object with the object's record and, if the manifest lists the object, the whole object with the
        manifest.
        """
        key = bundle.block_key(i, j)
        planes = np.empty((len(bundle.kernels), bundle.plane_bytes), np.uint8)
        running = self.record(bundle, i, j).running
        self._objects.read_into(key, as_bytes(planes), 0, planes.nbytes)
        wrong = _wrong_planes(running, 0, planes)
        if wrong:
            raise DigestMismatch(f"{self._objects.url}: {_describe_planes(bundle, key, wrong)}")
        if listed is not None and listed != (planes.nbytes, int(running[-1])):
            check_crc(self._objects.url, key, as_bytes(planes), listed)


def verify_objects(
    objects: Objects, listed: Record, places: dict[str, BlockPair], progress: Callable[[int, int], None] | None = None
) -> VerifyReport:
    """Re-read and check everything (see `GramStore.verify`)."""
    reader = BlockReader(objects)
    sizes = {key: (b.blocks if key == b.block_key(i, j) else b.records).chunk_bytes for key, (b, i, j) in places.items()}
    sizes |= {key: size for key, (size, _) in listed.items()}

    def check(key: str) -> None:
        entry, place = listed.get(key), places.get(key)
        if place is not None and key == place[0].block_key(*place[1:]):
            return reader.verify(*place, entry)
        data = objects.read(key)
        if place is not None:
            reader.decode(*place, data)
        if entry is not None:
            check_crc(objects.url, key, data, entry)

    return verify_all(sizes, check, progress)


def copy_kernels(
    url: str, reader: BlockReader, write: Callable[[GramTask, npt.NDArray[Any]], Record], old: Bundle, new: Bundle, recorded: set[str]
) -> Record:
    """Write the blocks of the kernels of ``new``, all of which ``old`` contains; damaged and missing blocks are skipped."""
    written: Record = {}
    for i, j in old.meta.layout.pairs():
        if old.record_key(i, j) not in recorded:
            continue
        task = new.task(url, i, j)
        values = np.empty(task.shape, old.blocks.numpy_dtype)
        try:
            for k, digest in enumerate(new.digests):
                q = old.digests.index(digest)
                reader.read(old, i, j, q, q + 1, values[k : k + 1])
        except StorageError:
            continue
        written |= write(task, values)
    return written


def _wrong_planes(running: npt.NDArray[np.uint32], start: int, planes: npt.NDArray) -> list[int]:
    """Return the positions of wrong planes, counted from ``start``: the bytes of a plane must extend the running checksum before it to the
    next one.
    """
    before = [int(running[start - 1]) if start else 0, *running[start : start + len(planes)].tolist()]
    steps = zip(planes, pairwise(before), strict=True)
    return [start + k for k, (plane, (last, now)) in enumerate(steps) if google_crc32c.extend(last, as_bytes(plane)) != now]


def _describe_planes(bundle: Bundle, key: str, wrong: list[int]) -> str:
    lo, hi = wrong[0] * bundle.plane_bytes, (wrong[-1] + 1) * bundle.plane_bytes
    names = ", ".join(bundle.digests[q] for q in wrong[:4]) + (", …" if len(wrong) > 4 else "")
    difference = f"the crc32c of {len(wrong)} kernels ({names}) differs from the record"
    return f"{describe_key(key)}, bytes {lo}:{hi}: {difference}; the stored data changed after they were written"


def whole_block(task: GramTask, values: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return the values as they are stored. Raises UnalignedWrite unless ``values`` holds the whole block of each kernel, and SchemaError
    if a value would be rounded.
    """
    if np.shape(values) != task.shape:
        whole = f"the whole block of {task.shape[0]} kernels is {task.shape}"
        raise UnalignedWrite(f"block ({task.i}, {task.j}): the array has the shape {np.shape(values)}; {whole}")
    if values.dtype.kind != "f" or values.dtype.itemsize > np.dtype(dtype).itemsize:
        raise SchemaError(f"values have the type {values.dtype}; the store holds {dtype} and does not round")
    return np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))


def refuse_values(task: GramTask, values: npt.NDArray[Any], sums: npt.NDArray[np.float64]) -> None:
    """Raise DataError for values that are not finite, and SchemaError for diagonal blocks that are not exactly symmetric."""
    if not np.isfinite(sums[:, 0, : values.shape[1]]).all() and not np.isfinite(values).all():
        q, row, col = (int(axis[0]) for axis in np.nonzero(~np.isfinite(values)))
        rows = f"rows {task.rows[0] + row} and {task.cols[0] + col}"
        raise DataError(f"kernel {task.digests[q]} is {values[q, row, col]} between {rows}; kernel values must be finite")
    if task.i == task.j and not all(map(_is_symmetric, values)):
        q, row, col = (int(axis[0]) for axis in np.nonzero(values != values.transpose(0, 2, 1)))
        pair = f"{values[q, row, col]} at ({row}, {col}), but {values[q, col, row]} at ({col}, {row})"
        raise SchemaError(f"block ({task.i}, {task.i}) of kernel {task.digests[q]} is not symmetric: {pair}")


def _is_symmetric(square: npt.NDArray[Any]) -> bool:
    # In strips: reading a large matrix across its rows all at once takes twice the time.
    strips = range(0, len(square), _STRIP)
    return all(np.array_equal(square[r : r + _STRIP, r:], square[r:, r : r + _STRIP].T) for r in strips)


def pad_planes(planes: npt.NDArray[Any], block: int) -> npt.NDArray[Any]:
    """Return planes padded with NaN to ``(block, block)``, the size that planes have in every object."""
    if planes.shape[1:] == (block, block):
        return planes
    out = np.full((len(planes), block, block), np.nan, dtype=planes.dtype)
    out[:, : planes.shape[1], : planes.shape[2]] = planes
    return out


def output_array(out: npt.NDArray[Any] | None, shape: tuple[int, ...], dtype: np.dtype) -> npt.NDArray[Any]:
    """Return ``out`` if it is suitable for reading into, or a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise SchemaError(f"out has the shape {out.shape} and the type {out.dtype}; it must be a C-contiguous {dtype} array {shape}")
    return out
