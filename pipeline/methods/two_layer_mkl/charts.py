"""Words of reports on two-layer multiple kernel learning."""

from __future__ import annotations

from ...records.charts import SystemCharts

CHARTS = SystemCharts(
    glossary={
        "violation": "Largest violation of the optimality conditions.",
        "weight_sum": "Sum of all weights.",
        "second_layer": "Where the second layer is computed.",
        "iterations_at_most_per_round": "Steps between two new kernels, if nothing stops them before.",
        "new_kernels_at_most": "Kernels that may be added to those given.",
        "second_layer_bytes": "Memory of the second layer.",
    }
)
