"""Parameters of rule ensembles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from ...records.config import Count, MethodConfig, Positive, Probability


class RuleConfig(MethodConfig):
    """Parameters of rule ensembles on the lattice of conjunctions (``rule-ensemble``)."""

    fold_tols = {"tol": 1e-2, "rest": 1e-2}

    has_tasks = True
    takes_missing = True

    rho: Annotated[float, Field(gt=1, le=2, allow_inf_nan=False)] = Field(
        1.1, description="inner exponent: near 1 few rules, 2 with all their parts"
    )
    a: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(2.0, description="base of the penalty a^k of a rule of k propositions")
    C: Positive | Literal["auto"] = Field(
        "auto",
        description="inverse regularisation strength, as in scikit-learn's SVC",
    )
    loss: Literal["auto", "squared", "epsilon_insensitive"] = Field(
        "auto", description="loss of a real target; auto: squared; classes have the hinge"
    )
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="half-width of the tube, in standard deviations of the target"
    )
    n_thresholds: Annotated[int, Field(ge=1, le=1000)] = Field(9, description="thresholds per numeric column, at quantiles")
    refine_cuts: bool = Field(True, description="move the thresholds of selected rules to the best values")
    categorical: list[StrictBool] | list[int | str] | None = Field(None, description="columns whose values are categories")
    task_kernel: list[list[float]] | None = Field(
        None,
        description="similarity matrix of the tasks",
    )
    tol: Positive = Field(1e-3, description="stopping tolerance: relative duality gap")
    max_rounds: Count = Field(50, description="largest number of searches for further rules")
    max_rules: Count = Field(1000, description="largest number of conjunctions in the active set")
    max_visits: Count = Field(
        2_000_000,
        description="largest number of conjunctions visited for a certificate",
    )
    rest: Positive | None = Field(1e-3, description="stop if a round lowers the objective by a smaller share")
    add: Count = Field(30, description="conjunctions added per round, not counting their parts")
    skip_implied: bool = Field(True, description="skip conjunctions of implied or contradicting propositions")
    prune: Annotated[float, Field(ge=0, lt=1)] = Field(0.02, description="drop rules below this share of the largest weight")
    refit: bool = Field(True, description="refit the selected rules")
    solver: Literal["auto", "newton", "mirror"] = Field(
        "auto",
        description="Newton steps, or mirror descent as in the thesis",
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factors of C per class")
    probability: Probability = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters that may differ between two fits of a search when one starts from the other."""
        return "C", "rho"
