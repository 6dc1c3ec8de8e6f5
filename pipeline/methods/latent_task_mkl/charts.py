"""What reports show of latent task structure: kernels by task, and tasks that learn together."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import task_heat_maps

TABLES = (ShownTable("groups", "Groups of tasks by weight", "All of them are in groups.csv."),)

GLOSSARY = {"heaviest": "Kernel of largest weight in the group."}

CHARTS = SystemCharts(single=(task_heat_maps,), tables=TABLES, glossary=GLOSSARY)
