"""Progress on stderr: a bar on a terminal, elsewhere a line per outer iteration, for people or with ``--json`` as JSON."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from ..cluster.events import ignore_event
from ..cluster.progress import LINES, LineSink, headline, progress_bar
from .console import one_line

Emit = Callable[[Mapping[str, Any]], None]


def json_line(event: Mapping[str, Any]) -> None:
    """Write the events that belong in a log as one JSON line each; work does not end because nobody reads them any more."""
    if event.get("event") in LINES:
        with suppress(OSError):
            click.echo(one_line(event), err=True)


def text_line(text: str) -> None:
    """Write a line for people."""
    click.echo(text, err=True)


@contextmanager
def show_progress(quiet: bool = False, as_json: bool = False) -> Iterator[Emit]:
    """Yield the sink of a run's events. ``quiet``: drop all of them; ``as_json``: what goes into a file or pipe are JSON lines."""
    if quiet:
        yield ignore_event
    elif sys.stderr.isatty():
        with progress_bar() as emit:
            yield emit
    else:
        yield json_line if as_json else LineSink(text_line)


__all__ = ["Emit", "headline", "ignore_event", "json_line", "show_progress"]
