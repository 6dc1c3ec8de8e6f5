"""What the process that starts a fit holds: names and bytes, known before work starts, and refused beyond the limit.

Every method has a function from shapes to items, next to the code that allocates them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...cluster import ClusterConfig, MemoryBoundExceeded, bytes_text
from ...storage import BlockStore, block_cache

if TYPE_CHECKING:
    from .resources import Resources

Item = tuple[str, int]  # what is held, in words, and its bytes

# What a process takes beside all that is listed: stacks of threads, buffers of reading and writing, and small arrays on their way.
OVERHEAD = 64 << 20
MUCH_BYTES = 4 << 30  # a fit whose driver may hold more tells so before it starts


@dataclass(frozen=True)
class Memory:
    """What the driver holds at once, and the largest task."""

    items: tuple[Item, ...]
    task: int = 0

    @classmethod
    def planned(cls, plan: Mapping[str, Any]) -> Memory:
        """Return what a plan says."""
        return cls(tuple((row["what"], row["bytes"]) for row in plan["driver_holds"]), plan["task_bytes"])


def total_bytes(items: Sequence[Item]) -> int:
    """Return the bytes of all items."""
    return sum(int(nbytes) for _, nbytes in items)


def driver_plan(items: Sequence[Item]) -> dict[str, Any]:
    """Return what a plan shows of the driver: the sum, and every item."""
    return {"driver_bytes": total_bytes(items), "driver_holds": [{"what": what, "bytes": int(nbytes)} for what, nbytes in items]}


def refuse(method: str, items: Sequence[Item], limit: int, remedy: str) -> None:
    """Raise MemoryBoundExceeded, naming the sum, the limit and the three largest items, where all items are more than the limit.

    The ``remedy`` is what helps beside a higher limit, such as ``"fewer rows"``.
    """
    needed = total_bytes(items)
    if needed > limit:
        text = f"this process would hold {_listed(items)}, it may hold driver_memory={bytes_text(limit)}"
        raise MemoryBoundExceeded(f"{method}: {text}: {remedy}, or give it more (--driver-memory)", needed, limit)


def check_memory(method: str, items: Sequence[Item], resources: Resources, remedy: str) -> None:
    """Refuse a fit whose driver would hold more than it may, and warn of one whose driver may hold much."""
    refuse(method, items, resources.fit_limit, remedy)
    if total_bytes(items) > MUCH_BYTES:
        resources.warn(f"{method}: this process may hold up to {_listed(items)}: {remedy}, or a smaller driver_memory make it less")


def _listed(items: Sequence[Item]) -> str:
    largest = sorted(items, key=lambda item: -item[1])[:3]
    listing = ", ".join(f"{what} {bytes_text(nbytes)}" for what, nbytes in largest if nbytes > 0)
    return f"{bytes_text(total_bytes(items))} ({listing})"


# -- what processes take ---------------------------------------------------------------------------------------------------

# What a worker process takes by itself, libraries and compiled programs loaded; a run measures it, a dry run has nothing to measure.
PROCESS_BYTES = 320 << 20

CACHE_SHARE = 0.5  # share of a worker's memory that may hold blocks between rounds; the rest is for the program itself and for one task


def process_bytes(config: ClusterConfig, step: int) -> int | None:
    """Return the bytes a worker process will take at most, before there is one; ``None`` where only the cluster knows its limit."""
    memory = config.memory_per_worker
    return None if memory is None else PROCESS_BYTES + int(CACHE_SHARE * memory) + config.threads * step


def tight_worker_notes(config: ClusterConfig, step: int) -> list[str]:
    """Return what to say of workers whose memory may be too little for a step: how much is enough, for every pass there may be."""
    most, memory = process_bytes(config, step), config.memory_per_worker
    if most is None or memory is None or most <= memory:
        return []
    given = max(0, memory - most + config.threads * step) // config.threads
    enough = int((PROCESS_BYTES + config.threads * step) / (1.0 - CACHE_SHARE))
    return [
        f"a step may take {bytes_text(step)}, and a worker of {bytes_text(memory)} gives it about {bytes_text(given)}: a pass that needs "
        f"more is refused when it begins; --worker-memory {(enough >> 20) + 1}MiB is enough for all"
    ]


def process_plan(driver: int, step: int, data: Any, limit: int, kind: str, grams: int = 0) -> dict[str, int]:
    """Return what a plan tells of the driver's process: all that it takes at most beside programs and ``OVERHEAD``.

    ``driver``, ``step``: bytes of the driver's own, and of one step of a pass; ``data``: what is read; ``limit``: bytes the driver may
    hold; ``kind``: of the cluster; with ``"sync"`` tasks run in this process; ``grams``: bytes of the blocks of a Gram store that are read.
    """
    if kind != "sync":
        return {"process_bytes": driver}
    # Only passes keep what they read.
    read = sum(block.nbytes for block in data.column_blocks()) if step and isinstance(data, BlockStore) else 0
    return {"process_bytes": driver + step + min(read + grams, _blocks_room(limit, driver + step))}


def refuse_step(method: str, memory: Memory, limit: int, kind: str) -> None:
    """Refuse a run that would take more than ``limit`` and ``OVERHEAD`` in this process, with the tasks that run in it."""
    if kind == "sync" and memory.task > OVERHEAD:
        remedy = "workers of their own for its tasks (--cluster local:2), smaller blocks (ingest --budget)"
        step = "one step of a pass, beyond the 64 MiB that every process may take", memory.task - OVERHEAD
        refuse(method, [*memory.items, step], limit, remedy)


@contextlib.contextmanager
def few_blocks_kept(memory: Memory, limit: int, kind: str) -> Generator[None]:
    """Keep no more blocks in this process than the driver's memory leaves; workers have limits of their own."""
    cache = block_cache()
    before = cache.limit
    if kind == "sync":
        cache.set_limit(_blocks_room(limit, total_bytes(memory.items) + memory.task))
    try:
        yield
    finally:
        cache.set_limit(before)


def _blocks_room(limit: int, taken: int) -> int:
    """Return how many bytes of blocks the process may keep from one pass to the next: no more than the driver's memory leaves."""
    return max(0, min(block_cache().limit, limit - taken))
