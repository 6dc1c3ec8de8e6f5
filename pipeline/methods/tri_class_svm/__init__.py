"""Tri-class support vector machine."""

from ...records.declared import ExtraInput, Profile

HELP = "Unlabelled rows, a block store ingested --like the training data"
EXTRA_INPUTS = (ExtraInput("unlabelled", "a store of rows without a label", "store", HELP),)

PROFILES = (
    Profile(
        "tri-class-svm",
        problem="support vector machine with unlabelled rows, some of which belong to neither class",
        returns="decision values, and which unlabelled rows it took for which class",
        certificate="the last convex problem of the best start",
        nearest="`SelfTrainingClassifier`, `LabelSpreading`",
        avoid="labels enough: unlabelled rows then rarely help; the fit compares and says so",
    ),
)
