"""Parameters of multiple kernel learning for many tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...records.config import (
    ClassWeight,
    Count,
    GramConfig,
    GramPolicy,
    Normalize,
    Positive,
    Probability,
    Scale,
    TaskKernels,
    TaskLoss,
    Tube,
    Unit,
)


class MultiTaskMKLConfig(GramConfig):
    """Parameters of multiple kernel learning for many tasks (``multitask-mkl``)."""

    has_tasks = True

    kernels: TaskKernels = None
    p: Annotated[float, Field(ge=2, allow_inf_nan=False)] = Field(
        2.0, description="norm over tasks: 2 gives all tasks the same kernel, more lets every task weight the common kernels in its own way"
    )
    q: Annotated[float, Field(ge=1, le=2)] = Field(1.0, description="norm over kernels: 1 gives few kernels, 2 equal weights")
    C: Positive = Field(
        1.0,
        description="loss weight, C * sum of losses over the rows of all tasks, as scikit-learn's SVC and, on a target of standard "
        "deviation one, SVR",
    )
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    solver: Literal["auto", "mirror"] = Field(
        "auto", description="auto: weights in closed form after every solve of the machines; mirror: the thesis' nested mirror descent"
    )
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels that leave it open (trace: trace n); traces and means are taken over pairs of rows within "
        "tasks",
    )
    tol: Positive = Field(1e-3, description="gap between primal and dual value at which the fit ends, relative to the primal value")
    max_iter: Count = Field(500, description="times the machines of all tasks are solved at most; a warning tells when it ends the fit")
    threshold: Unit = Field(1e-4, description="a kernel counts as selected above this share of the largest weight")
    grams: GramPolicy = Field(
        "auto", description="where the Gram matrices within tasks lie: auto decides from sizes; memory, store (at gram_store), recompute"
    )
    gram_store: str | None = Field(None, description="path of a Gram store of the squares within tasks, kept for further fits")
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"
