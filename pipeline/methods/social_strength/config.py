"""Parameters of social strength modelling."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ...records.config import Count, GramPolicy, MethodConfig, Positive

PairKernel = Literal["similarity", "difference", "mlpk", "tensor", "tensor-symmetric"]


class SocialConfig(MethodConfig):
    """Parameters of social strength modelling (``social-strength``)."""

    has_scores = False

    C: Positive = Field(
        1.0,
        description="regularisation strength; larger values: a simpler model",
    )
    pair_kernel: PairKernel = Field(
        "similarity",
        description="kernel between pairs of users",
    )
    weights: Literal["kta", "uniform"] = Field("kta", description="weights of the views: by alignment with links, or equal")
    kernels: Literal["precomputed"] | list[str] | None = Field(
        "precomputed", description="views: kernel expressions, or precomputed matrices"
    )
    alignment: Literal["unit", "off-diagonal"] = Field("unit", description="diagonal of the links: ones, or excluded")
    normalize: Literal["row_max", "cosine", "none"] = Field(
        "row_max",
        description="normalisation of the views",
    )
    view_scale: Positive = Field(10.0, description="weight of the views relative to the offset")
    n_import: Count | None = Field(None, description="largest number of pairs in the model; default: all")
    import_tol: Positive = Field(1e-3, description="stop choosing pairs below this relative decrease")
    n_candidates: Count | None = Field(59, description="number of random candidate pairs per choice; null: all")
    tol: Positive = Field(1e-6, description="stopping tolerance: relative duality gap")
    max_iter: Count = Field(100, description="largest number of Newton steps")
    grams: GramPolicy = Field("auto", description="where to keep matrices of the views; auto: by their size")
    gram_store: str | None = Field(None, description="path of a Gram store, kept for further fits")

    @model_validator(mode="after")
    def _store_has_a_path(self) -> SocialConfig:
        if self.grams == "store" and self.gram_store is None:
            raise ValueError("grams='store' needs gram_store, the path of the Gram store")
        return self
