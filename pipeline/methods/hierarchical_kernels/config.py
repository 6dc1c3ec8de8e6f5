"""Parameters of hierarchical kernel learning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ...records.config import Count, GramConfig, GramPolicy, Positive, Probability, Scale, StorePath, Unit


class HKLConfig(GramConfig):
    """Parameters of hierarchical kernel learning (``hierarchical-kernels``)."""

    has_tasks = True

    dag: str | list[Any] | dict[str, Any] | None = Field(
        None,
        description="graph of kernels: subsets(...), grid(...) or a list of nodes",
    )
    rho: Annotated[float, Field(gt=1, le=2)] = Field(1.5, description="norm over descendants: 2 is HKL")
    a: Positive = Field(2.0, description="base of the penalties a^depth")
    C: Positive = Field(10.0, description="inverse regularisation strength, as in scikit-learn's SVC")
    loss: Literal["auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"] = Field(
        "auto", description="loss of a row; auto: the first that suits the target"
    )
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="half-width of the tube, in standard deviations of the target"
    )
    task_kernel: Positive | list[list[float]] | None = Field(
        None,
        description="similarity of tasks: a matrix, or mu of I + 11'/mu",
    )
    solver: Literal["auto", "mirror"] = Field("auto", description="weights in closed form, or mirror descent as in the thesis")
    normalize: Literal["none", "trace"] = Field("none", description="trace: scale factors (of a list: nodes) to trace n")
    tol: Positive = Field(1e-3, description="stopping tolerance: certified relative gap")
    max_rounds: Count = Field(50, description="largest number of searches for further nodes")
    max_nodes: Count = Field(500, description="largest number of selected nodes")
    max_solves: Count = Field(500, description="largest number of solves for one set of nodes")
    max_visits: Count | Literal["auto"] = Field(
        "auto",
        description="largest number of nodes visited for a certificate",
    )
    n_add: Count = Field(30, description="nodes added per round, not counting their ancestors")
    rest: Positive | None = Field(1e-3, description="stop if a round lowers the primal value by a smaller share")
    threshold: Unit = Field(1e-3, description="select kernels above this share of the largest weight")
    max_iter: Count = Field(5000, description="largest number of steps, of up to eight solves each")
    grams: GramPolicy = Field("auto", description="where to keep Gram matrices; auto: by their size")
    gram_store: StorePath = None
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factors of C per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _graph_can_be_read(self) -> HKLConfig:
        if self.dag is not None:
            from ....kernels.graphs.parsing import check_graph  # help of the command needs no NumPy

            check_graph(self.dag, self.a)
        return self
