"""Keeping a Gram store in order: damage, kernels nobody uses, objects that belong to nothing."""

import shutil
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocks.arrays import Record, check_crc
from ..blocks.store import VerifyReport, verify_all
from ..errors import StorageError
from ..objects import LocalObjects, Objects
from .bundle import Bundle, GramTask
from .reading import BlockReader

BlockPair = tuple[Bundle, int, int]


def verify_objects(
    objects: Objects, listed: Record, places: dict[str, BlockPair], progress: Callable[[int, int], None] | None = None
) -> VerifyReport:
    """Re-read everything (see `GramStore.verify`)."""
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


def repair_tasks(url: str, places: dict[str, BlockPair], keys: Iterable[str]) -> list[GramTask]:
    """Tasks that write the objects and records of these keys again, each once, in order."""
    blocks = {(block[1], block[2], block[0].number): block for key in keys if (block := places.get(key))}
    return [bundle.task(url, i, j) for _, (bundle, i, j) in sorted(blocks.items())]


def copy_kernels(
    url: str, reader: BlockReader, write: Callable[[GramTask, npt.NDArray[Any]], Record], old: Bundle, new: Bundle, recorded: set[str]
) -> Record:
    """Write the blocks of the kernels of ``new``, all of which ``old`` has; damaged and missing ones are left out."""
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


def remove_tree(objects: Objects, prefix: str) -> None:
    """Remove every object below a prefix."""
    for key in list(objects.listing()):
        if key.startswith(f"{prefix}/"):
            objects.delete(key)
    if isinstance(objects, LocalObjects):
        shutil.rmtree(objects.root / prefix, ignore_errors=True)
