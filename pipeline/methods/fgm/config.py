"""NEW."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ...records.config import Count, MethodConfig, Positive


class FGMConfig(MethodConfig):
    """Parameters of the Feature Generating Machine (``fgm``)."""

    B: Count = Field(10, description="features (groups, pairs) a cut may take; the least number selected")
    C: Positive = Field(10.0, description="loss weight; squared hinge: C/2 * sum xi^2, twice LinearSVC's C")
    max_rounds: Count = Field(10, description="cutting planes at most")
    n_features_to_select: Count | None = Field(None, description="stop when this many distinct features are selected, exactly")
    loss: Literal["squared_hinge", "logistic"] = Field("squared_hinge", description="loss of one row")
    fit_intercept: bool = Field(False, description="fit an unpenalised intercept, eliminated exactly")
    group_weight: Literal["none", "1/size"] | list[float] | None = Field(
        None, description="weight eta of each group; default none, 1/size for trees"
    )
    feature_map: Literal["poly2", "hik", "additive_gaussian"] | None = Field(None, description="implicit map of the features")
    gamma: Positive = Field(1.0, description="poly2: (gamma x'z + coef0)^2; additive_gaussian: exp(-gamma (x - z)^2)")
    coef0: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(1.0, description="constant of the degree-2 kernel")
    n_bins: Annotated[int, Field(ge=1, le=10_000)] = Field(100, description="columns per feature of the intersection kernel")
    solver: Literal["auto", "newton", "apg", "mkl"] = Field("auto", description="sub-problem solver; auto is newton")
    inner_tol: Positive = Field(1e-3, description="relative duality gap at which a sub-problem ends")
    max_inner: Count | None = Field(None, description="sub-problem steps per round at most; the gap left is reported")
    outer_tol: Positive | None = Field(None, description="stop when the outer test (see outer_stop) falls to this value")
    outer_stop: Literal["gap", "decrease"] = Field("gap", description="outer test: certified relative gap, or the paper's (38)")
    allow_repeat: bool = Field(True, description="let a cut take a feature again (exact); False gives distinct features")
    debias: bool = Field(False, description="refit a ridge-penalised model on the selected features, C=20")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")

    @model_validator(mode="after")
    def _maps_and_groups(self) -> FGMConfig:
        if self.feature_map is not None and self.group_weight is not None:
            raise ValueError(f"group_weight={self.group_weight!r} needs groups, which feature_map={self.feature_map!r} excludes")
        return self
