"""Event records and where they go.

An event is a small mapping with the key ``event``. This layer emits ``plan`` (what a run will do), ``start``, ``finish`` (what it took),
``phase`` (a cluster was opened or closed), ``waiting`` (there are no workers) and ``warning``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Sink = Callable[[Mapping[str, Any]], None]


def ignore_event(event: Mapping[str, Any]) -> None:
    """Drop an event."""


class MemorySink:
    """Keep events in a list. ``events``: what was received, oldest first."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Keep a copy of ``event``."""
        self.events.append(dict(event))

    def named(self, name: str) -> list[dict[str, Any]]:
        """Return the events called ``name``."""
        return [event for event in self.events if event["event"] == name]


class LogSink:
    """Send events to a logger: warnings as warnings, the rest as debug messages."""

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Log ``event``."""
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
