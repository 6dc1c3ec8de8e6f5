"""Parameters of the tri-class support vector machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import ClassWeight, Count, MethodConfig, NonNegative, Positive, Probability, Scale

Finite = Annotated[float, Field(allow_inf_nan=False)]


class TriClassConfig(MethodConfig):
    """Parameters of the tri-class support vector machine (``tri-class-svm``)."""

    C: Positive = Field(1.0, description="loss weight of rows of the two classes, as of scikit-learn's SVC; 1 / lambda")
    C_unlabelled: NonNegative = Field(0.1, description="loss weight of unlabelled rows; 0 leaves them out")
    C_irrelevant: NonNegative | None = Field(None, description="loss weight of irrelevant rows; default: C_unlabelled")
    eps: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.1, description="half width of the tube around the boundary in which irrelevant rows cost nothing"
    )
    kernel: str = Field(
        "rbf",
        description="rbf, linear, poly or laplacian; a kernel's short text such as rbf(gamma=0.5)[0:4]; or precomputed: X is the matrix of "
        "labelled rows followed by unlabelled ones at fit, and (n_test, n_rows) at predict",
    )
    gamma: Literal["scale", "auto"] | Positive = Field(
        "scale",
        description="of a kernel named by one word, as of scikit-learn's SVC; scale: 1 / (features * variance of all rows, unlabelled ones "
        "included), auto: 1 / features",
    )
    degree: Count = Field(3, description="degree of kernel=poly")
    coef0: NonNegative = Field(0.0, description="constant of kernel=poly")
    algorithm: Literal["mm", "dc", "cccp"] = Field(
        "mm",
        description="mm: every unlabelled row takes the cheaper of its two losses, then the convex problem is solved exactly; dc: the "
        "concave part of the exact difference of convex functions is made linear; cccp: the thesis' Algorithm 3 with relaxed indicators",
    )
    start: Literal["best", "usvm", "svm3", "s3vm", "random"] = Field(
        "best",
        description="first assignment of the unlabelled rows: svm3 by the machine on the labelled rows, usvm by the one with all of them "
        "irrelevant, s3vm all relevant, random; best: all of these, the least objective is kept. The least objective is not always the "
        "most accurate: many unlabelled rows with a large C_unlabelled may find it with nearly all of them irrelevant, which validation "
        "tells",
    )
    balance: Literal["labels"] | Finite | None = Field(
        None,
        description="what the mean decision value of the unlabelled rows must be: a number, or labels for the mean of the labels (-1, +1)",
    )
    all_relevant: bool = Field(False, description="every unlabelled row belongs to a class: a semi-supervised machine (S3VM)")
    n_random: Count = Field(1, description="random starts")
    validation: Literal["auto"] | Annotated[int, Field(ge=0)] = Field(
        "auto",
        description="folds of a cross-validation on the labelled rows, beside the machines that svm3 and usvm start from: it warns when "
        "one of these, which learn little or nothing from the unlabelled rows, is right on more rows held out, by more than the standard "
        "error of the difference. auto: 3 folds of the fit's best start alone, about as much work again as the fit, where there are "
        "unlabelled rows, no test share, 3 rows of each class, and at most 5,000 rows in all; 0: none",
    )
    irrelevant_label: bool | int | float | str | None = Field(
        "auto",
        description="label of rows of neither class; the others must be two, of any kind. auto: 0, which is a class like any other where "
        "there are two labels in all; labels -1, 0 and 1 without unlabelled rows are refused: -1 may mean these. None: no row is "
        "irrelevant",
    )
    D: Annotated[float, Field(ge=1, allow_inf_nan=False)] | None = Field(
        None,
        description="cccp: how far its relaxation reaches, at least 1 + eps; default: as far as the decision values do, and at least 2",
    )
    class_weight: ClassWeight = None
    tol: Positive = Field(
        1e-4,
        description="a start ends when no assignment changes, or the objective J falls by less than tol (1 + J); below a tenth of "
        "inner_tol its last convex problem is solved on until its gap is at most tol (1 + J), too",
    )
    inner_tol: Positive = Field(1e-3, description="tolerance of a convex problem, in units of decision values")
    max_iter: Count = Field(50, description="convex problems per start at most; a warning tells when they end the best one")
    grams: Literal["auto", "memory", "recompute"] = Field("auto", description="where the Gram matrix lies; auto decides from sizes")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _relaxation_and_folds(self) -> TriClassConfig:
        if self.D is not None and 1 + self.eps > self.D:
            raise ValueError(f"D={self.D}: must be at least 1 + eps = {1 + self.eps:g}")
        if self.validation == 1:
            raise ValueError("validation=1: must be 0, or at least 2 folds")
        return self
