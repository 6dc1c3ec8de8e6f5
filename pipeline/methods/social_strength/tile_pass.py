"""Blocks of the views of many users in the form that tasks read: computed from features, or from sparse similarities side by side.

Sparse similarities are stored in the columns of a data set: column ``t n + u`` belongs to user u in view t. A task reads the users of a
tile once and processes the tile block by block. The division of the views depends on the data alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_block
from ....storage import BlockStore, MemoryBlocks, open_shared
from ...grams.given import GivenKernel
from ...grams.sources import FREED_BYTES, TILE, block_rows, rows_of
from ...passes.columns import entry_count
from ...records.data_set import DataSet

TALL_BLOCKS = 6  # blocks of a tile's users
READ_BYTES = 32 << 20  # others that are read at a time
BLOCK_COPIES = 10  # of the entries of a block in float32: as computed, normalised, in float64 with their factors, and in products


def is_similarity(data: object) -> bool:
    """Return whether a data set can contain sparse similarities side by side: it is sparse, and its number of columns is a multiple of its
    rows.
    """
    if not isinstance(data, BlockStore | MemoryBlocks) or data.meta.kind != "sparse":
        return False
    return bool(data.n_cols and data.n_cols % data.n_rows == 0)


def similarity_kernels(data: DataSet, normalize: str) -> list[GivenKernel]:
    """Return the views of sparse similarities."""
    return [GivenKernel(q, f"view {q}", normalize) for q in range(data.n_cols // data.n_rows)]


def is_given_kernel(specs: Sequence[Any]) -> bool:
    """Return whether views are defined by their entries alone: sparse similarities, or given matrices."""
    return isinstance(specs[0], GivenKernel)


class ViewBlock(NamedTuple):
    """Raw similarities between two ranges of users, float32 ``(k, rows, columns)``."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    raw: np.ndarray


