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

    fold_tols = {"tol": 1e-2}

    kernels: MachineKernels = None
    constraint: Literal["elastic_net", "simplex", "l2", "lp", "l1_lp", "box"] = Field(
        "elastic_net", description="constraint on the kernel weights"
    )
    v: Unit = Field(0.5, description="elastic_net, l1_lp: 1 selects few kernels, 0 keeps all")
    p: Annotated[float, Field(ge=1, allow_inf_nan=False)] = Field(2.0, description="lp, l1_lp: exponent of the weights in the constraint")
    B: Count = Field(10, description="box: largest sum of the weights, each at most 1")
    C: Positive = Field(1.0, description="inverse regularisation strength, as in scikit-learn's SVC")
    loss: Literal["auto", "hinge", "squared_hinge", "logistic", "epsilon_insensitive", "squared"] = Field(
        "auto", description="loss of a row; auto: the first that suits the target"
    )
    solver: Literal["auto", "level", "silp", "fgm", "simplemkl", "alternate", "uniform", "single"] = Field(
        "auto",
        description="solver of the weights; auto: the fastest; or a baseline",
    )
    tau: Annotated[float, Field(gt=0, lt=1)] = Field(0.3, description="position of the level between the bounds")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels without their own",
    )
    tol: Positive = Field(1e-3, description="stopping tolerance: gap of the bounds / max(1, upper)")
    max_iter: Count = Field(200, description="largest number of weight vectors tried")
    epsilon: NonNegative = Field(0.1, description="half-width of the tube, in standard deviations of the target")
    threshold: Unit = Field(1e-4, description="select kernels above this share of the largest weight")
    grams: GramPolicy = Field("auto", description="where to keep Gram matrices; auto: by their size")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters that may differ between two fits of a search when one starts from the other."""
        return "C", "v"

    @model_validator(mode="after")
    def _solver_and_set(self) -> MKLConfig:
        if self.solver == "simplemkl" and not self.on_simplex:
            raise ValueError(f"solver='simplemkl' needs constraint='simplex' (or v=1, p=1, B=1); found constraint={self.constraint!r}")
        if self.solver == "fgm" and self.constraint != "box":
            raise ValueError(f"solver='fgm' needs constraint='box', whose sets of B kernels it generates; found {self.constraint!r}")
        return self

    @property
    def on_simplex(self) -> bool:
        """True if the weights lie on a simplex."""
        ends = {"elastic_net": self.v == 1, "lp": self.p == 1, "l1_lp": self.v == 1 or self.p == 1, "box": self.B == 1}
        return ends.get(self.constraint, self.constraint == "simplex")
