"""Displays in the manner of scikit-learn: charts of reports for fitted estimators and runs, on matplotlib axes.

For predictions use scikit-learn's ``ConfusionMatrixDisplay``, ``RocCurveDisplay``, ``PrecisionRecallDisplay`` and
``PredictionErrorDisplay``; they accept these estimators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from ...pipeline.estimators.cv import CrossValidated
from ...pipeline.records.charts import Chart, ranking_height
from ...pipeline.records.run_view import RunView
from ...pipeline.records.score_charts import search_path
from ...pipeline.records.shared_charts import bounds, certificates, dual_ascents, gaps, weights
from ...pipeline.registry import METHODS
from .charts import paint, plain_text
from .collect import view_run
from .found import system_charts
from .svg import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class ChartDisplay:
    """Base of the displays: made from an estimator or a run, drawn by the same code as reports.

    Parameters
    ----------
    chart
        The data of the chart.

    Attributes
    ----------
    ax_
        Axes of the last drawing.
    figure_
        Figure of these axes.
    """

    _kind: ClassVar[str]  # name of its charts in what systems bring
    _shows: ClassVar[str]  # what an estimator must have
    ax_: Axes
    figure_: Figure

    def __init__(self, chart: Chart) -> None:
        self.chart = chart

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.chart.title}>"

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on ``ax``, or on a new figure, in the style of reports with a title; return the display."""
        if ax is None:
            ax = _paint_figure(self.chart)
        else:
            paint(ax, self.chart)
        self.ax_, self.figure_ = ax, ax.figure  # pyright: ignore[reportAttributeAccessIssue] (a figure within a figure has the same methods)
        return self

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw a fitted estimator.

        Parameters
        ----------
        estimator
            A fitted estimator; of a pipeline its last step is drawn.
        ax
            Axes to draw on; default: a new figure.

        Raises
        ------
        TypeError
            The estimator has no such chart; the message names estimators that have one.
        ValueError
            The estimator selected nothing to draw.
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
            Axes to draw on; default: a new figure.

        Raises
        ------
        ValueError, TypeError
            There is no run, or its method has no such chart.
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
            if brought is None and not functions:
                others = " and every …CV estimator" if cls._kind == PathDisplay._kind else ""
                raise TypeError(f"{has}; {cls.__name__} is for {', '.join(known)}{others}")
            raise ValueError(f"{has} to show")
        return chart

    @classmethod
    def _shared(cls) -> Sequence[Callable[[RunView], list[Chart]]]:
        """Return the charts for methods that define none of their own."""
        return ()


