"""Non-parametric kernel learning from pairs of rows."""

from ...records.extra_input import ExtraInput

HELP = "Pairs of rows that belong together or apart, one i,j,1 or i,j,-1 a line"
TOGETHER_OR_APART = "pairs of rows that belong together (+1) or apart (-1)"
EXTRA_INPUTS = (ExtraInput("constraints", TOGETHER_OR_APART, "pairs", HELP, required=True, compared=False),)
