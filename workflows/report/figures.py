"""The figures of a page: charts that all systems share, those that a system brings itself, and pictures of pixels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...pipeline.records import shared_charts
from ...pipeline.records.charts import Chart, SystemCharts
from ...pipeline.records.run_view import RunView, weight_of
from ...pipeline.registry import METHODS
from .charts import Picture, draw, picture
from .collect import view_run
from .pixels import pixel_usage

COMPARING = (
    shared_charts.accuracy,
    shared_charts.objective,
    shared_charts.gaps,
    shared_charts.bounds,
    shared_charts.kernels_kept,
    shared_charts.certificates,
    shared_charts.working_sets,
)
"""Charts of all runs in one picture that stand in front of those of their systems."""


def system_charts(run: RunView) -> SystemCharts:
    """Return what the system of a run brings to reports."""
    return METHODS[run.method].charts if run.method in METHODS else SystemCharts()


def comparing_charts(runs: Sequence[RunView]) -> list[Chart]:
    """Return charts of several runs in one picture; several systems may bring the same."""
    present = {run.method for run in runs}
    systems = [info.charts for name, info in METHODS.items() if name in present]
    functions = dict.fromkeys([*COMPARING, *(function for charts in systems for function in charts.comparing)])
    return [chart for function in functions for chart in function(runs)]


def single_charts(run: RunView) -> list[Chart]:
    """Return the charts of one run but for its time."""
    functions = (shared_charts.weights, shared_charts.weight_paths, *system_charts(run).single)
    return [chart for function in functions for chart in function(run)]


def list_charts(path: str | Path) -> list[Chart]:
    """Return the charts of the report of the run in a folder, as data."""
    run = view_run(path)
    return [*comparing_charts([run]), *single_charts(run), *shared_charts.phases(run), *shared_charts.traffic([run])]


def pixels(run: RunView) -> list[Picture]:
    """Return the picture of the pixels involved, when the features are named like pixels."""
    usage = pixel_usage([(str(row["feature"]), weight_of(row)) for row in run.selected])
    if usage is None:
        return []
    shade = "Shade: summed size of the weights a pixel takes part in."
    lines = "Lines and rings: the largest weights, blue positive, orange negative."
    return [Picture("Pixels involved", f"{shade} {lines}", draw(usage.paint, (6.0, 5.2)))]


def pictures(runs: Sequence[RunView]) -> list[Picture]:
    """Return every figure the runs have data for: shared ones first, then one set per run, traffic last."""
    runs = [replace(run, is_compared=len(runs) > 1) for run in runs]
    drawn = [picture(chart) for chart in comparing_charts(runs)]
    for run in runs:
        of_run = [*map(picture, single_charts(run)), *pixels(run), *map(picture, shared_charts.phases(run))]
        drawn += [replace(item, title=f"{run.name}: {item.title}") for item in of_run] if len(runs) > 1 else of_run
    return [*drawn, *map(picture, shared_charts.traffic(runs))]
