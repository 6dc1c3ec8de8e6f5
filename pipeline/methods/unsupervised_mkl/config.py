"""Parameters of unsupervised multiple kernel learning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, Positive

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class UMKLConfig(MethodConfig):
    """Parameters of unsupervised multiple kernel learning (``unsupervised-mkl``)."""

    has_scores = False

    kernels: list[str] | None = Field(
        None, description="kernels as short texts; default: Gaussians and polynomials on all features and on each one"
    )
    n_bases: Count = Field(10, description="points that rebuild a point")
    gamma1: NotNegative = Field(0.01, description="weight of the distance between a point and its bases")
    gamma2: NotNegative = Field(0.0, description="cost of one basis; decides with stop=gain only")
    stop: Literal["size", "gain"] = Field("size", description="exactly n_bases bases, or fewer where no further one helps")
    safeguard: bool = Field(True, description="keep a point's bases where new ones are worse, so that the objective never rises")
    n_components: Count = Field(2, description="components of the kernel principal component analysis")
    start: Literal["greedy", "sparse-coding"] = Field("greedy", description="first bases: greedy under equal weights, or sparse codes")
    normalize: Literal["none", "trace", "unit_trace", "multiplicative", "cosine", "column_sum"] = Field(
        "trace",
        description="normalisation of kernels that leave it open; unit_trace (the thesis') leaves nearly no reconstruction; column_sum: "
        "the n_bases largest entries of a row sum to 1 on average",
    )
    tol: Positive = Field(1e-5, description="relative decrease of the objective at which the fit may end")
    max_iter: Count = Field(50, description="alternations between bases and weights at most")
    grams: Literal["auto", "memory", "store", "recompute"] = Field("auto", description="where Gram matrices lie; auto decides from sizes")
    gram_store: str | None = Field(None, description="path of a Gram store, kept for further fits")

    @model_validator(mode="after")
    def _store_has_a_path(self) -> UMKLConfig:
        if self.grams == "store" and self.gram_store is None:
            raise ValueError("grams='store' needs gram_store, the path of the Gram store")
        return self
