"""Progress on stderr: a bar on a terminal, elsewhere a line per outer iteration, for people or with ``--json`` as JSON."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from ..cluster.events import ignore_event
from .console import one_line

Emit = Callable[[Mapping[str, Any]], None]
LINES = frozenset({"iteration", "warning", "resume", "step", "rows", "grams", "fold", "calibration"})
"""Events worth a line in a log; plans, phases and checkpoints are not."""

KEPT = frozenset({"iteration", "warning", "grams", "fold", "calibration"})  # events that stay on the screen above the bar
_FIGURES = (("objective", "objective", ".6g"), ("gap", "gap", ".1e"), ("outer_gap", "outer gap", ".2e"), ("n_selected", "selected", "d"))


_POSITIONS = frozenset({"event", "point", "points", "fold", "folds", "time"})  # of a fold; all else is a score


def json_line(event: Mapping[str, Any]) -> None:
    """Write the events that belong in a log as one JSON line each; work does not end because nobody reads them any more."""
    if event.get("event") in LINES:
        with suppress(OSError):
            click.echo(one_line(event), err=True)


def text_line(event: Mapping[str, Any]) -> None:
    """Write the events that belong in a log as one line each, for people."""
    if event.get("event") in LINES and (text := headline(event)) is not None:
        with suppress(OSError):
            click.echo(text, err=True)


def headline(event: Mapping[str, Any]) -> str | None:
    """Return what the bar shows for an event, or ``None`` to leave it as it is."""
    kind = event.get("event")
    if kind == "iteration":
        parts = [f"{name} {event[key]:{form}}" for key, name, form in _FIGURES if isinstance(event.get(key), (int, float))]
        return "  ".join([f"round {event.get('iteration', '?')}", *parts])
    if kind == "grams":
        blocks = event.get("blocks_computed")
        return f"Gram matrices: {event.get('gram_reason', '')}" if blocks is None else f"Gram store: {blocks} blocks computed"
    if kind == "step":
        return " ".join(str(event[key]) for key in ("step", "status") if event.get(key))
    if kind == "phase":
        return str(event.get("phase") or event.get("name") or "")
    if kind == "calibration":
        return f"probabilities: {event.get('cost', '')}"
    if kind == "rows":
        return f"{event.get('rows', 0):,} rows, {event.get('bytes', 0) / 2**20:,.0f} MiB"
    if kind == "fold":
        scores = [f"  {name} {value:.4g}" for name, value in event.items() if name not in _POSITIONS and isinstance(value, float)]
        return f"point {event['point']} of {event['points']}, fold {event['fold']} of {event['folds']}{''.join(scores)}"
    if kind == "warning":
        return f"warning: {event.get('message', '')}"
    return f"resumed after round {event.get('iteration')}" if kind == "resume" else None


@contextmanager
def _progress_bar() -> Iterator[Emit]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting")

        def emit(event: Mapping[str, Any]) -> None:
            text = headline(event)
            if text is not None:
                bar.update(task, description=text)
            if event.get("event") in KEPT:
                console.print(text or str(event), markup=False, highlight=False)

        yield emit


@contextmanager
def show_progress(quiet: bool = False, as_json: bool = False) -> Iterator[Emit]:
    """Yield the sink of a run's events. ``quiet``: drop all of them; ``as_json``: what goes into a file or pipe are JSON lines."""
    if quiet:
        yield ignore_event
    elif sys.stderr.isatty():
        with _progress_bar() as emit:
            yield emit
    else:
        yield json_line if as_json else text_line
