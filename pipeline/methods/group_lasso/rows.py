"""Rows of a data set as a stream: blocks in a seeded order, and rows inside a block in a seeded order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.features.views import flat
from ....kernels.group_lasso.dual_averaging import Rows, sound
from ....storage import ColumnScale, MemoryBlocks
from ....storage.layout import STRIPE_BYTES
from ...records.holdings import Held, Holding, refuse_beyond

STEP_BYTES = 64 << 20
"""A step takes whole blocks up to this many bytes of rows; a checkpoint follows each."""

UNSCALED = ColumnScale()
"""Rows as they are."""

NO_ROWS = "ingest the store with --layout both"
"""What helps where rows would have to be made of columns."""

_BLOCKS, _ROWS = 0x57EA, 0x57EB


MADE = Held("rows made of the store's columns, which it has alone", "stored", "dense")
MADE_SPARSE = Held("rows made of the store's columns, which it has alone", "2 stored", "sparse")
LEARNED = Held("a block of rows as it is learned", "40 entries", "of the block; where rows were made")
READ = Held("a block of rows as it is read and learned", "4 stored", "`--layout both`")

HELD = (MADE, MADE_SPARSE, LEARNED, READ)
"""What may be held of rows as they pass."""


class RowBlocks:
    """The rows of a store or of arrays, block by block, scaled.

    A store with a row-wise layout is read block by block. Without one its rows are made from the columns once, if they fit the budget;
    they are cut into the same blocks, so the bits of a fit are the same.

    Parameters
    ----------
    data
        Block store or its in-memory twin.
    budget
        Bytes the rows may take in memory, where they have to be made.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        No row-wise layout, and too large to make one.
    """

    def __init__(self, data: Any, budget: int) -> None:
        self.data, self._scale = data, data.scale
        self._held: Any = None
        self._rows: Any = None
        if isinstance(data, MemoryBlocks):
            self._held = data
            self._rows = data.X if _is_rows(data.X) else None
        elif "rows" not in data.meta.layouts:
            refuse_beyond([made_rows(data)], budget, "group-lasso", NO_ROWS)
        else:
            self._held = data

    @property
    def source(self) -> Any:
        """What has the row blocks; rows of a store without them are made when first asked for."""
        if self._held is None:
            every = self.data.columns(np.arange(self.data.n_cols))
            self._held = MemoryBlocks(sp.csr_array(every) if sp.issparse(every) else every)
        return self._held

    def refs(self) -> Sequence[Any]:
        """References to the row blocks, in row order."""
        return self.source.row_blocks()

    def load(self, ref: Any) -> Rows:
        """Return a block as rows in the order they are stored."""
        if self._rows is None:
            return scaled_rows(ref.load(), ref.rows[0], self._scale)
        # SciPy copies every part that is taken of a matrix.
        indptr = self._rows.indptr[ref.rows[0] : ref.rows[1] + 1].astype(np.int64)
        part = slice(int(indptr[0]), int(indptr[-1]))
        return _scaled(self._rows.data[part], self._rows.indices[part], indptr - indptr[0], ref.rows[0], self._scale)


def _is_rows(X: Any) -> bool:
    """Return whether a matrix is CSR as block stores have it."""
    return sp.issparse(X) and X.format == "csr" and X.indices.dtype == np.int32 and bool(X.has_canonical_format)


def made_rows(data: Any) -> Holding:
    """Return what it takes to make rows of a store that has columns only."""
    if data.meta.kind == "dense":
        return MADE.of(stored=data.n_rows * data.n_cols * data.meta.itemsize)
    return MADE_SPARSE.of(stored=_entries(data) * (data.meta.itemsize + 4))


def _entries(data: Any) -> int:
    return data.n_rows * data.n_cols if data.meta.kind == "dense" else int(np.asarray(data.column_table("counts"), np.int64).sum())


def rows_held(data: Any) -> tuple[Holding, ...]:
    """Return what the driver holds of rows as they pass: those that had to be made, and a block as it is read and as it is learned."""
    if isinstance(data, MemoryBlocks):
        return ()
    if "rows" not in data.meta.layouts:
        # Rows that are made are cut into blocks of as many bytes as those of a store, and of one row at least.
        block = max(min(_entries(data), STRIPE_BYTES // data.meta.itemsize), data.n_cols)
        return made_rows(data), LEARNED.of(entries=block)
    return (READ.of(stored=max((ref.nbytes for ref in data.row_blocks()), default=0)),)


def scaled_rows(X: Any, first: int, scale: Any) -> Rows:
    """Return rows as compiled loops read them, ``r_i (x_ij - mu_j) s_j``; ``first`` is the number of the first one."""
    if sp.issparse(X):
        return _scaled(X.data, np.asarray(X.indices, np.int32), X.indptr.astype(np.int64), first, scale)
    dense = np.asarray(X, np.float64)
    dense = dense if scale.shift is None else dense - scale.shift
    indptr, indices = np.arange(len(dense) + 1, dtype=np.int64) * X.shape[1], np.tile(np.arange(X.shape[1], dtype=np.int32), len(dense))
    return _scaled(np.array(dense, order="C").ravel(), indices, indptr, first, scale)


def _scaled(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, first: int, scale: ColumnScale) -> Rows:
    n = len(indptr) - 1
    # Values that need no change are looked at where they lie.
    values = data.astype(np.float64, copy=scale.factor is not None or scale.row_factor is not None)
    if scale.factor is not None:
        values *= np.asarray(scale.factor)[indices]
    if scale.row_factor is not None:
        values *= np.repeat(np.asarray(scale.row_factor)[first : first + n], np.diff(indptr))
    return Rows(indptr, flat(indices), flat(values), np.arange(n, dtype=np.int64))


def plain_rows(X: Any, n_features: int) -> Rows | None:
    """Return CSR rows as compiled loops read them where nothing has to be converted but floats, and nothing refused; else ``None``."""
    if not (sp.issparse(X) and X.format == "csr" and X.dtype.kind == "f" and X.shape[1] == n_features and X.shape[0] > 0):
        return None
    if X.indices.dtype != np.int32 or X.dtype.itemsize > 8:
        return None
    rows = scaled_rows(X, 0, UNSCALED)
    return rows if sound(rows, n_features) else None


def block_order(n_blocks: int, seed: int, epoch: int, shuffle: bool) -> np.ndarray:
    """Return the order of the blocks in an epoch: as stored, or a permutation drawn from seed and epoch."""
    if not shuffle:
        return np.arange(n_blocks)
    return np.random.default_rng(np.random.SeedSequence((seed, _BLOCKS, epoch))).permutation(n_blocks)


def row_order(n: int, seed: int, epoch: int, block: int, shuffle: bool) -> np.ndarray:
    """Return the order of the rows inside a block: as stored, or a permutation drawn from seed, epoch and the block's number."""
    if not shuffle:
        return np.arange(n, dtype=np.int64)
    return np.random.default_rng(np.random.SeedSequence((seed, _ROWS, epoch, block))).permutation(n).astype(np.int64)


def step_end(refs: Sequence[Any], order: np.ndarray, start: int, nbytes: int | None = None) -> int:
    """Return the place in ``order`` behind the last block of the step that begins at ``start``; a step has ``nbytes`` of rows at most."""
    sizes = np.cumsum([refs[int(k)].nbytes for k in order[start:]])
    return start + max(1, int(np.searchsorted(sizes, STEP_BYTES if nbytes is None else nbytes, side="right")))


def moved(state: Any, rows: int, end: int | None, epochs: int) -> Any:
    """Return a state after a step that took some rows, up to the block at ``end`` of the epoch's order; ``None`` ends the epoch."""
    epoch = state.epoch + (end is None)
    stop = "epochs" if epoch == epochs else None
    return replace(state, iteration=state.iteration + 1, stop=stop, epoch=epoch, block=end or 0, rows=state.rows + rows)
