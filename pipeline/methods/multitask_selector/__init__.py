"""Feature selection over many tasks."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "multitask-selector",
        problem="few features for all tasks or for some, from a batch or in rounds of one row per task",
        returns="`coef_` (features × tasks), selected features",
        certificate="all features (batch); rounds have a bound of their regret",
        nearest="`MultiTaskLasso`",
        avoid="one task: `fgm` or `group-lasso`",
    ),
)
