"""Charts of a kernel learnt from pairs of rows in reports: its eigenvalues, and the ascent."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import dual_ascents, spectra

CHARTS = SystemCharts(
    single=(spectra, dual_ascents),
    tables=(ShownTable("constraints", "Pairs of rows", "Entries of the learned kernel at the pairs given."),),
)
