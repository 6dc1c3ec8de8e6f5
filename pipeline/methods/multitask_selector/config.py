"""Parameters of feature selection over many tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability, Scale

ROUNDS_LAM = 0.1
OF_ROUNDS = ("gamma", "epochs", "shuffle")


class SelectorConfig(MethodConfig):
    """Parameters of feature selection over many tasks (``multitask-selector``)."""

    has_tasks = True

    penalty: Literal["imtfs", "amtfs", "mtfts"] = Field(
        "mtfts",
        description="imtfs: every task chooses by itself; amtfs: all tasks have the same features; mtfts: each has some of those that "
        "all choose",
    )
    lam: NonNegative | Literal["auto"] = Field(
        "auto",
        description="weight of the penalty beside the mean losses of the tasks. auto: of a batch min(1.2 Q log(2 d) / n, 0.3) of "
        "the least lam that selects nothing, of Q tasks, d features and n rows, found before the first step (lam_); of a stream 0.1",
    )
    gamma: Positive = Field(
        1.0,
        description="da: weight of the proximity term, gamma/sqrt(t) in round t; of the order of the rows' squared norms, or predictions "
        "grow without bound",
    )
    r: NonNegative = Field(0.01, description="mtfts: share of the l1 norm, lam r sum |W_jq| is added to lam sum_j ||W_j||")
    loss: Literal["squared", "logistic", "hinge"] = Field(
        "squared", description="loss of a row; squared, (y - f)^2 / 2, for numbers, the others for two classes"
    )
    algorithm: Literal["auto", "da", "fista"] = Field(
        "auto",
        description="da: dual averaging over rounds of one row per task; fista: the batch optimum with its duality gap. auto: fista, and "
        "da in partial_fit, without a penalty (lam=0), and where a parameter of rounds is not its default (gamma, epochs, shuffle)",
    )
    epochs: Count = Field(1, description="da: passes over the rows")
    shuffle: bool = Field(
        True, description="da: rows of every task in a seeded order, a new one each epoch; else the k-th rows of all tasks make up round k"
    )
    fit_intercept: bool = Field(True, description="fit an intercept for every task, without penalty; task_offset stands in its place")
    task_offset: Literal["mean", "shrunken"] | None = Field(
        None,
        description="squared: what is subtracted from the target before the fit and added to predictions. mean: the mean of all training "
        "rows; shrunken: each task's own mean, shrunk towards it by what the task's rows can tell",
    )
    refit: NonNegative | None = Field(
        None, description="fit once more at this lam on the selected features alone: a strong penalty selects, a weak one gives the weights"
    )
    tol: Positive = Field(1e-4, description="fista: duality gap at which the fit ends, relative to the objective")
    max_iter: Count = Field(
        1000, description="fista: sweeps (squared), Newton steps (logistic) or steps of the interior path (hinge) at most"
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(
        None, description="factor of the loss per class; partial_fit takes no balanced ones"
    )
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def learns_from_stream(self) -> bool:
        """Whether it takes rows as they come."""
        return self.resolved().algorithm != "fista"

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

    def resolved(self, *, is_stream: bool = False) -> SelectorConfig:
        """Return the parameters with what ``auto`` stands for, but for the lam of a batch; ``is_stream``: rows come once."""
        fields = type(self).model_fields
        has_zero = 0 in (self.lam, self.refit)
        is_stream = is_stream or has_zero or any(getattr(self, name) != fields[name].default for name in OF_ROUNDS)
        algorithm = ("da" if is_stream else "fista") if self.algorithm == "auto" else self.algorithm
        lam = ROUNDS_LAM if self.lam == "auto" and algorithm == "da" else self.lam
        has_intercept = self.fit_intercept and self.task_offset is None
        return self.model_copy(update={"algorithm": algorithm, "lam": lam, "fit_intercept": has_intercept})
