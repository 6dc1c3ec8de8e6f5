"""Parameters of the tri-class support vector machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, Positive

NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class TriClassConfig(MethodConfig):
    """Parameters of the tri-class support vector machine (``tri-class-svm``)."""

    C: Positive = Field(1.0, description="loss weight of labelled rows of two classes, as scikit-learn's SVC; 1 / lambda")
    C_unlabelled: NotNegative = Field(0.1, description="loss weight of unlabelled rows; 0 leaves them out")
    C_irrelevant: NotNegative | None = Field(None, description="loss weight of rows labelled 0; default: C_unlabelled")
    eps: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="half width of the tube around the boundary for irrelevant rows")
    kernel: str = Field("rbf", description="linear, poly, rbf or laplacian, or a kernel's short text such as rbf(gamma=0.5)[0:4]")
    gamma: Literal["scale", "auto"] | Positive = Field(
        "scale", description="of a kernel named by one word; scale: 1 / (features * variance of all rows), auto: 1 / features"
    )
    degree: Count = Field(3, description="degree of kernel=poly")
    coef0: NotNegative = Field(0.0, description="constant of kernel=poly")
    algorithm: Literal["mm", "dc", "cccp"] = Field(
        "mm", description="exact majorise-minimise, exact difference of convex functions, or the thesis' CCCP with relaxed indicators"
    )
    start: Literal["best", "usvm", "svm3", "s3vm", "random"] = Field(
        "best", description="first assignment of the unlabelled rows; best: all of them, the least objective is kept"
    )
    balance: Literal["labels"] | Finite | None = Field(
        None, description="what the mean decision value of the unlabelled rows must be; labels: the mean of the labels -1 and +1"
    )
    all_relevant: bool = Field(False, description="no row is irrelevant: a semi-supervised machine (S3VM)")
    n_random: Count = Field(1, description="random starts")
    validation: Annotated[int, Field(ge=0)] = Field(
        0, description="folds of a cross-validation beside the plain machine and the one with all unlabelled rows irrelevant; 0: none"
    )
    D: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = Field(
        None, description="cccp: how far its relaxation reaches; default: as far as the values do, and at least 2"
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
    tol: Positive = Field(1e-4, description="decrease of the objective, relative to 1 + objective, at which a start ends")
    inner_tol: Positive = Field(1e-3, description="tolerance of a convex problem, in units of decision values")
    max_iter: Count = Field(50, description="convex problems per start at most")
    grams: Literal["auto", "memory", "recompute"] = Field("auto", description="where the Gram matrix lies; auto decides from sizes")

    @model_validator(mode="after")
    def _relaxation_and_folds(self) -> TriClassConfig:
        if self.D is not None and 1 + self.eps > self.D:
            raise ValueError(f"D={self.D}: must be at least 1 + eps = {1 + self.eps:g}")
        if self.validation == 1:
            raise ValueError("validation=1: must be 0, or at least 2 folds")
        return self
