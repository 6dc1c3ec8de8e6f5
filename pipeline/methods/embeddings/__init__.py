"""Embeddings of rows by a learnt kernel matrix."""

from ...records.extra_input import ExtraInput

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
