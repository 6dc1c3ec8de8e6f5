"""Parameters of feature selection over many tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability, Scale

ROUNDS_LAM = 0.1
Norm = Annotated[
    Annotated[float, Field(ge=1, allow_inf_nan=False)] | Literal["inf"],
    # JSON has no infinite numbers.
    BeforeValidator(lambda value: "inf" if value == float("inf") else value),
]
OF_ROUNDS = ("gamma", "epochs", "shuffle")


class SelectorConfig(MethodConfig):
    """Parameters of feature selection over many tasks (``multitask-selector``)."""

    has_tasks = True

    penalty: Literal["imtfs", "amtfs", "mtfts", "lp1"] = Field(
        "mtfts",
        description="features that tasks share: none, all, some, or by p",
    )
    lam: NonNegative | Literal["auto"] = Field(
        "auto",
        description="regularisation strength; auto: from the data",
    )
    gamma: Positive = Field(
        1.0,
        description="rounds: weight of the proximity term, or step size",
    )
    r: NonNegative = Field(0.01, description="mtfts: share of the l1 norm")
    p: Norm = Field(2.0, description="lp1: norm over tasks; 1: imtfs, 2: amtfs, inf: largest")
    loss: Literal["squared", "logistic", "hinge"] = Field("squared", description="loss of a row: squared for numbers, others for classes")
    algorithm: Literal["auto", "da", "fobos", "fista"] = Field(
        "auto",
        description="da, fobos: online, in rounds; fista: batch optimum",
    )
    epochs: Count = Field(1, description="da, fobos: number of passes over the rows")
    shuffle: bool = Field(True, description="da, fobos: shuffle the rows of tasks anew in each epoch")
    fit_intercept: bool = Field(True, description="fit an unpenalised intercept for every task")
    task_offset: Literal["mean", "shrunken"] | None = Field(
        None,
        description="squared: offset subtracted from the target of a task",
    )
    refit: NonNegative | None = Field(None, description="refit the selected features with this lam")
    tol: Positive = Field(1e-4, description="fista: stopping tolerance, relative duality gap")
    max_iter: Count = Field(1000, description="fista: largest number of sweeps or steps")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factors of the loss per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def learns_from_stream(self) -> bool:
        """True if the algorithm processes rows as a stream."""
        return self.resolved().algorithm != "fista"

    @model_validator(mode="after")
    def _parts_agree(self) -> SelectorConfig:
        if self.p != 2.0 and self.penalty != "lp1":
            raise ValueError(f"p={self.p!r} needs penalty='lp1', here it is {self.penalty!r}")
        if self.task_offset is not None and self.loss != "squared":
            raise ValueError(f"task_offset={self.task_offset!r} is subtracted from numbers; it needs loss='squared', not {self.loss!r}")
        if self.class_weight is not None and self.loss == "squared":
            raise ValueError(f"class_weight={self.class_weight!r}: loss='squared' fits numbers, there are no classes")
        for name, lam in (("lam", self.lam), ("refit", self.refit)):
            if self.algorithm == "fista" and lam == 0:
                raise ValueError(f"{name}=0: algorithm='fista' cannot bound its gap; set {name} to a small positive number")
        return self

    def resolved(self, *, is_stream: bool = False) -> SelectorConfig:
        """Return the parameters with ``"auto"`` replaced, except the ``lam`` of a batch. ``is_stream``: the rows are read only once."""
        fields = type(self).model_fields
        has_zero = 0 in (self.lam, self.refit)
        is_stream = is_stream or has_zero or any(getattr(self, name) != fields[name].default for name in OF_ROUNDS)
        algorithm = ("da" if is_stream else "fista") if self.algorithm == "auto" else self.algorithm
        lam = ROUNDS_LAM if self.lam == "auto" and algorithm != "fista" else self.lam
        has_intercept = self.fit_intercept and self.task_offset is None
        return self.model_copy(update={"algorithm": algorithm, "lam": lam, "fit_intercept": has_intercept})
