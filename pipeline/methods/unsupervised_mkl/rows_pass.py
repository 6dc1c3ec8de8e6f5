"""References to points of a data set for the tasks of passes: the numbers of the points, their block pairs in a Gram store, and access to
all rows of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp

from ....kernels.weights.umkl_strips import RowBlock
from ....storage import BlockStore, MemoryBlocks, open_shared
from ...grams.sources import READ, TILE, PairRef, rows_of
from ...grams.weighted_sum import BlockTotal
from ...passes.columns import entry_count
from ...records.scale import FeatureScale

STRIP_BYTES = 48 << 20  # rows of the kernel and costs of the points of a task
BASE_BYTES = 8 << 20  # rows of their bases
ENTRY_BYTES = 12  # of an entry of the kernel and its cost
COLUMNS = 1024  # rows of the data that the points of a task meet at a time
HELD_BYTES = 64 << 20  # rows of the data that a task holds; of more it reads each block whenever it needs it


@dataclass(frozen=True)
class Points:
    """Reference to consecutive points of a data set, which tasks open by its URL and digest."""

    url: str
    digest: str
    rows: tuple[int, int]
    size: tuple[int, int]  # rows and columns of the data
    entries: int  # values of the data
    source: MemoryBlocks | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Upper bound of the bytes of the rows that are read: values in float64, and for sparse rows the indices."""
        return 12 * self.entries

    @property
    def ids(self) -> np.ndarray:
        return np.arange(*self.rows)

    @property
    def data(self) -> BlockStore | MemoryBlocks:
        return self.source or open_shared(self.url, self.digest)


@dataclass(frozen=True)
class Strip(Points):
    """Consecutive points with the block pairs that contain their rows of the kernel matrices, ordered by column."""

    pairs: tuple[PairRef, ...] = field(default=(), repr=False)

    def gram(self, total: BlockTotal) -> np.ndarray:
        """Return the points' rows of a weighted sum of kernels, ``(c, n)``."""
        out, ids, first = np.empty((len(self.ids), self.size[0]), np.float32), self.ids, self.rows[0]
        for pair in self.pairs:
            if pair.rows[0] <= first < pair.rows[1]:
                out[:, slice(*pair.cols)] = total.part(pair, ids, np.arange(*pair.cols))
            else:
                out[:, slice(*pair.rows)] = total.part(pair, np.arange(*pair.rows), ids).T
        return out


class PassRows:
    """The rows of a data set as a task reads them, float64: kept in memory if they are small, else read block by block every time."""

    def __init__(self, points: Points, scale: Callable[..., FeatureScale]) -> None:
        self._data, self._scale, self._n = points.data, scale, points.size[0]
        self._held = list(self._read()) if points.nbytes <= HELD_BYTES else None

    def blocks(self) -> Iterator[tuple[int, RowBlock]]:
        """Yield consecutive blocks of at most COLUMNS rows, each with the number of its first row."""
        for first, rows in self._parts():
            for lo in range(0, rows.shape[0], COLUMNS):
                yield first + lo, rows[lo : lo + COLUMNS]

    def take(self, ids: np.ndarray) -> RowBlock:
        """Return the rows with the numbers ``ids``, in the order of ``ids``."""
        order = np.argsort(ids, kind="stable")
        ends, parts = np.searchsorted(ids[order], np.arange(0, self._n + READ, READ)), []
        for number, (lo, block) in enumerate(self._parts()):
            chosen = ids[order[ends[number] : ends[number + 1]]] - lo
            if len(chosen):
                parts.append(block[chosen])
        back = np.argsort(order, kind="stable")
        return (sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts))[back]

    def _parts(self) -> Iterator[tuple[int, RowBlock]]:
        return iter(self._held) if self._held is not None else self._read()

    def _read(self) -> Iterator[tuple[int, RowBlock]]:
        for lo in range(0, self._n, READ):
            yield lo, rows_of(self._data, lo, min(lo + READ, self._n), self._scale).astype(np.float64)


def points_of(data: BlockStore | MemoryBlocks, n_bases: int, block: int) -> list[Points]:
    """Return all points in ranges that end at block boundaries of Gram matrices. The ranges depend on sizes alone, and are short enough
    that a task also holds the rows of the points' bases.
    """
    n, d = data.n_rows, data.n_cols
    count = max(1, min(block, STRIP_BYTES // (ENTRY_BYTES * n), BASE_BYTES // (8 * d * (n_bases + 1))))
    # Kernels are computed in squares of TILE rows, of which none should be half empty.
    count = count if count < TILE else count // TILE * TILE
    digest, source = (data.digest, None) if isinstance(data, BlockStore) else ("", data)
    blocks = [(lo, min(lo + block, n)) for lo in range(0, n, block)]
    spans = [(lo, min(lo + count, end)) for first, end in blocks for lo in range(first, end, count)]
    return [Points(data.url, digest, span, (n, d), entry_count(data), source) for span in spans]


def strips_of(points: Sequence[Points], pairs: Sequence[PairRef]) -> list[Strip]:
    """Return the ranges of points, each with the block pairs of the upper triangle that contain its rows of the kernel matrices."""
    first = {pair.rows[0]: None for pair in pairs}
    starts = np.array(sorted(first))
    at = {(pair.rows[0], pair.cols[0]): pair for pair in pairs}
    columns = {int(own): tuple(at[min(own, other), max(own, other)] for other in starts.tolist()) for own in starts.tolist()}
    blocks = [int(starts[np.searchsorted(starts, one.rows[0], side="right") - 1]) for one in points]
    fields = [(one.url, one.digest, one.rows, one.size, one.entries, one.source) for one in points]
    return [Strip(*values, columns[block]) for values, block in zip(fields, blocks, strict=True)]


def rows_of_sets(rows: PassRows, sets: Sequence[np.ndarray]) -> list[RowBlock]:
    """Return the rows of each set of points."""
    ends = np.cumsum([len(ids) for ids in sets])
    all_rows = rows.take(np.concatenate(sets))
    return [all_rows[end - len(ids) : end] for ids, end in zip(sets, ends, strict=True)]
