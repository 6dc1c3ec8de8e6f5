"""Words of reports on rule ensembles."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts

TABLES = (ShownTable("rules", "Rules by weight", "All of them are in rules.csv and rules.json."),)

GLOSSARY = {
    "refit_objective": "Objective after the weights of the rules kept were fitted again.",
    "rule": "Conditions that all hold where the rule votes.",
    "vote": "The class, or direction, that the rule speaks for.",
    "length": "Conditions of the rule.",
    "max_rules": "Largest working set allowed.",
    "max_visits": "Nodes that one search outside may look at.",
}

CHARTS = SystemCharts(tables=TABLES, glossary=GLOSSARY)
