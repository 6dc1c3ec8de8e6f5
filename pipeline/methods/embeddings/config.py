"""Parameters of embeddings by a learnt kernel matrix."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...records.config import Count, MethodConfig, Positive


class EmbeddingConfig(MethodConfig):
    """Parameters common to the three embeddings."""

    has_scores = False

    n_components: Count = Field(2, description="dimensions of the map")
    n_neighbors: Count = Field(5, description="nearest neighbours of a row in the graph")
    graph: Literal["mutual", "union"] = Field("mutual", description="link rows if each is a neighbour of the other, or either is")
    C: Positive = Field(1.0, description="weight of the errors of neighbours' squared distances")
    B: Positive | None = Field(None, description="upper bound of tr K^2; a small one collapses the map")
    tol: Positive = Field(1e-4, description="stopping tolerance: relative duality gap")
    max_iter: Count = Field(200, description="largest number of steps")


class ColoredMVUConfig(EmbeddingConfig):
    """Parameters of coloured maximum variance unfolding (``colored-mvu``)."""

    label_kernel: Literal["auto", "one-hot", "linear"] = Field(
        "auto",
        description="kernel of the labels: one-hot classes, or linear numbers",
    )


class MVEConfig(EmbeddingConfig):
    """Parameters of minimum volume embedding (``mve``)."""

    tol: Positive = Field(1e-4, description="stopping tolerance: relative decrease of the objective")
    max_iter: Count = Field(200, description="largest number of convex problems")


class SPEConfig(EmbeddingConfig):
    """Parameters of structure preserving embedding (``spe``)."""

    C: Positive | Literal["auto"] = Field(
        "auto",
        description="cost of the largest violation; auto: from the data",
    )
    B: Positive | None = Field(None, description="upper bound of tr K^2; it only scales the map")
    tol: Positive = Field(1e-3, description="stopping tolerance: relative gap over all triples")
    max_iter: Count = Field(100, description="largest number of cutting-plane rounds")
