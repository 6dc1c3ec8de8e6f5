"""Non-parametric kernel learning from pairs of rows."""

from ...records.extra_input import ExtraInput

EXTRA_INPUTS = (
    ExtraInput(
        "constraints",
        "pairs of rows that belong together (+1) or apart (-1)",
        "pairs",
        "Pairs of rows that belong together or apart, one i,j,1 or i,j,-1 a line",
        required=True,
        compared=False,
    ),
)
