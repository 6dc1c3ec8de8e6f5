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

    damping: Damping = Field(0.85, description="share of a score that comes from similar rows; the rest comes from the prior")
    diagonal: Literal["auto", "zero", "keep"] = Field(
        "auto", description="whether a row is similar to itself; auto: only in a matrix without negative entries whose columns have sum one"
    )
    solver: Literal["power", "exact"] = Field(
        "power", description="power iteration, at most log(tol) / log(damping) products; or one factorisation of the matrix"
    )
    tol: Small = Field(1e-10, description="change of the scores, as an l1 norm, at which the power iteration ends")
    max_iter: Count | None = Field(
        None, description="products at most; a warning says when they end the fit; default: as many as tol can need, so it always ends"
    )


class RankerConfig(MethodConfig):
    """Parameters of re-ranking images by a kernel learnt from looks and tags (``semantic-ranker``)."""

    has_scores = False

    n_neighbors: Count = Field(6, description="visual neighbours of an image whose distances the kernel must not exceed")
    C: Positive = Field(1.0, description="weight of the squared excess of a distance, C/2 * sum max(0, excess)^2")
    B: Positive | None = Field(None, description="cap of tr K^2; default: the number of images")
    damping: Damping = Field(0.85, description="share of a score that comes from similar images; the rest comes from the prior")
    graph: Literal["mutual", "union"] = Field("mutual", description="pairs where both are a neighbour of the other, or one of them")
    base: Count | None = Field(
        None,
        description="look for a kernel on this many smooth functions of the visual neighbour graph (least eigenvectors of its Laplacian): "
        "faster; default: on all functions",
    )
    diagonal: Literal["zero", "keep"] = Field("zero", description="whether an image is similar to itself in the random walk")
    min_images: Count = Field(1, description="tags of fewer images are dropped")
    untagged: Literal["raise", "zero"] = Field(
        "raise", description="images without a tag: refuse them, or let their tag vector be zero, so that only their looks count"
    )
    gamma: Positive = Field(3.0, description="unseen images: exp(-gamma ||x - z||^2 / mean) is the kernel that is warped")
    warp: Literal["corrected", "seed"] = Field(
        "corrected",
        description="unseen images: warp by the graph Laplacian of max(K, 0), or by -K as the thesis prints, which is refused where the "
        "kernel would not be positive semi-definite",
    )
    tol: Positive = Field(1e-5, description="relative duality gap at which the kernel is done")
    max_iter: Count = Field(300, description="eigendecompositions at most; a warning says when they end the fit")
    walk_tol: Small = Field(1e-10, description="change of the scores, as an l1 norm, at which the random walk ends")
