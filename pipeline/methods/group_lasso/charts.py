"""Charts of a group lasso on a stream of rows in reports."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import group_norms, streams

TABLES = (
    ShownTable("groups", "Groups with a weight", "All of them are in groups.csv."),
    ShownTable("certificates", "Certificates", "One for each class or target; gaps are over all groups."),
)

CHARTS = SystemCharts(comparing=(streams,), single=(group_norms,), tables=TABLES, displays={"groups": group_norms})
