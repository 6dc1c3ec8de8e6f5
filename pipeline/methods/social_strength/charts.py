"""Words of reports on the strength of ties."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts

TABLES = (
    ShownTable(
        "rankings", "Rankings of the training pairs", "Beside the learnt one those that need no learning; direct: by weighted views."
    ),
    ShownTable("hits", "Ties among the first", "Of users with ties, over all other users; only ties of the training pairs count."),
)

GLOSSARY = {
    "scores_on": "Where scores of users are: a matrix in this process, or blocks that are computed when they are needed.",
    "first": "Length of the list.",
    "users": "Users, one a row.",
    "linked_pairs": "Pairs with a tie.",
    "pairs_kept": "Pairs with a coefficient.",
    "learnt": "Share of ties among the first, in the order of the learnt strengths.",
    "direct": "The same in the order of the weighted sum of the views.",
    "n_import": "Import vectors so far: pairs with a coefficient.",
    "uniform_alignment": "Alignment of the views' plain sum with the ties.",
}

CHARTS = SystemCharts(tables=TABLES, glossary=GLOSSARY)
