"""Charts of unsupervised multiple kernel learning: kernels in use, and bases that change."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.charts import Chart, SystemCharts, legend_of, run_lines
from ...records.run_view import RunView, has_values
from ...records.shared_charts import kernel_counts


def kernels_in_use(runs: Sequence[RunView]) -> list[Chart]:
    """Return the number of kernels with a weight per round."""
    runs = _runs_with("n_selected", runs)
    return [kernel_counts("Kernels in use", "Kernels with a weight after each round.", runs)] if runs else []


def changed_bases(runs: Sequence[RunView]) -> list[Chart]:
    """Return how many points changed their bases in each round, and how many kept them."""
    runs = _runs_with("changed", runs)
    if not runs:
        return []
    lines = run_lines(runs, [("changed", "changed", "-"), ("kept", "kept by the safeguard", ":")])
    caption = "Points whose bases changed in a round, and points that kept the old ones because they are better."
    return [Chart("Bases", caption, series=lines, x_label="round", y_label="points", whole="x", legend=legend_of(lines, runs))]


def _runs_with(column: str, runs: Sequence[RunView]) -> list[RunView]:
    return [run for run in runs if run.method == "unsupervised-mkl" and has_values(run.column(column))]


CHARTS = SystemCharts(
    comparing=(kernels_in_use, changed_bases),
    glossary={
        "changed": "Points whose bases changed.",
        "kept": "Points that kept their bases, which were better.",
        "n_bases": "Points that every point is rebuilt from.",
    },
)
