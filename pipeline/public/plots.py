"""Figures of runs in Python, drawn by the code that draws the reports.

::

    charts = gramplane.plots.list_charts("runs/adult")
    gramplane.plots.paint(axes, charts[0])
"""

from . import lazy_names

_HOMES = {"Chart": "pipeline.records.charts", "list_charts": "workflows.report.figures", "paint": "workflows.report.charts"}

__all__ = sorted(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
