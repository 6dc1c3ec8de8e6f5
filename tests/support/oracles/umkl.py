"""The objective of unsupervised MKL written down as its definition, and slow exact searches."""

from itertools import combinations

import numpy as np
from scipy.optimize import minimize


def mask(bases, n):
    """D with D[j, i] = 1 where j is a basis of i."""
    found = np.zeros((n, n))
    for i, row in enumerate(bases):
        found[row[row >= 0], i] = 1.0
    return found


def objective(X, gram, bases, gamma1, gamma2):
    """J of rows X (n, d): 1/2 ||X'(I - K o D)||_F^2 + gamma1 sum K o D o M + gamma2 sum D."""
    n = len(X)
    D = mask(bases, n)
    M = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return 0.5 * np.sum((X.T @ (np.eye(n) - gram * D)) ** 2) + gamma1 * np.sum(gram * D * M) + gamma2 * D.sum()


def best_set(X, gram, i, size, gamma1, gamma2):
    """The best value of one point's share among all sets of ``size``."""
    others = [j for j in range(len(X)) if j != i]
    values = []
    for chosen in combinations(others, size):
        ids = list(chosen)
        rest = X[i] - gram[i, ids] @ X[ids]
        values.append(0.5 * rest @ rest + gamma1 * gram[i, ids] @ ((X[ids] - X[i]) ** 2).sum(axis=1) + gamma2 * size)
    return min(values)


def simplex_minimum(W, u):
    """min 1/2 mu'W mu + u'mu over the simplex by SLSQP from several starts."""
    k = len(u)
    starts = [np.full(k, 1.0 / k), *np.eye(k)]
    options = {"maxiter": 500, "ftol": 1e-14}
    ends = [
        minimize(
            lambda m: 0.5 * m @ W @ m + u @ m,
            start,
            jac=lambda m: W @ m + u,
            bounds=[(0, 1)] * k,
            constraints={"type": "eq", "fun": lambda m: m.sum() - 1, "jac": lambda m: np.ones(k)},
            method="SLSQP",
            options=options,
        ).fun
        for start in starts
    ]
    return min(ends)
