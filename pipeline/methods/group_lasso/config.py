"""Parameters of the group lasso."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability, Scale

STREAM_LAM = 0.01
OF_STREAMS = ("gamma", "rho", "epochs", "batch_size", "shuffle", "average")


class GroupLassoConfig(MethodConfig):
    """Parameters of the group lasso (``group-lasso``)."""

    takes_streams = True

    penalty: Literal["gl", "sgl", "egl", "l1"] = Field(
        "gl",
        description="gl, group lasso: lam sum_g sqrt(d_g) ||w_g||; sgl, sparse group lasso: lam sum_g (sqrt(d_g) ||w_g|| + r_g ||w_g||_1); "
        "egl: the same, with a threshold that decays over the rounds (see rho); l1: lam ||w||_1",
    )
    lam: NonNegative | Literal["auto"] = Field(
        "auto",
        description="weight of the penalty beside the mean loss; group g of d_g features costs lam sqrt(d_g) ||w_g||. auto: of a batch "
        "min(0.6 log(2 G) / n, 0.3) of the least lam that selects nothing, of G groups and n rows, which the first step finds and lam_ "
        "tells; of a stream 0.01",
    )
    gamma: Positive = Field(
        1.0, description="da: weight of the proximity term, gamma/sqrt(t) in round t; fobos: steps are 1/(gamma sqrt(t))"
    )
    r: NonNegative | list[NonNegative] = Field(
        1.0, description="sgl, egl: share of the l1 norm inside groups, lam r_g ||w_g||_1 is added; one number, or one per group"
    )
    rho: NonNegative = Field(0.0, description="egl: l1 part of the proximity term; the threshold of round t is lam r_g + rho gamma/sqrt(t)")
    algorithm: Literal["auto", "da", "fobos", "fista"] = Field(
        "auto",
        description="da: dual averaging over the rows as they come; fobos: forward-backward splitting over the same; fista: the batch "
        "optimum with its duality gap. auto: fista, and da in partial_fit, of a text that is read once, without a penalty (lam=0), and "
        "where a parameter of streams is not its default (gamma, rho, epochs, batch_size, shuffle, average)",
    )
    epochs: Count = Field(1, description="da, fobos: passes over the rows")
    batch_size: Count = Field(1, description="da, fobos: rows of a round")
    shuffle: bool = Field(
        True,
        description="da, fobos: blocks of rows, and rows inside a block, in a seeded order, a new one each epoch; partial_fit takes rows "
        "as they come",
    )
    fit_intercept: bool = Field(
        True,
        description="fit an intercept without penalty; in a stream it has steps of its own, whatever gamma, batch_size and the scale of "
        "the features",
    )
    average: bool = Field(False, description="da: predict with the mean of all iterates, at the cost of a dense sweep per round")
    loss: Literal["auto", "logistic", "squared", "hinge"] = Field(
        "auto",
        description="loss of a row; auto: logistic for classes, squared for real targets. fista: Newton steps solve logistic, descent on "
        "moments squared, an interior path hinge",
    )
    tol: Positive = Field(1e-4, description="fista: duality gap at which the fit ends, relative to the objective")
    max_iter: Count = Field(1000, description="fista: steps at most")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(
        None, description="factor of the loss per class; a stream that is read once, and partial_fit, take no balanced ones"
    )
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def learns_from_stream(self) -> bool:
        """Whether it takes rows as they come."""
        return self.resolved().algorithm != "fista"

    @model_validator(mode="after")
    def _parts_agree(self) -> GroupLassoConfig:
        if self.rho > 0 and self.penalty != "egl":
            raise ValueError(f"rho={self.rho!r} needs penalty='egl', here it is {self.penalty!r}")
        if self.average and self.algorithm not in ("auto", "da"):
            raise ValueError(f"average=True needs algorithm='da', here it is {self.algorithm!r}")
        return self

    def resolved(self, *, is_stream: bool = False) -> GroupLassoConfig:
        """Return the parameters with what ``auto`` stands for, but for the lam of a batch; ``is_stream``: rows come once."""
        fields = type(self).model_fields
        is_stream = is_stream or self.lam == 0 or any(getattr(self, name) != fields[name].default for name in OF_STREAMS)
        algorithm = ("da" if is_stream else "fista") if self.algorithm == "auto" else self.algorithm
        lam = STREAM_LAM if self.lam == "auto" and algorithm != "fista" else self.lam
        return self.model_copy(update={"algorithm": algorithm, "lam": lam})
