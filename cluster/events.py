"""Event records and where they go.

An event is a small mapping with the key ``event``. This layer emits ``plan`` (what a run will do), ``start``, ``finish`` (what it took),
``phase`` (a cluster was opened or closed), ``waiting`` (there are no workers) and ``warning``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

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


class JsonLinesSink:
    """Write each event as one line of JSON and flush it; the stream stays the caller's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Write ``event``."""
        self._stream.write(json.dumps(dict(event), default=str) + "\n")
        self._stream.flush()


class LogSink:
    """Send events to a logger: warnings as warnings, the rest as debug messages."""

    def __init__(self, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger("gramplane.cluster")

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Log ``event``."""
        fields = {key: value for key, value in event.items() if key != "event"}
        level = logging.WARNING if event["event"] == "warning" else logging.DEBUG
        self._logger.log(level, "%s %s", event["event"], fields)


def tee(sinks: Iterable[Sink]) -> Sink:
    """Return a sink that passes every event to all of ``sinks``."""
    targets = tuple(sinks)

    def send(event: Mapping[str, Any]) -> None:
        for target in targets:
            target(event)

    return send
