"""Charts of the kernel selection path: accuracy and weights along p."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.charts import Chart, Legend, Series, SystemCharts, run_label
from ...records.run_view import RunView, has_values, number
from ...records.shared_charts import column, scored_points, weight_paths

MAX_LINEAR_RATIO = 30  # counts of kernels that differ by more than this factor are drawn on a logarithmic scale


def path_accuracy(runs: Sequence[RunView]) -> list[Chart]:
    """Return charts of accuracy against the number of kernels along the path."""
    scored = [(run, [row for row in run.tables.get("path", ()) if has_values([number(row.get("train_accuracy"))])]) for run in runs]
    scored = [(run, rows) for run, rows in scored if rows]
    if not scored:
        return []
    runs, series = [run for run, _ in scored], []
    for i, (run, rows) in enumerate(scored):
        for k, (key, label, style) in enumerate((("test_accuracy", "held-out rows", "-"), ("train_accuracy", "training rows", "--"))):
            values, colour = column(rows, key), i if len(scored) > 1 else k
            if has_values(values):
                series.append(Series(column(rows, "n_active"), values, run_label(run, runs, label), "line", colour, style, "o"))
    is_wide = _is_wide([value for _, rows in scored for value in column(rows, "n_active") if value > 0])
    return [
        Chart(
            "Accuracy against number of kernels along p",
            "Models at points of the path, from all kernels (right) to the last (left); a diamond is the model on a scored store.",
            series=[*series, *scored_points(runs)],
            x_label="kernels",
            y_label="accuracy",
            x_scale="log" if is_wide else "linear",
            whole="" if is_wide else "x",
            legend=Legend(),
        )
    ]


def _is_wide(counts: Sequence[float]) -> bool:
    return bool(counts) and max(counts) > MAX_LINEAR_RATIO * min(counts)


def path_weights(run: RunView) -> list[Chart]:
    """Return a chart of weights against p, for the kernels that stay active longest."""
    return weight_paths(run, "path_weights", "p", "Weights along p")


CHARTS = SystemCharts(comparing=(path_accuracy,), single=(path_weights,), displays={"path": path_weights})
