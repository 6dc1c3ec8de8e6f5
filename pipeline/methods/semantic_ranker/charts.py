"""What reports show of a ranking: the eigenvalues of its kernel, and the ascent that found it."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import dual_ascents, spectra

TABLES = (
    ShownTable("ranking", "First of the ranking", "All scores are what predict writes."),
    ShownTable("precision", "Relevant among the first", "Beside the order of the prior, and chance."),
)

GLOSSARY = {
    "images": "Images, one a row.",
    "tags": "Tags of the image, or how many different ones there are.",
    "untagged": "Images without a tag.",
    "active_pairs": "Neighbours by looks that the kernel places further apart than their looks.",
    "base": "Dimensions the kernel is learnt in.",
    "walk_steps": "Steps of the random walk.",
    "score": "Share of the random walk's time.",
    "prior": "Score before the kernel was learnt.",
    "relevant": "Whether the row's label is the one asked for.",
    "average_precision": "Mean precision over the places of the relevant rows; 1 at best.",
    "n": "Length of the list.",
}

CHARTS = SystemCharts(single=(spectra, dual_ascents), tables=TABLES, glossary=GLOSSARY)
