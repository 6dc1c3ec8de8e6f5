"""Parameters of the Feature Generating Machine."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from ...inputs.labels import Inputs, resolve_loss
from ...records.config import Count, MethodConfig, NonNegative, Positive, Probability, Scale

ClassLoss = Literal["squared_hinge", "logistic"]
NumberLoss = Literal["squared", "squared_epsilon_insensitive", "huber"]


class FGMConfig(MethodConfig):
    """Parameters of the Feature Generating Machine (``fgm``)."""

    B: Count = Field(
        10,
        description="features (groups, pairs) a cut may take; at most B * max_rounds are selected. An estimator clips it to the "
        "number there is, with a warning",
    )
    C: Positive | Literal["auto"] = Field(
        "auto",
        description="loss weight; auto: the number of rows over log(2 a) of a atoms and over the sum of the B largest squared scores of "
        "the null model's residuals, per sum of their squares, found by the first search (C_), four times that of the logistic loss: the "
        "columns' unit does not matter. Squared hinge has C/2 * sum xi^2: C is twice LinearSVC's; logistic has C * sum log(1 + exp(-m)), "
        "as LogisticRegression; of real targets C/2 * sum r^2 (beyond the tube, up to delta), whatever their unit. The paper's experiments "
        "have C=10 and no intercept",
    )
    max_rounds: Count | Literal["auto"] = Field(
        "auto",
        description="cutting planes at most. The early stop is what selects: near-exact solutions are denser and often less accurate. "
        "auto: 10; fewer on dense columns without a map where no candidate (feature, group) stands out of chance. With "
        "n_features_to_select or outer_tol, 10",
    )
    n_features_to_select: Count | None = Field(
        None,
        description="stop as soon as the cuts hold exactly this many distinct features (groups, pairs); one without weight is not selected",
    )
    loss: Literal["auto", ClassLoss, NumberLoss] = Field(
        "auto",
        description="loss of one row: squared_hinge or logistic for classes; squared, squared_epsilon_insensitive or huber for real "
        "targets; auto: the first that suits the target",
    )
    epsilon: NonNegative = Field(
        0.1, description="squared_epsilon_insensitive: half width of the tube without loss, in standard deviations of the target"
    )
    delta: Positive = Field(1.35, description="huber: residual beyond which the loss is straight, in standard deviations of the target")
    fit_intercept: bool = Field(True, description="fit an unpenalised intercept, eliminated exactly")
    group_weight: Literal["none", "1/size"] | list[float] | None = Field(
        None, description="weight eta of each group, one number per group or a rule; default: none, 1/size for nested groups"
    )
    feature_map: Literal["poly2", "hik", "additive_gaussian"] | None = Field(
        None,
        description="implicit map of the features: poly2, the kernel (gamma x'z + coef0)^2, never materialised; hik, histogram "
        "intersection of non-negative features; additive_gaussian, sum_j exp(-gamma (x_j - z_j)^2)",
    )
    gamma: Positive = Field(1.0, description="poly2: (gamma x'z + coef0)^2; additive_gaussian: exp(-gamma (x - z)^2)")
    coef0: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(1.0, description="constant of the degree-2 kernel")
    n_bins: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="columns per feature of the intersection kernel")
    solver: Literal["auto", "newton", "apg", "mkl"] = Field(
        "auto", description="sub-problem solver; auto is newton, on the active rows; apg: the paper's; mkl: slow reference"
    )
    inner_tol: Positive = Field(1e-3, description="inner test (see inner_stop) at which a sub-problem ends")
    inner_stop: Literal["gap", "decrease"] = Field(
        "gap",
        description="inner test: gap, the relative duality gap of the sub-problem; decrease, the paper's (41), the relative decrease of a "
        "step, with solver apg, which auto then is: fast, it leaves gaps of tens of percent, which are reported",
    )
    max_inner: Count | None = Field(None, description="sub-problem steps per round at most; the gap left is reported")
    outer_tol: Positive | None = Field(None, description="stop when the outer test (see outer_stop) falls to this value; default: never")
    allow_repeat: bool = Field(
        True, description="let a cut take a feature again, as the exact method does; False gives B new features a round"
    )
    debias: bool = Field(False, description="refit a ridge-penalised model on the selected features, C=20")
    outer_stop: Literal["gap", "decrease"] = Field(
        "gap", description="outer test: gap, the certified relative distance to the exact optimum; decrease, the paper's (38)"
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def most_rounds(self) -> int:
        """Cutting planes at most."""
        return 10 if self.max_rounds == "auto" else self.max_rounds

    @property
    def stops_at_chance(self) -> bool:
        """Whether candidates have to stand out of chance."""
        asked = self.max_rounds, self.n_features_to_select, self.outer_tol, self.feature_map
        return asked == ("auto", None, None, None)

    @model_validator(mode="after")
    def _maps_and_groups(self) -> FGMConfig:
        if self.inner_stop == "decrease" and self.solver not in ("auto", "apg"):
            raise ValueError(f"inner_stop='decrease' is a test of the steps of apg; solver={self.solver!r} ends by its gap")
        if self.feature_map is not None and self.group_weight is not None:
            raise ValueError(f"group_weight={self.group_weight!r} needs groups, which feature_map={self.feature_map!r} excludes")
        return self


def resolve_config(config: FGMConfig, inputs: Inputs) -> FGMConfig:
    """Return parameters with everything decided that depends on the target.

    Raises ValueError: a loss, or class weights, that do not suit the target.
    """
    is_real = inputs.classes is None
    if is_real and config.class_weight is not None:
        raise ValueError(f"class_weight={config.class_weight!r}: the target holds real numbers, there are no classes")
    loss = resolve_loss(config.loss, inputs.classes, get_args(NumberLoss), get_args(ClassLoss))
    return config.model_copy(update={"loss": loss})
