"""Report texts of hierarchical kernel learning."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts

TABLES = (ShownTable("depths", "Kernels by depth", "All of them are in depths.csv."),)

CHARTS = SystemCharts(tables=TABLES)
