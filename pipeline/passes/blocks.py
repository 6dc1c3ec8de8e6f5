"""Tasks over stores: groups of blocks by bytes, the content of one block, and how results are combined."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.features.views import column_counts, column_norm1, constant_columns, shape
from ...storage import BlockRef, BlockStore, ColumnScale, MemoryBlocks, MemoryRef, block_cache, open_shared
from ..records.joined import JoinedStores
from ..records.scale import FeatureScale

Ref = BlockRef | MemoryRef
Task = tuple[Ref, ...]
Columns = np.ndarray | sp.csc_array
Blocks = BlockStore | MemoryBlocks  # data in blocks of columns: a store, or arrays

TASK_BYTES = 64 << 20  # a task takes a fixed byte group of stripes, from the plan and never from the number of workers
TASKS, LEAST_TASK_BYTES = 16, 16 << 20  # of a smaller store as many tasks, so that workers share them evenly, but no smaller ones


@dataclass(frozen=True)
class Block:
    """One stripe of columns, as loaded by a task."""

    X: Columns  # `(n, k)` values as stored
    offset: int  # feature id of the first column
    # factor, shift: `(k,)` column scaling `s` and centre `mu`, or None
    factor: np.ndarray | None
    shift: np.ndarray | None
    ref: Ref  # where it came from

    @property
    def width(self) -> int:
        return shape(self.X)[1]

    def table(self, name: str) -> np.ndarray:
        """Return this stripe's part of a column table (``norm1``, ``maximum``, …)."""
        return column_table(self.ref, name)


def source_of(ref: Ref) -> Blocks:
    """Return the data of a reference: the store (opened once per process) or the arrays."""
    return ref.source if isinstance(ref, MemoryRef) else open_shared(ref.url, ref.digest)


_SERIALS: weakref.WeakKeyDictionary[MemoryBlocks, int] = weakref.WeakKeyDictionary()
_NUMBERS = itertools.count(1)


def serial(data: Blocks) -> int:
    """Return a unique number for arrays in memory, which distinguishes references to different arrays. Return 0 for a store, because
    references to stores contain its digest.
    """
    return _SERIALS.setdefault(data, next(_NUMBERS)) if isinstance(data, MemoryBlocks) else 0


_STATS: weakref.WeakKeyDictionary[MemoryBlocks, dict[str, np.ndarray]] = weakref.WeakKeyDictionary()


def table_of(data: Blocks, name: str, lo: int = 0, hi: int | None = None) -> np.ndarray:
    """Return columns ``lo:hi`` of a column table. Stores contain the table; for arrays in memory, it is computed at the first request."""
    if not isinstance(data, MemoryBlocks) or name not in _MEASURES:
        return data.column_table(name, lo, hi)
    tables = _STATS.setdefault(data, {})
    if name not in tables:
        tables[name] = _measured(data, _MEASURES[name])
    return tables[name][lo:hi]


# Tables that are made alone, because most fits need no other.
_MEASURES: dict[str, Callable[[Any], np.ndarray]] = {"norm1": column_norm1, "counts": column_counts}


def _measured(data: MemoryBlocks, measure: Callable[[Any], np.ndarray]) -> np.ndarray:
    table = np.zeros(0)
    for ref in data.column_blocks():
        part = measure(load_block(ref).X)
        if ref.cols == (0, data.n_cols):
            return part
        # Filled in place: with millions of columns, the parts and their concatenation would be held at once.
        table = table if table.size else np.empty(data.n_cols, part.dtype)
        table[slice(*ref.cols)] = part
    return table


def column_table(ref: Ref, name: str) -> np.ndarray:
    """Return the part of a column table for the stripe of ``ref``."""
    return table_of(source_of(ref), name, *ref.cols)


Rows = Blocks | JoinedStores  # rows of numbers, wherever they lie

_CONSTANT: weakref.WeakKeyDictionary[Rows, np.ndarray] = weakref.WeakKeyDictionary()

TABLE_PIECE = 1 << 20  # entries of a column table read at once where all of it is looked at
ALIKE = 1e-12  # row factors this near to one another are equal but for the rounding of norms


def constant_features(data: Rows) -> np.ndarray:
    """Return the features with a constant non-zero value, int64 ascending. Cached per data set and process.

    If row factors differ, there are no such features, because a column of ones is then no longer constant: it holds the inverse norms of
    the rows.
    """
    if data not in _CONSTANT:
        row_factor = data.scale.row_factor
        if isinstance(data, JoinedStores):
            parts = [_constant_in_all(data)]
        elif row_factor is not None and len(row_factor) > 0 and np.ptp(row_factor) > ALIKE * np.max(row_factor):
            parts = []
        elif isinstance(data, MemoryBlocks):
            parts = [constant_columns(block_cache().load(ref)) + ref.cols[0] for ref in data.column_blocks()]
        else:
            parts = [_constant_in_tables(data, lo) for lo in range(0, data.n_cols, TABLE_PIECE)]
        _CONSTANT[data] = np.concatenate([np.zeros(0, np.int64), *parts])
    return _CONSTANT[data]


def _constant_in_all(data: JoinedStores) -> np.ndarray:
    features, *others = (constant_features(store) for store in data.stores)
    for store, other in zip(data.stores[1:], others, strict=True):
        both = np.intersect1d(features, other)
        values = [np.asarray(one.column_table("minimum"))[both] for one in (data.stores[0], store)]
        features = both[values[0] == values[1]]
    return features


