"""Charts of unsupervised multiple kernel learning: changes of the bases."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.charts import Chart, SystemCharts, legend_of, run_lines
from ...records.run_view import RunView, has_values


def changed_bases(runs: Sequence[RunView]) -> list[Chart]:
    """Return a chart of the numbers of points that changed or kept their bases in each round."""
    runs = [run for run in runs if run.method == "unsupervised-mkl" and has_values(run.column("changed"))]
    if not runs:
        return []
    lines = run_lines(runs, [("changed", "changed", "-"), ("kept", "kept by the safeguard", ":")])
    caption = "Points whose bases changed in a round, and points that kept the old ones because they are better."
    return [Chart("Bases", caption, series=lines, x_label="round", y_label="points", whole="x", legend=legend_of(lines, runs))]


CHARTS = SystemCharts(
    comparing=(changed_bases,),
)
