"""Event records, their sinks, and their display.

An event is a small mapping with the key ``event``. This layer emits ``plan`` (tasks of a run), ``start``, ``finish`` (time and memory),
``phase`` (a cluster was opened or closed), ``dashboard`` (its address), ``waiting`` (there are no workers) and ``warning``.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from .errors import bytes_text, split_remedy

if TYPE_CHECKING:
    from rich.console import Console

Sink = Callable[[Mapping[str, Any]], None]


def ignore_event(event: Mapping[str, Any]) -> None:
    """Drop an event."""


class MemorySink:
    """Keeps events in a list. ``events``: received events, oldest first."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: Mapping[str, Any]) -> None:
        self.events.append(dict(event))

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events with this name."""
        return [event for event in self.events if event["event"] == name]


class LogSink:
    """Sends events to a logger: warnings as warnings, all others as debug messages."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        fields = {key: value for key, value in event.items() if key != "event"}
        level = logging.WARNING if event["event"] == "warning" else logging.DEBUG
        logging.getLogger("gramplane.cluster").log(level, "%s %s", event["event"], fields)


def tee(sinks: Iterable[Sink]) -> Sink:
    """Return a sink that passes every event to all of ``sinks``."""
    targets = tuple(sinks)

    def send(event: Mapping[str, Any]) -> None:
        for target in targets:
            target(event)

    return send


# Progress of a run: a bar on a terminal or in a notebook, elsewhere a line a round. Commands and estimators share it.

KEPT = frozenset({"iteration", "warning", "waiting", "dashboard", "grams", "fold", "calibration"})
"""Events that stay on the screen above the bar."""
LINES = KEPT | {"resume", "step", "rows"}
"""Events that get a line in a log; plans, phases and checkpoints, for example, get none."""

FIGURES = (("objective", "objective", ".6g"), ("gap", "gap", ".1e"), ("outer_gap", "outer gap", ".2e"), ("n_selected", "selected", "d"))
POSITIONS = frozenset({"event", "point", "points", "fold", "folds", "time"})  # of a fold; all else is a score
COMPILING = "compiling, once per computer"
SECONDS_PER_LINE = 10.0  # a pass that takes longer says how far it is
SECONDS_PER_ROUND = 5.0  # rounds and folds that come faster than this share a line
LEAST_LEFT = 10  # seconds; less is not worth telling
N_PACED = 5  # rounds that the time left is reckoned from


def headline(event: Mapping[str, Any]) -> str | None:
    """Return the text to show for an event, or ``None`` to keep the current one."""
    kind = event.get("event")
    if kind == "iteration":
        # What is not known yet, such as a gap before anything is certified, is NaN: there is nothing to show.
        known = [(name, event[key], form) for key, name, form in FIGURES if _is_known(event.get(key))]
        parts = [f"{name} {max(value, 0.0) if name.endswith('gap') else value:{form}}" for name, value, form in known]
        return "  ".join([f"round {event.get('iteration', '?')}", *parts])
    if kind == "grams":
        blocks = event.get("blocks_computed")
        return f"Gram matrices: {event.get('gram_reason', '')}" if blocks is None else f"Gram store: {blocks} blocks computed"
    if kind == "step":
        # What a step came to is the result of the command.
        status = event.get("status")
        return None if status in ("done", "already-done") else f"step {event['step']}" if status else str(event["step"])
    if kind == "fold":
        scores = [f"  {name} {value:.4g}" for name, value in event.items() if name not in POSITIONS and isinstance(value, float)]
        return f"point {event['point']} of {event['points']}, fold {event['fold']} of {event['folds']}{''.join(scores)}"
    form = _TEXTS.get(str(kind))
    return None if form is None else form(event)


def _is_known(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


_TEXTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "phase": lambda event: str(event.get("phase") or event.get("name") or ""),
    "calibration": lambda event: f"probabilities: {event.get('cost', '')}",
    "rows": lambda event: f"{event.get('rows', 0):,} rows, {bytes_text(event.get('bytes', 0), digits=3)}",
    "warning": lambda event: "warning: " + "\nhelp: ".join(filter(None, split_remedy(str(event.get("message", ""))))),
    **dict.fromkeys(("waiting", "dashboard"), lambda event: str(event.get("message", ""))),
    "resume": lambda event: f"resumed after round {event.get('iteration')}",
    "compile": lambda event: f"{COMPILING}: {event.get('function', '')}",
    "tasks": lambda event: f"{event.get('program', 'pass')}: task {event.get('done')} of {event.get('n_tasks')}",
}


