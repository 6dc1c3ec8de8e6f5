"""The list of walks: each reproduces one reported defect from the outside and fails where it came back."""

from __future__ import annotations

import importlib
import pkgutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path


class Skipped(Exception):
    """This machine can not show the fault; the message says why."""


@dataclass(frozen=True)
class Walk:
    """One defect, walked again.

    Attributes
    ----------
    number
        The defect's number in its report.
    title
        What must hold, in one sentence.
    quick
        Whether it belongs to the part that every run of the gate walks (seconds, not minutes).
    steps
        Called with an empty folder; raises where the defect shows.
    """

    number: int
    title: str
    quick: bool
    steps: Callable[[Path], None]


@dataclass(frozen=True)
class Outcome:
    """How a walk ended: ``ok``, ``skipped`` or ``FAILED``, with its seconds and the reason."""

    walk: Walk
    verdict: str
    seconds: float
    reason: str = ""

    def __str__(self) -> str:
        told = f": {self.reason}" if self.reason else ""
        return f"{self.verdict:<8}{self.walk.number:>3}  {self.walk.title} ({self.seconds:.1f} s){told}"


_WALKS: list[Walk] = []


def walk(number: int, title: str, quick: bool = True) -> Callable[[Callable[[Path], None]], Callable[[Path], None]]:
    """Put a function of an empty folder on the list."""

    def enter(steps: Callable[[Path], None]) -> Callable[[Path], None]:
        _WALKS.append(Walk(number, title, quick, steps))
        return steps

    return enter


def every_walk() -> list[Walk]:
    """Load all modules ``defect_*`` beside this one; return their walks by number."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("defect_"):
            importlib.import_module(f"{package}.{module.name}")
    return sorted(_WALKS, key=lambda item: (item.number, item.title))


def outcomes(walks: list[Walk]) -> Iterator[Outcome]:
    """Walk one after another, each in a folder of its own, and tell how it ended."""
    for item in walks:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gramplane-walk-") as folder:
            verdict, reason = _outcome(item, Path(folder))
        yield Outcome(item, verdict, time.monotonic() - began, reason)


def _outcome(item: Walk, folder: Path) -> tuple[str, str]:
    try:
        item.steps(folder)
    except Skipped as reason:
        return "skipped", str(reason)
    except Exception as error:  # a walk may find anything; the others are walked all the same
        return "FAILED", f"{type(error).__name__}: {error}"
    return "ok", ""
