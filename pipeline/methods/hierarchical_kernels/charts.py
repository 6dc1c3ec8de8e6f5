"""Words of reports on hierarchical kernel learning."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts

TABLES = (ShownTable("depths", "Kernels by depth", "All of them are in depths.csv."),)

GLOSSARY = {
    "solves": "Problems of one set of weights solved so far.",
    "nodes": "Nodes of the working set.",
    "d": "Penalty weight of the node: larger, and it is chosen later.",
    "norm_share": "Share of the sum of the norms of all nodes' functions.",
    "graph_nodes": "Nodes of the whole graph, built or not.",
    "nodes_at_most": "Largest working set allowed.",
}

CHARTS = SystemCharts(tables=TABLES, glossary=GLOSSARY)
