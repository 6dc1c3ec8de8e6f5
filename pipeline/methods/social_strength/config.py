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
        description="weight of the norm, C/2 ||w||^2 beside the mean loss: a larger C is a plainer model; scikit-learn's C is "
        "1 / (C N) of N pairs",
    )
    pair_kernel: PairKernel = Field(
        "similarity",
        description="kernel of pairs of users: similarity (a weighted sum of the views at u, v and an offset), difference (the thesis', "
        "which gives every user the same order of candidates), mlpk (its square), tensor (directed), tensor-symmetric",
    )
    weights: Literal["kta", "uniform"] = Field("kta", description="weights of the views: by alignment with the links, or equal ones")
    kernels: Literal["precomputed"] | list[str] | None = Field(
        "precomputed", description="views as short texts of kernels, or given as matrices; null: Gaussians and polynomials"
    )
    alignment: Literal["unit", "off-diagonal"] = Field(
        "unit", description="diagonal of the links: ones, as the views have, or left out of all inner products"
    )
    normalize: Literal["row_max", "cosine", "none"] = Field(
        "row_max",
        description="views before use: rows divided by their largest entry, or cosines, shifted to be positive semi-definite; none takes "
        "them as they are, which must be positive semi-definite then",
    )
    view_scale: Positive = Field(10.0, description="size of the views against the offset, in pair_kernel=similarity")
    n_import: Count | None = Field(
        None, description="pairs that the model may keep at most, chosen one after the other (import vectors); default: all"
    )
    import_tol: Positive = Field(1e-3, description="relative decrease of the objective at which no more pairs are chosen")
    n_candidates: Count | None = Field(59, description="pairs that are tried in every choice, drawn at random; null: all")
    tol: Positive = Field(
        1e-6, description="gap at which the fit ends, relative to the objective; Newton steps are halved where it would rise"
    )
    max_iter: Count = Field(100, description="Newton steps at most; a warning says when they end the fit")
    grams: GramPolicy = Field("auto", description="where the matrices of the views lie; auto decides from sizes")
    gram_store: str | None = Field(None, description="path of a Gram store, kept for further fits")

    @model_validator(mode="after")
    def _store_has_a_path(self) -> SocialConfig:
        if self.grams == "store" and self.gram_store is None:
            raise ValueError("grams='store' needs gram_store, the path of the Gram store")
        return self
