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
    a: Positive = Field(2.0, description="penalties are a^depth")
    C: Positive = Field(10.0, description="loss weight, on the scale of scikit-learn's SVC and SVR")
    loss: Literal["auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"] = Field(
        "auto", description="loss of a row; auto: the first that suits the target"
    )
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="half width of the tube, in deviations of the target"
    )
    task_kernel: Positive | list[list[float]] | None = Field(
        None,
        description="similarity of tasks: a matrix, or mu of I + 11'/mu",
    )
    solver: Literal["auto", "mirror"] = Field("auto", description="closed form of the weights, or the thesis' mirror descent")
    normalize: Literal["none", "trace"] = Field("none", description="trace: factors (nodes of a list) are scaled to trace n")
    tol: Positive = Field(1e-3, description="relative gap, certified, at which the fit ends")
    max_rounds: Count = Field(50, description="looks at the nodes outside at most")
    max_nodes: Count = Field(500, description="nodes of the hull at most")
    max_solves: Count = Field(500, description="solves over one hull at most")
    max_visits: Count | Literal["auto"] = Field(
        "auto",
        description="nodes outside looked at for a certificate, at most",
    )
    n_add: Count = Field(30, description="nodes added in a round, without their ancestors")
    rest: Positive | None = Field(1e-3, description="stop where a round lowers the primal value by less; or none")
    threshold: Unit = Field(1e-3, description="share of the largest weight from which a kernel is selected")
    max_iter: Count = Field(5000, description="steps at most, of up to eight solves each")
    grams: GramPolicy = Field("auto", description="where matrices of the hull lie; auto: decided from sizes")
    gram_store: StorePath = None
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _graph_can_be_read(self) -> HKLConfig:
        if self.dag is not None:
            from ....kernels.graphs.parsing import check_graph  # help of the command needs no NumPy

            check_graph(self.dag, self.a)
        return self
