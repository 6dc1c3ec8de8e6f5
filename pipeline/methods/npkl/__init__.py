"""Non-parametric kernel learning from pairs of rows."""

from ...records.declared import ExtraInput, Profile

HELP = "Pairs of rows that belong together or apart, one i,j,1 or i,j,-1 a line"
TOGETHER_OR_APART = "pairs of rows that belong together (+1) or apart (-1)"
EXTRA_INPUTS = (ExtraInput("constraints", TOGETHER_OR_APART, "pairs", HELP, required=True, compared=False),)

PROFILES = (
    Profile(
        "npkl",
        problem="a kernel matrix from pairs of rows that belong together or apart",
        returns="the kernel, coordinates, `cluster(k)`",
        certificate="all kernel matrices",
        nearest="`SpectralClustering`, constrained k-means",
        avoid="labels for most rows: a classifier; rows to come later: they are only estimated",
    ),
)
