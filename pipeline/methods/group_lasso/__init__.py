"""Group lasso on streams of rows and in batch."""

from ...records.declared import GROUPS, ExtraInput, Profile

HELP = "Edges of a graph of the features, one i,j a line: each is a group (graph lasso)"
EXTRA_INPUTS = (ExtraInput("edges", "edges of a graph of the features", "feature-edges", HELP), GROUPS)

PROFILES = (
    Profile(
        "group-lasso",
        problem="linear model on few groups of features, from a batch or from rows that come one by one",
        returns="`active_groups_`, `coef_`",
        certificate="all groups (batch); a stream has none",
        nearest='celer, skglm `GroupLasso`; `SGDClassifier(penalty="l1")` for streams',
        avoid="correlated groups of which the best few are wanted: `fgm` with `groups` has less shrinkage",
    ),
)
