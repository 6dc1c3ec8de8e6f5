"""What reports show of a group lasso on a stream of rows."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import group_norms, streams

TABLES = (
    ShownTable("groups", "Groups with a weight", "All of them are in groups.csv."),
    ShownTable("certificates", "Certificates", "One for each machine; gaps are over all groups."),
)

GLOSSARY = {
    "final_loss": "Mean loss of the last model on all rows.",
    "lam": "Weight of the penalty.",
    "lambda_max": "The least lam at which every weight is zero.",
    "groups in the set": "Groups in the working set.",
    "bytes_read_per_epoch": "Bytes of the store that one pass over all rows reads.",
    "state_bytes": "Memory of what is kept between rows.",
    "algorithm": "How the problem is solved.",
    "rows_from": "How rows are read.",
    "text_bytes_per_step": "Bytes of text that one step reads.",
}

CHARTS = SystemCharts(comparing=(streams,), single=(group_norms,), tables=TABLES, displays={"groups": group_norms}, glossary=GLOSSARY)
