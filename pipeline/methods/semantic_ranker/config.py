"""Parameters of the two ranking methods: the kernel learnt from images and tags, and the random walk."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...records.config import Count, MethodConfig, Positive

Damping = Annotated[float, Field(ge=0, lt=1)]
Small = Annotated[float, Field(ge=1e-14, lt=1)]


class VisualRankConfig(MethodConfig):
    """Parameters of the random walk on a similarity matrix (``visual-rank``)."""

    has_scores = False

    damping: Damping = Field(0.85, description="share of a score from similar rows, the rest from the prior")
    diagonal: Literal["auto", "zero", "keep"] = Field("auto", description="whether a row is similar to itself; auto: by the matrix")
    solver: Literal["power", "exact"] = Field("power", description="power iteration, or one factorisation of the matrix")
    tol: Small = Field(1e-10, description="stopping tolerance: l1 change of the scores")
    max_iter: Count | None = Field(None, description="largest number of products; default: enough for tol")


class RankerConfig(MethodConfig):
    """Parameters of re-ranking images by a kernel learnt from visual features and tags (``semantic-ranker``)."""

    has_scores = False

    n_neighbors: Count = Field(6, description="number of visual neighbours whose distances bound the kernel")
    C: Positive = Field(1.0, description="weight of the squared excess of a distance")
    B: Positive | None = Field(None, description="upper bound of tr K^2; default: the number of images")
    damping: Damping = Field(0.85, description="share of a score from similar images; the rest: the prior")
    graph: Literal["mutual", "union"] = Field("mutual", description="link images if each is a neighbour of the other, or either")
    base: Count | None = Field(
        None,
        description="restrict the kernel to this many smooth functions",
    )
    diagonal: Literal["zero", "keep"] = Field("zero", description="whether an image is similar to itself in the random walk")
    min_images: Count = Field(1, description="drop tags that occur in fewer images")
    untagged: Literal["raise", "zero"] = Field("raise", description="images without a tag: reject, or use visual features only")
    gamma: Positive = Field(3.0, description="unseen images: width of the kernel that is warped")
    warp: Literal["corrected", "seed"] = Field(
        "corrected",
        description="unseen images: matrix by which the kernel is warped",
    )
    tol: Positive = Field(1e-5, description="stopping tolerance of the kernel: relative duality gap")
    max_iter: Count = Field(300, description="largest number of eigendecompositions")
    walk_tol: Small = Field(1e-10, description="stopping tolerance of the random walk: l1 change of scores")
