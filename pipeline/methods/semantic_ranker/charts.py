"""Report charts of a ranking: the eigenvalues of the learnt kernel, and the dual ascent that computed it."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import dual_ascents, spectra

TABLES = (
    ShownTable("queries", "Queries", "Of each the certificate of its kernel, and the walk; ranked apart from one another."),
    ShownTable("ranking", "First of the ranking", "All scores are what predict writes."),
    ShownTable("precision", "Relevant among the first", "Beside the order of the prior, and chance."),
)

CHARTS = SystemCharts(single=(spectra, dual_ascents), tables=TABLES)
