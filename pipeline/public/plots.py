"""Plots of fits and runs in Python, drawn by the same code as the reports.

::

    gramplane.plots.WeightsDisplay.from_estimator(model)
    gramplane.plots.GapDisplay.from_run("runs/adult", ax=axes)
    charts = gramplane.plots.list_charts("runs/adult")
    gramplane.plots.paint(axes, charts[0])

For predictions, use scikit-learn's displays (``ConfusionMatrixDisplay``, ``RocCurveDisplay``, ``PrecisionRecallDisplay``,
``PredictionErrorDisplay``); they accept gramplane's estimators.
"""

from typing import TYPE_CHECKING

from . import lazy_names

if TYPE_CHECKING:
    from gramplane.pipeline.records.charts import Chart as Chart
    from gramplane.workflows.report.charts import paint as paint
    from gramplane.workflows.report.displays import GapDisplay as GapDisplay
    from gramplane.workflows.report.displays import GroupsDisplay as GroupsDisplay
    from gramplane.workflows.report.displays import MapDisplay as MapDisplay
    from gramplane.workflows.report.displays import PathDisplay as PathDisplay
    from gramplane.workflows.report.displays import RulesDisplay as RulesDisplay
    from gramplane.workflows.report.displays import WeightsDisplay as WeightsDisplay
    from gramplane.workflows.report.figures import list_charts as list_charts

_DISPLAYS = ("GapDisplay", "GroupsDisplay", "MapDisplay", "PathDisplay", "RulesDisplay", "WeightsDisplay")
_HOMES = {
    "Chart": "pipeline.records.charts",
    "list_charts": "workflows.report.figures",
    "paint": "workflows.report.charts",
    **dict.fromkeys(_DISPLAYS, "workflows.report.displays"),
}

__all__ = sorted(_HOMES)
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _HOMES)
