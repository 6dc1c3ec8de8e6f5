"""Parameters of feature selection over many tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive


class SelectorConfig(MethodConfig):
    """Parameters of feature selection over many tasks (``multitask-selector``)."""

    has_tasks = True

    penalty: Literal["imtfs", "amtfs", "mtfts"] = Field(
        "mtfts", description="imtfs: every task chooses alone; amtfs: all choose together; mtfts: together, and each some of these"
    )
    lam: NonNegative = Field(0.1, description="weight of the penalty beside the mean loss of a round, summed over tasks")
    gamma: Positive = Field(1.0, description="da: weight of the proximity term, gamma/sqrt(t) in round t")
    r: NonNegative = Field(0.01, description="mtfts: lam r sum |W_jq| is added to lam sum_j ||W_j||")
    loss: Literal["squared", "logistic", "hinge"] = Field("squared", description="loss of a row; squared for numbers, else for classes")
    algorithm: Literal["da", "fista"] = Field("da", description="dual averaging over rounds of one row per task; fista: the batch optimum")
    epochs: Count = Field(1, description="da: passes over the rows")
    shuffle: bool = Field(True, description="da: rows of every task in a seeded order, a new one each epoch")
    fit_intercept: bool = Field(False, description="fit an intercept for every task, without penalty")
    task_offset: Literal["mean", "shrunken"] | None = Field(
        None, description="squared: subtract the mean of the target, or each task's mean, shrunk towards it, before fitting"
    )
    refit: NonNegative | None = Field(None, description="fit again at this lam on the selected features alone")
    tol: Positive = Field(1e-4, description="fista: duality gap at which the fit ends, relative to the objective")
    max_iter: Count = Field(1000, description="fista: sweeps (squared), Newton steps (logistic) or proximal steps (hinge) at most")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of the loss per class")

    @model_validator(mode="after")
    def _suits_the_loss(self) -> SelectorConfig:
        if self.task_offset is not None and self.loss != "squared":
            raise ValueError(f"task_offset={self.task_offset!r} is subtracted from numbers; it needs loss='squared', not {self.loss!r}")
        if self.class_weight is not None and self.loss == "squared":
            raise ValueError(f"class_weight={self.class_weight!r}: loss='squared' fits numbers, there are no classes")
        for name, lam in (("lam", self.lam), ("refit", self.refit)):
            if self.algorithm == "fista" and lam == 0:
                raise ValueError(f"{name}=0 leaves algorithm='fista' without a bound on its gap; choose a small positive number")
        return self
