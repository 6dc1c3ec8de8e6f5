"""Re-ranking of images by looks and tags."""

from ...records.extra_input import ExtraInput

EXTRA_INPUTS = (
    ExtraInput(
        "tags",
        "tags of every row",
        "texts",
        "Tags of every row, one line each, blanks between tags",
        required=True,
        compared=False,
        methods=("semantic-ranker",),
    ),
    ExtraInput(
        "queries",
        "images of many queries",
        "named-rows",
        "Images of many queries: a query and a row a line, and perhaps its prior, with a comma between",
        compared=False,
        least=2,
        methods=("semantic-ranker",),
    ),
)
