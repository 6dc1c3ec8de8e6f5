"""Multiple kernel learning for many tasks."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "multitask-mkl",
        problem="one model per task; tasks choose their kernels together",
        returns="weights of kernels and of tasks in them",
        certificate="all weights",
        nearest="a loop of `SVC` over tasks; himalaya",
        avoid="tasks with hundreds of rows each: models of their own are as good",
    ),
)
