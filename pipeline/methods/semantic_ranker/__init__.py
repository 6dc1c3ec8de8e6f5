"""Re-ranking of images by visual features and tags."""

from ...records.declared import ExtraInput, Profile

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

PROFILES = (
    Profile(
        "semantic-ranker",
        problem="ranking of a query's images by a random walk on a kernel of visual features and tags",
        returns="scores of images, of unseen ones too",
        certificate="the kernel, before the walk",
        nearest="VisualRank, label propagation",
        avoid="no tags: `visual-rank`",
    ),
    Profile(
        "visual-rank",
        problem="scores of rows by a random walk on a given similarity",
        returns="scores that add up to one",
        certificate="the scores, as an l1 norm",
        nearest="PageRank (`networkx.pagerank`)",
        avoid="directed links with text: PageRank on the links",
    ),
)
