"""The two-phase external sort from rows to columns.

Phase one distributes the entries of every piece of rows over a few hundred buckets of columns, keeping their order, with one positional
write per piece and bucket into one preallocated file. Phase two counting-sorts one bucket at a time; a bucket fits in the second-level
cache, which makes the scattered writes cheap. Pieces come in row order, so rows ascend within a column without comparisons.

Memory: about 40 bytes per entry of a piece, 20 per entry of a bucket, 4 per column.
"""

import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocks.tables import DenseSums, SparsePart, sparse_tables
from ..blocks.writer import BlockWriter
from ..errors import DataError, StorageError, space_for
from ..layout import StripeLayout, running_sums
from ..meta import COLUMN_SCALES, BlockMeta, ColumnScale, column_factors
from .files import FileArray
from .tables.columns import partition_entries, scatter_records
from .text.spool import Spool

BUCKET_NNZ = 400_000
"""Largest number of entries of a bucket. Sorting slows down thirteenfold between 0.4 M entries (which fit in 1 MB of second-level cache)
and 1.6 M.
"""

BUCKET_COLUMNS = 1 << 18
_CELLS = 1 << 15
_PIECE = 1 << 16

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BucketPlan:
    """Column ranges small enough to sort in the cache; no bucket crosses a stripe.

    Bucket b holds the columns ``edges[b]:edges[b + 1]``, with ``nnz[b]`` entries; stripe s consists of the buckets ``stripe[s]:stripe[s +
    1]``.
    """

    edges: Longs
    nnz: Longs
    stripe: Longs

    @cached_property
    def starts(self) -> Longs:
        """Position of the first record of each bucket, followed by the end."""
        return np.concatenate([[0], np.cumsum(self.nnz)]).astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """Digest of the plan; it ties the records in a file to this plan."""
        return hashlib.sha256(np.concatenate([self.edges, self.nnz]).tobytes()).hexdigest()[:16]

    @cached_property
    def lookup(self) -> tuple[Ints, int]:
        """Return a table with a bucket for each cell of 2^bits columns (the bucket of the first column of the cell), and ``bits``."""
        n_cols, bits = int(self.edges[-1]), 0
        while (n_cols >> bits) >= _CELLS:
            bits += 1
        firsts = np.minimum(np.arange((n_cols >> bits) + 2, dtype=np.int64) << bits, max(0, n_cols - 1))
        return (np.searchsorted(self.edges, firsts, side="right") - 1).astype(np.int32), bits


def plan_buckets(counts: npt.NDArray[np.uint32], stripes: StripeLayout) -> BucketPlan:
    """Divide each stripe into buckets of at most `BUCKET_NNZ` entries (or one column) and `BUCKET_COLUMNS` columns."""
    edges, totals, first = [0], [], [0]
    for lo, hi in zip(stripes.edges[:-1].tolist(), stripes.edges[1:].tolist(), strict=True):
        for end, total in _cut_stripe(counts[lo:hi]):
            edges.append(lo + end)
            totals.append(total)
        first.append(len(totals))
    return BucketPlan(np.array(edges, dtype=np.int64), np.array(totals, dtype=np.int64), np.array(first, dtype=np.int64))


