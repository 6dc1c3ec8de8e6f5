"""The charts of a page by section: charts for all methods, and charts that single methods define."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from ...pipeline.records import score_charts, shared_charts
from ...pipeline.records.charts import Chart
from ...pipeline.records.run_view import RunView
from ...pipeline.registry import METHODS
from .collect import view_run
from .found import system_charts
from .svg import Picture, name_run, picture

FOUND, PREDICTIONS, MODEL, WORK = SECTIONS = ("found", "predictions", "model", "work")

COMPARING: dict[str, Sequence[Callable[[Sequence[RunView]], list[Chart]]]] = {
    FOUND: (),
    PREDICTIONS: (score_charts.roc, score_charts.precision_recall, score_charts.calibration),
    MODEL: (shared_charts.accuracy,),
    WORK: (shared_charts.objective, shared_charts.gaps, shared_charts.bounds, shared_charts.certificates),
}
"""Charts that show all runs in one picture, by section. Charts that a method defines belong to the section of the model."""

SINGLE: dict[str, Sequence[Callable[[RunView], list[Chart]]]] = {
    PREDICTIONS: (score_charts.trials, score_charts.predictions),
    FOUND: (shared_charts.weights,),
    MODEL: (shared_charts.weight_paths, shared_charts.pixels),
    WORK: (shared_charts.phases,),
}
"""Charts of one run, by section."""


def has_course(chart: Chart) -> bool:
    """Return whether a chart is worth drawing. A line chart must have points at more than one x; tables and cards show the values of a
    single round.
    """
    if chart.kind != "series":
        return True
    return len({x for part in chart.series for x, y in zip(part.x, part.y, strict=True) if math.isfinite(x) and math.isfinite(y)}) > 1


def comparing_charts(runs: Sequence[RunView], section: str) -> list[Chart]:
    """Return the charts that show several runs in one picture, without repetitions."""
    present = {run.method for run in runs}
    systems = [info.charts for name, info in METHODS.items() if name in present] if section == MODEL else []
    functions = dict.fromkeys([*COMPARING[section], *(function for charts in systems for function in charts.comparing)])
    return [chart for function in functions for chart in function(runs) if has_course(chart)]


def single_charts(run: RunView, section: str) -> list[Chart]:
    own = {FOUND: system_charts(run).found, MODEL: system_charts(run).single}
    functions = (*SINGLE[section], *own.get(section, ()))
    return [chart for function in functions for chart in function(run) if has_course(chart)]


def list_charts(path: str | Path) -> list[Chart]:
    """Return the charts of the report of the run in a folder, as data.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> from gramplane.plots import list_charts
    >>> [chart.title for chart in list_charts("runs/iris")][:1]
    ['Selected features']
    """
    run = view_run(path)
    return [chart for section in SECTIONS for chart in (*comparing_charts([run], section), *single_charts(run, section))]


def section_pictures(runs: Sequence[RunView]) -> dict[str, list[Picture]]:
    """Return all pictures of the runs by section: first the pictures that show all runs, then the pictures of each run."""
    runs, numbers = [replace(run, is_compared=len(runs) > 1) for run in runs], count(1)
    return {section: list(_pictures(runs, section, numbers)) for section in SECTIONS}


def _pictures(runs: Sequence[RunView], section: str, numbers: Any) -> Iterator[Picture]:
    yield from (picture(chart, next(numbers)) for chart in comparing_charts(runs, section))
    for run in runs:
        drawn = [picture(chart, next(numbers)) for chart in single_charts(run, section)]
        yield from (name_run(item, run.name) for item in drawn) if len(runs) > 1 else drawn
