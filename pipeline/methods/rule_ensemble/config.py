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
    a: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(2.0, description="penalty of a rule of k propositions is a^k")
    C: Positive | Literal["auto"] = Field(
        "auto",
        description="loss weight, on the scale of scikit-learn's SVC",
    )
    n_thresholds: Annotated[int, Field(ge=1, le=1000)] = Field(9, description="cuts of a numeric column, at quantiles of training rows")
    refine_cuts: bool = Field(True, description="move cuts of selected rules to the best training values")
    categorical: list[StrictBool] | list[int | str] | None = Field(None, description="columns whose values are names")
    task_kernel: list[list[float]] | None = Field(
        None,
        description="similarity of the tasks, a matrix",
    )
    tol: Positive = Field(1e-3, description="relative gap at which the fit ends")
    max_rounds: Count = Field(50, description="looks at the rules outside at most")
    max_rules: Count = Field(1000, description="conjunctions of the active set at most")
    max_visits: Count = Field(
        2_000_000,
        description="conjunctions looked at for the certificate, at most",
    )
    rest: Positive | None = Field(1e-3, description="stop where a round lowers the objective by less; or none")
    add: Count = Field(30, description="conjunctions added in a round, without their parts")
    skip_implied: bool = Field(True, description="leave out propositions that imply or exclude each other")
    prune: Annotated[float, Field(ge=0, lt=1)] = Field(0.02, description="rules below this share of the largest weight are dropped")
    refit: bool = Field(True, description="fit the selected rules again")
    solver: Literal["auto", "newton", "mirror"] = Field(
        "auto",
        description="Newton steps, or the thesis' mirror descent",
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
    probability: Probability = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters in which fits of a search may differ that start from one another."""
        return "C", "rho"
