"""The two-phase external sort from rows to columns.

Phase one cuts every piece of rows into a few hundred buckets of columns, stably, with one positional write per piece and bucket into one
preallocated file. Phase two counting-sorts one bucket at a time; a bucket fits the second-level cache, which is what makes the scattered
writes cheap. Pieces come in row order, so rows ascend inside a column without comparing any.

Memory: about 40 bytes per entry of a piece, 20 per entry of a bucket, 4 per column.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import StorageError, space_for
from ..layout import StripeLayout, running_sums
from .tables.columns import partition_entries, scatter_records
from .text.spool import Spool

BUCKET_NNZ = 400_000
"""Entries of a bucket: sorting slows down thirteenfold between 0.4 M (fits 1 MB of second-level cache) and 1.6 M entries."""

BUCKET_COLUMNS = 1 << 18
_CELLS = 1 << 15

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BucketPlan:
    """Column ranges small enough to sort in cache; no bucket crosses a stripe. Bucket b holds the columns ``edges[b]:edges[b + 1]``, with
    ``nnz[b]`` entries; stripe s consists of the buckets ``stripe[s]:stripe[s + 1]``."""

    edges: Longs
    nnz: Longs
    stripe: Longs

    @cached_property
    def starts(self) -> Longs:
        """First record of every bucket, and the end."""
        return np.concatenate([[0], np.cumsum(self.nnz)]).astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """Name of the plan: records in a file belong to it alone."""
        return hashlib.sha256(np.concatenate([self.edges, self.nnz]).tobytes()).hexdigest()[:16]

    @cached_property
    def lookup(self) -> tuple[Ints, int]:
        """Bucket of the first column of every cell of 2^bits columns, and the bits."""
        n_cols, bits = int(self.edges[-1]), 0
        while (n_cols >> bits) >= _CELLS:
            bits += 1
        firsts = np.minimum(np.arange((n_cols >> bits) + 2, dtype=np.int64) << bits, max(0, n_cols - 1))
        return (np.searchsorted(self.edges, firsts, side="right") - 1).astype(np.int32), bits


def plan_buckets(counts: npt.NDArray[np.uint32], stripes: StripeLayout) -> BucketPlan:
    """Divide every stripe into buckets of at most `BUCKET_NNZ` entries (or one column) and `BUCKET_COLUMNS` columns."""
    edges, totals, first = [0], [], [0]
    for lo, hi in zip(stripes.edges[:-1].tolist(), stripes.edges[1:].tolist(), strict=True):
        for end, total in _cut_stripe(counts[lo:hi]):
            edges.append(lo + end)
            totals.append(total)
        first.append(len(totals))
    return BucketPlan(np.array(edges, dtype=np.int64), np.array(totals, dtype=np.int64), np.array(first, dtype=np.int64))


def _cut_stripe(counts: npt.NDArray[np.uint32]) -> Iterator[tuple[int, int]]:
    """Ends of the buckets of one stripe, and their entries."""
    filled = running_sums(counts)
    pieces = max(1, -(-int(filled[-1]) // BUCKET_NNZ))
    share = -(-int(filled[-1]) // pieces)
    start, done = 0, 0
    while start < counts.size:
        end = int(np.searchsorted(filled, done + share, side="right"))
        end = min(max(start + 1, end), start + BUCKET_COLUMNS, counts.size)
        yield end, int(filled[end - 1]) - done
        start, done = end, int(filled[end - 1])


class Records:
    """All (column, row, value) records, bucket after bucket: an array, or a file if there is a path; ``width``: int32 words of a value."""

    def __init__(self, plan: BucketPlan, width: int, path: Path | None) -> None:
        self.plan, self.words, self.path = plan, 2 + width, path
        total = int(plan.starts[-1])
        self._held = np.empty((total if path is None else 0, self.words), dtype=np.int32)
        self._fd = -1
        if path is not None:
            nbytes = total * self.words * 4
            with space_for(path, nbytes):
                self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
                if nbytes:
                    # Claims the space now, so that a full disk is found before hours of work.
                    os.posix_fallocate(self._fd, 0, nbytes)

    def put(self, at: int, records: Ints) -> None:
        """Write records from record ``at`` on."""
        if self.path is None:
            self._held[at : at + len(records)] = records
            return
        view, offset = records.reshape(-1).view(np.uint8).data, at * self.words * 4
        with space_for(self.path, view.nbytes):
            while view.nbytes:
                done = os.pwrite(self._fd, view, offset)
                view, offset = view[done:], offset + done

    def get(self, lo: int, hi: int) -> Ints:
        """Records ``lo:hi``."""
        if self.path is None:
            return self._held[lo:hi]
        out = np.empty((hi - lo, self.words), dtype=np.int32)
        view, offset = out.reshape(-1).view(np.uint8).data, lo * self.words * 4
        while view.nbytes:
            got = os.preadv(self._fd, [view], offset)
            if got == 0:
                raise StorageError(f"{self.path} was cut short while it was in use; remove its folder and start again")
            view, offset = view[got:], offset + got
        return out

    def close(self) -> None:
        """Close the file; it goes with the scratch folder."""
        if self.path is not None:
            os.close(self._fd)


def row_pieces(spool: Spool, dtype: np.dtype, max_nnz: int) -> Iterator[tuple[Ints, Ints, npt.NDArray[Any], int]]:
    """Consecutive rows as (lengths, cols, values, first row), blocks joined up to ``max_nnz`` entries. Few large pieces make few large
    writes per bucket."""
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
    """View values as int32 words, (nnz, 1) or (nnz, 2)."""
    return values.view(np.int32).reshape(len(values), values.dtype.itemsize // 4)


def fill_buckets(spool: Spool, records: Records, dtype: np.dtype, shift: int, max_nnz: int, progress: Callable[[int], None]) -> None:
    """Phase one: move every entry of sparse blocks to its bucket. ``shift``: index of the first column in the source; ``max_nnz``: entries
    of one piece; ``progress``: called with the entries moved so far. Raises StorageError if the blocks hold other entries than counted."""
    plan = records.plan
    cells, bits = plan.lookup
    cursor, ends, done = plan.starts[:-1].copy(), np.empty(len(plan.nnz), np.int64), 0
    for lengths, cols, values, first in row_pieces(spool, dtype, max_nnz):
        local = np.empty((len(cols), records.words), dtype=np.int32)
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
    """Phase two: counting sort of one bucket by column into ``rows`` (nnz,) and ``words`` (nnz, w); column k ends at ``ends[k + 1]``.
    Raises StorageError if the records disagree with the counts."""
    plan, cursor = records.plan, ends[:-1].copy()
    lo, hi = int(plan.starts[bucket]), int(plan.starts[bucket + 1])
    base = int(plan.edges[bucket])
    # Pieces, because a single popular column can be any number of times larger than a bucket should be.
    sound = all(scatter_records(records.get(at, min(hi, at + BUCKET_NNZ)), base, cursor, rows, words) for at in range(lo, hi, BUCKET_NNZ))
    if not sound or not np.array_equal(cursor, ends[1:]):
        advice = "remove the folder and start again"
        raise StorageError(f"bucket {bucket} in the scratch folder does not hold the columns that were counted; {advice}")
