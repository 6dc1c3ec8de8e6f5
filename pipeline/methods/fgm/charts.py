"""Words of reports on feature generating machines."""

from __future__ import annotations

from ...records.charts import ShownTable, SystemCharts

GLOSSARY = {
    "outer_gap": "How far the objective is from the least value over all features, at most.",
    "inner_steps": "Steps of the solver of the sub-problem.",
    "atoms": "What is chosen from: linear (columns), groups, or columns of a feature map.",
    "n_atoms": "How many of them there are.",
    "solve_at": "Where the sub-problem is solved: on the driver, or by passes over the store.",
    "frequency": "Share of the resamples that select it.",
    "in_the_fit": "Whether the fit of all rows selected it.",
    "covariates": "Columns without a penalty, which are always in the model.",
    "covariate": "A column without a penalty.",
    "design_bytes_at_most": "Memory of the chosen columns on the driver.",
}

STABILITY = ShownTable(
    "stability", "Selection stability", "Share of bootstrap resamples of the rows that select a feature; all of them are in stability.csv."
)
COVARIATES = ShownTable("covariates", "Covariates", "Their coefficients bear no penalty; all of them are in covariates.csv.")
CHARTS = SystemCharts(tables=(COVARIATES, STABILITY), glossary=GLOSSARY)
