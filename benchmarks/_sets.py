"""Data sets that several tables read: as the folder of ``GRAMPLANE_DATA`` has them, or as scikit-learn ships them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import StandardScaler

from benchmarks._harness import arrays

SHIPPED = {"wdbc": load_breast_cancer, "breast": load_breast_cancer, "iris": load_iris, "wine": load_wine}
WHOLE_NAMES = ("titanic", "ringnorm", "madelon")
"""Sets that are not of the UCI archive's files."""


def uci(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features that are not constant, and the labels as they are."""
    if name in SHIPPED:
        X, y = SHIPPED[name](return_X_y=True)
    else:
        held = arrays(name if name in WHOLE_NAMES else f"uci_{name}")
        X, y = held["X"].astype(float), held["y"]
    return X[:, np.ptp(X, axis=0) > 0], y


def first_against_rest(y: np.ndarray, low: float = 0) -> np.ndarray:
    """Return 1 for the largest label and ``low`` for the others."""
    return np.where(y == np.max(y), 1, low)


class Half(NamedTuple):
    """Training rows and labels, test rows and labels."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    t: np.ndarray


def halves(X: np.ndarray, y: np.ndarray, splits: int, rows: int | None = None) -> list[Half]:
    """Return random halves of all rows, or of at most ``rows``, standardised by the training rows."""
    rows, found = min(len(y), rows or len(y)), []
    for train, test in ShuffleSplit(splits, train_size=rows // 2, test_size=rows - rows // 2, random_state=0).split(X):
        scaler = StandardScaler().fit(X[train])
        found.append(Half(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]))
    return found


def csr(held: dict[str, Any], prefix: str = "X") -> sp.csr_array:
    data, indices, indptr, shape = (held[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    return sp.csr_array((data.astype(float), indices, indptr), shape=tuple(shape))


def two_spirals(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two interleaved spirals of 50 points with noise of deviation 0.1."""
    t = 3 * np.pi * np.sqrt(np.linspace(0.02, 1, 50))
    arm = np.stack([t * np.cos(t), t * np.sin(t)], axis=1)
    X = np.vstack([arm, -arm]) + 0.1 * np.random.default_rng(seed).normal(size=(100, 2))
    return X, np.repeat([0, 1], 50)


def drawn_rows(task: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return a mask of ``count`` rows of every task."""
    mask = np.zeros(len(task), bool)
    for t in np.unique(task):
        mask[rng.permutation(np.flatnonzero(task == t))[:count]] = True
    return mask


class TaskSplit:
    """15 training rows of every task, features standardised by these, and three folds of them."""

    def __init__(self, X: np.ndarray, y: np.ndarray, task: np.ndarray, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.train = drawn_rows(task, 15, rng)
        self.X = (X - X[self.train].mean(axis=0)) / np.maximum(X[self.train].std(axis=0), 1e-9)
        self.y, self.task, self._fold = y, task, np.full(len(y), -1)
        for t in np.unique(task):
            rows = np.flatnonzero(self.train & (task == t))
            self._fold[rows] = rng.permutation(np.arange(len(rows)) % 3)

    def folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield masks of the training rows inside and outside of every fold."""
        for fold in range(3):
            yield self.train & (self._fold != fold), self._fold == fold

    def explained(self, found: np.ndarray) -> tuple[float, float]:
        """Return explained variance of values for the rows that are left."""
        return explained(self.y[~self.train], found, self.task[~self.train])


def explained(y: np.ndarray, found: np.ndarray, task: np.ndarray) -> tuple[float, float]:
    """Return ``100 (1 - MSE / variance)``: mean over tasks, and over all rows together."""
    own = [1 - np.mean((y[task == t] - found[task == t]) ** 2) / np.var(y[task == t]) for t in np.unique(task)]
    return 100 * float(np.mean(own)), 100 * float(1 - np.mean((y - found) ** 2) / np.var(y))
