"""Strength of ties between users."""

from ...records.extra_input import ExtraInput

EXTRA_INPUTS = (
    ExtraInput(
        "pairs",
        "pairs of rows with a tie (1) or without one (0)",
        "pairs",
        "Pairs of rows with a tie or without, one i,j,1 or i,j,0 a line",
        required=True,
        values=(0, 1),
        ordered=True,
        compared=False,
    ),
)
