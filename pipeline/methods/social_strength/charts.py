"""Report texts on the strength of ties."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts

TABLES = (
    ShownTable(
        "rankings", "Rankings of the training pairs", "The learned ranking beside those that need no learning; direct: by weighted views."
    ),
    ShownTable("hits", "Ties among the first", "Of users with ties, over all other users; only ties of the training pairs count."),
)

CHARTS = SystemCharts(tables=TABLES)
