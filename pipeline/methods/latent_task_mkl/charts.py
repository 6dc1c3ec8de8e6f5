"""What reports show of latent task structure: kernels by task, and tasks that learn together."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import task_heat_maps

CHARTS = SystemCharts(
    single=(task_heat_maps,),
    tables=(ShownTable("groups", "Groups of tasks by weight", "All of them are in groups.csv."),),
    glossary={"heaviest": "Kernel of largest weight in the group."},
)
