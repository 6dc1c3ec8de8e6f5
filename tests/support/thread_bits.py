"""Predictions of plain arrays by many estimators, as digests; ``python -m tests.support.thread_bits`` prints those of this process."""

from __future__ import annotations

import hashlib
import json
import warnings

import numpy as np

from gramplane.pipeline import (
    FGMClassifier,
    GroupLassoClassifier,
    GroupLassoRegressor,
    KTASelectionPath,
    MKLClassifier,
    MultiTaskMKLRegressor,
    TriClassSVC,
    TwoLayerMKLClassifier,
    UnsupervisedMKL,
)


def digest(values: object) -> str:
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()[:16]


def wide() -> dict[str, str]:
    """Linear machines with weights of 2,000 columns: from 700 on OpenBLAS divides a product by its number of threads."""
    rng = np.random.default_rng(0)
    X, test = rng.normal(size=(60, 2000)), rng.normal(size=(1001, 2000))
    y = np.array(["a", "b", "c"])[np.argmax(X[:, :3], axis=1)]
    lasso = GroupLassoClassifier(lam=1e-6, epochs=2, gamma=2000.0).fit(X, y)
    one = GroupLassoRegressor(lam=1e-6, epochs=2, gamma=2000.0).fit(X, X[:, 0])
    fgm = FGMClassifier(900, 1.0, max_rounds=1, scale=None).fit(X, y)
    return {
        "lasso": digest(lasso.decision_function(test)),
        "lasso-float32": digest(lasso.decision_function(test.astype(np.float32))),
        "regressor": digest(one.predict(test)),
        "fgm": digest(fgm.decision_function(test)),
    }


def kernels() -> dict[str, str]:
    """Machines with 800 rows behind them."""
    rng = np.random.default_rng(1)
    X, test = rng.normal(size=(800, 12)), rng.normal(size=(1001, 12))
    y, two = np.digitize(X[:, 0] + rng.normal(size=800), [-0.5, 0.5]), np.where(X[:, 1] + rng.normal(size=800) > 0, 1, -1)
    names, task = ["rbf(gamma=0.01)", "linear[0:9]"], np.arange(800) % 2
    return {
        "mkl": digest(MKLClassifier(names, C=1e-3, tol=0.1, scale=None).fit(X, y).decision_function(test)),
        "two-layer": digest(TwoLayerMKLClassifier(names, C=1e-3, max_iter=2, scale=None).fit(X, two).decision_function(test)),
        "umkl": digest(UnsupervisedMKL(names, 5, 0.1, max_iter=2).fit(X).transform(test)),
        "tasks": digest(MultiTaskMKLRegressor(names, tol=0.1, C=1e-3, scale=None).fit(X, X[:, 0], task).predict(test, np.arange(1001) % 2)),
        "path": digest(KTASelectionPath(n_machines=1).fit(X, two).decision_function(test)),
        "tri-class": digest(TriClassSVC(1e-2, gamma=0.01, scale=None).fit(X, two).decision_function(test)),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(wide() | kernels()))
