"""Feature Generating Machine."""

from ...records.declared import GROUPS, ExtraInput, Profile

HELP = "Covariates, without a penalty: a table with a row for each of the store's (csv, npy, npz, parquet)"
EXTRA_INPUTS = (ExtraInput("covariates", "covariates of the rows", "columns", HELP), GROUPS)

PROFILES = (
    Profile(
        "fgm",
        problem="linear model on few of very many features, groups of features, or products of two",
        returns="`selected_`, `coef_`, the path of all rounds",
        certificate="`dual_gap_` over the features chosen so far; `outer_gap_` over all features",
        nearest='`LinearSVC(penalty="l1")`, `SelectFromModel`',
        avoid="fewer than some hundred columns, all of which may stay: an l2 model of scikit-learn predicts better",
    ),
)
