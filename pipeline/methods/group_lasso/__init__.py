"""Group lasso on streams of rows and in batch."""

from ...records.extra_input import ExtraInput

HELP = "Edges of a graph of the features, one i,j a line: each is a group (graph lasso)"
EXTRA_INPUTS = (ExtraInput("edges", "edges of a graph of the features", "feature-edges", HELP),)