def _cut_stripe(counts: npt.NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """Yield the end and the number of entries of each bucket of one stripe."""
    filled = running_sums(counts)
    pieces = max(1, -(-int(filled[-1]) // BUCKET_NNZ))
    share = -(-int(filled[-1]) // pieces)
    start, done = 0, 0
    while start < counts.size:
        end = int(np.searchsorted(filled, done + share, side="right"))
        end = min(max(start + 1, end), start + BUCKET_COLUMNS, counts.size)
        yield end, int(filled[end - 1]) - done
        start, done = end, int(filled[end - 1])


class Column:
    """A table with one entry (or ``width`` entries) per column or row, read and written in pieces.

    It is in memory, or in a file if a path is given. An existing file of the right size is kept, so that a resumed ingest finds its earlier
    results.
    """

    def __init__(self, length: int, dtype: npt.DTypeLike, path: Path | None, width: int | None = None) -> None:
        self.dtype, self.path = np.dtype(dtype), path
        self.shape: tuple[int, ...] = (length,) if width is None else (length, width)
        self._held: Any = np.zeros(self.shape if path is None else 0, dtype=self.dtype)
        if path is None:
            return
        self._held = FileArray(path, 0, self.dtype, self.shape)
        with space_for(path, self._held.nbytes):
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            weakref.finalize(self, os.close, self._fd).atexit = False
            os.ftruncate(self._fd, self._held.nbytes)
            if self._held.nbytes:
                # Claims the space now, so that a full disk is found before hours of work.
                os.posix_fallocate(self._fd, 0, self._held.nbytes)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def put(self, lo: int, values: npt.NDArray[Any]) -> None:
        """Write entries (or rows) from ``lo`` on."""
        if self.path is None:
            self._held[lo : lo + len(values)] = values
            return
        view = np.ascontiguousarray(values, self.dtype).reshape(-1).view(np.uint8).data
        offset = lo * prod(self.shape[1:]) * self.dtype.itemsize
        with space_for(self.path, view.nbytes):
            while view.nbytes:
                done = os.pwrite(self._fd, view, offset)
                view, offset = view[done:], offset + done

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Return entries (or rows) ``lo:hi``."""
        return self._held[lo:hi]

    def pieces(self) -> Iterable[npt.NDArray[Any]]:
        """Yield all entries, some at a time."""
        return (self.read(lo, min(len(self), lo + _PIECE)) for lo in range(0, len(self), _PIECE))

    def sum(self, lo: int = 0, hi: int | None = None) -> float:
        """Return the sum of entries, bit-identical to NumPy's pairwise sum, which adds halves whose lengths are multiples of eight."""
        hi = len(self) if hi is None else hi
        half = (hi - lo) // 16 * 8
        return float(self.read(lo, hi).sum()) if hi - lo <= _PIECE else self.sum(lo, lo + half) + self.sum(lo + half, hi)


class Records(Column):
    """All (column, row, value) records, bucket after bucket; ``width`` is the number of int32 words per value."""

    def __init__(self, plan: BucketPlan, width: int, path: Path | None) -> None:
        super().__init__(int(plan.starts[-1]), np.int32, path, 2 + width)
        self.plan = plan


def row_pieces(spool: Spool, dtype: np.dtype, max_nnz: int) -> Iterator[tuple[Ints, Ints, npt.NDArray[Any], int]]:
    """Yield consecutive rows as (lengths, cols, values, first row), joining blocks up to ``max_nnz`` entries.

    Few large pieces give few large writes per bucket.
    """
    waiting: list[Any] = []
    first, nnz = 0, 0
    for handle in spool.handles:
        size = handle.shape("cols")[0]
        if waiting and nnz + size > max_nnz:
            yield (*_join_blocks(waiting, dtype), first)
            first += sum(h.shape("lengths")[0] for h in waiting)
            waiting, nnz = [], 0
        waiting.append(handle)
        nnz += size
    if waiting:
        yield (*_join_blocks(waiting, dtype), first)


def _join_blocks(handles: list[Any], dtype: np.dtype) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    parts = [[handle.get(name) for handle in handles] for name in ("lengths", "cols")]
    values = np.concatenate([handle.get("vals") for handle in handles]).astype(dtype, copy=False)
    return np.concatenate(parts[0]), np.concatenate(parts[1]), values


def as_words(values: npt.NDArray[Any]) -> Ints:
    """Return a view of values as int32 words, (nnz, 1) or (nnz, 2)."""
    return values.view(np.int32).reshape(len(values), values.dtype.itemsize // 4)


def fill_buckets(spool: Spool, records: Records, dtype: np.dtype, shift: int, max_nnz: int, progress: Callable[[int], None]) -> None:
    """Phase one: move every entry of sparse blocks to its bucket.

    ``shift`` is the index of the first column in the source, ``max_nnz`` the entries of one piece; ``progress`` is called with the number
    of entries moved so far. Raises StorageError if the entries of the blocks differ from those that were counted.
    """
    plan = records.plan
    cells, bits = plan.lookup
    cursor, ends, done = plan.starts[:-1].copy(), np.empty(len(plan.nnz), np.int64), 0
    for lengths, cols, values, first in row_pieces(spool, dtype, max_nnz):
        local = np.empty((len(cols), records.shape[1]), dtype=np.int32)
        partition_entries(lengths, cols, as_words(values), first, shift, cells, bits, plan.edges, ends, local)
        begin = 0
        for bucket, end in enumerate(ends.tolist()):
            if end > begin:
                records.put(int(cursor[bucket]), local[begin:end])
                cursor[bucket] += end - begin
            begin = end
        done += len(cols)
        progress(done)
    if not np.array_equal(cursor, plan.starts[1:]):
        raise StorageError("the blocks in the scratch folder do not hold the entries that were counted; remove the folder and start again")


def sort_bucket(records: Records, bucket: int, ends: Longs, rows: Ints, words: Ints) -> None:
    """Phase two: counting-sort one bucket by column into ``rows`` (nnz,) and ``words`` (nnz, w); column k ends at ``ends[k + 1]``.

    Raises StorageError if the records disagree with the counts.
    """
    plan, cursor = records.plan, ends[:-1].copy()
    lo, hi = int(plan.starts[bucket]), int(plan.starts[bucket + 1])
    base = int(plan.edges[bucket])
    # Pieces, because a single popular column can be any number of times larger than a bucket should be.
    sound = all(scatter_records(records.read(at, min(hi, at + BUCKET_NNZ)), base, cursor, rows, words) for at in range(lo, hi, BUCKET_NNZ))
    if not sound or not np.array_equal(cursor, ends[1:]):
        advice = "remove the folder and start again"
        raise StorageError(f"bucket {bucket} in the scratch folder does not hold the columns that were counted; {advice}")


# Column tables and scale factors, collected bucket by bucket outside memory.

_IN_MEMORY = 1 << 24


class ColumnSummary:
    """Column tables and column factors of the scaling ``scale``, collected for some columns at a time.

    * ``folder``: where long tables are stored and, if ``resumable``, short tables too.
    * ``missing``: the number of missing values of each dense column.
    * ``weight``: the number of times that each row counts in factors.

    A store without a scaling stores column tables with the factors of the scalings that a fit may apply (`BlockStore.with_scale`), if these
    do not follow from other tables. Factors are NaN where a column's squares overflow.
    """

    def __init__(
        self, meta: BlockMeta, scale: str, folder: Path, *, resumable: bool, missing: bool = False, weight: Column | None = None
    ) -> None:
        self.scale, self.meta = scale, meta
        self._weight, is_plain = _uneven(weight) if weight is not None and meta.n_rows else (None, True)
        shown = () if scale != "none" or missing or not meta.n_rows else ("standard",) if is_plain else COLUMN_SCALES
        self._kinds = (scale,) if scale in COLUMN_SCALES else shown
        self._moments = "standard" in self._kinds
        kinds: dict[str, Any] = {"norm1": np.float32, "sumsq": np.float64, "minimum": meta.dtype, "maximum": meta.dtype}
        if meta.kind == "dense":
            kinds["counts"] = np.uint32
        if missing:
            kinds["missing"] = np.uint32
        kinds |= dict.fromkeys(self._kinds, np.float64)
        if self._moments and meta.kind == "dense":
            kinds["centre"] = np.float64
        on_disk = resumable or meta.n_cols * 48 > _IN_MEMORY
        self._columns = {name: Column(meta.n_cols, kind, folder / f"table-{name}.bin" if on_disk else None) for name, kind in kinds.items()}
        self._total, self._row_weight = float(meta.n_rows), None
        if self._weight is not None and self._kinds:
            # Sparse columns look the weights of their rows up; dense ones go through them.
            self._total = _sum_used(self._weight) if meta.kind == "dense" else self._total
            self._row_weight = self._weight.read(0, meta.n_rows) if meta.kind == "sparse" else None

    def put_sparse(self, lo: int, parts: Callable[[], Iterable[SparsePart]]) -> None:
        """Summarise the sparse columns from ``lo`` on, with entries as in `sparse_tables`."""
        n, weight = self.meta.n_rows, self._row_weight
        with np.errstate(over="ignore", invalid="ignore"):
            tables = sparse_tables(parts, n, moments=self._moments and self._weight is None)
            self._put(lo, tables, tables if weight is None else sparse_tables(parts, n, weight, moments=self._moments))

    def put_dense(self, lo: int, hi: int, blocks: Iterable[npt.NDArray[Any]]) -> None:
        """Summarise the dense columns ``lo:hi``, whose rows come in blocks, in order."""
        sums, counted, weight = DenseSums(hi - lo), DenseSums(hi - lo), self._weight if self._kinds else None
        row, missing = 0, np.zeros(hi - lo, np.uint32)
        with np.errstate(over="ignore", invalid="ignore"):
            for block in blocks:
                sums.add(block)
                if weight is not None:
                    counted.add(block, weight.read(row, row + len(block)))
                if "missing" in self._columns:
                    missing += np.isnan(block).sum(axis=0, dtype=np.uint32)
                row += len(block)
            dtype, moments = np.dtype(self.meta.dtype), self._moments
            tables = sums.tables(dtype, row, moments=moments and weight is None) | {"missing": missing}
            self._put(lo, tables, tables if weight is None else counted.tables(dtype, self._total, moments=moments))

    def _put(self, lo: int, tables: dict[str, npt.NDArray[Any]], seen: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write tables; column factors are added, which are computed from the tables ``seen`` under the row weights."""
        for kind in self._kinds:
            factor, shift, beyond = column_factors(kind, seen, is_dense=self.meta.kind == "dense")
            if beyond.size and kind == self.scale:
                at, why = lo + int(beyond[0]), f"so scale={self.scale!r} cannot be used"
                raise DataError(f"column {at}: the sum of its squares overflows, {why}")
            factor[beyond] = np.nan
            tables |= {kind: factor} if shift is None else {kind: factor, "centre": shift}
        for name, column in self._columns.items():
            column.put(lo, tables[name])

    def write(self, writer: BlockWriter) -> None:
        for name, column in self._columns.items():
            if name == "missing":
                writer.write_missing(column.read(0, len(column)))
            elif self.scale == "none" or name not in (self.scale, "centre"):
                writer.write_table(name, column, of="columns")

    def scaling(self, row_factor: Column | None) -> ColumnScale:
        """Return the column scaling with the given row factors, as it is stored."""
        factor, shift = (self._columns.get(name) for name in (self.scale, "centre"))
        return ColumnScale(self.scale, factor, shift, row_factor)  # pyright: ignore[reportArgumentType]


def _uneven(weight: Column) -> tuple[Column | None, bool]:
    """Return two values: the row weights, or None if all are equal; and whether the weights are all equal or all positive."""
    ends = [(part.min(), part.max()) for part in weight.pieces()]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return (None, True) if low == high else (weight, bool(low > 0))


def _sum_used(weight: Column) -> float:
    """Return the sum of the non-zero weights, bit-identical to NumPy's sum over all weights at once."""
    count = sum(int(np.count_nonzero(part)) for part in weight.pieces())
    used, at = Column(count, np.float64, weight.path and weight.path.with_suffix(".used")), 0
    for part in weight.pieces():
        used.put(at, part[part != 0])
        at += int(np.count_nonzero(part))
    return used.sum()
