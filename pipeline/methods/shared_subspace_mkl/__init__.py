"""Multiple kernel learning in a subspace that tasks share."""

from ...records.declared import Profile

PROFILES = (
    Profile(
        "shared-subspace-mkl",
        problem="tasks share a low-dimensional subspace of the feature space of every kernel",
        returns="weights of kernels, couplings of tasks",
        certificate="all couplings and weights",
        nearest="`MultiTaskElasticNet`, trace-norm multi-task learning",
        avoid="more than some ten thousand rows: its matrices hold pairs of rows of all tasks",
    ),
)
