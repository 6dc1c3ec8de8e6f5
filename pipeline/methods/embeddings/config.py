"""Parameters of embeddings by a learnt kernel matrix."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...records.config import Count, MethodConfig, Positive

CAP = "cap of tr K^2, with a mean squared distance of neighbours of 1; default: 100 times that of the centred Gram matrix of the rows"


class EmbeddingConfig(MethodConfig):
    """What the three embeddings share."""

    has_scores = False

    n_components: Count = Field(2, description="coordinates of the map")
    n_neighbors: Count = Field(5, description="nearest neighbours of a row in the graph")
    graph: Literal["mutual", "union"] = Field(
        "mutual", description="edges where both are a neighbour of the other, or one of them; a warning says when it is not connected"
    )
    C: Positive = Field(1.0, description="weight of squared errors of squared distances of neighbours, C/2 * sum, in units of their mean")
    B: Positive | None = Field(None, description=f"{CAP}. With a small cap the map is crushed")
    tol: Positive = Field(1e-4, description="relative duality gap at which the fit ends")
    max_iter: Count = Field(200, description="steps at most; a warning says when they end the fit")


class ColoredMVUConfig(EmbeddingConfig):
    """Parameters of coloured maximum variance unfolding (``colored-mvu``)."""

    label_kernel: Literal["auto", "one-hot", "linear"] = Field(
        "auto",
        description="kernel of the labels: one-hot 1 for rows of one class, else 0; linear y y' of standardised numbers; auto: one-hot for "
        "classes, linear for numbers. A matrix may be given in its place",
    )


class MVEConfig(EmbeddingConfig):
    """Parameters of minimum volume embedding (``mve``)."""

    tol: Positive = Field(1e-4, description="relative decrease of the objective, by a problem solved to a tenth of it, that ends the fit")
    max_iter: Count = Field(200, description="convex problems at most; a warning says when they end the fit")


class SPEConfig(EmbeddingConfig):
    """Parameters of structure preserving embedding (``spe``)."""

    C: Positive | Literal["auto"] = Field(
        "auto",
        description="cost of the largest violation, C xi; auto: a violation as large as the mean squared distance of a flat kernel on the "
        "cap costs as much as the best value without triples",
    )
    B: Positive | None = Field(None, description=f"{CAP}. It only sizes the map")
    tol: Positive = Field(1e-3, description="relative gap, over all triples, at which the fit ends")
    max_iter: Count = Field(100, description="rounds of cutting planes at most; a warning says when they end the fit")
