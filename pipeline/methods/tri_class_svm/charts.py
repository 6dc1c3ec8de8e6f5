"""Charts of tri-class models: the objective of every start, and the numbers of unlabelled rows per class, step by step."""

from __future__ import annotations

from ...records.charts import Chart, Legend, Series, ShownTable, SystemCharts, short
from ...records.run_view import RunView
from ...records.shared_charts import column, stacked_bars

SIDES = (
    ("minus", "first class", 1),
    ("zero", "neither", 5),
    ("plus", "second class", 0),
    ("any_class", "a class", 0),
)  # figure of the history, its label, and its colour: of two classes, or of more


def assignments(run: RunView) -> list[Chart]:
    """Return charts of the objective of every start, and of the assignment of the unlabelled rows by the best model, over the steps."""
    rows = run.tables.get("assignments", ())
    if not rows or "minus" not in rows[0]:
        return []
    key, lines = "class" if "class" in rows[0] else "start", []
    kept = {row["class"]: row["start"] for row in sorted(rows, key=lambda row: -row["objective"])} if key == "class" else {}
    for k, name in enumerate(dict.fromkeys(str(row[key]) for row in rows)):
        of_start = [row for row in rows if str(row[key]) == name and row["start"] == kept.get(row.get("class"), row["start"])]
        lines.append(Series(column(of_start, "iteration"), column(of_start, "objective"), short(name), colour=k, marker="o"))
    which = "the best start of every class" if key == "class" else "every start"
    caption = f"Objective of {which} after each of its convex problems; it never rises."
    charts = [Chart(f"Objective by {key}", caption, series=lines, x_label="step", y_label="objective", whole="x", legend=Legend())]
    sides = [side for side in SIDES if any(side[0] in row for row in run.history)]
    if any(value > 0 for key, _, _ in sides for value in run.column(key)):
        bars = stacked_bars(run.column("iteration"), [(run.column(key), label, colour) for key, label, colour in sides])
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
