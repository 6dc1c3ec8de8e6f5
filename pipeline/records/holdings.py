"""What the driver itself holds while a method runs: listed with formula and bytes before work starts, and refused beyond the limit.

A method declares each thing once (:class:`Held`), with words and a formula in the symbols of ``SYMBOLS``. From there come the bytes of a
plan, the words of a refusal, and a page of the site.
"""

from __future__ import annotations

import ast
import contextlib
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...cluster import ClusterConfig, MemoryBoundExceeded, bytes_text
from ...storage import BlockStore, block_cache

if TYPE_CHECKING:
    from .context import RunContext

# What a process takes beside all that is listed: stacks of threads, buffers of reading and writing, and small arrays on their way.
OVERHEAD = 64 << 20
MUCH_BYTES = 4 << 30  # a fit whose driver may hold more tells so before it starts

# Letters that mean the same in every formula; a thing explains its own.
SYMBOLS = {
    "n": "rows",
    "d": "features",
    "k": "kernels",
    "T": "machines, or tasks",
    "L": "bytes of `--driver-memory`",
    "stored": "bytes of the rows or columns meant, as the store has them",
    "entries": "values of a sparse store, or n d of a dense one",
    "model": "bytes of the arrays of a model",
}


_SIGNS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


class Formula:
    """A formula in symbols; what stands side by side is multiplied, as in ``"8 n (d + 1)"``."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _parsed(self) -> ast.expr:
        sides = re.sub(r"(?<=[\w)])\s+(?=[\w(])", " * ", self.text.replace("^", "**"))
        return ast.parse(sides, mode="eval").body

    @property
    def symbols(self) -> set[str]:
        """Names in the formula."""
        return {node.id for node in ast.walk(self._parsed) if isinstance(node, ast.Name)}

    def value(self, symbols: Mapping[str, float]) -> float:
        """Return the number that values of the symbols give."""
        return _value(self._parsed, symbols)


def _value(node: ast.expr, symbols: Mapping[str, float]) -> float:
    if isinstance(node, ast.BinOp):
        return _SIGNS[type(node.op)](_value(node.left, symbols), _value(node.right, symbols))
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    raise ValueError(f"no part of a formula: {ast.dump(node)}")


@dataclass(frozen=True)
class Held:
    """A thing that a driver may hold, as it is declared."""

    what: str  # in words, such as `"kernel matrix and the solver's copy of it"`
    # its bytes: numbers and symbols with `+ - / ^` and brackets; what stands side by side is multiplied, as in `"8 n (d + 1)"`
    formula: str
    when: str = ""  # in which case it is held, and what own symbols mean; empty: always

    def of(self, **symbols: float) -> Holding:
        """Return it with the bytes that the formula gives."""
        return self.taking(int(self._parsed.value(symbols)))

    def taking(self, nbytes: float) -> Holding:
        """Return it with bytes that were found in another way, where sizes are rounded to whole blocks."""
        return Holding(self.what, self.formula, int(nbytes))

    @property
    def symbols(self) -> set[str]:
        """Names in the formula."""
        return self._parsed.symbols

    @cached_property
    def _parsed(self) -> Formula:
        return Formula(self.formula)


@dataclass(frozen=True)
class Holding:
    """One thing that the driver holds at the same time as the others of its list; made by the :class:`Held` that declares it."""

    what: str  # in words, such as `"kernel matrix and the solver's copy of it"`
    formula: str  # its bytes in the symbols of the plan, such as `"16 n^2"`
    nbytes: int  # the number

    def row(self) -> dict[str, Any]:
        """Return it as plans show it."""
        return {"what": self.what, "formula": self.formula, "bytes": int(self.nbytes)}


def total_bytes(holdings: Sequence[Holding]) -> int:
    """Return the bytes of a list."""
    return sum(int(item.nbytes) for item in holdings)


def holdings_plan(holdings: Sequence[Holding]) -> dict[str, Any]:
    """Return what a plan tells of the driver: the sum, and every thing it holds."""
    return {"driver_bytes": total_bytes(holdings), "driver_holds": [item.row() for item in holdings]}


def check_held(holdings: Sequence[Holding], ctx: RunContext, method: str, remedy: str) -> None:
    """Refuse a run whose driver would hold more than it may, and tell of one whose driver may hold much. Raises MemoryBoundExceeded."""
    refuse_beyond(holdings, ctx.fit_limit, method, remedy)
    if total_bytes(holdings) > MUCH_BYTES:
        ctx.tell(f"{method}: this process may hold up to {_listed(holdings)}: {remedy}, or a smaller driver_memory make it less")


def refuse_beyond(holdings: Sequence[Holding], limit: int, method: str, remedy: str) -> None:
    """Refuse a run whose driver would hold more than it may.

    ``holdings`` are all that is held at once; the ``remedy`` is what helps beside a higher limit, such as ``"fewer rows"``. Raises
    MemoryBoundExceeded, which names sum, limit and the largest things.
    """
    needed = total_bytes(holdings)
    if needed <= limit:
        return
    raise MemoryBoundExceeded(
        f"{method}: this process would hold {_listed(holdings)}, it may hold driver_memory={bytes_text(limit)}: "
        f"{remedy}, or give it more (--driver-memory)",
        needed,
        limit,
    )


def _listed(holdings: Sequence[Holding]) -> str:
    largest = sorted(holdings, key=lambda item: -item.nbytes)[:3]
    listing = ", ".join(f"{item.what} {bytes_text(item.nbytes)} ({item.formula})" for item in largest if item.nbytes > 0)
    return f"{bytes_text(total_bytes(holdings))} ({listing})"


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


def blocks_room(limit: int, taken: int) -> int:
    """Return how many bytes of blocks the process may keep from one pass to the next: no more than the driver's memory leaves."""
    return max(0, min(block_cache().limit, limit - taken))


def process_plan(driver: int, step: int, data: Any, limit: int, kind: str, grams: int = 0) -> dict[str, int]:
    """Return what a plan tells of the driver's process: all that it takes at most beside programs and ``OVERHEAD``.

    ``driver``, ``step``: bytes of the driver's own, and of one step of a pass; ``data``: what is read; ``limit``: bytes the driver may
    hold; ``kind``: of the cluster; with ``"sync"`` tasks run in this process; ``grams``: bytes of the blocks of a Gram store that are read.
    """
    if kind != "sync":
        return {"process_bytes": driver}
    # Only passes keep what they read.
    read = sum(block.nbytes for block in data.column_blocks()) if step and isinstance(data, BlockStore) else 0
    return {"process_bytes": driver + step + min(read + grams, blocks_room(limit, driver + step))}


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
