"""What reports show of feature generating machines: weights along the path, groups."""

from __future__ import annotations

from ...records.charts import Chart, Legend, ShownTable, SystemCharts
from ...records.run_view import RunView
from ...records.shared_charts import MAX_PANELS, group_norms, weight_lines


def path_weights(run: RunView) -> list[Chart]:
    """Return the weights of the heaviest features after every round, a chart per machine."""
    rows = run.tables.get("path_weights", ())
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    caption = "Weights after every round; the grey ones follow behind those named."
    if len(machines) > MAX_PANELS:
        caption += f" The first {MAX_PANELS} of {len(machines)} classes; path_weights.csv has all."
    return [
        Chart(
            "Weights along the path" + (f", class {machine}" if len(machines) > 1 else ""),
            caption,
            series=weight_lines([row for row in rows if row["machine"] == machine], "round"),
            x_label="round",
            y_label="weight of the column as scaled",
            whole="x",
            legend=Legend("below", 2),
            size=(6.0, 3.8),
        )
        for machine in machines[:MAX_PANELS]
    ]


GLOSSARY = {
    "outer_gap": "How far the objective is from the least value over all features, at most.",
    "inner_steps": "Steps of the solver of the sub-problem.",
    "atoms": "What is chosen from: linear (columns), groups, or columns of a feature map.",
    "n_atoms": "How many of them there are.",
    "solve_at": "Where the sub-problem is solved: on the driver, or by passes over the store.",
    "frequency": "Share of the resamples that select it.",
    "in_the_fit": "Whether the fit of all rows selected it.",
    "covariates": "Columns without a penalty, which are always in the model.",
    "covariate": "A column without a penalty.",
    "design_bytes_at_most": "Memory of the chosen columns on the driver.",
}

GROUPS = ShownTable(
    "groups", "Selected groups", "By the length of the weights of their features; all of them are in groups.csv.", is_open=False
)
STABILITY = ShownTable(
    "stability", "Selection stability", "Share of bootstrap resamples of the rows that select a feature; all of them are in stability.csv."
)
COVARIATES = ShownTable("covariates", "Covariates", "Their coefficients bear no penalty; all of them are in covariates.csv.")
CHARTS = SystemCharts(
    single=(path_weights, group_norms),
    tables=(COVARIATES, STABILITY, GROUPS),
    displays={"path": path_weights, "groups": group_norms},
    glossary=GLOSSARY,
)
