"""What reports show of feature selection over many tasks: its stream, and the features of every task."""

from __future__ import annotations

from ...records.charts import SystemCharts
from ...records.shared_charts import streams, task_heat_maps

CHARTS = SystemCharts(
    comparing=(streams,),
    single=(task_heat_maps,),
    displays={"weights": task_heat_maps},
    glossary={
        "sweeps": "Passes of the solver over all weights so far.",
        "nonzeros": "Weights that are not zero.",
        "rounds_per_epoch": "Rounds of one pass over all rows.",
        "epochs_per_step": "Passes over all rows between checkpoints.",
        "steps_per_epoch": "Checkpoints within one pass over all rows.",
        "n_looked_at": "Features whose gradients were looked at in this step; the others cannot have moved beyond lam.",
        "sweeps_at_most": "Passes of the solver over all weights, if nothing stops it before.",
    },
)
