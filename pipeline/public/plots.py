"""Figures of fits and runs in Python, drawn by the code that draws the reports.

::

    gramplane.plots.WeightsDisplay.from_estimator(model)
    gramplane.plots.GapDisplay.from_run("runs/adult", ax=axes)
    charts = gramplane.plots.list_charts("runs/adult")
    gramplane.plots.paint(axes, charts[0])

Predictions have displays in scikit-learn (``ConfusionMatrixDisplay``, ``RocCurveDisplay``, ``PrecisionRecallDisplay``,
``PredictionErrorDisplay``), which take the estimators here as any others.
"""

from . import lazy_names

_DISPLAYS = ("GapDisplay", "GroupsDisplay", "MapDisplay", "PathDisplay", "RulesDisplay", "WeightsDisplay")
_HOMES = {
    "Chart": "pipeline.records.charts",
    "list_charts": "workflows.report.figures",
    "paint": "workflows.report.charts",
    **dict.fromkeys(_DISPLAYS, "workflows.report.displays"),
}

__all__ = sorted(_HOMES)
__getattr__ = lazy_names(__name__, _HOMES)
