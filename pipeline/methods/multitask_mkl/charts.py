"""Charts of kernels for many tasks in reports: their weights in every task."""

from __future__ import annotations

from ...records.charts import SystemCharts
from ...records.shared_charts import task_heat_maps

CHARTS = SystemCharts(single=(task_heat_maps,))
