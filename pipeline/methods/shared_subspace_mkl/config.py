"""Parameters of shared-subspace multiple kernel learning for many tasks."""

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
    SharedLossWeight,
    StorePath,
    TaskKernels,
    TaskLoss,
    Tube,
)


class SharedSubspaceConfig(GramConfig):
    """Parameters of shared-subspace multiple kernel learning (``shared-subspace-mkl``)."""

    has_tasks = True

    kernels: TaskKernels = None
    q: Annotated[float, Field(ge=1, le=2)] = Field(1.5, description="norm over kernels; 1: few kernels, 2: equal traces")
    C: SharedLossWeight = "auto"
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    solver: Literal["auto", "mirror", "alternate"] = Field(
        "auto",
        description="couplings in closed form, or mirror descent as in the thesis",
    )
    normalize: Normalize = Field("trace", description="normalisation of kernels without their own")
    tol: Positive = Field(1e-3, description="stopping tolerance: relative gap of primal and dual value")
    max_iter: Count = Field(200, description="largest number of solves of the joint SVM")
    grams: GramPolicy = Field("auto", description="where to keep Gram matrices; auto: by their size")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"
    scale: Scale = "auto"
