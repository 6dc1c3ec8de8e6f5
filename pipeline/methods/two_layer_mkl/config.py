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
    C: Positive = Field(10.0, description="inverse regularisation strength, as in scikit-learn's SVC")
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="half-width of the tube, in standard deviations of the target"
    )
    infinite: bool = Field(False, description="add Gaussian kernels on all features while one helps")
    penalty: Positive | None = Field(
        None,
        description="weight of the sum of the kernel weights",
    )
    rule: Literal["descent", "thesis"] = Field(
        "descent",
        description="infinite: criterion for adding a Gaussian",
    )
    max_new_kernels: Annotated[int, Field(ge=0)] = Field(10, description="infinite: largest number of Gaussians added")
    gamma_range: tuple[Positive, Positive] | None = Field(
        None,
        description="infinite: smallest and largest gamma of an added Gaussian",
    )
    n_restarts: Count = Field(1, description="number of random starts; the best is kept")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels without their own",
    )
    tol: Positive = Field(1e-3, description="stopping tolerance: largest projected gradient")
    decrease_tol: NonNegative = Field(1e-5, description="also stop if two steps decrease the objective by less")
    max_iter: Count = Field(200, description="largest number of steps of the kernel weights")
    grams: GramPolicy = Field("auto", description="where to keep Gram matrices; auto: by their size")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _range_and_store(self) -> TwoLayerConfig:
        if self.gamma_range is not None and self.gamma_range[0] > self.gamma_range[1]:
            raise ValueError(f"gamma_range={self.gamma_range}: the least gamma is above the greatest")
        if self.infinite and self.kernels == "precomputed":
            raise ValueError("infinite=True computes new kernels from features, but kernels='precomputed' has no features")
        return self
