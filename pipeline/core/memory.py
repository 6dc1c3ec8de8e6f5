"""Memory plan of the driver: named items in bytes, computed and checked against the limit before work starts.

Every method has a function that derives these items from the shapes. It is defined next to the code that allocates them.
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
    """The items that the driver holds at the same time, and the bytes of the largest task."""

    items: tuple[Item, ...]
    task: int = 0

    @classmethod
    def planned(cls, plan: Mapping[str, Any]) -> Memory:
        """Return the memory described by a plan."""
        return cls(tuple((row["what"], row["bytes"]) for row in plan["driver_holds"]), plan["task_bytes"])


def total_bytes(items: Sequence[Item]) -> int:
    return sum(int(nbytes) for _, nbytes in items)


def driver_plan(items: Sequence[Item]) -> dict[str, Any]:
    """Return the driver's part of a plan: total bytes, and bytes of every item."""
    return {"driver_bytes": total_bytes(items), "driver_holds": [{"what": what, "bytes": int(nbytes)} for what, nbytes in items]}


def refuse(method: str, items: Sequence[Item], limit: int, remedy: str) -> None:
    """Raise MemoryBoundExceeded if all items together exceed ``limit`` bytes. The message names the sum, the limit and the three largest
    items.

    ``remedy`` is an alternative to a higher limit, such as ``"fewer rows"``.
    """
    needed = total_bytes(items)
    if needed > limit:
        text = f"this process would hold {_listed(items)}, but its limit is driver_memory={bytes_text(limit)}"
        raise MemoryBoundExceeded(f"{method}: {text}: {remedy}, or raise the limit (--driver-memory)", needed, limit)


def check_memory(method: str, items: Sequence[Item], resources: Resources, remedy: str) -> None:
    """Raise MemoryBoundExceeded if the driver would exceed its limit; warn if it may need more than ``MUCH_BYTES``."""
    refuse(method, items, resources.fit_limit, remedy)
    if total_bytes(items) > MUCH_BYTES:
        resources.warn(f"{method}: this process may need up to {_listed(items)}; to reduce this, try {remedy}, or a smaller driver_memory")


def _listed(items: Sequence[Item]) -> str:
    largest = sorted(items, key=lambda item: -item[1])[:3]
    listing = ", ".join(f"{what} {bytes_text(nbytes)}" for what, nbytes in largest if nbytes > 0)
    return f"{bytes_text(total_bytes(items))} ({listing})"


# -- what processes take ---------------------------------------------------------------------------------------------------

# What a worker process takes by itself, libraries and compiled programs loaded; a run measures it, a dry run has nothing to measure.
PROCESS_BYTES = 320 << 20

CACHE_SHARE = 0.5  # share of a worker's memory that may hold blocks between rounds; the rest is for the program itself and for one task


def process_bytes(config: ClusterConfig, step: int) -> int | None:
    """Return the peak memory in bytes of a worker process, computed before it starts. ``None`` if only the cluster knows the limit."""
    memory = config.memory_per_worker
    return None if memory is None else PROCESS_BYTES + int(CACHE_SHARE * memory) + config.threads * step


def tight_worker_notes(config: ClusterConfig, step: int) -> list[str]:
    """Return notes about workers whose memory may be too small for a step of any pass. Each note names a sufficient size."""
    most, memory = process_bytes(config, step), config.memory_per_worker
    if most is None or memory is None or most <= memory:
        return []
    given = max(0, memory - most + config.threads * step) // config.threads
    enough = int((PROCESS_BYTES + config.threads * step) / (1.0 - CACHE_SHARE))
    return [
        f"a step may take {bytes_text(step)}, and a worker of {bytes_text(memory)} gives it about {bytes_text(given)}: a pass that needs "
        f"more fails when it starts; set --worker-memory {(enough >> 20) + 1}MiB, which is enough for all"
    ]


def process_plan(driver: int, step: int, data: Any, limit: int, kind: str, grams: int = 0) -> dict[str, int]:
    """Return the entry ``process_bytes`` of a plan: the peak memory of the driver's process, without loaded code and ``OVERHEAD``.

    ``driver``: bytes of the driver's items. ``step``: bytes of one step of a pass. ``data``: input data. ``limit``: bytes that the driver
    may hold. ``kind``: kind of cluster; with ``"sync"``, tasks run in this process. ``grams``: bytes of the Gram store blocks that are
    read.
    """
    if kind != "sync":
        return {"process_bytes": driver}
    # Only passes keep what they read.
    read = sum(block.nbytes for block in data.column_blocks()) if step and isinstance(data, BlockStore) else 0
    return {"process_bytes": driver + step + min(read + grams, _blocks_room(limit, driver + step))}


def refuse_step(method: str, memory: Memory, limit: int, kind: str) -> None:
    """Raise MemoryBoundExceeded if this process, including tasks that run in it, would exceed ``limit`` plus ``OVERHEAD``."""
    if kind == "sync" and memory.task > OVERHEAD:
        remedy = "workers of their own for its tasks (--cluster local:2), smaller blocks (ingest --budget)"
        step = "one step of a pass, beyond the 64 MiB that every process may take", memory.task - OVERHEAD
        refuse(method, [*memory.items, step], limit, remedy)


@contextlib.contextmanager
def few_blocks_kept(memory: Memory, limit: int, kind: str) -> Generator[None]:
    """Limit the block cache of this process to the memory that the driver leaves free. Workers have limits of their own."""
    cache = block_cache()
    before = cache.limit
    if kind == "sync":
        cache.set_limit(_blocks_room(limit, total_bytes(memory.items) + memory.task))
    try:
        yield
    finally:
        cache.set_limit(before)


def _blocks_room(limit: int, taken: int) -> int:
    """Return how many bytes of blocks the process may cache between passes."""
    return max(0, min(block_cache().limit, limit - taken))
