"""What the driver holds of feature selection over many tasks, and which way a fit takes: all rows in memory, or the data out of core."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from ....storage import BlockStore, MemoryBlocks
from ...core.memory import Item, total_bytes
from ...passes.columns import column_sizes, entry_count
from ...passes.rows import MADE, MADE_SPARSE, has_rows, rows_to_make
from ...records.holdings import Held

Data = BlockStore | MemoryBlocks
Way = Literal["memory", "working_set", "blocks"]  # all rows here; columns of a working set and passes; rows block by block

ENTRY_BYTES = 40  # bytes the driver holds per entry while rows are read and evaluated, at most
MOMENT_SHARE = 0.25  # share of the driver's memory that the moments of all tasks may take; beyond it proximal steps read the rows
FIRST_FEATURES = 20  # features that join the empty working set
WINDOW_SHARE = 0.25  # share of the driver's memory for the rows of the next rounds, as they are stored
STEP_SHARE = 0.0625  # share of it for the rows that one step learns, in float64
FEWER_COLUMNS = "a larger lam, or algorithm='da'"  # what helps where the columns of a working set are too many

IN_MEMORY = "where it is within L"
OUT_OF_CORE = "where all rows are not within L"
ROWS = Held("rows in float64, by rows and while they are put in order", f"{ENTRY_BYTES} entries", IN_MEMORY)
WEIGHTS = Held("sums, weights and copies of them", "40 d T")
VECTORS = Held("labels, tasks, decision values", "64 n")
ORDERED = Held("rows task by task, and copies of them", "28 entries", f"`algorithm: fista`, {IN_MEMORY}")
MOMENTS_WHEN = f"`algorithm: fista`, where half of that is within {MOMENT_SHARE:g} L; out of core d counts the features of the working set"
MOMENTS = Held("second moments of every task, and copies of them", "16 T (d + 2)^2", MOMENTS_WHEN)
DUALS = Held("costs, slopes and orders of the rows", "128 n", f"`algorithm: fista`, {OUT_OF_CORE}")
BOUNDS = Held("bounds of the features' norms", "64 d", f"`algorithm: fista`, {OUT_OF_CORE}")
COLUMNS = Held("columns of a working set", "3 stored", f"`algorithm: fista`, {OUT_OF_CORE}; in float64, as fetched and as held")
ORDERS = Held("orders of the rows", "48 n", f"`algorithm: da`, {OUT_OF_CORE}")
WINDOW = Held("rows of the next rounds, as stored, and while they are gathered", "2 stored", f"`algorithm: da`, {OUT_OF_CORE}")
BLOCK = Held("a block of rows as it is read, and what is chosen of it", "2 stored", f"`algorithm: da`, {OUT_OF_CORE}")
LEARNED = Held("rows of a step in float64, and copies of them", f"{ENTRY_BYTES} entries", f"`algorithm: da`, {OUT_OF_CORE}; of these rows")
# What the driver holds.
HELD = (ROWS, WEIGHTS, VECTORS, ORDERED, MOMENTS, DUALS, BOUNDS, COLUMNS, ORDERS, WINDOW, BLOCK, LEARNED, MADE, MADE_SPARSE)


def moments_fit(d: int, n_tasks: int, driver_memory: int) -> bool:
    """Return whether the moments of all tasks are within their share of the driver's memory."""
    return 8 * n_tasks * (d + 2) ** 2 <= MOMENT_SHARE * driver_memory


def choose_way(data: Data, n_tasks: int, algorithm: str, driver_memory: int) -> Way:
    """Return how a fit goes: with all rows in memory where the driver may hold them, else out of core."""
    if total_bytes(memory_holdings(data, n_tasks, algorithm, driver_memory)) <= driver_memory:
        return "memory"
    return "working_set" if algorithm == "fista" else "blocks"


def driver_holdings(data: Data, n_tasks: int, algorithm: str, driver_memory: int, way: Way) -> tuple[Item, ...]:
    """Return what the driver holds. How many columns join a working set shows only along the way: counted are those of the first set, and
    each set that grows is checked.
    """
    if way == "memory":
        return memory_holdings(data, n_tasks, algorithm, driver_memory)
    if way == "working_set":
        return set_holdings(data, np.arange(min(data.n_cols, FIRST_FEATURES)), n_tasks, driver_memory)
    shared = WEIGHTS.of(d=data.n_cols, T=n_tasks), VECTORS.of(n=data.n_rows)
    return (*shared, ORDERS.of(n=data.n_rows), *_block_holdings(data, n_tasks, driver_memory))


def memory_holdings(data: Data, n_tasks: int, algorithm: str, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds where all rows lie in memory: rounds of one row per task read them from all over the data."""
    d, entries = data.n_cols, entry_count(data)
    holdings = ROWS.of(entries=entries), WEIGHTS.of(d=d, T=n_tasks), VECTORS.of(n=data.n_rows)
    if algorithm != "fista":
        return holdings
    moments = (MOMENTS.of(d=d, T=n_tasks),) if moments_fit(d, n_tasks, driver_memory) else ()
    return (*holdings, ORDERED.of(entries=entries), *moments)


def set_holdings(data: Data, features: np.ndarray, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds with a working set of these features: its columns, and their moments where these are within their
    share."""
    is_dense, p = data.meta.kind == "dense", len(features)
    nbytes = 20 * data.n_rows * p if is_dense else 3 * int(column_sizes(data, features).sum())
    columns = replace(COLUMNS, what=f"{p} {COLUMNS.what}").taking(nbytes)
    moments = (MOMENTS.of(d=p, T=n_tasks),) if moments_fit(p, n_tasks, driver_memory) else ()
    weights, vectors = WEIGHTS.of(d=data.n_cols, T=n_tasks), VECTORS.of(n=data.n_rows)
    return weights, vectors, DUALS.of(n=data.n_rows), BOUNDS.of(d=data.n_cols), columns, *moments


def step_entries(data: Data, n_tasks: int, driver_memory: int) -> int:
    """Return how many entries the rows of a step have that learns rows block by block: about those of a round at least."""
    return max(int(STEP_SHARE * driver_memory) // ENTRY_BYTES, n_tasks * -(-entry_count(data) // data.n_rows))


def window_bytes(data: Data, driver_memory: int) -> int:
    """Return the bytes of rows, as stored, that are gathered at a time from blocks of rows."""
    size = data.meta.itemsize if data.meta.kind == "dense" else data.meta.itemsize + 4
    return min(entry_count(data) * size, int(WINDOW_SHARE * driver_memory))


def _block_holdings(data: Data, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    learned = step_entries(data, n_tasks, driver_memory)
    if isinstance(data, MemoryBlocks):
        return (LEARNED.of(entries=learned),)
    if not has_rows(data):
        return rows_to_make(data), LEARNED.of(entries=learned)
    block = max((ref.nbytes for ref in data.row_blocks()), default=0)
    return WINDOW.taking(2 * window_bytes(data, driver_memory)), BLOCK.of(stored=block), LEARNED.of(entries=learned)
