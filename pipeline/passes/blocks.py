"""From stores to tasks: fixed byte groups of blocks, and what a task sees of one block."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.column_stats import ColumnStats, column_stats
from ...kernels.columns import shape
from ...storage import BlockRef, BlockStore, ColumnScale, MemoryBlocks, MemoryRef, block_cache, open_shared
from ..records.fgm import FeatureScale

Ref = BlockRef | MemoryRef
Task = tuple[Ref, ...]
Columns = np.ndarray | sp.csc_array

TASK_BYTES = 64 << 20
"""A task takes a fixed byte group of stripes, from the plan and never from the number of workers (RULINGS 18)."""


@dataclass(frozen=True)
class Block:
    """One column stripe as a task sees it.

    Attributes
    ----------
    X
        ``(n, k)`` values as stored.
    offset
        Feature id of the first column.
    factor, shift
        ``(k,)`` column scaling ``s`` and centre ``mu``, or ``None``.
    ref
        Where it came from.
    """

    X: Columns
    offset: int
    factor: np.ndarray | None
    shift: np.ndarray | None
    ref: Any

    @property
    def width(self) -> int:
        """Number of columns."""
        return shape(self.X)[1]

    def table(self, name: str) -> np.ndarray:
        """Return a column table (``norm1``, ``maximum``, …) cut to this stripe."""
        return column_table(self.ref, name)


def source_of(ref: Ref) -> BlockStore | MemoryBlocks:
    """Return the store (opened once per process) or the arrays a reference points into."""
    return ref.source if isinstance(ref, MemoryRef) else open_shared(ref.url, ref.digest)


_STATS: weakref.WeakKeyDictionary[MemoryBlocks, dict[str, np.ndarray]] = weakref.WeakKeyDictionary()


def table_of(data: BlockStore | MemoryBlocks, name: str, lo: int = 0, hi: int | None = None) -> np.ndarray:
    """Return columns ``lo:hi`` of a column table: stored, or for arrays in memory computed by one compiled pass when first asked for."""
    if not isinstance(data, MemoryBlocks):
        return data.column_table(name, lo, hi)
    if data not in _STATS:
        parts = [column_stats(load_block(ref).X) for ref in data.column_blocks()]
        _STATS[data] = {field: np.concatenate([getattr(part, field) for part in parts]) for field in ColumnStats._fields}
    return _STATS[data][name][lo:hi]


def column_table(ref: Ref, name: str) -> np.ndarray:
    """Return a column table cut to the stripe of ``ref``."""
    return table_of(source_of(ref), name, *ref.cols)


def scale_of_block(ref: Ref) -> FeatureScale:
    """Return the scaling factors of a stripe's columns."""
    scale: ColumnScale = source_of(ref).scale
    cut = slice(*ref.cols)
    return FeatureScale(None if scale.factor is None else scale.factor[cut], None if scale.shift is None else scale.shift[cut])


def columns_of(ref: Ref, features: np.ndarray) -> np.ndarray | sp.csc_array:
    """Return raw columns of a stripe by feature id: from the cached stripe, else only their bytes are read."""
    held = block_cache().held(ref)
    return source_of(ref).columns(features) if held is None else held[:, features - ref.cols[0]]


def load_block(ref: Ref) -> Block:
    """Load one stripe with its scaling factors."""
    scale = scale_of_block(ref)
    return Block(block_cache().load(ref), ref.cols[0], scale.factor, scale.shift, ref)


def load_blocks(task: Task) -> Iterator[Block]:
    """Load the stripes of a task one after the other."""
    return (load_block(ref) for ref in task)


def byte_groups(refs: Iterable[Ref], limit: int = TASK_BYTES) -> list[Task]:
    """Group consecutive references into tasks of about ``limit`` bytes."""
    groups: list[list[Ref]] = []
    size = limit
    for ref in refs:
        if size + ref.nbytes > limit:
            groups.append([])
            size = 0
        groups[-1].append(ref)
        size += ref.nbytes
    return [tuple(group) for group in groups]


_TASKS: weakref.WeakKeyDictionary[BlockStore, list[Task]] = weakref.WeakKeyDictionary()


def column_tasks(data: BlockStore | MemoryBlocks) -> list[Task]:
    """Return the tasks of a pass over all columns."""
    if isinstance(data, MemoryBlocks):
        # Not kept: these references hold the arrays.
        return byte_groups(data.column_blocks())
    if data not in _TASKS:
        # Kept: a store may have 100,000 stripes.
        _TASKS[data] = byte_groups(data.column_blocks())
    return _TASKS[data]


def task_bytes(task: Task) -> int:
    """Bound the memory of a task: its largest stripe, read and held once."""
    return max(ref.nbytes for ref in task)


def tasks_holding(tasks: Sequence[Task], features: np.ndarray) -> list[Task]:
    """Return, of each task, the stripes that hold one of the sorted ``features``; tasks without any are left out."""
    kept = (tuple(ref for ref in task if _holds(ref, features)) for task in tasks)
    return [task for task in kept if task]


def _holds(ref: Ref, features: np.ndarray) -> bool:
    lo, hi = np.searchsorted(features, ref.cols)
    return bool(hi > lo)