class Pace:
    """Estimates the remaining time: the time until the gap reaches the tolerance or, if that is longer or the gap is unknown, the time
    until the largest number of rounds.
    """

    def __init__(self) -> None:
        self.at_most: int | None = None
        self._tol = 0.0
        self._rounds: list[tuple[float, float]] = []  # when the newest ones ended, seconds, and their gaps

    def take(self, event: Mapping[str, Any]) -> None:
        if event.get("event") == "begin":
            self.at_most, self._tol, self._rounds = event.get("rounds_at_most"), float(event.get("tol") or 0.0), []
        elif event.get("event") == "iteration":
            gap = event.get("relative_gap")
            self._rounds = [*self._rounds, (time.monotonic(), gap if isinstance(gap, float) else math.inf)][-N_PACED:]

    def left(self, done: int) -> str:
        """Return the remaining time as text, or an empty text if it is unknown."""
        if self.at_most is None or len(self._rounds) < 2:
            return ""  # The first round compiles and loads.
        (began, first), (ended, last) = self._rounds[0], self._rounds[-1]
        steps, rounds, word = len(self._rounds) - 1, float(self.at_most - done), "at most"
        if self._tol > 0.0 and last < math.inf:
            if not self._tol < last < first:
                return ""
            by_gap = math.log(last / self._tol) / (math.log(first / last) / steps) if first < math.inf else math.inf
            rounds, word = (by_gap, "about") if by_gap < rounds else (rounds, word)
        seconds = rounds * (ended - began) / steps
        if seconds < LEAST_LEFT:
            return ""
        minutes = math.ceil(seconds / 60)
        long = f"{minutes} min" if minutes < 100 else f"{minutes / 60:.0f} h"
        return f"{word} {math.ceil(seconds)} s left" if seconds < 60 else f"{word} {long} left"


class LineSink:
    """Writes events as log lines. A closed output does not stop the run."""

    def __init__(self, write: Callable[[str], object], name: str = "") -> None:
        self._write, self._pace, self._head = write, Pace(), f"{name}: " if name else ""
        self._is_told, self._next, self._next_round, self._waiting = False, time.monotonic() + SECONDS_PER_LINE, -math.inf, ""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Write a line for: the first compilation; the progress of a long pass; the first round and then a round every five seconds; and
        all other events in `LINES`.
        """
        kind, text = event.get("event"), headline(event)
        self._pace.take(event)
        if kind in ("begin", "step"):
            self.close()
            self._next_round = -math.inf
        if kind == "compile" and not self._is_told:
            self._is_told = True
            self._line(COMPILING)
        elif kind == "tasks" and time.monotonic() > self._next and text is not None:
            self._line(text)
        elif kind in ("iteration", "fold") and text is not None:
            self._waiting = with_time(text, event, self._pace) if kind == "iteration" else text
            if time.monotonic() >= self._next_round:
                self.close()
        elif kind in LINES and text is not None:
            self._line(text)

    def close(self) -> None:
        """Write a line for the last round if it has none yet."""
        if self._waiting:
            self._line(self._waiting)
            self._waiting, self._next_round = "", time.monotonic() + SECONDS_PER_ROUND

    def _line(self, text: str) -> None:
        self._next = time.monotonic() + SECONDS_PER_LINE
        with suppress(OSError, ValueError):
            self._write(f"{self._head}{text}")


def with_time(text: str, event: Mapping[str, Any], pace: Pace) -> str:
    """Return the text of a round, followed by the largest number of rounds and the remaining time."""
    done = event.get("iteration")
    if not isinstance(done, int) or pace.at_most is None:
        return text
    left = pace.left(done)
    return text.replace(f"round {done}", f"round {done} of at most {pace.at_most}", 1) + (f"  {left}" if left else "")


def stderr_line(text: str) -> None:
    """Write a line to the current standard error."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def has_screen() -> bool:
    """Return whether a progress bar can be drawn: standard error is a terminal, or this is a notebook."""
    if sys.stderr.isatty():
        return True
    if "ipykernel" not in sys.modules:
        return False
    from rich.console import Console

    return Console(stderr=True).is_jupyter


@contextmanager
def progress_bar(name: str = "", console: Console | None = None) -> Generator[Sink]:
    """Yield a sink that draws a progress bar, with permanent lines above it. The bar disappears at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    console, pace, head = console or Console(stderr=True), Pace(), f"{name}: " if name else ""
    fixed, rest = Column(no_wrap=True), Column(no_wrap=True, overflow="ellipsis")
    columns = (SpinnerColumn(table_column=fixed), TimeElapsedColumn(table_column=fixed), BarColumn(bar_width=10, table_column=fixed))
    with Progress(*columns, TextColumn("{task.description}", markup=False, table_column=rest), console=console, transient=True) as bar:
        task = bar.add_task(f"{head}starting", total=None)

        def emit(event: Mapping[str, Any]) -> None:
            nonlocal head
            kind, text = event.get("event"), headline(event)
            pace.take(event)
            if kind == "begin":
                bar.update(task, total=pace.at_most, completed=0)
            if kind == "step" and text is not None:
                head = f"{text}: "
                bar.update(task, total=None, completed=0, description=f"{head}starting")
            elif kind == "iteration" and text is not None:
                round_only = text.partition("  ")[0]
                bar.update(task, completed=event.get("iteration"), description=head + with_time(round_only, event, pace))
            elif text is not None:
                bar.update(task, description=head + text)
            if kind in KEPT:
                bar.refresh()  # else the line is printed above the bar as it was before
                shown = Text(text or str(event))
                shown.highlight_regex("^(warning|help):", "bold yellow")
                console.print(shown, highlight=False)

        yield emit


@contextmanager
def shown_progress(verbose: int, name: str = "") -> Generator[Sink]:
    """Yield the sink for a fit's events: a bar on a terminal or in a notebook, otherwise lines; nothing unless ``verbose``."""
    if not verbose:
        yield ignore_event
    elif has_screen():
        with progress_bar(name) as emit:
            yield emit
    else:
        with closing(LineSink(stderr_line, name)) as sink:
            yield sink
