"""Parameters of rankings: the kernel of images and tags, and the random walk."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...records.config import Count, MethodConfig, Positive

Damping = Annotated[float, Field(ge=0, lt=1)]
Small = Annotated[float, Field(ge=1e-14, lt=1)]


class VisualRankConfig(MethodConfig):
    """Parameters of the random walk on a similarity matrix (``visual-rank``)."""

    has_scores = False

    damping: Damping = Field(0.85, description="share of a score from similar rows; the rest: the prior")
    diagonal: Literal["auto", "zero", "keep"] = Field("auto", description="whether a row is similar to itself; auto: by the matrix")
    solver: Literal["power", "exact"] = Field("power", description="power iteration, or one factorisation of the matrix")
    tol: Small = Field(1e-10, description="change of the scores at which the iteration ends")
    max_iter: Count | None = Field(None, description="products at most; default: as many as tol can need")


class RankerConfig(MethodConfig):
    """Parameters of re-ranking images by a kernel learnt from looks and tags (``semantic-ranker``)."""

    has_scores = False

    n_neighbors: Count = Field(6, description="visual neighbours whose distances the kernel keeps")
    C: Positive = Field(1.0, description="weight of the squared excess of a distance")
    B: Positive | None = Field(None, description="cap of tr K^2; default: the number of images")
    damping: Damping = Field(0.85, description="share of a score from similar images; the rest: the prior")
    graph: Literal["mutual", "union"] = Field("mutual", description="pairs where both are neighbours, or one of them")
    base: Count | None = Field(
        None,
        description="number of smooth functions that the kernel is made of",
    )
    diagonal: Literal["zero", "keep"] = Field("zero", description="whether an image is similar to itself in the random walk")
    min_images: Count = Field(1, description="tags of fewer images are dropped")
    untagged: Literal["raise", "zero"] = Field("raise", description="images without a tag: refused, or judged by looks only")
    gamma: Positive = Field(3.0, description="unseen images: width of the kernel that is warped")
    warp: Literal["corrected", "seed"] = Field(
        "corrected",
        description="unseen images: what the kernel is warped by",
    )
    tol: Positive = Field(1e-5, description="relative duality gap at which the kernel is done")
    max_iter: Count = Field(300, description="eigendecompositions at most")
    walk_tol: Small = Field(1e-10, description="change of the scores at which the random walk ends")
