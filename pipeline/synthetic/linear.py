"""Seeded generators of linear problems with known relevant features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class Planted:
    """Training and test data with known relevant features.

    ``X``, ``y``: training rows and labels -1, +1. ``X_test``, ``y_test``: test rows, labelled with the same true weights. ``relevant``:
    sorted indices of the features (groups, pairs) with non-zero weight. ``groups``: group of each feature, or ``None``.
    """

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    relevant: np.ndarray
    groups: np.ndarray | None = None


def _labels(z: np.ndarray) -> np.ndarray:
    return np.where(z >= 0, 1, -1).astype(np.int64)


def dense_linear(
    n: int = 4096, d: int = 4096, relevant: int = 300, *, shift: float = 0.0, n_test: int = 4096, dtype: Any = np.float64, seed: int = 0
) -> Planted:
    """Return ``X ~ N(0, 1)``, ``y = sign(Xw - shift)``, w uniform on ``relevant`` random features (section 8.2 of the paper).

    Examples
    --------
    >>> from gramplane.datasets import dense_linear
    >>> data = dense_linear(n=100, d=50, relevant=5)
    >>> data.X.shape, len(data.relevant)
    ((100, 50), 5)
    """
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(d, relevant, replace=False))
    w = rng.uniform(0.0, 1.0, relevant)
    X, X_test = (rng.standard_normal((rows, d), dtype=dtype) for rows in (n, n_test))
    y, y_test = (_labels(part[:, chosen] @ w - shift) for part in (X, X_test))
    return Planted(X, y, X_test, y_test, chosen)


def dense_groups(
    n: int = 4096, n_groups: int = 4000, size: int = 10, relevant: int = 100, *, n_test: int = 2000, dtype: Any = np.float64, seed: int = 0
) -> Planted:
    """Return independent normal features in groups of ``size``, with weights N(0, 1) on ``relevant`` groups (section 8.6 of the paper).

    Examples
    --------
    >>> from gramplane.datasets import dense_groups
    >>> data = dense_groups(n=100, n_groups=20, relevant=3)
    >>> data.X.shape, len(data.relevant)
    ((100, 200), 3)
    """
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.choice(n_groups, relevant, replace=False))
    columns = (chosen[:, None] * size + np.arange(size)).ravel()
    w = rng.standard_normal(columns.size)
    X, X_test = (rng.standard_normal((rows, n_groups * size), dtype=dtype) for rows in (n, n_test))
    y, y_test = (_labels(part[:, columns] @ w) for part in (X, X_test))
    return Planted(X, y, X_test, y_test, chosen, np.repeat(np.arange(n_groups), size))


def zipf_rows(n: int, d: int, nnz: int, rng: np.random.Generator, *, offset: float = 10.0, permute: bool = True) -> sp.csr_array:
    """Return ``(n, d)`` unit-norm sparse rows whose column frequencies follow a shifted Zipf law ``(rank + offset)^-1``.

    Each row draws ``nnz`` columns with replacement and keeps the distinct ones. Values are 1 before normalisation.
    """
    weight = 1.0 / (np.arange(d) + offset)
    edges = np.cumsum(weight) / weight.sum()
    order = rng.permutation(d) if permute else np.arange(d)
    columns = order[np.minimum(np.searchsorted(edges, rng.random(n * nnz)), d - 1)]
    rows = np.repeat(np.arange(n), nnz)
    matrix = sp.csr_array((np.ones(n * nnz, np.float32), (rows, columns)), shape=(n, d))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    matrix.data /= np.repeat(np.sqrt(np.diff(matrix.indptr)), np.diff(matrix.indptr)).astype(np.float32)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def sparse_linear(
    n: int = 10_000, d: int = 500_000, nnz: int = 100, relevant: int = 100, *, n_test: int = 5000, offset: float = 10.0, seed: int = 0
) -> Planted:
    """Return unit-norm Zipf rows with a noisy linear label on ``relevant`` of the more frequent columns.

    Examples
    --------
    >>> from gramplane.datasets import sparse_linear
    >>> data = sparse_linear(n=100, d=5000, relevant=10)
    >>> data.X.shape, data.X.nnz
    ((100, 5000), 8974)
    """
    rng = np.random.default_rng(seed)
    both = zipf_rows(n + n_test, d, nnz, rng, offset=offset)
    popularity = np.bincount(both.indices, minlength=d)
    pool = np.argsort(-popularity, kind="stable")[: 20 * relevant]
    chosen = np.sort(rng.choice(pool, relevant, replace=False))
    w = np.zeros(d)
    w[chosen] = rng.standard_normal(relevant)
    z = both @ w
    z += 0.1 * z.std() * rng.standard_normal(z.size)
    y = _labels(z - np.median(z))
    return Planted(both[:n], y[:n], both[n:], y[n:], chosen)
