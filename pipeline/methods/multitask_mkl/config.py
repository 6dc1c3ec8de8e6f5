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

    fold_tols = {"tol": 1e-2}

    has_tasks = True

    kernels: TaskKernels = None
    p: Annotated[float, Field(ge=2, allow_inf_nan=False)] = Field(2.0, description="norm over tasks: 2: the same kernels in all tasks")
    q: Annotated[float, Field(ge=1, le=2)] = Field(1.0, description="norm over kernels: 1 gives few kernels, 2 equal weights")
    C: Positive = Field(
        1.0,
        description="loss weight, on the scale of scikit-learn's SVC and SVR",
    )
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    solver: Literal["auto", "mirror"] = Field("auto", description="closed form of the weights, or the thesis' mirror descent")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels that leave it open",
    )
    tol: Positive = Field(1e-3, description="relative gap of primal and dual value that ends the fit")
    max_iter: Count = Field(500, description="times the machines of all tasks are solved at most")
    threshold: Unit = Field(1e-4, description="share of the largest weight from which a kernel is selected")
    grams: GramPolicy = Field("auto", description="where matrices within tasks lie; auto: decided from sizes")
    gram_store: str | None = Field(None, description="path of a Gram store within tasks, kept for further fits")
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters in which fits of a search may differ that start from one another."""
        return "C", "p", "q"
