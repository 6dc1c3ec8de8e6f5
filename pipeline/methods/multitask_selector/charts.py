"""Charts of feature selection over many tasks in reports: its stream, and the features of every task."""

from __future__ import annotations

from ...records.charts import SystemCharts
from ...records.shared_charts import streams, task_heat_maps

CHARTS = SystemCharts(
    comparing=(streams,),
    single=(task_heat_maps,),
    displays={"weights": task_heat_maps},
)
