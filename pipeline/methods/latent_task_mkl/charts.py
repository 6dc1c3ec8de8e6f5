"""Charts of latent task structure in reports: kernels by task, and groups of tasks."""

from __future__ import annotations

from ...records.charts import Chart, ShownTable, SystemCharts, short
from ...records.run_view import RunView
from ...records.shared_charts import MAX_WEIGHTS, column, ranking, task_heat_maps


def group_weights(run: RunView) -> list[Chart]:
    """Return charts of the groups of tasks by the weight of their kernels."""
    rows = run.tables.get("groups", ())
    if not rows:
        return []
    caption = f"The {len(rows[:MAX_WEIGHTS])} heaviest of {len(rows):,} groups, by the summed weight of their kernels."
    names = [short(row["tasks"]) for row in rows[:MAX_WEIGHTS]]
    return [ranking("Groups of tasks", caption, names, column(rows[:MAX_WEIGHTS], "weight"), "weight")]


CHARTS = SystemCharts(
    found=(group_weights,),
    single=(task_heat_maps,),
    displays={"groups": group_weights},
    tables=(ShownTable("groups", "Groups of tasks by weight", "All of them are in groups.csv."),),
)
