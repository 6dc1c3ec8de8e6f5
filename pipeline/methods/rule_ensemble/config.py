"""Parameters of rule ensembles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...records.config import Count, MethodConfig, Positive


class RuleConfig(MethodConfig):
    """Parameters of rule ensembles on the lattice of conjunctions (``rule-ensemble``)."""

    has_tasks = True
    takes_missing = True

    rho: Annotated[float, Field(gt=1, le=2, allow_inf_nan=False)] = Field(
        1.1, description="inner exponent: 2 selects a rule with all its parts, towards 1 few rules are kept"
    )
    a: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(2.0, description="penalty of a rule of k propositions is a^k")
    C: Positive = Field(1.0, description="loss weight, the same as scikit-learn's SVC")
    n_thresholds: Annotated[int, Field(ge=1, le=1000)] = Field(9, description="cuts of a numeric column, at quantiles of training rows")
    refine_cuts: bool = Field(True, description="move the cuts of the kept rules to the best training values, and fit the rules again")
    categorical: list[int | str] | None = Field(None, description="columns (numbers or names) whose values are names")
    task_kernel: list[list[float]] | None = Field(None, description="similarity of the tasks, (n_tasks, n_tasks); default: none")
    tol: Positive = Field(1e-3, description="certified gap at which the fit may end, relative to the objective")
    max_rounds: Count = Field(50, description="times the rules outside are looked at, at most")
    max_rules: Count = Field(1000, description="conjunctions of the active set at most")
    max_visits: Count = Field(2_000_000, description="conjunctions a search for a certificate looks at; beyond, it holds to a depth")
    rest: Positive | None = Field(
        1e-4, description="stop when a round's rules lowered the objective by less than this share; none: go on to the certificate"
    )
    add: Count = Field(30, description="conjunctions added in a round, without their parts")
    skip_implied: bool = Field(True, description="leave out conjunctions of propositions that imply or contradict each other")
    prune: Annotated[float, Field(ge=0, lt=1)] = Field(0.02, description="rules below this share of the largest weight are dropped")
    refit: bool = Field(True, description="fit the kept rules again")
    solver: Literal["auto", "newton", "mirror"] = Field("auto", description="auto is newton: joint re-weighting; mirror: the thesis'")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
