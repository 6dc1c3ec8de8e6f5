"""Charts of the kernel selection path: accuracy and weights along p."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.charts import Chart, Legend, Series, SystemCharts, run_label
from ...records.run_view import Row, RunView, has_values, number
from ...records.shared_charts import column, scored_points, weight_paths

MAX_LINEAR_RATIO = 30  # counts of kernels that differ by more than this factor are drawn on a logarithmic scale


def path_accuracy(runs: Sequence[RunView]) -> list[Chart]:
    """Return charts of accuracy, or R2, against the number of kernels along the path."""
    parts = ((name, [(run, _scored_points(run, name)) for run in runs]) for name in ("accuracy", "r2"))
    return [chart for name, scored in parts if (chart := _path_chart(name, [(run, rows) for run, rows in scored if rows]))]


def _scored_points(run: RunView, name: str) -> list[Row]:
    return [row for row in run.tables.get("path", ()) if has_values([number(row.get(f"train_{name}"))])]


def _path_chart(name: str, scored: Sequence[tuple[RunView, Sequence[Row]]]) -> Chart | None:
    if not scored:
        return None
    runs, series, title = [run for run, _ in scored], [], {"accuracy": "accuracy", "r2": "R2"}[name]
    for i, (run, rows) in enumerate(scored):
        for k, (key, label, style) in enumerate(((f"test_{name}", "held-out rows", "-"), (f"train_{name}", "training rows", "--"))):
            values, colour = column(rows, key), i if len(scored) > 1 else k
            if has_values(values):
                series.append(Series(column(rows, "n_active"), values, run_label(run, runs, label), "line", colour, style, "o"))
    is_wide = _is_wide([value for _, rows in scored for value in column(rows, "n_active") if value > 0])
    return Chart(
        f"{title[0].upper()}{title[1:]} against number of kernels along p",
        "Models at points of the path, from all kernels (right) to the last (left); a diamond is the model on a scored store.",
        series=[*series, *scored_points(runs, name)],
        x_label="kernels",
        y_label=title,
        x_scale="log" if is_wide else "linear",
        whole="" if is_wide else "x",
        legend=Legend(),
    )


def _is_wide(counts: Sequence[float]) -> bool:
    return bool(counts) and max(counts) > MAX_LINEAR_RATIO * min(counts)


def path_weights(run: RunView) -> list[Chart]:
    """Return a chart of weights against p, for the kernels that stay active longest."""
    return weight_paths(run, "path_weights", "p", "Weights along p")


CHARTS = SystemCharts(comparing=(path_accuracy,), single=(path_weights,), displays={"path": path_weights})
