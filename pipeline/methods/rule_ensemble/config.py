"""Parameters of rule ensembles."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictBool

from ...records.config import Count, MethodConfig, Positive, Probability


class RuleConfig(MethodConfig):
    """Parameters of rule ensembles on the lattice of conjunctions (``rule-ensemble``)."""

    has_tasks = True
    takes_missing = True

    rho: Annotated[float, Field(gt=1, le=2, allow_inf_nan=False)] = Field(
        1.1, description="inner exponent: 2 is hierarchical kernel learning, a rule with all its parts; towards 1 few rules are selected"
    )
    a: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(
        2.0, description="penalty of a rule of k propositions is a^k; larger values give shorter rules"
    )
    C: Positive | Literal["auto"] = Field(
        "auto",
        description="loss weight, the same as scikit-learn's SVC. auto: 10, and of more than two classes 10 times their number, 50 at most "
        "(C_), since their machines share one norm over rules",
    )
    n_thresholds: Annotated[int, Field(ge=1, le=1000)] = Field(9, description="cuts of a numeric column, at quantiles of training rows")
    refine_cuts: bool = Field(True, description="move the cuts of the selected rules to the best training values, and fit the rules again")
    categorical: list[StrictBool] | list[int | str] | None = Field(
        None, description="columns (numbers, names or a mask) whose values are names; columns of text in a data frame always are"
    )
    task_kernel: list[list[float]] | None = Field(
        None,
        description="positive semi-definite similarity (n_tasks, n_tasks) of the tasks in ascending order of their names; default: the "
        "identity, tasks choose rules together and weigh them independently",
    )
    tol: Positive = Field(
        1e-3, description="gap at which the active set's problem is solved and the fit may end, relative to the objective"
    )
    max_rounds: Count = Field(50, description="times the rules outside are looked at, at most; a warning tells when a cap ends the fit")
    max_rules: Count = Field(1000, description="conjunctions of the active set at most")
    max_visits: Count = Field(
        2_000_000,
        description="conjunctions that a search for the certificate looks at; where more would be needed it holds to a length of rules, "
        "and says so",
    )
    rest: Positive | None = Field(
        1e-3, description="stop when a round's rules lowered the objective by less than this share; none: go on to the certificate"
    )
    add: Count = Field(30, description="conjunctions added in a round, without their parts")
    skip_implied: bool = Field(True, description="leave out conjunctions of propositions that imply or contradict each other")
    prune: Annotated[float, Field(ge=0, lt=1)] = Field(0.02, description="rules below this share of the largest weight are dropped")
    refit: bool = Field(True, description="fit the selected rules again")
    solver: Literal["auto", "newton", "mirror"] = Field(
        "auto",
        description="auto and newton: joint re-weighting with Newton steps; mirror: the thesis' mirror descent over the rules' shares",
    )
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
    probability: Probability = "auto"
