"""Parameters of the group lasso."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability, Scale

STREAM_LAM = 0.01
OF_STREAMS = ("gamma", "rho", "epochs", "batch_size", "shuffle", "average")

ClassLoss = Literal["logistic", "squared", "hinge"]
NumberLoss = Literal["squared"]


class GroupLassoConfig(MethodConfig):
    """Parameters of the group lasso (``group-lasso``)."""

    fold_tols = {"tol": 1e-2}
    path_falls = True
    pass_parameters = ("algorithm", "epochs", "shuffle")

    takes_streams = True

    penalty: Literal["gl", "sgl", "egl", "l1", "linf"] = Field(
        "gl",
        description="gl: group lasso; sgl, egl: sparse; l1; linf: largest",
    )
    lam: NonNegative | Literal["auto"] = Field(
        "auto",
        description="regularisation strength; auto: from rows and groups",
    )
    gamma: Positive = Field(1.0, description="streams: weight of the proximity term, or step size")
    r: NonNegative | list[NonNegative] = Field(1.0, description="sgl, egl: share of the l1 norm within groups")
    group_weight: list[Positive] | None = Field(None, description="weight of each group; none: root of its size")
    rho: NonNegative = Field(0.0, description="egl: l1 part of the proximity term")
    algorithm: Literal["auto", "da", "fobos", "fista"] = Field(
        "auto",
        description="da, fobos: online, in rounds; fista: batch optimum",
    )
    epochs: Count = Field(1, description="da, fobos: number of passes over the rows")
    batch_size: Count = Field(1, description="da, fobos: rows per round")
    shuffle: bool = Field(
        True,
        description="da, fobos: shuffle the rows anew in each epoch",
    )
    fit_intercept: bool = Field(
        True,
        description="fit an unpenalised intercept",
    )
    average: bool = Field(False, description="da: predict with the mean of all iterates")
    loss: Literal["auto", ClassLoss, NumberLoss] = Field(
        "auto",
        description="loss of a row; auto: logistic for classes, else squared",
    )
    tol: Positive = Field(1e-4, description="fista: stopping tolerance, relative duality gap")
    max_iter: Count = Field(1000, description="fista: largest number of steps")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factors of the loss per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters that may differ between two fits of a search if the second fit starts from the first."""
        return () if self.learns_from_stream else ("lam",)

    @property
    def is_logistic(self) -> bool:
        """True if the loss of classes is logistic, the default."""
        return self.loss in ("auto", "logistic")

    @property
    def learns_from_stream(self) -> bool:
        """True if the algorithm processes rows as a stream."""
        return self.resolved().algorithm != "fista"

    @model_validator(mode="after")
    def _parts_agree(self) -> GroupLassoConfig:
        if self.rho > 0 and self.penalty != "egl":
            raise ValueError(f"rho={self.rho!r} needs penalty='egl', here it is {self.penalty!r}")
        if self.average and self.algorithm not in ("auto", "da"):
            raise ValueError(f"average=True needs algorithm='da', here it is {self.algorithm!r}")
        return self

    def resolved(self, *, is_stream: bool = False) -> GroupLassoConfig:
        """Return the parameters with ``"auto"`` replaced, except the ``lam`` of a batch. ``is_stream``: the rows are read only once."""
        fields = type(self).model_fields
        is_stream = is_stream or self.lam == 0 or any(getattr(self, name) != fields[name].default for name in OF_STREAMS)
        algorithm = ("da" if is_stream else "fista") if self.algorithm == "auto" else self.algorithm
        lam = STREAM_LAM if self.lam == "auto" and algorithm != "fista" else self.lam
        return self.model_copy(update={"algorithm": algorithm, "lam": lam})
