"""Parameters of two-layer multiple kernel learning."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import (
    ClassWeight,
    Count,
    GramConfig,
    GramPolicy,
    MachineKernels,
    NonNegative,
    Normalize,
    Positive,
    Probability,
    Scale,
    StorePath,
)


class TwoLayerConfig(GramConfig):
    """Parameters of two-layer multiple kernel learning (``two-layer-mkl``)."""

    kernels: MachineKernels = None
    C: Positive = Field(10.0, description="loss weight, C * sum of losses, as scikit-learn's SVC")
    infinite: bool = Field(False, description="add Gaussian kernels on all features while one helps")
    penalty: Positive | None = Field(
        None,
        description="weight of the sum of the kernel weights",
    )
    rule: Literal["descent", "thesis"] = Field(
        "descent",
        description="infinite: when a Gaussian helps",
    )
    max_new_kernels: Annotated[int, Field(ge=0)] = Field(10, description="infinite: Gaussians added at most")
    gamma_range: tuple[Positive, Positive] | None = Field(
        None,
        description="infinite: least and greatest gamma of an added Gaussian",
    )
    n_restarts: Count = Field(1, description="random starts, of which the best is kept")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels that leave it open",
    )
    tol: Positive = Field(1e-3, description="largest projected gradient at which the fit ends")
    decrease_tol: NonNegative = Field(1e-5, description="relative decrease of two steps that ends the fit, too")
    max_iter: Count = Field(200, description="steps of the kernel weights at most")
    grams: GramPolicy = Field("auto", description="where Gram matrices lie; auto decides from sizes")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _range_and_store(self) -> TwoLayerConfig:
        if self.gamma_range is not None and self.gamma_range[0] > self.gamma_range[1]:
            raise ValueError(f"gamma_range={self.gamma_range}: the least gamma is above the greatest")
        if self.infinite and self.kernels == "precomputed":
            raise ValueError("infinite=True computes new kernels from features; it has none with kernels='precomputed'")
        return self
