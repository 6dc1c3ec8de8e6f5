"""Hierarchical kernel learning."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "hierarchical-kernels",
        problem="kernels from a graph too large to list, such as all products over subsets of columns",
        returns="the selected nodes and their weights",
        certificate="the whole graph",
        nearest="`SVC` with an ANOVA kernel",
        avoid="more than some tens of columns: the frontier grows; `fgm` with `poly2` for products of two",
    ),
)
