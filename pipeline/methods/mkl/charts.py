"""Words of reports on generalized multiple kernel learning."""

from __future__ import annotations

from ...records.charts import SystemCharts

CHARTS = SystemCharts(
    glossary={"working_gap": "Relative gap over the kernels in the working set.", "working_kernels": "Kernels in the working set."}
)
