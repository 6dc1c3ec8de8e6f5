"""Figures of runs in Python, drawn by the code that draws the reports.

::

    charts = gramplane.plots.list_charts("runs/adult")
    gramplane.plots.paint(axes, charts[0])
"""

from importlib import import_module
from typing import Any

_HOMES = {"Chart": "pipeline.records.charts", "list_charts": "workflows.report.figures", "paint": "workflows.report.charts"}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"gramplane.{_HOMES[name]}"), name)
