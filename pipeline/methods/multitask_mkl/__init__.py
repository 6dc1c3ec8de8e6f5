"""Multiple kernel learning for many tasks."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "multitask-mkl",
        problem="one machine per task; tasks choose their kernels together",
        data=("tasks",),
        wants=("predictions",),
        returns="weights of kernels and of tasks in them",
        certificate="all weights",
        nearest="a loop of `SVC` over tasks; himalaya",
        avoid="tasks with hundreds of rows each: machines of their own are as good",
    ),
)
