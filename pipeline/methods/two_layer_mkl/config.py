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
    infinite: bool = Field(False, description="add Gaussian kernels on all features, one per machine and round, while one helps")
    penalty: Positive | None = Field(
        None,
        description="weight of the sum of the kernel weights; default: a tenth of the number of rows with a cost, n/10, and 0.1 with "
        "normalize=unit_trace, which is the same problem. The thesis' problem (unit trace, penalty 1) has ten times that, and a C chosen "
        "with it: at C = 1 it leaves no kernel a weight where classes are hard to separate, which a warning tells. A small penalty lets "
        "the machine memorise the training rows",
    )
    rule: Literal["descent", "thesis"] = Field(
        "descent",
        description="infinite: when a Gaussian helps. descent: the objective falls towards it; thesis: it does better alone than the "
        "combination",
    )
    max_new_kernels: Annotated[int, Field(ge=0)] = Field(10, description="infinite: Gaussians added at most")
    gamma_range: tuple[Positive, Positive] | None = Field(
        None,
        description="infinite: least and greatest gamma of an added Gaussian; default: inverse quantiles (0.95, 0.05) of the squared "
        "distances between different rows. A wide range lets the machine memorise",
    )
    n_restarts: Count = Field(1, description="random starts; the one with the smallest objective is kept, before kernels are added")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels that leave it open: trace (mean diagonal 1), unit_trace (the thesis'; entries of size 1/n "
        "need weights of size n), multiplicative, cosine, none",
    )
    tol: Positive = Field(1e-3, description="largest entry of the projected gradient, in units of the penalty, at which the fit ends")
    decrease_tol: NonNegative = Field(
        1e-5, description="the fit ends, too, when two steps in a row lower the objective by less than this share"
    )
    max_iter: Count = Field(
        200, description="steps of the kernel weights at most, for one set of kernels; a warning tells when they end the fit"
    )
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
