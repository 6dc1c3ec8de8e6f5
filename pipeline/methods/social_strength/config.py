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
        description="weight of the norm beside the mean loss; larger is plainer",
    )
    pair_kernel: PairKernel = Field(
        "similarity",
        description="kernel of pairs of users",
    )
    weights: Literal["kta", "uniform"] = Field("kta", description="weights of the views: by alignment with links, or equal")
    kernels: Literal["precomputed"] | list[str] | None = Field("precomputed", description="views as kernels, or matrices")
    alignment: Literal["unit", "off-diagonal"] = Field("unit", description="diagonal of the links: ones, or left out")
    normalize: Literal["row_max", "cosine", "none"] = Field(
        "row_max",
        description="normalisation of the views before use",
    )
    view_scale: Positive = Field(10.0, description="size of the views against the offset")
    n_import: Count | None = Field(None, description="pairs that the model may keep at most; default: all")
    import_tol: Positive = Field(1e-3, description="relative decrease at which no more pairs are chosen")
    n_candidates: Count | None = Field(59, description="pairs tried in every choice, drawn at random; null: all")
    tol: Positive = Field(1e-6, description="relative gap at which the fit ends")
    max_iter: Count = Field(100, description="Newton steps at most; a warning says when they end the fit")
    grams: GramPolicy = Field("auto", description="where the matrices of the views lie; auto decides from sizes")
    gram_store: str | None = Field(None, description="path of a Gram store, kept for further fits")

    @model_validator(mode="after")
    def _store_has_a_path(self) -> SocialConfig:
        if self.grams == "store" and self.gram_store is None:
            raise ValueError("grams='store' needs gram_store, the path of the Gram store")
        return self
