"""Parameters of two-layer multiple kernel learning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, GramPolicy, MethodConfig, Normalize, Positive


class TwoLayerConfig(MethodConfig):
    """Parameters of two-layer multiple kernel learning (``two-layer-mkl``)."""

    kernels: Literal["precomputed"] | list[str] | None = Field(
        None, description="kernels as short texts; default: Gaussians and polynomials on all features and on each one"
    )
    C: Positive = Field(1.0, description="loss weight, C * sum of losses, as scikit-learn's")
    penalty: Positive | None = Field(
        None, description="weight of the sum of the kernel weights; default: a tenth of the number of rows (0.1 for unit_trace)"
    )
    infinite: bool = Field(False, description="add Gaussian kernels on all features while one lowers the objective")
    rule: Literal["descent", "thesis"] = Field(
        "descent", description="infinite: a Gaussian helps when the objective falls towards it, or by the thesis' comparison"
    )
    max_new_kernels: Annotated[int, Field(ge=0)] = Field(10, description="infinite: Gaussians added at most")
    gamma_range: tuple[Positive, Positive] | None = Field(
        None, description="infinite: least and greatest gamma; default: inverse quantiles of the squared distances"
    )
    n_restarts: Count = Field(1, description="random starts; the one with the smallest objective is kept")
    normalize: Normalize = Field("trace", description="normalisation of kernels that leave it open; unit_trace is the thesis'")
    tol: Positive = Field(1e-3, description="largest entry of the projected gradient, in units of the penalty, at which the fit ends")
    decrease_tol: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        1e-5, description="relative decrease of the objective, twice in a row, at which the fit ends"
    )
    max_iter: Count = Field(200, description="steps of the kernel weights at most, for one set of kernels")
    grams: GramPolicy = Field("auto", description="where Gram matrices lie; auto decides from sizes")
    gram_store: str | None = Field(None, description="path of a Gram store, kept for further fits")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")

    @model_validator(mode="after")
    def _range_and_store(self) -> TwoLayerConfig:
        if self.gamma_range is not None and self.gamma_range[0] > self.gamma_range[1]:
            raise ValueError(f"gamma_range={self.gamma_range}: the least gamma is above the greatest")
        if self.grams == "store" and self.gram_store is None:
            raise ValueError("grams='store' needs gram_store, the path of the Gram store")
        if self.infinite and self.kernels == "precomputed":
            raise ValueError("infinite=True computes new kernels from features; it has none with kernels='precomputed'")
        return self
