"""What reports show of a kernel from pairs of rows: its eigenvalues, and the ascent that found it."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import dual_ascents, spectra

CHARTS = SystemCharts(
    single=(spectra, dual_ascents),
    tables=(ShownTable("constraints", "Pairs of rows", "Entries of the learned kernel at the pairs given."),),
    glossary={
        "constraints": "Pairs of rows that are known to belong together or apart.",
        "given": "Pairs of this kind that were given.",
        "satisfied": "Pairs whose entry of the kernel has the right sign.",
        "violated": "Pairs whose entry of the kernel has the wrong sign, or none.",
        "mean_entry": "Mean entry of the kernel at these pairs.",
        "n_neighbors": "Neighbours that every row is linked with in the graph.",
        "n_rows": "Rows that the kernel is learnt for.",
    },
)
