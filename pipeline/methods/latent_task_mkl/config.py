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
    p: Norm = Field(1.5, description="norm over the kernels of a group; small values give few kernels")
    q: Norm = Field(1.5, description="norm over the groups that hold a group (inverted: that are in it); small values give few groups")
    a: Positive = Field(
        1.5,
        description="penalty d_w = a^size of a group (inverted: a^tasks left out). At 1.5 groups of aligned tasks practically always help; "
        "2 and more give fewer, more readable ones",
    )
    mu: Positive = Field(
        1.0, description="weight of the mean of a group: small values pull its tasks together, large ones let them share kernels only"
    )
    C: SharedLossWeight = "auto"
    inverted: bool | Literal["auto"] = Field(
        "auto",
        description="start from the group of all tasks and leave tasks out, in place of starting from single tasks: finds large groups. "
        "auto: where there are more tasks than groups grow to from single ones, max_size (inverted_)",
    )
    loss: TaskLoss = "auto"
    epsilon: Tube = 0.1
    normalize: Normalize = Field("trace", description="normalisation of kernels that leave it open; trace: trace n")
    tol: Positive = Field(1e-2, description="gap, certified over all groups, at which the fit ends, relative to the objective")
    max_iter: Count = Field(500, description="machines solved at most")
    max_rounds: Count = Field(50, description="times that groups join at most")
    max_groups: Count = Field(2000, description="groups in the working set at most, with all their ancestors")
    max_size: Count | None = Field(
        8,
        description="tasks of a group (inverted: tasks left out) that the search looks at; the certificate says where it cut something "
        "off; none: all",
    )
    stop_at_rest: bool = Field(
        False,
        description="stop too when a round lowers the objective by less than tol/10 of it; later rounds often serve the certificate alone",
    )
    threshold: Unit = Field(1e-3, description="a group is listed above this share of the largest weight")
    grams: GramPolicy = Field(
        "auto", description="where the Gram matrices lie: auto decides from sizes; memory, store (at gram_store), recompute"
    )
    gram_store: StorePath = None
    class_weight: ClassWeight = None
    probability: Probability = "auto"

    def for_tasks(self, count: int) -> LatentTaskConfig:
        """Return parameters with the end of the lattice that the search starts from, for a number of tasks."""
        starts_from_all = self.max_size is not None and count > self.max_size if self.inverted == "auto" else self.inverted
        return self.model_copy(update={"inverted": starts_from_all})

    scale: Scale = "auto"
