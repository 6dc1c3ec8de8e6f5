"""Sources of the rows of rounds: all rows in memory, or the rows of the next rounds, gathered from blocks of rows.

Rounds use rows from anywhere in the data, in an order that is drawn anew for every epoch. Out of core, this order is divided into windows
that are as long as the memory allows. The rows of a window are gathered in one sweep over the blocks that contain them. Results are
bit-identical. Rows in memory are not gathered: a fit on dense rows would take 1.7 to 2.2 times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ....kernels.group_lasso.task_selection import CLOSE, TaskRows
from ....storage import BlockStore, MemoryBlocks
from ...passes.columns import by_rows, entry_count
from ...passes.scaling import scaled
from .inputs import SelectorData, task_rows
from .problem import step_entries, window_bytes

RawRows = np.ndarray | sp.csr_array
STEP_ENTRIES = 1 << 17  # entries of rows that a step reads at most; more where the weights alone have more


class MemoryRows:
    """All rows in memory."""

    def __init__(self, data: SelectorData) -> None:
        self._data = data

    def step_entries(self) -> tuple[int, int]:
        """Return the number of entries of the used rows, and of the rows of a step."""
        entries = int(np.diff(self._data.rows.indptr)[self._data.used_rows].sum())
        return max(entries, 1), max(STEP_ENTRIES, self._data.n_features * self._data.n_tasks)

    def windows(self, parts: int) -> int:
        """Return ``parts``, because nothing is gathered."""
        return parts

    def take(self, order: np.ndarray, window: tuple[int, int], ids: Callable[[], np.ndarray]) -> tuple[TaskRows, np.ndarray]:
        """Return all rows, and the given order."""
        return self._data.rows, order

    def row_number(self, order: np.ndarray, row: int) -> int:
        """Return the row number itself."""
        return row

    def decide(self, weights: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        """Return the predictions of all rows."""
        return self._data.rows.decide(weights, intercepts)


class BlockRows:
    """Rows gathered window by window. The lengths of windows and steps follow from ``driver_memory`` bytes."""

    def __init__(self, data: SelectorData, driver_memory: int) -> None:
        self._data, self._memory, self._row_factor = data, driver_memory, data.data.scale.row_factor
        self._window: tuple[int, int] | None = None
        self._ids = np.zeros(0, np.int64)
        self._rows: RawRows | None = None

    def step_entries(self) -> tuple[int, int]:
        """Return the approximate number of entries of the used rows, including zeros of dense data, and of the rows of a step."""
        data, share = self._data, len(self._data.used_rows) / max(len(self._data.codes), 1)
        return max(int(entry_count(data.data) * share), 1), step_entries(data.data, data.n_tasks, self._memory)

    def windows(self, parts: int) -> int:
        """Return the number of parts of an epoch that are gathered at a time: as many as fit in memory, and at least one."""
        data = self._data.data
        size = data.meta.itemsize if data.meta.kind == "dense" else data.meta.itemsize + 4
        return min(max(parts * window_bytes(data, self._memory) // max(entry_count(data) * size, 1), 1), parts)

    def take(self, order: np.ndarray, window: tuple[int, int], ids: Callable[[], np.ndarray]) -> tuple[TaskRows, np.ndarray]:
        """Return the rows of ``order`` and their positions: row i of the result is the i-th row of ``order``, repeated if it occurs again.
        ``CLOSE`` keeps its positions. ``window`` identifies the window that contains the rows; ``ids`` returns all rows of that window.
        """
        is_row = order != CLOSE
        local = np.full(len(order), CLOSE, np.int64)
        local[is_row] = np.arange(int(is_row.sum()))
        return self._learned(self._raw(order[is_row], window, ids), order[is_row]), local

    def row_number(self, order: np.ndarray, row: int) -> int:
        """Return the number, in the data, of row ``row`` of those that :meth:`take` returns for ``order``."""
        return int(order[order != CLOSE][row])

    def _learned(self, raw: RawRows, ids: np.ndarray | slice) -> TaskRows:
        """Return the raw rows ``raw``, whose numbers are ``ids``, scaled and in the form that compiled loops read."""
        data, row_factor = self._data, None if self._row_factor is None else self._row_factor[ids]
        X = scaled(raw, data.scale, row_factor) if isinstance(raw, np.ndarray) else _scaled_rows(raw, data.scale.factor, row_factor)
        return task_rows(X, data.codes[ids], data.target[ids], data.weight[ids])

    def _raw(self, ids: np.ndarray, window: tuple[int, int], all_ids: Callable[[], np.ndarray]) -> RawRows:
        """Return the raw rows ``ids``, in that order, from memory or from the window, which is gathered at the first access."""
        if self._whole is not None:
            return self._whole[ids]
        if self._rows is None or window != self._window:
            self._ids, self._window = np.unique(all_ids()), window
            self._rows = None  # before the next one is made
            self._rows = self._gathered(self._ids)
        return self._rows[np.searchsorted(self._ids, ids)]

    @cached_property
    def _blocks(self) -> BlockStore | MemoryBlocks:
        """Data from which blocks of rows are read; if a store has no row blocks, they are made once."""
        return by_rows(self._data.data)

    @cached_property
    def _whole(self) -> RawRows | None:
        """All rows as stored in memory; None if they are read from a store."""
        if not isinstance(self._blocks, MemoryBlocks):
            return None
        X = self._blocks.X
        return X if isinstance(X, np.ndarray) else sp.csr_array(X)

    def _gathered(self, ids: np.ndarray) -> RawRows:
        """Return the rows with ascending ids, from all blocks that contain such a row."""
        data, parts = self._data.data, []
        rows = np.empty((len(ids), data.n_cols), data.meta.dtype) if data.meta.kind == "dense" else None
        for ref in data.row_blocks():
            lo, hi = np.searchsorted(ids, ref.rows)
            if lo < hi:
                chosen = ref.load()[ids[lo:hi] - ref.rows[0]]
                if rows is None:
                    parts.append(chosen)
                else:
                    rows[lo:hi] = chosen
        return sp.csr_array(sp.vstack(parts, format="csr")) if rows is None else rows

    def decide(self, weights: np.ndarray, intercepts: np.ndarray) -> np.ndarray:
        """Return the predictions of all rows, block by block."""
        values = np.zeros(len(self._data.codes))
        entries, at_once = self.step_entries()
        height = max(1, int(at_once * len(self._data.used_rows) / entries))
        for ref in self._blocks.row_blocks():
            block, (first, last) = ref.load(), ref.rows
            for lo in range(first, last, height):
                span = slice(lo, min(lo + height, last))
                values[span] = self._learned(block[lo - first : span.stop - first], span).decide(weights, intercepts)
        return values


def _scaled_rows(raw: sp.csr_array, factor: np.ndarray | None, row_factor: np.ndarray | None) -> sp.csr_array:
    """Return sparse rows scaled by the factors of columns and rows, applied in the same order as when columns are scaled."""
    values = raw.data.astype(np.float64)
    if factor is not None:
        values *= factor[raw.indices]
    if row_factor is not None:
        values *= np.repeat(row_factor, np.diff(raw.indptr))
    return sp.csr_array((values, raw.indices, raw.indptr), shape=raw.shape)
