"""Parameters of the Feature Generating Machine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability, Scale

ClassLoss = Literal["squared_hinge", "logistic"]
NumberLoss = Literal["squared", "squared_epsilon_insensitive", "huber"]


class FGMConfig(MethodConfig):
    """Parameters of the Feature Generating Machine (``fgm``)."""

    pass_parameters = ("feature_map", "gamma", "coef0", "n_bins", "exponent", "group_weight", "fit_intercept")

    B: Count = Field(
        10,
        description="features (groups, pairs) that a round may select",
    )
    C: Positive | Literal["auto"] = Field(
        "auto",
        description="inverse regularisation strength; auto: from the data",
    )
    max_rounds: Count | Literal["auto"] = Field(
        "auto",
        description="largest number of rounds; auto: 10 or fewer",
    )
    n_features_to_select: Count | None = Field(
        None,
        description="stop at exactly this many features (groups, pairs)",
    )
    loss: Literal["auto", ClassLoss, NumberLoss] = Field(
        "auto",
        description="loss of a row; auto: the first that suits the target",
    )
    epsilon: NonNegative = Field(0.1, description="half-width of the tube, in standard deviations of the target")
    delta: Positive = Field(1.35, description="huber: residual where the loss turns linear, in std. dev.")
    fit_intercept: bool = Field(True, description="fit an unpenalised intercept")
    group_weight: Literal["none", "1/size"] | list[float] | None = Field(None, description="weight of each group: numbers or a rule")
    feature_map: Literal["poly2", "hik", "additive_gaussian", "additive_chi2"] | None = Field(
        None,
        description="implicit map: products of two features, or kernels of each",
    )
    gamma: Positive = Field(1.0, description="factor in poly2 and in the exponent of additive_gaussian")
    coef0: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(1.0, description="constant term of the degree-2 kernel")
    n_bins: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="columns per feature of the intersection kernel")
    exponent: Positive | None = Field(None, description="intersection kernel of |x|^exponent; default: of x >= 0")
    solver: Literal["auto", "newton", "apg", "mkl"] = Field("auto", description="solver of the sub-problems; auto: newton")
    inner_tol: Positive = Field(1e-3, description="stopping tolerance of a sub-problem (see inner_stop)")
    inner_stop: Literal["gap", "decrease"] = Field(
        "gap",
        description="stopping criterion of a sub-problem: duality gap or decrease",
    )
    max_inner: Count | None = Field(None, description="largest number of steps of a sub-problem per round")
    outer_tol: Positive | None = Field(None, description="stopping tolerance of the fit (see outer_stop)")
    allow_repeat: bool = Field(True, description="let a round select a feature again, as the exact method does")
    debias: bool = Field(False, description="refit the selected features with a ridge penalty, C=20")
    outer_stop: Literal["gap", "decrease"] = Field("gap", description="stopping criterion of the fit: certified gap or decrease")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factors of C per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def most_rounds(self) -> int:
        """Largest number of rounds."""
        return 10 if self.max_rounds == "auto" else self.max_rounds

    @property
    def stops_at_chance(self) -> bool:
        """True if the fit stops when no candidate atom scores higher than chance explains."""
        asked = self.max_rounds, self.n_features_to_select, self.outer_tol, self.feature_map
        return asked == ("auto", None, None, None)

    @model_validator(mode="after")
    def _maps_and_groups(self) -> FGMConfig:
        if self.inner_stop == "decrease" and self.solver not in ("auto", "apg"):
            raise ValueError(f"inner_stop='decrease' needs solver='apg' or 'auto', not {self.solver!r}")
        if self.feature_map is not None and self.group_weight is not None:
            raise ValueError(f"group_weight={self.group_weight!r} needs groups, which feature_map={self.feature_map!r} excludes")
        return self
