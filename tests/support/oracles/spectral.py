"""Slow, obvious twins of the positive part of a matrix and of the kernels that linear objectives prefer."""

import numpy as np
from scipy.optimize import minimize


def positive_pairs(A):
    """Positive eigenvalues, descending, and their eigenvectors, of a dense matrix."""
    values, vectors = np.linalg.eigh(A)
    keep = values > 1e-10 * np.abs(values).max(initial=0.0)
    return values[keep][::-1], vectors[:, keep][:, ::-1]


def best_kernel(A, p, B=None, G=None, starts=3, seed=0):
    """Optimum of ``max tr(AK)`` with a cap or a penalty on ``tr K^p``, by a general minimiser over factors V of ``K = VV'``."""
    n, rng = len(A), np.random.default_rng(seed)

    def loss(flat):
        K = flat.reshape(n, n) @ flat.reshape(n, n).T
        power = np.sum(np.linalg.eigvalsh(K).clip(0) ** p)
        if B is not None:
            # Scaled to the boundary; where tr(AK) < 0 the zero kernel is better.
            return -np.sum(A * K) * (B / max(power, 1e-300)) ** (1 / p)
        return -np.sum(A * K) + G / p * power

    found = [minimize(loss, rng.normal(size=n * n), method="BFGS", options={"gtol": 1e-9}).fun for _ in range(starts)]
    return max(0.0, -min(found))


def laplacian_energy(S, V):
    """``1/2 sum_ij S_ij ||v_i / sqrt(D_i) - v_j / sqrt(D_j)||^2`` by its sum."""
    D, total = S.sum(axis=1), 0.0
    for i in range(len(S)):
        for j in range(len(S)):
            if S[i, j]:
                total += 0.5 * S[i, j] * np.sum((V[i] / np.sqrt(D[i]) - V[j] / np.sqrt(D[j])) ** 2)
    return total


def graph_problem(n, seed=0, pairs=0.5, cost=1.0, neighbours=6, rows=None):
    """A dense ``C T - L``: mutual nearest neighbours of points in the plane, and random must-links and cannot-links by side."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    distance = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    np.fill_diagonal(distance, np.inf)
    near = np.zeros((n, n))
    near[np.arange(n)[:, None], np.argsort(distance, axis=1)[:, :neighbours]] = 1
    S = near * near.T
    D = S.sum(axis=1)
    scale = np.where(D > 0, 1 / np.sqrt(np.maximum(D, 1)), 0)
    L = np.diag((D > 0).astype(float)) - scale[:, None] * S * scale
    T = np.zeros((n, n))
    i, j = rng.integers(n, size=(2, int(pairs * n)))
    keep = i != j
    i, j = i[keep], j[keep]
    T[i, j] = T[j, i] = np.where((X[i, 0] > 0) == (X[j, 0] > 0), 1.0, -1.0)
    return cost * T - L, S
