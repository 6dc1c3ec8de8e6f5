"""Parameters of embeddings by a learnt kernel matrix."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...records.config import Count, MethodConfig, Positive


class EmbeddingConfig(MethodConfig):
    """What the three embeddings share."""

    has_scores = False

    n_components: Count = Field(2, description="coordinates of the map")
    n_neighbors: Count = Field(5, description="nearest neighbours of a row in the graph")
    graph: Literal["mutual", "union"] = Field("mutual", description="link rows where both are neighbours, or one of them")
    C: Positive = Field(1.0, description="weight of errors of squared distances of neighbours")
    B: Positive | None = Field(None, description="cap of tr K^2; a small one crushes the map")
    tol: Positive = Field(1e-4, description="relative duality gap at which the fit ends")
    max_iter: Count = Field(200, description="steps at most")


class ColoredMVUConfig(EmbeddingConfig):
    """Parameters of coloured maximum variance unfolding (``colored-mvu``)."""

    label_kernel: Literal["auto", "one-hot", "linear"] = Field(
        "auto",
        description="kernel of the labels: classes one-hot, or numbers linear",
    )


class MVEConfig(EmbeddingConfig):
    """Parameters of minimum volume embedding (``mve``)."""

    tol: Positive = Field(1e-4, description="relative decrease of the objective that ends the fit")
    max_iter: Count = Field(200, description="convex problems at most")


class SPEConfig(EmbeddingConfig):
    """Parameters of structure preserving embedding (``spe``)."""

    C: Positive | Literal["auto"] = Field(
        "auto",
        description="cost of the largest violation; auto: from the rows",
    )
    B: Positive | None = Field(None, description="cap of tr K^2; it only sizes the map")
    tol: Positive = Field(1e-3, description="relative gap, over all triples, at which the fit ends")
    max_iter: Count = Field(100, description="rounds of cutting planes at most")
