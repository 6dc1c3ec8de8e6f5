"""Small problems of tasks that share a subspace: three tasks of seven rows, five kernels."""

import numpy as np

from gramplane.pipeline.methods.shared_subspace_mkl.estimator import SharedSubspaceMKLClassifier, SharedSubspaceMKLRegressor

KERNELS = ["linear[0,1]", "linear[2,3,4]", "linear[0,4,5]", "rbf(gamma=0.3)", "poly(degree=2)[2,3]"]
LOSSES = ("hinge", "epsilon_insensitive", "squared")


def rows(seed, tasks=3, each=7):
    """Rows, real targets and tasks in no order."""
    rng = np.random.default_rng(seed)
    X, task = rng.normal(size=(tasks * each, 6)), rng.permutation(np.arange(tasks * each) % tasks)
    z = X @ [1.0, -1.0, 0.5, 0, 0, 0.3] * (1 + 0.3 * task) + task + 0.2 * rng.normal(size=len(X))
    return X, z, task


def target(loss, z):
    """What a loss is fitted to."""
    return np.where(z > np.median(z), 1, -1) if loss == "hinge" else z


def fitted(seed, loss, **options):
    """A model of the problem of a seed."""
    X, z, task = rows(seed)
    kind = SharedSubspaceMKLClassifier if loss == "hinge" else SharedSubspaceMKLRegressor
    return kind(**{"kernels": KERNELS, "loss": loss, **options}).fit(X, target(loss, z), task)
