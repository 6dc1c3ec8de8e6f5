"""Random sub-problems with the features that hurt: repeated cuts, empty columns, ignored rows, correlated columns."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramplane.kernels.mixed_norm import GroupProblem, LocalRows
from tests.support.oracles.fgm_subproblem import LOSSES, TARGETS

ALL_LOSSES = (*LOSSES, *TARGETS)
FREE = ("none", "bias", "covariates")
"""Columns without a penalty: none, one of ones, or that and two further ones."""


@dataclass(frozen=True)
class Instance:
    Z: Any
    labels: np.ndarray
    targets: np.ndarray
    cost: np.ndarray
    starts: np.ndarray
    covariates: np.ndarray

    def y(self, loss):
        """Labels, or targets for a loss of these."""
        return self.targets if loss in TARGETS else self.labels

    def columns(self, free):
        """The columns without a penalty."""
        return np.hstack([np.ones((len(self.cost), int(free != "none"))), self.covariates[:, : 2 * (free == "covariates")]])

    def rows(self, loss, free, make=LocalRows):
        return make(self.Z, self.y(loss), self.cost, loss, self.columns(free))

    def problem(self, loss, free, make=LocalRows):
        return GroupProblem(self.rows(loss, free, make), self.starts)

    @property
    def dense(self):
        return np.asarray(self.Z.toarray() if sp.issparse(self.Z) else self.Z, dtype=np.float64)


KINDS = ("plain", "sparse", "float32", "repeated", "empty", "weighted", "correlated", "single", "sparse32", "rowwise")


def instance(kind, seed=0, n=24, groups=4, size=3, scale=1.0):
    """One sub-problem; both classes are present and used."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    groups = 1 if kind == "single" else groups
    X = rng.normal(size=(n, 2 * size + 2))
    if kind == "correlated":
        X += 2 * rng.normal(size=(n, 1))
    if kind.startswith("sparse"):
        X *= rng.random(X.shape) < 0.4
    cuts = [rng.choice(X.shape[1], size, replace=False) for _ in range(groups)]
    if kind == "repeated":
        cuts[1:3] = [cuts[0], cuts[0][::-1]]
    Z = X[:, np.concatenate(cuts)]
    if kind == "empty":
        Z[:, :size] = 0.0
        Z[:, -1] = 0.0
    value = X[:, 0] + 0.7 * rng.normal(size=n) + 0.3
    y = np.where(value > 0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    cost = np.full(n, scale)
    if kind == "weighted":
        cost *= rng.random(n) * (rng.random(n) < 0.8)
        cost[:2] = scale
    covariates = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.6], [0.0, 3.0]]) + 0.5
    # Targets with a few far away, so that Huber's loss is straight somewhere.
    targets = value + covariates @ [0.5, -0.2] + 6.0 * (np.arange(n) % 7 == 3)
    return Instance(_stored(kind, Z), y, targets, cost, np.arange(0, groups * size + 1, size), covariates)


def _stored(kind, Z):
    if kind.startswith("sparse"):
        return sp.csc_array(Z.astype(np.float32 if kind == "sparse32" else np.float64))
    if kind == "float32":
        return np.asfortranarray(Z.astype(np.float32))
    return np.ascontiguousarray(Z) if kind == "rowwise" else np.asfortranarray(Z)
