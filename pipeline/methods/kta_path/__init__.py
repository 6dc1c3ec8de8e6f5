"""Kernel selection path."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "kta-path",
        problem="one kernel per feature; fewer and fewer features along a path, by alignment with the classes",
        returns="the path of weights, a model at any point of it",
        certificate="the SVM at this point of the path",
        nearest="pyHSICLasso, `SelectKBest(mutual_info_classif)`",
        avoid="effects that only show in combinations of features: `hierarchical-kernels`, `fgm` with `poly2`",
    ),
)
