"""Embeddings of rows by a learnt kernel matrix."""

from ...records.declared import ExtraInput, Profile

GRAPH_HELP = "The parameter graph, or edges i,j of a graph in place of that of nearest neighbours, one a line"
KERNEL_HELP = "Kernel of the labels: the parameter label_kernel, or a matrix of all rows (.npy)"
EXTRA_INPUTS = (
    ExtraInput("graph", "a graph of the rows", "edges", GRAPH_HELP, compared=False, words=("mutual", "union")),
    ExtraInput(
        "label_kernel",
        "a kernel of the labels",
        "matrix",
        KERNEL_HELP,
        compared=False,
        methods=("colored-mvu",),
        words=("auto", "one-hot", "linear"),
    ),
)

PROFILES = (
    Profile(
        "colored-mvu",
        problem="a map that keeps distances of neighbours and is ordered by labels",
        returns="`embedding_`",
        certificate="the whole problem",
        nearest="supervised UMAP, `NeighborhoodComponentsAnalysis`",
        avoid="new rows must be placed exactly: they are only estimated",
    ),
    Profile(
        "mve",
        problem="a map that keeps distances of neighbours in as few dimensions as possible",
        returns="`embedding_`, its spectrum",
        certificate="the last convex problem",
        nearest="`Isomap`, maximum variance unfolding",
        avoid="more than some thousand rows, or clusters alone to be seen: t-SNE",
    ),
    Profile(
        "spe",
        problem="a map of a graph in which no neighbour is farther than a stranger",
        returns="`embedding_`",
        certificate="the whole problem",
        nearest="spectral layout, `SpectralEmbedding`",
        avoid="graphs of more than some thousand nodes",
    ),
)
