"""Displays: the figures of reports for fitted estimators and runs, on axes of matplotlib, in the manner of scikit-learn's.

Predictions have displays in scikit-learn, which take these estimators as any others: ``ConfusionMatrixDisplay``, ``RocCurveDisplay``,
``PrecisionRecallDisplay``, ``PredictionErrorDisplay``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ...pipeline.records.charts import Chart
from ...pipeline.records.run_view import RunView
from ...pipeline.records.shared_charts import bounds, certificates, dual_ascents, gaps, weights
from ...pipeline.registry import METHODS
from .charts import paint
from .collect import view_run
from .figures import system_charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ChartDisplay:
    """What the displays share: made from an estimator or a run, drawn by the code that draws reports.

    Parameters
    ----------
    chart
        What is to be seen, as data.

    Attributes
    ----------
    ax_
        Axes that it was drawn on last.
    figure_
        Figure that these are part of.
    """

    _kind: ClassVar[str]  # name of its charts in what systems bring
    _shows: ClassVar[str]  # what an estimator must have
    ax_: Axes
    figure_: Figure

    def __init__(self, chart: Chart) -> None:
        self.chart = chart

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on ``ax``, or on a figure of its own; returns the display."""
        if ax is None:
            from matplotlib import pyplot

            _, ax = pyplot.subplots(figsize=self.chart.size, layout="constrained")
        paint(ax, self.chart)
        self.ax_, self.figure_ = ax, ax.figure  # pyright: ignore[reportAttributeAccessIssue] (a figure within a figure has the same methods)
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw a fitted estimator.

        Parameters
        ----------
        estimator
            The estimator, fitted; of a pipeline its last step.
        ax
            Axes to draw on; a figure of its own by default.

        Raises
        ------
        ValueError
            The estimator has nothing of this kind, or selected none of it; the message names those that do.
        """
        fitted = _last_step(estimator)
        check_is_fitted(fitted)
        return cls(cls._chart(view_estimator(fitted), type(fitted).__name__)).plot(ax)

    @classmethod
    def from_run(cls, run: str | Path, *, ax: Axes | None = None) -> Self:
        """Draw a run.

        Parameters
        ----------
        run
            A run directory.
        ax
            Axes to draw on; a figure of its own by default.

        Raises
        ------
        ValueError
            There is no run, or it has nothing of this kind.
        """
        view = view_run(run)
        return cls(cls._chart(view, f"a run of {view.method}")).plot(ax)

    @classmethod
    def _chart(cls, view: RunView, who: str) -> Chart:
        brought = system_charts(view).displays.get(cls._kind)
        functions = cls._shared() if brought is None else (brought,)
        chart = next((chart for function in functions for chart in function(view)), None)
        if chart is None:
            known = [name for info in METHODS.values() if cls._kind in info.charts.displays for name in info.estimators]
            has = f"{who} has no {cls._shows}"
            is_other = brought is None and not functions
            raise ValueError(f"{has}; {cls.__name__} shows those of {', '.join(known)}" if is_other else f"{has} to show")
        return chart

    @classmethod
    def _shared(cls) -> Sequence[Callable[[RunView], list[Chart]]]:
        """Return charts of systems that bring none of their own."""
        return ()


class PathDisplay(ChartDisplay):
    """The path of a fit: accuracy along the rounds of the Feature Generating Machine, weights along p of the kernel selection path."""

    _kind, _shows = "path", "path"


class WeightsDisplay(ChartDisplay):
    """The largest weights of features or kernels; of feature selection over many tasks the weights by task."""

    _kind, _shows = "weights", "weights of features or kernels"

    @classmethod
    def _shared(cls) -> Sequence[Callable[[RunView], list[Chart]]]:
        return (weights,)


class RulesDisplay(ChartDisplay):
    """The heaviest rules of an ensemble."""

    _kind, _shows = "rules", "rules"


class GroupsDisplay(ChartDisplay):
    """The heaviest groups: of features by the length of their weights, of tasks by the weights of their kernels."""

    _kind, _shows = "groups", "groups"


class GapDisplay(ChartDisplay):
    """The certified distance to the optimum, along the rounds."""

    _kind, _shows = "gap", "certificate along its rounds"

    @classmethod
    def _shared(cls) -> Sequence[Callable[[RunView], list[Chart]]]:
        comparing = (lambda runs: bounds(runs)[1:], certificates, gaps)
        return (*((lambda view, chart=chart: chart([view])) for chart in comparing), dual_ascents)


class MapDisplay(ChartDisplay):
    """The first two coordinates of every row of a map."""

    _kind, _shows = "map", "map of rows"

    @classmethod
    def from_estimator(cls, estimator: Any, *, labels: Sequence[Any] | None = None, ax: Axes | None = None) -> Self:
        """Draw a fitted map.

        Parameters
        ----------
        estimator
            The map, fitted.
        labels
            ``(n_samples,)`` what rows are coloured by.
        ax
            Axes to draw on; a figure of its own by default.

        Raises
        ------
        ValueError
            The estimator is no map, or there are more or fewer labels than rows.
        """
        fitted = _last_step(estimator)
        check_is_fitted(fitted)
        return cls(cls._chart(_with_labels(view_estimator(fitted), labels), type(fitted).__name__)).plot(ax)


def _last_step(estimator: Any) -> Any:
    """Return the estimator itself, or the last step of a pipeline."""
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _with_labels(view: RunView, labels: Sequence[Any] | None) -> RunView:
    rows = view.tables.get("embedding", ())
    if labels is None or not rows:
        return view
    if len(labels) != len(rows):
        raise ValueError(f"labels has {len(labels)} entries, the map has {len(rows)} rows: it needs one for each")
    labelled = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    return replace(view, tables={**view.tables, "embedding": labelled})


def view_estimator(estimator: Any) -> RunView:
    """Return a fitted estimator as the report sees a run. Raises ValueError: it is none of gramplane's."""
    name, method = type(estimator).__name__, getattr(type(estimator), "_method", None)
    info = None if method is None else METHODS.get(method.name)
    if info is None:
        raise ValueError(f"{name} is no estimator of gramplane: displays show how its own were fitted")
    tables = estimator._chart_tables()
    history = {key: np.asarray(values).tolist() for key, values in getattr(estimator, "history_", {}).items()}
    rows = [dict(zip(history, values, strict=True)) for values in zip(*history.values(), strict=True)]
    classes = getattr(estimator, "classes_", None)
    summary = {} if classes is None else {"classes": classes.tolist()}
    others = {key: table for key, table in tables.items() if key != "selected"}
    return RunView(name, "", info.name, info.title, summary=summary, history=rows, selected=tables.get("selected", ()), tables=others)
