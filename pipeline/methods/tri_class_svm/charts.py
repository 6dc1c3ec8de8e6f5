"""Charts of tri-class models: the objective of every start, and the numbers of unlabelled rows per class, step by step."""

from __future__ import annotations

from ...records.charts import Chart, Legend, Series, ShownTable, SystemCharts, short
from ...records.run_view import RunView
from ...records.shared_charts import column, stacked_bars

SIDES = (
    ("minus", "first class", 1),
    ("zero", "neither", 5),
    ("plus", "second class", 0),
)  # figure of the history, its label, and its colour


def assignments(run: RunView) -> list[Chart]:
    """Return charts of the objective of every start, and of the assignment of the unlabelled rows by the best model, over the steps."""
    rows = run.tables.get("assignments", ())
    if not rows or "minus" not in rows[0]:
        return []
    lines = []
    for k, name in enumerate(dict.fromkeys(str(row["start"]) for row in rows)):
        of_start = [row for row in rows if row["start"] == name]
        lines.append(Series(column(of_start, "iteration"), column(of_start, "objective"), short(name), colour=k, marker="o"))
    caption = "Objective of every start after each of its convex problems; it never rises."
    charts = [Chart("Objective by start", caption, series=lines, x_label="step", y_label="objective", whole="x", legend=Legend())]
    if any(value > 0 for key, _, _ in SIDES for value in run.column(key)):
        bars = stacked_bars(run.column("iteration"), [(run.column(key), label, colour) for key, label, colour in SIDES])
        caption = "Assigned by the best model of each step."
        charts.append(Chart("Unlabelled rows", caption, series=bars, x_label="step", y_label="rows", legend=Legend("above", 3)))
    return charts


CHARTS = SystemCharts(
    single=(assignments,),
    tables=(
        ShownTable("validation", "Validation", "On rows held out, beside the labelled rows alone and every unlabelled row irrelevant."),
        ShownTable("starts", "Starts", "Every step of them is in assignments.csv."),
    ),
)
