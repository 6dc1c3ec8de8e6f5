"""What the driver's process takes beside the driver's own where it runs the tasks, too: a step of a pass, and the blocks that it keeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...storage import BlockStore, block_cache
from ..records.holdings import OVERHEAD, Held, Holding, refuse_beyond, total_bytes

STEP = Held("one step of a pass, beyond the 64 MiB that every process may take", "s - 64 MiB")


def blocks_room(limit: int, taken: int) -> int:
    """Return how many bytes of blocks the process may keep from one pass to the next: no more than the driver's memory leaves."""
    return max(0, min(block_cache().limit, limit - taken))


def process_plan(driver: int, step: int, data: Any, limit: int, kind: str) -> dict[str, int]:
    """Return what a plan tells of the driver's process: all that it takes at most beside programs and ``OVERHEAD``.

    ``driver``, ``step``: bytes of the driver's own, and of one step of a pass; ``data``: what is read; ``limit``: bytes the driver may
    hold; ``kind``: of the cluster; with ``"sync"`` tasks run in this process.
    """
    if kind != "sync":
        return {"process_bytes": driver}
    # Only passes keep what they read.
    read = sum(block.nbytes for block in data.column_blocks()) if step and isinstance(data, BlockStore) else 0
    return {"process_bytes": driver + step + min(read, blocks_room(limit, driver + step))}


def refuse_step(holdings: Sequence[Holding], step: int, limit: int, kind: str, method: str) -> None:
    """Refuse a run that would take more than ``limit`` and ``OVERHEAD`` in this process, with the tasks that run in it.

    Raises MemoryBoundExceeded: need and limit are named.
    """
    if kind == "sync" and step > OVERHEAD:
        remedy = "workers of their own for its tasks (--cluster local:2), smaller blocks (ingest --budget)"
        refuse_beyond([*holdings, STEP.taking(step - OVERHEAD)], limit, method, remedy)


def planned_holdings(plan: Mapping[str, Any]) -> list[Holding]:
    """Return what a plan says that the driver holds."""
    return [Holding(row["what"], row["formula"], row["bytes"]) for row in plan["driver_holds"]]


@contextlib.contextmanager
def few_blocks_kept(holdings: Sequence[Holding], step: int, limit: int, kind: str) -> Iterator[None]:
    """Keep no more blocks in this process than the driver's memory leaves; workers have limits of their own."""
    cache = block_cache()
    before = cache.limit
    if kind == "sync":
        cache.set_limit(blocks_room(limit, total_bytes(holdings) + step))
    try:
        yield
    finally:
        cache.set_limit(before)
