"""What a fit computes, in seconds of a processor: estimated before work starts, shown in plans, and told where it is much.

A method declares each thing once (:class:`Cost`), with words and a formula in the symbols of plans, as it declares what its driver holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .holdings import Formula

MUCH_SECONDS = 60.0  # a fit that takes more tells so before it starts


@dataclass(frozen=True)
class Cost:
    """A thing that a fit computes, as it is declared."""

    what: str  # in words, such as `"weighted sums of kernels"`
    formula: str  # operations, in symbols, such as `"k n^2 T steps"`
    rate: float  # of these in a second of one processor
    remedy: str  # parameters that lower them, such as `"fewer kernels"`

    def of(self, **symbols: float) -> Work:
        """Return it with the seconds that the formula gives."""
        return Work(self, Formula(self.formula).value(symbols) / self.rate)


@dataclass(frozen=True)
class Work:
    """One thing that a fit will compute."""

    cost: Cost
    seconds: float

    def row(self) -> dict[str, Any]:
        """Return it as plans show it."""
        return {"what": self.cost.what, "formula": self.cost.formula, "seconds": round(self.seconds, 1)}


def work_plan(work: Sequence[Work]) -> dict[str, Any]:
    """Return what a plan tells of the seconds that a fit takes: their sum, and every part."""
    return {"estimated_seconds": round(sum(item.seconds for item in work), 1), "takes": [item.row() for item in work]}


def tell_work(work: Sequence[Work], method: str, tell: Callable[[str], None]) -> None:
    """Tell of a fit that takes much: how long, what of, and what shortens it."""
    total = sum(item.seconds for item in work)
    if total <= MUCH_SECONDS:
        return
    most = max(work, key=lambda item: item.seconds)
    tell(f"{method}: this fit takes about {duration_text(total)} of a processor, most of it for {most.cost.what}: {most.cost.remedy}")


def duration_text(seconds: float) -> str:
    """Return seconds as people say them."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