@dataclass(frozen=True)
class ViewTile:
    """The part of the views that a task reads once and processes block by block: the entries between two ranges of users.

    ``kind``: the blocks on and above the diagonal, all blocks, or only those on the diagonal.
    """

    # url, digest: the block store, or `"memory"` and empty
    url: str
    digest: str
    specs: tuple[Any, ...] = field(repr=False)
    rows: tuple[int, int]
    cols: tuple[int, int]
    layout: TileLayout
    kind: Literal["upper", "all", "diagonal"] = "upper"
    source: Any = field(default=None, repr=False, compare=False)  # data in memory; such a reference stays in its process

    @property
    def nbytes(self) -> int:
        return sum(4 * len(self.specs) * (rows[1] - rows[0]) * (cols[1] - cols[0]) for rows, cols in self.spans())

    def spans(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        """Return the ranges of the blocks, in the order in which they are processed."""
        edge, (lo, hi) = self.layout.edge, self.rows
        left = [(a, min(a + edge, hi)) for a in range(lo, hi, edge)]
        return [(rows, cols) for chunk in self._chunks() for rows in left for cols in self._columns_of(rows, chunk)]

    def _chunks(self) -> list[tuple[int, int]]:
        lo, hi = self.cols
        return [(a, min(a + self.layout.wide, hi)) for a in range(lo, hi, self.layout.wide)]

    def _columns_of(self, rows: tuple[int, int], chunk: tuple[int, int]) -> list[tuple[int, int]]:
        edge = self.layout.edge
        right = [(a, min(a + edge, chunk[1])) for a in range(chunk[0], chunk[1], edge)]
        if self.kind == "all":
            return right
        return [cols for cols in right if (cols[0] >= rows[0] if self.kind == "upper" else cols == rows)]

    def blocks(self) -> Iterator[ViewBlock]:
        """Yield the blocks, for all rows in ascending order of columns."""
        data = self.source if self.source is not None else open_shared(self.url, self.digest)
        return self._sparse_blocks(data) if is_given_kernel(self.specs) else self._row_blocks(data)

    def _row_blocks(self, data: Any) -> Iterator[ViewBlock]:
        left = rows_of(data, *self.rows)
        for chunk in self._chunks():
            right = left if chunk == self.rows else rows_of(data, *chunk)
            for rows, cols in self._spans_in(chunk):
                X = left[rows[0] - self.rows[0] : rows[1] - self.rows[0]]
                Z = None if rows == cols else right[cols[0] - chunk[0] : cols[1] - chunk[0]]
                yield ViewBlock(rows, cols, gram_block(self.specs, X, Z, dtype=np.float32))

    def _sparse_blocks(self, data: BlockStore | MemoryBlocks) -> Iterator[ViewBlock]:
        """Yield blocks of sparse similarities. They are read from the columns of the users, because views are symmetric. In diagonal
        blocks, the upper triangle is copied to the lower one.
        """
        k, count = len(self.specs), self.rows[1] - self.rows[0]
        columns: Any = sp.csr_array(data.columns(similar_columns(self.specs, data.n_rows, np.arange(*self.rows))))
        for rows, cols in (span for chunk in self._chunks() for span in self._spans_in(chunk)):
            part = columns[cols[0] : cols[1]].toarray().reshape(cols[1] - cols[0], k, count)
            block = part[:, :, rows[0] - self.rows[0] : rows[1] - self.rows[0]].astype(np.float32).transpose(1, 2, 0)
            if rows == cols:
                block = np.triu(block) + np.triu(block, 1).transpose(0, 2, 1)
            yield ViewBlock(rows, cols, np.ascontiguousarray(block))

    def _spans_in(self, chunk: tuple[int, int]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        return [(rows, cols) for rows, cols in self.spans() if chunk[0] <= cols[0] < chunk[1]]


class TileLayout(NamedTuple):
    """Division of the views into blocks and tiles, from the data alone."""

    edge: int  # users of a block
    tall: int  # users of a tile
    wide: int  # others that are read at a time
    row_bytes: int  # of a user's row as it is read and in float64: of sparse rows twice those of a mean one

    @classmethod
    def of(cls, data: Any, k: int) -> TileLayout:
        """Return the layout of k views. Blocks take a few megabytes; a tile has several blocks, because reading its rows takes as long as
        computing a block.
        """
        n = data.n_rows
        edge = max(TILE, min(block_rows(n, 2 * k), -(-n // (8 * TILE)) * TILE))
        blocks = -(-n // edge)
        row_bytes = _row_bytes(data)
        tall = edge * max(1, min(TALL_BLOCKS, blocks // 8, READ_BYTES // (edge * row_bytes)))
        if is_similarity(data):
            return cls(edge, tall, n, row_bytes)
        wide = int(READ_BYTES // max(1, row_bytes)) // tall * tall
        return cls(edge, tall, max(tall, min(wide, -(-blocks // 4) * edge // tall * tall)), row_bytes)


def _row_bytes(data: Any) -> int:
    if not data.n_cols:
        return 256
    return int(48 * entry_count(data) / data.n_rows) + 8 if data.meta.kind == "sparse" else (data.meta.itemsize + 8) * data.n_cols


def similar_columns(specs: Sequence[GivenKernel], n: int, users: np.ndarray) -> np.ndarray:
    """Return the columns of the given users, out of n, in views of sparse similarities, view by view."""
    return (np.array([spec.position for spec in specs])[:, None] * n + users).ravel()


def view_tiles(data: DataSet, specs: Sequence[Any], kind: Literal["upper", "all", "diagonal"] = "upper") -> list[ViewTile]:
    """Return the tasks of a pass over the views. ``kind``: tiles of the upper triangle (``"upper"``), or ranges of users with themselves
    (``"diagonal"``) or with all users (``"all"``).
    """
    layout, n = TileLayout.of(data, len(specs)), data.n_rows
    rows = [(lo, min(lo + layout.tall, n)) for lo in range(0, n, layout.tall)]
    if kind == "upper":
        wide = [(lo, min(lo + layout.wide, n)) for lo in range(0, n, layout.wide)]
        spans = [(left, (max(left[0], lo), hi)) for left in rows for lo, hi in wide if hi > left[0]]
    else:
        spans = [(left, left if kind == "diagonal" else (0, n)) for left in rows]
    digest, source = (data.digest, None) if isinstance(data, BlockStore) else ("", data)
    return [ViewTile(data.url, digest, tuple(specs), *span, layout, kind, source) for span in spans]


def tile_bytes(tile: ViewTile) -> int:
    """Return the memory of a task in bytes: its rows, the entries of a block as computed and in float64, and the results."""
    layout, k = tile.layout, len(tile.specs)
    rows, edge = tile.rows[1] - tile.rows[0], min(layout.edge, tile.rows[1] - tile.rows[0])
    if isinstance(tile.specs[0], GivenKernel):
        return layout.row_bytes * rows + 4 * k * edge * (2 * rows + BLOCK_COPIES * edge) + FREED_BYTES
    read = rows + min(layout.wide, tile.cols[1] - tile.cols[0])
    return layout.row_bytes * read + 4 * k * edge * edge * BLOCK_COPIES + FREED_BYTES
