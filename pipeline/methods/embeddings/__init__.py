"""Embeddings of rows by a learnt kernel matrix."""

from ...records.extra_input import ExtraInput

GRAPH_HELP = "Edges i,j of a graph in place of that of nearest neighbours, one a line"
KERNEL_HELP = "Kernel of the labels: one-hot, linear, or a matrix of all rows (.npy)"
EXTRA_INPUTS = (
    ExtraInput("graph_edges", "a graph of the rows", "edges", GRAPH_HELP, compared=False, option="graph"),
    ExtraInput(
        "label_matrix",
        "a kernel of the labels",
        "matrix",
        KERNEL_HELP,
        compared=False,
        option="label-kernel",
        methods=("colored-mvu",),
        words=("one-hot", "linear"),
    ),
)
