"""Parameters of the kernel selection path."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability

Norm = Annotated[float, Field(ge=1, allow_inf_nan=False)]

DEFAULT_P = 1.25  # where the machine stands that predicts (docs/theory/defaults.md)
MAX_EPS = 0.36787944117144233  # 1/e: below it a weight only falls along the path


class KTAPathConfig(MethodConfig):
    """Parameters of kernel selection along a path of l_p norms (``kta-path``)."""

    kernel: Literal["rbf", "linear", "precomputed"] = Field(
        "rbf",
        description="kernel of each feature, or precomputed",
    )
    divergence: Literal["euclidean", "kl"] = Field("euclidean", description="divergence of the weights from eta0")
    lam1: NonNegative | None = Field(None, description="weight of the divergence; default: from the alignments")
    lam2: NonNegative | None = Field(None, description="weight of sum eta^p; default: about ten kernels at p_end")
    eta0: NonNegative = Field(0.0, description="centre of the divergence; kl needs a positive one")
    p_start: Norm = Field(2.0, description="first p")
    p_end: Norm = Field(1.0, description="last p")
    dp: Positive = Field(0.01, description="step size in p")
    eps: Annotated[float, Field(ge=0, lt=MAX_EPS)] = Field(1e-4, description="a kernel leaves the path at this weight")
    order: Annotated[int, Field(ge=0, le=2)] = Field(1, description="order of the predictor in p; affects only the time")
    C: Positive = Field(
        1.0,
        description="inverse regularisation strength, as in scikit-learn's SVC",
    )
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="half-width of the tube, in standard deviations of the target"
    )
    n_machines: Count = Field(
        11,
        description="number of points of the path at which an SVM is trained",
    )
    p: Norm | Literal["auto"] | None = Field(
        "auto",
        description="point of the path whose SVM predicts",
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(
        None, description="factors of C per class; alignments ignore them"
    )
    probability: Probability = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters that may differ between two fits of a search when one starts from the other."""
        return ("C",)

    @property
    def machine_p(self) -> float:
        """The p whose SVM predicts, if kernels are active at that p."""
        if self.p == "auto":
            return min(max(DEFAULT_P, self.p_end), self.p_start)
        return self.p_end if self.p is None else self.p

    @model_validator(mode="after")
    def _range_and_centre(self) -> KTAPathConfig:
        if self.p_end > self.p_start:
            raise ValueError(f"p_end={self.p_end} is above p_start={self.p_start}; the path goes down")
        if isinstance(self.p, float) and not self.p_end <= self.p <= self.p_start:
            raise ValueError(f"p={self.p} is outside the path, which goes from p_start={self.p_start} down to p_end={self.p_end}")
        if self.divergence == "kl" and self.eta0 == 0 and self.lam1 != 0:
            raise ValueError("divergence='kl' needs a positive eta0; found eta0=0.0")
        if self.lam1 == 0 and self.lam2 == 0:
            raise ValueError("lam1=0 and lam2=0: nothing bounds the weights")
        if self.lam1 == 0 and self.p_end == 1:
            raise ValueError("lam1=0 with p_end=1 has no unique solution; take lam1 > 0 or p_end > 1")
        return self
