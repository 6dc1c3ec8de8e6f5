"""Rows of a data set as a whole: read block by block where they are stored by rows, else made of the columns once."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...storage import MemoryBlocks
from ..core.memory import Item, refuse
from .blocks import Blocks
from .columns import entry_count

NEEDS_ROWS = "ingest the store with --layout both"  # what helps where rows would have to be made of columns


def has_rows(data: Blocks) -> bool:
    """Return whether blocks of rows can be read: of arrays in memory always, of a store with the row-wise layout."""
    return isinstance(data, MemoryBlocks) or "rows" in data.meta.layouts


def rows_to_make(data: Blocks) -> Item:
    """Return what it takes to make rows of a store that has columns only."""
    made = "rows made of the store's columns, which it has alone"
    if data.meta.kind == "dense":
        return made, data.n_rows * data.n_cols * data.meta.itemsize
    return made, 2 * entry_count(data) * (data.meta.itemsize + 4)


def refuse_to_make(data: Blocks, budget: int) -> None:
    """Refuse rows that have to be made and take more than a budget of bytes. Raises MemoryBoundExceeded."""
    if not has_rows(data):
        refuse("group-lasso", [rows_to_make(data)], budget, NEEDS_ROWS)


def by_rows(data: Blocks) -> Blocks:
    """Return what blocks of rows are read from: the data, or rows that are made of all columns now."""
    if has_rows(data):
        return data
    columns = data.columns(np.arange(data.n_cols))
    return MemoryBlocks(sp.csr_array(columns) if sp.issparse(columns) else columns)