def _constant_in_tables(data: BlockStore, lo: int) -> np.ndarray:
    low, high = (data.column_table(name, lo, min(lo + TABLE_PIECE, data.n_cols)) for name in ("minimum", "maximum"))
    return np.flatnonzero((low == high) & (low != 0)) + lo


def scale_as_given(data: Rows, features: np.ndarray | slice) -> FeatureScale:
    """Return the stored factors of some features, including constant ones, which a linear model without an intercept may need."""
    scale: ColumnScale = data.scale
    factor, shift = (None if values is None else values[features] for values in (scale.factor, scale.shift))
    return FeatureScale(factor, shift)


def scale_of(data: Rows, features: np.ndarray | slice, *, centred: bool = True) -> FeatureScale:
    """Return the factors of some features. If an intercept centres the columns, constant features get factor 0 so that they are not
    selected.

    A model must predict with the factors it was trained with. ``features``: the columns. ``centred``: whether there is an intercept;
    without an intercept, constant columns are treated like any other column.
    """
    scale = scale_as_given(data, features)
    factor, shift = scale.factor, scale.shift
    constant = constant_features(data) if centred else np.zeros(0, np.int64)
    if not len(constant):
        return scale
    if isinstance(features, slice):
        width = features.stop - features.start
        constants = constant[slice(*np.searchsorted(constant, (features.start, features.stop)))] - features.start
    else:
        width, constants = len(features), np.flatnonzero(np.isin(features, constant))
    if len(constants):
        factor = np.ones(width) if factor is None else factor.copy()
        factor[constants] = 0.0
    return FeatureScale(factor, shift)


def columns_of(ref: Ref, features: np.ndarray) -> np.ndarray | sp.csc_array:
    """Return raw columns of a stripe by feature id. If the stripe is not cached, only the bytes of these columns are read."""
    cached = block_cache().held(ref)
    return source_of(ref).columns(features) if cached is None else cached[:, features - ref.cols[0]]


def load_block(ref: Ref, *, centred: bool = True) -> Block:
    """Load one stripe with its scaling factors; see :func:`scale_of`."""
    scale = scale_of(source_of(ref), slice(*ref.cols), centred=centred)
    return Block(block_cache().load(ref), ref.cols[0], scale.factor, scale.shift, ref)


def load_blocks(task: Task, *, centred: bool = True) -> Iterator[Block]:
    return (load_block(ref, centred=centred) for ref in task)


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

_Place = tuple[str, str, int, tuple[int, int], tuple[int, int], int, int]

# Tasks over arrays in memory without the arrays: references would hold them, and never be forgotten.
_PLACES: weakref.WeakKeyDictionary[MemoryBlocks, list[list[_Place]]] = weakref.WeakKeyDictionary()


def column_tasks(data: Blocks) -> list[Task]:
    """Return the tasks of a pass over all columns."""
    if isinstance(data, MemoryBlocks):
        if data not in _PLACES:
            tasks = byte_groups(data.column_blocks())
            _PLACES[data] = [[(r.url, r.layout, r.index, r.rows, r.cols, r.nnz, r.nbytes) for r in task] for task in tasks]
        return [tuple(MemoryRef(*fields, data) for fields in task) for task in _PLACES[data]]
    if data not in _TASKS:
        # Kept: a store may have 100,000 stripes.
        stripes = list(data.column_blocks())
        total = sum(ref.nbytes for ref in stripes)
        even = min(TASK_BYTES, max(LEAST_TASK_BYTES, -(-total // TASKS)))
        _TASKS[data] = byte_groups(stripes, even) if total > LEAST_TASK_BYTES else byte_groups(stripes)
    return _TASKS[data]


def join_lists(parts: Sequence[list[Any]]) -> list[Any]:
    """Combine step that concatenates lists."""
    return [item for part in parts for item in part]


def add_parts(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Combine step that adds arrays in order."""
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


def task_bytes(task: Task) -> int:
    """Return an upper bound on the bytes of a task: its largest stripe, once as read and once as held."""
    return max(ref.nbytes for ref in task)


def tasks_holding(tasks: Sequence[Task], features: np.ndarray) -> list[Task]:
    """Return the tasks restricted to the stripes that contain one of the sorted ``features``; tasks without such a stripe are omitted."""
    chosen = (tuple(ref for ref in task if len(features_inside(ref, features))) for task in tasks)
    return [task for task in chosen if task]


def features_inside(ref: Ref, features: np.ndarray) -> np.ndarray:
    """Return those of the sorted ``features`` that lie in a stripe."""
    lo, hi = np.searchsorted(features, ref.cols)
    return features[lo:hi]


Spans = dict[tuple[int, int], np.ndarray]  # by range of rows, an array whose last axis is over these


def merge_spans(parts: Sequence[Spans], join: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Spans:
    """Return the arrays of all parts by range of rows. Arrays of the same range are combined with ``join``, in order."""
    merged: Spans = {}
    for part in parts:
        for span, values in part.items():
            merged[span] = join(merged[span], values) if span in merged else values
    return dict(sorted(merged.items()))


def add_spans(parts: Sequence[Spans]) -> Spans:
    """Combine step that adds arrays per range of rows."""
    return merge_spans(parts, np.add)
