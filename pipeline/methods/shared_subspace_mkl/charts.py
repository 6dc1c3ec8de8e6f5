"""Report charts of the subspace that tasks share: the couplings between tasks."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import task_heat_maps

DIRECTIONS = "Of the weights between tasks: how many directions they share."

CHARTS = SystemCharts(
    single=(task_heat_maps,),
    tables=(ShownTable("eigenvalues", "Eigenvalues between tasks", DIRECTIONS, is_open=False),),
)