class PathDisplay(ChartDisplay):
    """The path of a fit.

    For a search: scores along the searched parameter, with standard errors and the chosen point. For the Feature Generating Machine:
    weights along the rounds. For the kernel selection path: weights along p.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import FGMClassifier
    >>> from gramplane.plots import PathDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = PathDisplay.from_estimator(
    ...     FGMClassifier(B=2, max_rounds=3).fit(X, y)
    ... )
    >>> display.chart.title
    'Weights along the path'
    """

    _kind, _shows = "path", "path"

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw a fitted estimator.

        Parameters
        ----------
        estimator
            A fitted estimator or search, with or without a refit; of a pipeline its last step is drawn.
        ax
            Axes to draw on; default: a new figure.

        Raises
        ------
        TypeError
            The estimator has no path; the message names estimators that have one.
        """
        fitted = _last_step(estimator)
        if not isinstance(fitted, CrossValidated) or not hasattr(fitted, "cv_results_"):
            return super().from_estimator(fitted, ax=ax)
        along, keys, rows = fitted._search_rows()
        return cls(search_path(rows, keys, along)).plot(ax)


class WeightsDisplay(ChartDisplay):
    """The largest weights of features or kernels; for feature selection over many tasks, the weights by task.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import FGMClassifier
    >>> from gramplane.plots import WeightsDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = WeightsDisplay.from_estimator(
    ...     FGMClassifier(B=2, max_rounds=3).fit(X, y)
    ... )
    >>> display.chart.title
    'Selected features'
    """

    _kind, _shows = "weights", "weights of features or kernels"

    @classmethod
    def _shared(cls) -> Sequence[Callable[[RunView], list[Chart]]]:
        return (weights,)


class RulesDisplay(ChartDisplay):
    """The rules of an ensemble with the largest weights.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import RuleEnsembleClassifier
    >>> from gramplane.plots import RulesDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = RulesDisplay.from_estimator(
    ...     RuleEnsembleClassifier(C=0.1).fit(X, y)
    ... )
    >>> display.chart.title
    'Rules by weight'
    """

    _kind, _shows = "rules", "rules"


class GroupsDisplay(ChartDisplay):
    """The groups with the largest weights: feature groups by the norm of their weights, task groups by the weights of their kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import FGMClassifier
    >>> from gramplane.plots import GroupsDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = GroupsDisplay.from_estimator(
    ...     FGMClassifier(
    ...         B=1, max_rounds=3, groups=[j % 10 for j in range(30)]
    ...     ).fit(X, y)
    ... )
    >>> display.chart.title
    'Groups by weight'
    """

    _kind, _shows = "groups", "groups"


class GapDisplay(ChartDisplay):
    """The certified distance to the optimum, along the rounds.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gramplane import FGMClassifier
    >>> from gramplane.plots import GapDisplay
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> display = GapDisplay.from_estimator(
    ...     FGMClassifier(B=2, max_rounds=3).fit(X, y)
    ... )
    >>> display.chart.title
    'Gaps'
    """

    _kind, _shows = "gap", "certificate along its rounds"

    @classmethod
    def _shared(cls) -> Sequence[Callable[[RunView], list[Chart]]]:
        comparing = (lambda runs: bounds(runs)[1:], certificates, gaps)
        return (*((lambda view, chart=chart: chart([view])) for chart in comparing), dual_ascents)


class MapDisplay(ChartDisplay):
    """The first two coordinates of every row of a map.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import MinimumVolumeEmbedding
    >>> from gramplane.plots import MapDisplay
    >>> X, _ = load_iris(return_X_y=True)
    >>> display = MapDisplay.from_estimator(MinimumVolumeEmbedding().fit(X))
    >>> display.chart.title
    'Map'
    """

    _kind, _shows = "map", "map of rows"

    @classmethod
    def from_estimator(cls, estimator: Any, *, labels: Sequence[Any] | None = None, ax: Axes | None = None) -> Self:
        """Draw a fitted map.

        Parameters
        ----------
        estimator
            A fitted map.
        labels
            ``(n_samples,)`` labels that colour the rows.
        ax
            Axes to draw on; default: a new figure.

        Raises
        ------
        TypeError
            The estimator is no map.
        ValueError
            The number of labels differs from the number of rows.
        """
        fitted = _last_step(estimator)
        check_is_fitted(fitted)
        return cls(cls._chart(_with_labels(view_estimator(fitted), labels), type(fitted).__name__)).plot(ax)


def _paint_figure(chart: Chart) -> Axes:
    """Draw a chart on a new figure and return the axes. The figure is white, because the text has the colours for a light page."""
    from matplotlib import pyplot

    height = ranking_height(chart.names) + 0.3 if chart.kind == "ranking" else chart.size[1]
    style: Any = {**STYLE, "figure.facecolor": "white", "savefig.facecolor": "white"}
    with pyplot.rc_context(style):
        _, ax = pyplot.subplots(figsize=(chart.size[0], height), layout="constrained")
        paint(ax, chart)
        has_legend_above = chart.legend is not None and chart.legend.position == "above"
        ax.set_title(plain_text(chart.title), loc="left", pad=26.0 if has_legend_above else None)
    return ax


def _last_step(estimator: Any) -> Any:
    return estimator[-1] if hasattr(estimator, "steps") else estimator


def _with_labels(view: RunView, labels: Sequence[Any] | None) -> RunView:
    rows = view.tables.get("embedding", ())
    if labels is None or not rows:
        return view
    if len(labels) != len(rows):
        raise ValueError(f"labels has {len(labels)} entries; it needs one for each of the {len(rows)} rows of the map")
    labelled = [{**row, "label": label} for row, label in zip(rows, labels, strict=True)]
    return replace(view, tables={**view.tables, "embedding": labelled})


def view_estimator(estimator: Any) -> RunView:
    """Return a fitted estimator as a view for the report. Raises TypeError if ``estimator`` is not one of gramplane's estimators."""
    name, method = type(estimator).__name__, getattr(type(estimator), "_method", None)
    info = None if method is None else METHODS.get(method.name)
    if info is None:
        raise TypeError(f"{name} is not an estimator of gramplane; displays show only estimators of gramplane")
    tables = estimator._chart_tables()
    history = {key: np.asarray(values).tolist() for key, values in getattr(estimator, "history_", {}).items()}
    rows = [dict(zip(history, values, strict=True)) for values in zip(*history.values(), strict=True)]
    classes = getattr(estimator, "classes_", None)
    summary = {"classes": None} if is_regressor(estimator) else {} if classes is None else {"classes": classes.tolist()}
    others = {key: table for key, table in tables.items() if key != "selected"}
    return RunView(name, "", info.name, info.title, summary=summary, history=rows, selected=tables.get("selected", ()), tables=others)
