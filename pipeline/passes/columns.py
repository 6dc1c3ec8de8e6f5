"""The column pass, which fetches selected columns of the stripes, and access to data by rows."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Literal, cast

import numpy as np
import scipy.sparse as sp

from ...cluster import BlockProgram, Plan, plan
from ...storage import BlockStore, MemoryBlocks
from ..core.memory import Item, refuse
from ..core.resources import Resources
from .blocks import Blocks, Columns, Task, column_tasks, columns_of, features_inside, table_of, task_bytes, tasks_holding

FETCH_BYTES = 24 << 20  # columns of one pass: whoever puts them side by side holds them twice


def stack(parts: Sequence[Columns]) -> Columns:
    """Concatenate column blocks horizontally; sparse blocks stay sparse."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.hstack([np.asarray(part) for part in parts])
    return sp.csc_array(sp.hstack(parts, format="csc"))


def fetch_chunk(task: Task, features: np.ndarray) -> Columns:
    """Return the selected columns of one task's stripes, in feature order."""
    return stack([columns_of(ref, features_inside(ref, features)) for ref in task])


def column_sizes(data: Blocks, features: np.ndarray) -> np.ndarray:
    """Return the size in bytes of each raw column including row indices, int64 ``(len(features),)``."""
    size = data.meta.itemsize
    if data.meta.kind == "dense":
        return np.full(len(features), size * data.n_rows)
    # Entry by entry: the whole table of a wide store would cost more than the columns.
    counts = [int(table_of(data, "counts", int(j), int(j) + 1)[0]) for j in features]
    return (size + 4) * np.array(counts, np.int64) + 8


def entry_count(data: Blocks) -> int:
    """Return the number of entries: non-zeros of sparse data, all entries of dense data."""
    if data.meta.kind == "dense":
        return int(data.n_rows * data.n_cols)
    return int(np.asarray(data.column_table("counts"), np.int64).sum())


_HEAVIEST: weakref.WeakKeyDictionary[Blocks, tuple[np.ndarray, np.ndarray]] = weakref.WeakKeyDictionary()


def heaviest_entries(data: Blocks, columns: int) -> int:
    """Return the number of stored values in the ``columns`` fullest columns of sparse data. For a wide store, the numbers of values per
    column are read only once.
    """
    known = _HEAVIEST.get(data)
    if known is None:
        # Where columns of arrays end is known without a look at their values.
        counts = np.diff(cast(sp.csc_array, data.by_columns).indptr) if isinstance(data, MemoryBlocks) else table_of(data, "counts")
        # How many columns have at least so many values, the largest first, and how many values they have: it takes no sorting.
        frequencies = np.bincount(counts)[::-1]
        values = frequencies * np.arange(len(frequencies))[::-1]
        _HEAVIEST[data] = known = np.cumsum(frequencies), np.cumsum(values)
    reached, values = known
    if columns >= reached[-1]:
        return int(values[-1])
    k = int(np.searchsorted(reached, columns, "right"))
    before = (0, 0) if not k else (int(reached[k - 1]), int(values[k - 1]))
    return before[1] + (columns - before[0]) * (len(reached) - 1 - k)


def _batches(data: BlockStore, features: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    sizes = column_sizes(data, features)
    batch = np.cumsum(sizes) // FETCH_BYTES
    for k in np.unique(batch):
        chosen = batch == k
        yield features[chosen], int(sizes[chosen].sum())


def fetch_columns(data: Blocks, resources: Resources, features: np.ndarray, *, order: Literal["C", "F"] = "C") -> Columns:
    """Return the raw columns of sorted distinct ``features``, ``(n_samples, len(features))``; sparse if the data are.

    ``order`` is the memory layout of the returned columns, for dense arrays in memory. Scaling is not applied; see :func:`scaled`. Arrays
    in memory are copied in one pass over the rows. Many columns of a store are fetched in several passes, so that no worker holds them all.
    """
    if isinstance(data, MemoryBlocks):
        return data.columns(features, order=order)
    tasks, batches = column_tasks(data), _batches(data, features)
    return stack([resources.run_pass(columns_pass(tasks_holding(tasks, batch), nbytes, batch)) for batch, nbytes in batches])


def columns_pass(tasks: Sequence[Task], nbytes: int, *broadcast: object) -> Plan[Columns]:
    """Return the pass that fetches columns of ``nbytes`` bytes in total."""

    def fetch_bytes(task: Task) -> int:
        # The stripe a column is cut from, and the task's columns twice while they are put side by side.
        return task_bytes(task) + 2 * nbytes

    return plan(BlockProgram("columns", fetch_chunk, stack, fetch_bytes, nbytes, combine_bytes=2 * nbytes), tasks, *broadcast)


def columns_bytes(data: Blocks, count: int, most: int | None = None) -> int:
    """Return the memory in bytes of the largest step when fetching any ``count`` columns, which have at most ``most`` bytes in total."""
    count = min(count, data.n_cols)
    if not count:
        return 0
    if isinstance(data, MemoryBlocks):
        largest = 12 * data.n_rows * count
    elif data.meta.kind == "dense":
        largest = min(count, FETCH_BYTES // (data.meta.itemsize * data.n_rows) + 1) * data.meta.itemsize * data.n_rows
    else:
        one, every = ((data.meta.itemsize + 4) * heaviest_entries(data, k) + 8 * k for k in (1, count))
        largest = min(every, FETCH_BYTES + one)
    return columns_pass(column_tasks(data), largest if most is None else min(largest, most)).memory_bound


NEEDS_ROWS = "ingest the store with --layout both"  # what helps where rows would have to be made of columns


def has_rows(data: Blocks) -> bool:
    """Return whether blocks of rows can be read: always for arrays in memory, for a store if it has the row-wise layout."""
    return isinstance(data, MemoryBlocks) or "rows" in data.meta.layouts


def rows_to_make(data: Blocks) -> Item:
    """Return the memory item of converting a store of columns to rows."""
    made = "rows made of the store's columns, which it has alone"
    if data.meta.kind == "dense":
        return made, data.n_rows * data.n_cols * data.meta.itemsize
    return made, 2 * entry_count(data) * (data.meta.itemsize + 4)


def refuse_to_make(data: Blocks, budget: int) -> None:
    """Check that the memory for converting columns to rows is at most ``budget`` bytes. Raises MemoryBoundExceeded."""
    refuse("group-lasso", [rows_to_make(data)], budget, NEEDS_ROWS)


def by_rows(data: Blocks) -> Blocks:
    """Return data that can be read by rows: the data itself, or rows assembled from all columns."""
    if has_rows(data):
        return data
    columns = data.columns(np.arange(data.n_cols))
    return MemoryBlocks(sp.csr_array(columns) if sp.issparse(columns) else columns)
