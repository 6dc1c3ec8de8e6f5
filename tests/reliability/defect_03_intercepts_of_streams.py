"""The intercept of a stream stays sound in rounds of any number of rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.sparse as sp

from gramplane.pipeline import GroupLassoClassifier, GroupLassoRegressor
from tests.reliability.walks import walk

N, D, PER_ROW = 30_000, 100_000, 50
BATCHES = (1, 100, 1_000)


def unit_rows(seed: int = 0) -> tuple[sp.csr_array, np.ndarray]:
    """Return sparse rows of length about one, columns by popularity, and a score that a tenth of the frequent columns makes up."""
    rng = np.random.default_rng(seed)
    columns = np.sort((float(D) ** rng.random((N, PER_ROW))).astype(np.int64) - 1, axis=1)
    kept = np.diff(columns, axis=1, prepend=-1) > 0
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    X = sp.csr_array((rng.normal(size=indptr[-1]) / np.sqrt(PER_ROW), columns[kept], indptr), shape=(N, D))
    w = np.zeros(D)
    w[:1_000:10] = 8.0 * rng.normal(size=100)
    return X, X @ w + 0.3 * rng.normal(size=N)


def accuracy(X: sp.csr_array, y: np.ndarray, batch: int, intercept: bool) -> float:
    n = 3 * len(y) // 4
    model = GroupLassoClassifier("l1", lam=5e-5, gamma=0.002, batch_size=batch, fit_intercept=intercept, shuffle=False)
    model.partial_fit(X[:n], y[:n], classes=[-1, 1]).finish()
    return float(model.score(X[n:], y[n:]))


def far(X: sp.csr_array, target: np.ndarray, shift: float, batch: int) -> np.ndarray:
    """Return predictions of a regression of a target that is moved away from 0, moved back."""
    model = GroupLassoRegressor("l1", lam=1e-4, gamma=0.5, batch_size=batch, shuffle=False)
    return model.partial_fit(X, target + shift).finish().predict(X) - shift


@walk(3, "intercepts of streams neither explode nor hurt, for rounds of 1, 100 and 1,000 rows")
def streams(folder: Path) -> None:
    X, score = unit_rows()
    y = np.where(score > 0, 1, -1)
    lost = [accuracy(X, y, batch, False) - accuracy(X, y, batch, True) for batch in BATCHES]
    assert max(lost) < 0.01 and np.mean(lost) < 0.003, lost
    few = np.flatnonzero((score > 0) | (np.arange(N) % 9 == 0))
    for batch in BATCHES:
        gain = accuracy(X[few], y[few], batch, True) - accuracy(X[few], y[few], batch, False)
        assert gain > 0.02, (batch, gain)
    near = sp.csr_array(X[:10_000, :200])
    for batch in BATCHES:
        one, two = (far(near, score[:10_000], shift, batch) for shift in (0.0, 1e5))
        assert np.abs(one - two).max() < 1e-4, batch
