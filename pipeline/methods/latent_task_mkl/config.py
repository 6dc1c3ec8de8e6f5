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
        description="penalty of a group is a^size",
    )
    mu: Positive = Field(1.0, description="weight of the mean of a group; small: its tasks are alike")
    C: SharedLossWeight = "auto"
    inverted: bool | Literal["auto"] = Field(
        "auto",
        description="start from the group of all tasks and leave tasks out",
    )
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    normalize: Normalize = Field("trace", description="normalisation of kernels that leave it open; trace: trace n")
    tol: Positive = Field(1e-2, description="relative gap over all groups at which the fit ends")
    max_iter: Count = Field(500, description="machines solved at most")
    max_rounds: Count = Field(50, description="times that groups join at most")
    max_groups: Count = Field(2000, description="groups in the working set at most, with all their ancestors")
    max_size: Count | None = Field(
        8,
        description="tasks of a group that the search looks at",
    )
    stop_at_rest: bool = Field(
        False,
        description="stop, too, where a round lowers the objective hardly",
    )
    threshold: Unit = Field(1e-3, description="a group is listed above this share of the largest weight")
    grams: GramPolicy = Field("auto", description="where Gram matrices lie; auto: decided from sizes")
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"

    def for_tasks(self, count: int) -> LatentTaskConfig:
        """Return parameters with the end of the lattice that the search starts from, for a number of tasks."""
        starts_from_all = self.max_size is not None and count > self.max_size if self.inverted == "auto" else self.inverted
        return self.model_copy(update={"inverted": starts_from_all})

    scale: Scale = "auto"
