"""What reports show of a ranking: the eigenvalues of its kernel, and the ascent that found it."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts
from ...records.shared_charts import dual_ascents, spectra

TABLES = (
    ShownTable("queries", "Queries", "Of each the certificate of its kernel, and the walk; ranked apart from one another."),
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
    "n": "Length of the list.",
    "query": "Name of the query.",
    "queries": "Queries, or those ranked so far.",
    "largest_query": "Images of the largest query.",
    "queries_converged": "Queries whose kernel is within tol of the best.",
    "tasks_in_all": "Tasks of all passes.",
    "walk_error": "How far the scores are from where the random walk settles, as an l1 norm, at most.",
    "score_spread": "Range of the scores in units of their mean.",
    "products": "Products with the similarity so far.",
    "products_at_most": "Products with the similarity that the tolerance can need, or that are allowed.",
    "products_on": "Where products are computed: matrix, in this process, or passes over the store.",
    "change": "Change of the scores in the last product, as an l1 norm.",
}

CHARTS = SystemCharts(single=(spectra, dual_ascents), tables=TABLES, glossary=GLOSSARY)
