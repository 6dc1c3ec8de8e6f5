"""Rows of a data set as a stream: blocks, and rows within a block, in a seeded random order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from ....kernels.features.views import flat
from ....kernels.group_lasso.dual_averaging import Rows
from ....storage import BlockStore, ColumnScale, MemoryBlocks
from ....storage.errors import Matrix
from ...passes.columns import by_rows, has_rows, refuse_to_make

STEP_BYTES = 64 << 20  # a step takes whole blocks up to this many bytes of rows; a checkpoint follows each
UNSCALED = ColumnScale()  # rows as they are
_BLOCKS, _ROWS = 0x57EA, 0x57EB  # what tells the two kinds of orders apart that are drawn from one seed


class RowRef(Protocol):
    """Reference to a block of rows."""

    @property
    def rows(self) -> tuple[int, int]:
        """Half-open range of row numbers."""
        ...

    @property
    def nbytes(self) -> int: ...

    def load(self) -> Matrix: ...


class RowBlocks:
    """The scaled rows of a store or of arrays, block by block.

    A store with a row-wise layout is read block by block. Otherwise the rows are computed from the columns once, if they fit in ``budget``
    bytes, and divided into the same blocks, so that a fit is bit-identical.
    """

    def __init__(self, data: BlockStore | MemoryBlocks, budget: int) -> None:
        self._data, self._scale = data, data.scale
        self._source: BlockStore | MemoryBlocks | None = data
        # CSR as block stores have it.
        X: Matrix = data.X if isinstance(data, MemoryBlocks) and sp.issparse(data.X) and data.X.format == "csr" else None
        self._rows = X if X is not None and X.indices.dtype == np.int32 and X.has_canonical_format else None
        if not has_rows(data):
            refuse_to_make(data, budget)
            self._source = None

    @property
    def source(self) -> BlockStore | MemoryBlocks:
        """Data with row blocks; if a store has none, its rows are made at the first access."""
        if self._source is None:
            self._source = by_rows(self._data)
        return self._source

    def refs(self) -> Sequence[RowRef]:
        """References to the row blocks, in row order."""
        return self.source.row_blocks()

    def load(self, ref: RowRef) -> Rows:
        """Return the rows of a block in the order in which they are stored."""
        if self._rows is None:
            return scaled_rows(ref.load(), ref.rows[0], self._scale)
        # SciPy copies every part that is taken of a matrix.
        indptr = self._rows.indptr[ref.rows[0] : ref.rows[1] + 1].astype(np.int64)
        part = slice(int(indptr[0]), int(indptr[-1]))
        return _scale_entries(self._rows.data[part], self._rows.indices[part], indptr - indptr[0], ref.rows[0], self._scale)


def scaled_rows(X: Matrix, first: int, scale: ColumnScale) -> Rows:
    """Return the scaled rows ``r_i (x_ij - mu_j) s_j`` in the form that compiled loops read; ``first`` is the number of the first row."""
    if sp.issparse(X):
        return _scale_entries(X.data, np.asarray(X.indices, np.int32), X.indptr.astype(np.int64), first, scale)
    dense = np.asarray(X, np.float64)
    dense = dense if scale.shift is None else dense - scale.shift
    indptr, indices = np.arange(len(dense) + 1, dtype=np.int64) * X.shape[1], np.tile(np.arange(X.shape[1], dtype=np.int32), len(dense))
    return _scale_entries(np.array(dense, order="C").ravel(), indices, indptr, first, scale)


def _scale_entries(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, first: int, scale: ColumnScale) -> Rows:
    n = len(indptr) - 1
    # Values that need no change are not copied.
    values = data.astype(np.float64, copy=scale.factor is not None or scale.row_factor is not None)
    if scale.factor is not None:
        values *= np.asarray(scale.factor)[indices]
    if scale.row_factor is not None:
        values *= np.repeat(np.asarray(scale.row_factor)[first : first + n], np.diff(indptr))
    return Rows(indptr, flat(indices), flat(values), np.arange(n, dtype=np.int64))


def block_order(n_blocks: int, seed: int, epoch: int, shuffle: bool) -> np.ndarray:
    """Return the order of the blocks in an epoch: as stored, or a permutation drawn from seed and epoch."""
    if not shuffle:
        return np.arange(n_blocks)
    return np.random.default_rng(np.random.SeedSequence((seed, _BLOCKS, epoch))).permutation(n_blocks)


def row_order(n: int, seed: int, epoch: int, block: int, shuffle: bool) -> np.ndarray:
    """Return the order of the rows within a block: as stored, or a permutation drawn from seed, epoch and the block's number."""
    if not shuffle:
        return np.arange(n, dtype=np.int64)
    return np.random.default_rng(np.random.SeedSequence((seed, _ROWS, epoch, block))).permutation(n).astype(np.int64)


def ordered_rows(blocks: RowBlocks, ref: RowRef, number: int, epoch: int, seed: int, shuffle: bool) -> Rows:
    """Return the rows of a block in the order in which an epoch processes them."""
    rows = blocks.load(ref)
    return Rows(rows.indptr, rows.indices, rows.values, row_order(ref.rows[1] - ref.rows[0], seed, epoch, number, shuffle))


def step_end(refs: Sequence[RowRef], order: np.ndarray, start: int, nbytes: int | None = None) -> int:
    """Return the index in ``order`` after the last block of the step that begins at ``start``. A step takes at least one block, and further
    blocks while their rows together take at most ``nbytes`` bytes.
    """
    sizes = np.cumsum([refs[int(k)].nbytes for k in order[start:]])
    return start + max(1, int(np.searchsorted(sizes, STEP_BYTES if nbytes is None else nbytes, side="right")))


def step_blocks(refs: Sequence[RowRef], seed: int, epochs: int, shuffle: bool) -> Iterator[list[RowRef]]:
    """Yield the blocks of every step of a fit."""
    for epoch in range(epochs):
        order, start = block_order(len(refs), seed, epoch, shuffle), 0
        while start < len(order):
            end = step_end(refs, order, start)
            yield [refs[int(k)] for k in order[start:end]]
            start = end


def advance(state: Any, n_rows: int, end: int | None, epochs: int) -> Any:
    """Return the state after a step of ``n_rows`` rows. ``end`` is the position that the step reached in the epoch's order of blocks;
    ``None`` ends the epoch.
    """
    epoch = state.epoch + (end is None)
    stop = "epochs" if epoch == epochs else None
    return replace(state, iteration=state.iteration + 1, stop=stop, epoch=epoch, block=end or 0, rows=state.rows + n_rows)
