"""Parameters of hierarchical kernel learning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ....kernels.graphs.parsing import check_graph
from ...records.config import Count, GramConfig, GramPolicy, Positive, Probability, Scale, StorePath, Unit


class HKLConfig(GramConfig):
    """Parameters of hierarchical kernel learning (``hierarchical-kernels``)."""

    has_tasks = True

    dag: str | list[Any] | dict[str, Any] | None = Field(
        None,
        description="graph of kernels: subsets(KERNEL[; depth=D]), products of one kernel per feature over all subsets of features; "
        "grid(KERNEL; KERNEL; ...[; depth=D]), a chain of kernels per feature; KERNEL is one of single features such as "
        "rbf(gamma=0.5)[0:8], gaussian(width=1.0) (in standard deviations), monomial(degree=3), hermite(degree=3). Or a list of nodes "
        '{"name": ..., "kernel": "rbf(gamma=1.0)[0] * linear[3]", "parents": [...], "d": ...}, a dictionary from names to '
        "(kernel, parents); an estimator also takes a KernelGrid, a KernelList, or any object with the protocol KernelDag. Default: "
        "subsets(gaussian), widths of one standard deviation; of more than 128 features, or where looks at products take long, single "
        "features without products (depth=1), of many rows or features those associated most with the target",
    )
    rho: Annotated[float, Field(gt=1, le=2)] = Field(
        1.5, description="norm over descendants: at 2 no kernel weighs more than its ancestors (HKL), near 1 it may"
    )
    a: Positive = Field(2.0, description="penalties are a^depth")
    C: Positive = Field(
        10.0, description="loss weight, C * sum of losses, as scikit-learn's SVC and, on a target of standard deviation one, SVR"
    )
    loss: Literal["auto", "hinge", "squared_hinge", "epsilon_insensitive", "squared"] = Field(
        "auto", description="hinge or squared_hinge for classes, epsilon_insensitive or squared for real targets; auto: the first that fits"
    )
    epsilon: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.1, description="epsilon_insensitive: half width of the tube without loss, in standard deviations of the target"
    )
    task_kernel: Positive | list[list[float]] | None = Field(
        None,
        description="similarity of tasks: a positive semi-definite matrix (n_tasks, n_tasks), tasks in ascending order, or mu of "
        "I + 11'/mu; default: the identity, tasks share which kernels are used, not their functions",
    )
    solver: Literal["auto", "mirror"] = Field(
        "auto", description="auto: all weights in closed form after every solve of the machines; mirror: the thesis' mirror descent"
    )
    normalize: Literal["none", "trace"] = Field("none", description="trace: factors (nodes of a list) are scaled to trace n")
    tol: Positive = Field(1e-3, description="certified gap at which the fit ends, relative to the primal value")
    max_rounds: Count = Field(50, description="times the nodes outside are looked at, at most; a warning tells when a cap ends the fit")
    max_nodes: Count = Field(500, description="nodes of the hull at most")
    max_solves: Count = Field(500, description="solves over one hull at most")
    max_visits: Count | Literal["auto"] = Field(
        "auto",
        description="nodes outside looked at for a certificate, at most; beyond, it holds down to a depth (certificate_depth_). auto: "
        "20,000, of many rows as many as take about ten seconds of a processor",
    )
    n_add: Count = Field(30, description="nodes added in a round, without their ancestors")
    rest: Positive | None = Field(
        1e-3, description="stop when a round lowered the primal value by less than this share of it; none: go on to the certificate"
    )
    threshold: Unit = Field(1e-3, description="a kernel counts as selected above this share of the largest weight")
    max_iter: Count = Field(5000, description="steps at most, of up to eight solves each; a warning tells when they end the fit")
    grams: GramPolicy = Field(
        "auto", description="where matrices of the hull lie: auto decides from sizes; memory, store (at gram_store), recompute"
    )
    gram_store: StorePath = None
    class_weight: Literal["balanced"] | dict[str, Positive] | None = Field(None, description="factor of C per class")
    probability: Probability = "auto"
    scale: Scale = "auto"

    @model_validator(mode="after")
    def _graph_can_be_read(self) -> HKLConfig:
        check_graph(self.dag, self.a)
        return self
