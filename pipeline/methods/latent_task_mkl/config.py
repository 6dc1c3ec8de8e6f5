"""Parameters of multiple kernel learning on latent groups of tasks."""

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
    Unit,
)

Norm = Annotated[float, Field(gt=1, le=2)]


class LatentTaskConfig(GramConfig):
    """Parameters of multiple kernel learning on latent task structure (``latent-task-mkl``)."""

    has_tasks = True

    kernels: TaskKernels = None
    p: Norm = Field(1.5, description="norm over the kernels of a group; small: few kernels")
    q: Norm = Field(1.5, description="norm over nested groups; small: few groups")
    a: Positive = Field(
        1.5,
        description="base of the penalty a^size of a group",
    )
    mu: Positive = Field(1.0, description="weight of the mean of a group; small: its tasks are similar")
    C: SharedLossWeight = "auto"
    inverted: bool | Literal["auto"] = Field(
        "auto",
        description="start from the group of all tasks and leave tasks out",
    )
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    normalize: Normalize = Field("trace", description="normalisation of kernels without their own")
    tol: Positive = Field(1e-2, description="stopping tolerance: relative gap over all groups")
    max_iter: Count = Field(500, description="largest number of SVM solves")
    max_rounds: Count = Field(50, description="largest number of rounds that add groups")
    max_groups: Count = Field(2000, description="largest number of groups in the working set")
    max_size: Count | None = Field(
        8,
        description="largest number of tasks of a group in the search",
    )
    stop_at_rest: bool = Field(
        False,
        description="also stop if a round hardly lowers the objective",
    )
    threshold: Unit = Field(1e-3, description="list groups above this share of the largest weight")
    grams: GramPolicy = Field("auto", description="where to keep Gram matrices; auto: by their size")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"

    def for_tasks(self, count: int) -> LatentTaskConfig:
        """Return the parameters with ``inverted`` resolved for ``count`` tasks."""
        starts_from_all = self.max_size is not None and count > self.max_size if self.inverted == "auto" else self.inverted
        return self.model_copy(update={"inverted": starts_from_all})

    scale: Scale = "auto"
