"""Kernels by obvious loops over pairs of rows, and their normalisation on the whole matrix."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

FORMULAS = {
    "linear": lambda x, z: sum(a * b for a, b in zip(x, z)),
    "poly": lambda x, z, degree, gamma, coef0: (gamma * sum(a * b for a, b in zip(x, z)) + coef0) ** degree,
    "rbf": lambda x, z, gamma: math.exp(-gamma * sum((a - b) ** 2 for a, b in zip(x, z))),
    "laplacian": lambda x, z, gamma: math.exp(-gamma * sum(abs(a - b) for a, b in zip(x, z))),
    "chi2": lambda x, z, gamma: math.exp(-gamma * sum((a - b) ** 2 / (a + b) for a, b in zip(x, z) if a + b > 0)),
    "hik": lambda x, z: sum(min(a, b) for a, b in zip(x, z)),
    "additive_chi2": lambda x, z: sum(2 * a * b / (a + b) for a, b in zip(x, z) if a + b > 0),
    "additive_gaussian": lambda x, z, gamma: sum(math.exp(-gamma * (a - b) ** 2) for a, b in zip(x, z)),
}


def spectrum(x: str, z: str, k: int) -> float:
    """Inner product of the counts of all substrings of length k."""
    first, second = (Counter(text[i : i + k] for i in range(len(text) - k + 1)) for text in (x, z))
    return float(sum(first[kmer] * second[kmer] for kmer in first))


def gram(spec, X, Z=None) -> np.ndarray:
    """Raw kernel of a spec."""
    Z = X if Z is None else Z
    if spec.name == "spectrum":
        return np.array([[spectrum(x, z, spec.arguments["k"]) for z in Z] for x in X])
    X, Z = (np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=float) for rows in (X, Z))
    if spec.columns is not None:
        X, Z = X[:, list(spec.columns)], Z[:, list(spec.columns)]
    rule = FORMULAS[spec.name]
    return np.array([[rule(x, z, **spec.arguments) for z in Z.tolist()] for x in X.tolist()]).reshape(len(X), len(Z))


def normalized(spec, K: np.ndarray, test: np.ndarray | None = None, own: np.ndarray | None = None) -> np.ndarray:
    """The training kernel K (n, n) as the spec wants it, or that of test rows: ``test`` (m, n) with their own k(x, x)."""
    n = len(K)
    rows, diagonal = (K, np.diag(K)) if test is None else (test, own)
    train_diagonal = np.diag(K)
    variance = np.mean(np.diag(K)) - K.mean()
    if spec.centre:
        means = K.mean(axis=0)
        diagonal = diagonal - 2 * rows.mean(axis=1) + K.mean() if diagonal is not None else None
        train_diagonal = train_diagonal - 2 * means + K.mean()
        rows = rows - rows.mean(axis=1)[:, None] - means[None, :] + K.mean()
    trace = train_diagonal.sum()
    if spec.normalize == "cosine":
        return rows / np.sqrt(np.outer(diagonal, train_diagonal))
    return rows * {"none": 1.0, "trace": n / trace, "unit_trace": 1 / trace, "multiplicative": 1 / variance}[spec.normalize]
