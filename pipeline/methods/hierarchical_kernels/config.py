"""Parameters of hierarchical kernel learning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ....kernels.graphs.parsing import check_graph
from ...records.config import Count, MethodConfig, Positive, Unit


class HKLConfig(MethodConfig):
    """Parameters of hierarchical kernel learning (``hierarchical-kernels``)."""

    has_tasks = True

    dag: str | list[Any] | dict[str, Any] | None = Field(
        None,
        description="graph of kernels: subsets(KERNEL[; depth=D]), grid(KERNEL; ...), or a list of nodes {name, kernel, parents, d}; "
        "default: products of Gaussians of one feature each, over all subsets of the features",
    )
    rho: Annotated[float, Field(gt=1, le=2)] = Field(
        1.5, description="norm over descendants: 2 orders weights along edges, near 1 does not"
    )
    a: Positive = Field(2.0, description="penalties are a^depth")
    C: Positive = Field(1.0, description="loss weight, C * sum of losses, as scikit-learn's")
    loss: Literal["auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"] = Field(
        "auto", description="loss of a row; auto: hinge for classes, epsilon_insensitive for real targets"
    )
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(0.1, description="epsilon_insensitive: half width of the tube")
    task_kernel: Positive | list[list[float]] | None = Field(
        None, description="similarity of tasks: a matrix, mu of I + 11'/mu, or none (the tasks share which kernels, not their functions)"
    )
    solver: Literal["auto", "mirror"] = Field(
        "auto", description="auto: all weights in closed form after every solve; mirror: mirror descent"
    )
    normalize: Literal["none", "trace"] = Field("none", description="trace: every factor (every node of a list) has trace n")
    tol: Positive = Field(1e-3, description="certified gap at which the fit ends, relative to the primal value")
    max_rounds: Count = Field(50, description="times the nodes outside are looked at, at most")
    max_nodes: Count = Field(500, description="nodes of the hull at most")
    max_solves: Count = Field(500, description="solves over one hull at most")
    max_visits: Count = Field(20_000, description="nodes outside looked at for a certificate, at most; beyond, it holds down to a depth")
    n_add: Count = Field(30, description="nodes added in a round, without their ancestors")
    rest: Positive | None = Field(None, description="stop when a round lowers the primal value by less than this share")
    threshold: Unit = Field(1e-3, description="a kernel counts as selected above this share of the largest weight")
    grams: Literal["auto", "memory", "recompute"] = Field("auto", description="where matrices of the hull lie; auto decides from sizes")
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")

    @model_validator(mode="after")
    def _graph_can_be_read(self) -> HKLConfig:
        check_graph(self.dag, self.a)
        return self
