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
    p: Annotated[float, Field(ge=2, allow_inf_nan=False)] = Field(2.0, description="norm over tasks; 2: the same kernel for all tasks")
    q: Annotated[float, Field(ge=1, le=2)] = Field(1.0, description="norm over kernels; 1: few kernels, 2: equal weights")
    C: Positive = Field(
        1.0,
        description="inverse regularisation strength, as in scikit-learn's SVC",
    )
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    solver: Literal["auto", "mirror"] = Field("auto", description="weights in closed form, or mirror descent as in the thesis")
    normalize: Normalize = Field(
        "trace",
        description="normalisation of kernels without their own",
    )
    tol: Positive = Field(1e-3, description="stopping tolerance: relative gap of primal and dual value")
    max_iter: Count = Field(500, description="largest number of times the SVMs of all tasks are solved")
    threshold: Unit = Field(1e-4, description="select kernels above this share of the largest weight")
    grams: GramPolicy = Field("auto", description="where to keep matrices within tasks; auto: by their size")
    gram_store: str | None = Field(None, description="path of a Gram store within tasks, kept for further fits")
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"

    @property
    def path(self) -> tuple[str, ...]:
        """Parameters that may differ between two fits of a search when one starts from the other."""
        return "C", "p", "q"
