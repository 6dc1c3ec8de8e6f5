"""What a method hands to the runner: its loop and what to do with the last state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .protocol import Loop


@dataclass(frozen=True)
class Prepared:
    """A method ready to run on given data.

    Attributes
    ----------
    loop
        Init and step.
    model
        ``model(state, ctx)`` makes the record to save.
    summary
        ``summary(state, model)`` gives a small JSON object.
    tables
        ``tables(state, model)`` gives the report's tables: name to list of rows.
    plan
        What one outer step does: tasks, bytes, memory.
    beside
        Stores that it reads beside the data of the run.
    """

    loop: Loop[Any]
    model: Callable[[Any, Any], Any]
    summary: Callable[[Any, Any], dict[str, Any]]
    tables: Callable[[Any, Any], dict[str, list[dict[str, Any]]]]
    plan: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[Any, ...] = ()
