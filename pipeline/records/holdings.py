"""What the driver itself holds while a method runs: listed with formula and bytes before work starts, and refused beyond the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...cluster import MemoryBoundExceeded, bytes_text


@dataclass(frozen=True)
class Holding:
    """One thing that the driver holds at the same time as the others of its list.

    Attributes
    ----------
    what
        In words, such as ``"kernel matrix and the solver's copy of it"``.
    formula
        Its bytes in the symbols of the plan, such as ``"16 n^2"``.
    nbytes
        The number.
    """

    what: str
    formula: str
    nbytes: int

    def row(self) -> dict[str, Any]:
        """Return it as plans show it."""
        return {"what": self.what, "formula": self.formula, "bytes": int(self.nbytes)}


def total_bytes(holdings: Sequence[Holding]) -> int:
    """Return the bytes of a list."""
    return sum(int(item.nbytes) for item in holdings)


def holdings_plan(holdings: Sequence[Holding]) -> dict[str, Any]:
    """Return what a plan tells of the driver: the sum, and every thing it holds."""
    return {"driver_bytes": total_bytes(holdings), "driver_holds": [item.row() for item in holdings]}


def refuse_beyond(holdings: Sequence[Holding], limit: int, method: str, remedy: str) -> None:
    """Refuse a run whose driver would hold more than it may.

    Parameters
    ----------
    holdings
        All that is held at once.
    limit
        Bytes the driver may hold.
    method
        Name, for the message.
    remedy
        What would help beside a higher limit, such as ``"fewer rows"``.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        The sum is greater than the limit; sum, limit and the largest things are named.
    """
    needed = total_bytes(holdings)
    if needed <= limit:
        return
    largest = sorted(holdings, key=lambda item: -item.nbytes)[:3]
    told = ", ".join(f"{item.what} {bytes_text(item.nbytes)} ({item.formula})" for item in largest if item.nbytes > 0)
    raise MemoryBoundExceeded(
        f"{method}: this process would hold {bytes_text(needed)} ({told}), it may hold driver_memory={bytes_text(limit)}: "
        f"{remedy}, or give it more (--driver-memory)",
        needed,
        limit,
    )
