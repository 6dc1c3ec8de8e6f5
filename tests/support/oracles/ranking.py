"""Slow, obvious twins of image ranking: walk and map from K as written, the kernel problem by a generic solver, the warp entry by entry."""

import numpy as np
from scipy.optimize import minimize


def stochastic(K, keep_diagonal=False):
    """Columns of the positive part over their sums, entry by entry."""
    n = len(K)
    S = np.zeros((n, n))
    for j in range(n):
        column = [max(K[i, j], 0.0) if i != j or keep_diagonal else 0.0 for i in range(n)]
        total = sum(column)
        for i in range(n):
            S[i, j] = column[i] / total if total > 0 else 1.0 / n
    return S


def walk(S, prior, damping):
    """(1 - damping) sum_k damping^k S^k prior, summed until nothing is added."""
    total, term = np.zeros(len(S)), (1 - damping) * np.asarray(prior, float)
    while np.abs(term).sum() > 1e-17:
        total, term = total + term, damping * (S @ term)
    return total


def tf_idf(tags):
    """Rows of unit length from lists of tags, over the tags in order."""
    names = sorted({tag for row in tags for tag in row})
    out = np.zeros((len(tags), len(names)))
    for i, row in enumerate(tags):
        for j, tag in enumerate(names):
            carried = sum(tag in other for other in tags)
            out[i, j] = row.count(tag) * np.log(len(tags) / carried)
        length = np.sqrt(np.sum(out[i] ** 2))
        if length > 0:
            out[i] /= length
    return out


def mutual_pairs(X, k, union=False):
    """Pairs i < j by sorting all distances of every row."""
    d = ((X[:, None] - X[None]) ** 2).sum(-1)
    near = [set(sorted((j for j in range(len(X)) if j != i), key=lambda j: (d[i, j], j))[:k]) for i in range(len(X))]
    either = [(i, j) for i in range(len(X)) for j in range(i + 1, len(X)) if (j in near[i]) + (i in near[j]) >= (1 if union else 2)]
    return np.array(either, dtype=np.int64).reshape(-1, 2), d


def target(V):
    """M = H V V' H."""
    H = np.eye(len(V)) - 1.0 / len(V)
    return H @ V @ V.T @ H


def objective(K, M, pairs, d2, C):
    """-tr(MK) + C/2 sum max(0, excess)^2."""
    excess = [max(0.0, K[i, i] + K[j, j] - 2 * K[i, j] - d) for (i, j), d in zip(pairs, d2)]
    return -float(np.sum(M * K)) + 0.5 * C * float(np.sum(np.square(excess)))


def dual_value(alpha, M, pairs, d2, C, B):
    """-sqrt(B) ||A_+|| - alpha'd2 - alpha'alpha / 2C with A = M - sum alpha_ij (e_i - e_j)(e_i - e_j)'."""
    A = M.copy()
    for weight, (i, j) in zip(alpha, pairs):
        A[[i, j], [i, j]] -= weight
        A[[i, j], [j, i]] += weight
    values = np.linalg.eigvalsh(A)
    return -np.sqrt(B) * np.sqrt(np.sum(np.maximum(values, 0) ** 2)) - float(alpha @ d2) - float(alpha @ alpha) / (2 * C)


def best_dual(M, pairs, d2, C, B):
    """Maximum of the dual, a smooth concave problem with bounds, by a quasi-Newton method on differences."""
    found = minimize(
        lambda a: -dual_value(a, M, pairs, d2, C, B),
        np.full(len(pairs), 0.1),
        method="L-BFGS-B",
        bounds=[(0, None)] * len(pairs),
        options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000, "maxfun": 200000},
    )
    return -found.fun


def best_primal(M, pairs, d2, C, B, rng, rounds=2):
    """Minimum over K = F F' with tr KK <= B, from several starts, by a quasi-Newton method on the scaled factor."""
    n, best = len(M), np.inf
    for _ in range(rounds):

        def value(flat):
            F = flat.reshape(n, n)
            K = F @ F.T
            size = np.sqrt(np.sum(K * K))
            return objective(K * min(1.0, np.sqrt(B) / size), M, pairs, d2, C)

        start = np.linalg.cholesky(M + 0.05 * np.eye(n)).ravel() + 0.05 * rng.normal(size=n * n)
        best = min(best, minimize(value, start, method="BFGS", options={"gtol": 1e-8, "maxiter": 2000}).fun)
    return best


def warped(kx, L, Kx, x, z, points):
    """k(x, z) - kappa_x' (I + L K_x)^-1 L kappa_z, one pair."""
    kappa_x, kappa_z = (np.array([kx(y, p) for p in points]) for y in (x, z))
    return kx(x, z) - kappa_x @ np.linalg.inv(np.eye(len(points)) + L @ Kx) @ L @ kappa_z
