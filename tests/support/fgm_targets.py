"""Problems of real targets and of covariates for whole FGM fits, with both estimators behind one call."""

from __future__ import annotations

import numpy as np

from gramplane.pipeline import FGMClassifier, FGMRegressor
from tests.support.oracles.fgm_subproblem import LOSSES, TARGETS

ALL_LOSSES = (*LOSSES, *TARGETS)
FREE = ("none", "bias", "covariates")
CASES = [(loss, free) for loss in ALL_LOSSES for free in FREE]
LIMIT = {"max_rounds": 80, "inner_tol": 1e-12, "outer_tol": 1e-10}


def problem(loss, seed=0, n=24, m=7):
    """Rows, labels or targets (a few of them far away), and two covariates of other units that matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * rng.uniform(0.4, 2.0, m)
    Z = rng.normal(size=(n, 2)) @ np.array([[8.0, 0.3], [0.0, 0.05]]) + np.array([40.0, 0.0])
    value = X @ rng.normal(size=m) + 0.1 * (Z[:, 0] - 40.0) - 9.0 * Z[:, 1] + 0.8 * rng.normal(size=n) + 0.7
    if loss in TARGETS:
        return X, value + 5.0 * (np.arange(n) % 9 == 4) + 3.0, Z
    y = np.where(value > 0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y, Z


def columns(Z, free):
    """What bears no penalty, as the oracles take it."""
    return np.hstack([np.ones((len(Z), int(free != "none"))), Z[:, : 2 * (free == "covariates")]])


def deviation(y, weight=None):
    """The standard deviation of a target, the unit of the widths."""
    return float(np.sqrt(np.average((y - np.average(y, weights=weight)) ** 2, weights=weight)))


def estimator(loss, free, y, weight=None, **params):
    """The estimator of a loss whose widths are those of the oracles, 0.1 and 1.35."""
    params = {"C": 1.0, "loss": loss, "fit_intercept": free != "none", "scale": None, **params}
    if loss in LOSSES:
        return FGMClassifier(**params)
    s = deviation(y, weight)
    return FGMRegressor(**{"epsilon": 0.1 / s, "delta": 1.35 / s, **params})


def fitted(X, y, Z, loss, free, weight=None, **params):
    """A fit; without an intercept targets are not centred, nor may the oracle's be."""
    return estimator(loss, free, y, weight, **params).fit(X, y, weight, covariates=Z if free == "covariates" else None)


def decided(machine, X, Z):
    """Decision values from what a fit publishes."""
    values = X @ np.asarray(machine.coef_)[0] + machine.intercept_[0]
    return values + (Z @ machine.covariate_coef_[0] if machine.covariate_coef_.size else 0.0)
