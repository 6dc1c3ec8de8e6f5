"""Charts of the kernel selection path: kernels, weights and accuracy along p."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.charts import FAINT, Chart, Legend, Series, SystemCharts, run_label, short
from ...records.run_view import RunView, has_values, needs_names, number
from ...records.shared_charts import MAX_NAMED, column, scored_points

MAX_LINEAR_RATIO = 30  # counts of kernels that differ by more than this factor are drawn on a logarithmic scale


def path_accuracy(runs: Sequence[RunView]) -> list[Chart]:
    """Return accuracy against the number of kernels of the machines along the path."""
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
            "Machines at points of the path, from all kernels (right) to the last (left); a diamond is the model on a scored store.",
            series=[*series, *scored_points(runs)],
            x_label="kernels",
            y_label="accuracy",
            x_scale="log" if is_wide else "linear",
            whole="" if is_wide else "x",
            legend=Legend(),
        )
    ]


def path_counts(runs: Sequence[RunView]) -> list[Chart]:
    """Return the number of active kernels along p, on a logarithmic scale where it falls far."""
    runs = [run for run in runs if run.tables.get("path")]
    if not runs:
        return []
    at, active = ([column(run.tables["path"], name) for run in runs] for name in ("p", "n_active"))
    steps = [Series(at[i], active[i], run_label(run, runs), "step", i) for i, run in enumerate(runs)]
    return [
        Chart(
            "Kernels along p",
            "Active kernels; as p falls they become fewer and none comes back.",
            series=steps,
            x_label="p",
            y_label="active kernels",
            x_scale="falling",
            y_scale="symlog" if _is_wide([value for values in active for value in values if value > 0]) else "linear",
            legend=Legend() if needs_names(runs) else None,
        )
    ]


def _is_wide(counts: Sequence[float]) -> bool:
    return bool(counts) and max(counts) > MAX_LINEAR_RATIO * min(counts)


def path_weights(run: RunView) -> list[Chart]:
    """Return the weights of the kernels that stay longest along p."""
    rows = run.tables.get("path_weights", ())
    names = [key for key in rows[0] if key != "p"] if rows else []
    if not names:
        return []
    at = column(rows, "p")
    grey = [Series(at, column(rows, name), colour=FAINT, width=0.8, opacity=0.5) for name in names[MAX_NAMED:]]
    return [
        Chart(
            "Weights along p",
            f"The {len(names)} best aligned kernels; below 1/e a weight only falls, above exp(-1/p) it only rises.",
            series=grey + [Series(at, column(rows, name), short(name, 24), colour=k) for k, name in enumerate(names[:MAX_NAMED])],
            x_label="p",
            y_label="weight",
            x_scale="falling",
            legend=Legend("below", 4, "kernel"),
            size=(6.0, 3.8),
        )
    ]


GLOSSARY = {
    "p": "Exponent of the path; as it falls, kernels leave.",
    "n_active": "Kernels with a weight at this p.",
    "n_aligned": "Kernels whose alignment with the labels is known.",
    "n_points": "Points of the path so far.",
    "n_machines": "Points of the path with a trained machine.",
    "leaves_at_p": "The p at which the kernel's weight becomes zero; 0: it never does.",
    "machine_points": "Points of the path that get a machine.",
    "points": "Points of the path.",
}

CHARTS = SystemCharts(comparing=(path_accuracy, path_counts), single=(path_weights,), displays={"path": path_weights}, glossary=GLOSSARY)
