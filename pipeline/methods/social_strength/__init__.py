"""Strength of ties between users."""

from ...records.declared import ExtraInput, Profile

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

PROFILES = (
    Profile(
        "social-strength",
        problem="how strongly users are tied, from several similarities and some known pairs",
        returns="weights of the views, strength of any pair, ranked candidates",
        certificate="the ranking of pairs, at these weights",
        nearest="`LogisticRegression` on features of pairs",
        avoid="one similarity only: rank by it",
    ),
)
