"""Multiple kernel learning on latent groups of tasks."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "latent-task-mkl",
        problem="which kernels are shared by which groups of tasks",
        returns="groups of tasks and the weights of their kernels",
        certificate="all 2^T − 1 groups of T tasks",
        nearest="none known; clustering of per-task models",
        avoid="tasks known to be alike: `multitask-mkl`; more than some tens of tasks with unlike structure",
    ),
)
