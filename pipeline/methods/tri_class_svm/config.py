"""Parameters of the tri-class support vector machine."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ...records.config import ClassWeight, Count, MethodConfig, NonNegative, Positive, Probability, Scale

Finite = Annotated[float, Field(allow_inf_nan=False)]


class TriClassConfig(MethodConfig):
    """Parameters of the tri-class support vector machine (``tri-class-svm``)."""

    C: Positive = Field(1.0, description="inverse regularisation strength, as in scikit-learn's SVC")
    C_unlabelled: NonNegative = Field(0.1, description="loss weight of unlabelled rows; 0 ignores them")
    C_irrelevant: NonNegative | None = Field(None, description="loss weight of irrelevant rows; default: C_unlabelled")
    eps: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="half-width of the tube of irrelevant rows")
    kernel: str = Field(
        "rbf",
        description="kernel name, kernel expression, or precomputed",
    )
    gamma: Literal["scale", "auto"] | Positive = Field(
        "scale",
        description="coefficient of a kernel given by name, as in SVC",
    )
    degree: Count = Field(3, description="degree of kernel=poly")
    coef0: NonNegative = Field(0.0, description="constant term of kernel=poly")
    algorithm: Literal["mm", "dc", "cccp"] = Field(
        "mm",
        description="how unlabelled rows are fitted",
    )
    start: Literal["best", "usvm", "svm3", "s3vm", "random"] = Field(
        "best",
        description="initial assignment of the unlabelled rows",
    )
    balance: Literal["labels"] | Finite | None = Field(
        None,
        description="required mean decision value of the unlabelled rows",
    )
    all_relevant: bool = Field(False, description="every unlabelled row belongs to a class (S3VM)")
    n_random: Count = Field(1, description="number of random starts")
    validation: Literal["auto"] | Annotated[int, Field(ge=0)] = Field(
        "auto",
        description="folds that check whether unlabelled rows help",
    )
    irrelevant_label: bool | int | float | str | None = Field(
        "auto",
        description="label of rows of no class",
    )
    D: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = Field(
        None,
        description="cccp: range of its relaxation",
    )
    class_weight: ClassWeight = None
    tol: Positive = Field(
        1e-4,
        description="stopping tolerance of a start: decrease of the objective",
    )
    inner_tol: Positive = Field(1e-3, description="tolerance of a convex problem, in units of decision values")
    max_iter: Count = Field(50, description="largest number of convex problems per start")
    grams: Literal["auto", "memory", "recompute"] = Field("auto", description="where to keep the Gram matrix; auto: by its size")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _relaxation_and_folds(self) -> TriClassConfig:
        if self.D is not None and 1 + self.eps > self.D:
            raise ValueError(f"D={self.D}: must be at least 1 + eps = {1 + self.eps:g}")
        if self.validation == 1:
            raise ValueError("validation=1: must be 0, or at least 2 folds")
        return self

    def for_folds(self) -> Self:
        """Return the parameters without a validation."""
        return self.model_copy(update={"validation": 0})
