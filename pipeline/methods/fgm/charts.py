"""Charts of the Feature Generating Machine in reports: weights along the path, groups, stability."""

from __future__ import annotations

from ...records.charts import Chart, ShownTable, SystemCharts
from ...records.run_view import RunView
from ...records.shared_charts import group_norms, weight_paths


def path_weights(run: RunView) -> list[Chart]:
    """Return charts of the largest weights after every round, one per class."""
    return weight_paths(run, "path_weights", "round", "Weights along the path")


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
)
