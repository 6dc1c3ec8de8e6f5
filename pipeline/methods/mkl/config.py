"""Parameters of generalized multiple kernel learning."""

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
    Unit,
)


class MKLConfig(GramConfig):
    """Parameters of generalized multiple kernel learning (``mkl``)."""

    kernels: MachineKernels = None
    constraint: Literal["elastic_net", "simplex", "l2", "lp"] = Field(
        "elastic_net", description="set of the kernel weights theta >= 0: elastic_net, simplex (v = 1), l2 (v = 0), lp"
    )
    v: Unit = Field(0.5, description="elastic net: v ||theta||_1 + (1 - v) ||theta||_2^2 <= 1; v = 1 gives few kernels, v = 0 all of them")
    p: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(2.0, description="lp: ||theta||_p <= 1")
    C: Positive = Field(
        1.0, description="loss weight, C * sum of losses, as scikit-learn's SVC and, on a target of standard deviation one, SVR"
    )
    solver: Literal["auto", "level", "silp", "simplemkl", "alternate", "uniform", "single"] = Field(
        "auto",
        description="auto: second-order steps, the level method's where they fail; level; silp; simplemkl (on the simplex); alternate; "
        "baselines: uniform (equal weights), single (the kernel of highest score in 5-fold cross-validation)",
    )
    tau: Annotated[float, Field(gt=0, lt=1)] = Field(0.3, description="height of the level between the bounds")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels that leave it open: trace (trace n), unit_trace (the thesis'), multiplicative, cosine, none",
    )
    tol: Positive = Field(1e-3, description="gap between the bounds at which the fit ends, in units of max(1, upper bound)")
    max_iter: Count = Field(200, description="weight vectors tried at most; a warning tells when they end the fit")
    epsilon: NonNegative = Field(0.1, description="regression: half width of the tube, in standard deviations of the target")
    threshold: Unit = Field(1e-4, description="a kernel counts as selected above this share of the largest weight")
    grams: GramPolicy = Field("auto", description="where Gram matrices lie; auto decides from sizes")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _solver_and_set(self) -> MKLConfig:
        if self.solver == "simplemkl" and not self.on_simplex:
            raise ValueError(f"solver='simplemkl' needs constraint='simplex' (or v=1, p=1); found constraint={self.constraint!r}")
        return self

    @property
    def on_simplex(self) -> bool:
        """Whether the weights lie on a simplex."""
        return {"elastic_net": self.v == 1, "lp": self.p == 1}.get(self.constraint, self.constraint == "simplex")
