"""Data sets that several tables read: as the folder of ``GRAMPLANE_DATA`` has them, or as scikit-learn ships them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_iris, load_wine

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


def explained(y: np.ndarray, found: np.ndarray, task: np.ndarray) -> tuple[float, float]:
    """Return ``100 (1 - MSE / variance)``: mean over tasks, and over all rows together."""
    own = [1 - np.mean((y[task == t] - found[task == t]) ** 2) / np.var(y[task == t]) for t in np.unique(task)]
    return 100 * float(np.mean(own)), 100 * float(1 - np.mean((y - found) ** 2) / np.var(y))
