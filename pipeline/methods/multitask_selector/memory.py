"""What the driver holds of feature selection over many tasks, and which way a fit takes: all rows in memory, or the data out of core."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ....storage import BlockStore, MemoryBlocks
from ...core.memory import Item, total_bytes
from ...passes.columns import column_sizes, entry_count, has_rows, rows_to_make

Data = BlockStore | MemoryBlocks
Way = Literal["memory", "working_set", "blocks"]  # all rows here; columns of a working set and passes; rows block by block

ENTRY_BYTES = 40  # bytes the driver holds per entry while rows are read and evaluated, at most
MOMENT_SHARE = 0.25  # share of the driver's memory that the moments of all tasks may take; beyond it proximal steps read the rows
FIRST_FEATURES = 20  # features that join the empty working set
WINDOW_SHARE = 0.25  # share of the driver's memory for the rows of the next rounds, as they are stored
STEP_SHARE = 0.0625  # share of it for the rows that one step learns, in float64
FEWER_COLUMNS = "a larger lam, or algorithm='da'"  # what helps where the columns of a working set are too many


def moments_fit(d: int, n_tasks: int, driver_memory: int) -> bool:
    """Return whether the moments of all tasks are within their share of the driver's memory."""
    return 8 * n_tasks * (d + 2) ** 2 <= MOMENT_SHARE * driver_memory


def choose_way(data: Data, n_tasks: int, algorithm: str, driver_memory: int) -> Way:
    """Return how a fit goes: with all rows in memory where the driver may hold them, else out of core."""
    if total_bytes(memory_items(data, n_tasks, algorithm, driver_memory)) <= driver_memory:
        return "memory"
    return "working_set" if algorithm == "fista" else "blocks"


def driver_items(data: Data, n_tasks: int, algorithm: str, driver_memory: int, way: Way) -> tuple[Item, ...]:
    """Return what the driver holds. How many columns join a working set shows only along the way: counted are those of the first set, and
    each set that grows is checked.
    """
    if way == "memory":
        return memory_items(data, n_tasks, algorithm, driver_memory)
    if way == "working_set":
        return set_items(data, np.arange(min(data.n_cols, FIRST_FEATURES)), n_tasks, driver_memory)
    return (*_vector_items(data, n_tasks), ("orders of the rows", 48 * data.n_rows), *_block_items(data, n_tasks, driver_memory))


def _vector_items(data: Data, n_tasks: int) -> tuple[Item, ...]:
    weights = "sums, weights and copies of them", 40 * data.n_cols * n_tasks
    return weights, ("labels, tasks, decision values", 64 * data.n_rows)


def _moments_items(d: int, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    moments = "second moments of every task, and copies of them", 16 * n_tasks * (d + 2) ** 2
    return (moments,) if moments_fit(d, n_tasks, driver_memory) else ()


def memory_items(data: Data, n_tasks: int, algorithm: str, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds where all rows lie in memory: rounds of one row per task read them from all over the data."""
    entries = entry_count(data)
    items = ("rows in float64, by rows and while they are put in order", ENTRY_BYTES * entries), *_vector_items(data, n_tasks)
    if algorithm != "fista":
        return items
    return (*items, ("rows task by task, and copies of them", 28 * entries), *_moments_items(data.n_cols, n_tasks, driver_memory))


def set_items(data: Data, features: np.ndarray, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds with a working set of these features: its columns, and their moments where these are within their
    share."""
    p = len(features)
    nbytes = 20 * data.n_rows * p if data.meta.kind == "dense" else 3 * int(column_sizes(data, features).sum())
    return (
        *_vector_items(data, n_tasks),
        ("costs, slopes and orders of the rows", 128 * data.n_rows),
        ("bounds of the features' norms", 64 * data.n_cols),
        (f"{p} columns of a working set", nbytes),
        *_moments_items(p, n_tasks, driver_memory),
    )


def step_entries(data: Data, n_tasks: int, driver_memory: int) -> int:
    """Return how many entries the rows of a step have that learns rows block by block: about those of a round at least."""
    return max(int(STEP_SHARE * driver_memory) // ENTRY_BYTES, n_tasks * -(-entry_count(data) // data.n_rows))


def window_bytes(data: Data, driver_memory: int) -> int:
    """Return the bytes of rows, as stored, that are gathered at a time from blocks of rows."""
    size = data.meta.itemsize if data.meta.kind == "dense" else data.meta.itemsize + 4
    return min(entry_count(data) * size, int(WINDOW_SHARE * driver_memory))


def _block_items(data: Data, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    learned = "rows of a step in float64, and copies of them", ENTRY_BYTES * step_entries(data, n_tasks, driver_memory)
    if isinstance(data, MemoryBlocks):
        return (learned,)
    if not has_rows(data):
        return rows_to_make(data), learned
    window = "rows of the next rounds, as stored, and while they are gathered", 2 * window_bytes(data, driver_memory)
    block = max((ref.nbytes for ref in data.row_blocks()), default=0)
    return window, ("a block of rows as it is read, and what is chosen of it", 2 * block), learned
