"""Slow, obvious twins of shared-subspace kernel learning: the primal over explicit weights, from its definition."""

import numpy as np
from scipy.optimize import minimize


def omega(parts, q):
    """The norm q over kernels of nuclear norms of W_j (d_j, T)."""
    return np.sum([np.linalg.svd(W, compute_uv=False).sum() ** q for W in parts]) ** (1.0 / q)


def values(parts, features, codes):
    """Decision values without bias of explicit features (n, d_j)."""
    return sum(np.einsum("nd,dn->n", F, W[:, codes]) for F, W in zip(features, parts))


LOSSES = {
    "squared": lambda f, y, _: (y - f) ** 2,
    "hinge": lambda f, y, _: np.maximum(0.0, 1.0 - y * f),
    "epsilon_insensitive": lambda f, y, epsilon: np.std(y) * np.maximum(0.0, np.abs(y - f) - epsilon * np.std(y)),
}


def primal(parts, biases, features, y, codes, q, C, loss="squared", epsilon=0.1):
    f = values(parts, features, codes) + biases[codes]
    return 0.5 * omega(parts, q) ** 2 + C * LOSSES[loss](f, y, epsilon).sum()


def dual(beta, features, y, codes, q, C, loss="squared", epsilon=0.1):
    """The dual value, or minus infinity outside the feasible set."""
    tasks = int(codes.max()) + 1
    slack = 1e-8 * np.abs(beta).sum() + 1e-12
    top = {"hinge": beta * y, "epsilon_insensitive": np.abs(beta) / np.std(y), "squared": np.zeros(1)}[loss]
    low = (beta * y).min() if loss == "hinge" else 0.0
    if np.abs(np.bincount(codes, beta, tasks)).max() > slack or top.max() > C + slack or low < -slack:
        return -np.inf
    spread = beta[:, None] * (codes[:, None] == np.arange(tasks))
    tops = np.array([np.linalg.svd(F.T @ spread, compute_uv=False)[0] ** 2 for F in features])
    r = np.inf if q == 1 else q / (2.0 * (q - 1.0))
    norm = tops.max() if np.isinf(r) else np.sum(tops**r) ** (1.0 / r)
    own = {"squared": -(beta**2) / (4.0 * C), "hinge": 0.0, "epsilon_insensitive": -epsilon * np.std(y) * np.abs(beta)}[loss]
    return float(np.sum(y * beta + own) - 0.5 * norm)


def optimum(features, y, codes, q, C, seed=0):
    """min of the primal with the squared loss: ||W||_* = min 1/2 (||U||^2 + ||V||^2) over W = U V' of full rank has no bad minima."""
    tasks, rng = int(codes.max()) + 1, np.random.default_rng(seed)
    shapes = [(F.shape[1], tasks, min(F.shape[1], tasks)) for F in features]
    sizes = [r * (d + t) for d, t, r in shapes]

    def unpacked(v):
        pieces, at = [], 0
        for (d, t, r), size in zip(shapes, sizes):
            pieces.append((v[at : at + r * d].reshape(d, r), v[at + r * d : at + size].reshape(t, r)))
            at += size
        return pieces, v[at:]

    def value(v):
        pieces, b = unpacked(v)
        norms = np.array([0.5 * (np.sum(U**2) + np.sum(V**2)) for U, V in pieces])
        total = np.sum(norms**q) ** (1.0 / q)
        f = values([U @ V.T for U, V in pieces], features, codes) + b[codes]
        pull = 2.0 * C * (f - y)
        apart = pull[:, None] * (codes[:, None] == np.arange(tasks))
        slopes = total ** (2.0 - q) * norms ** (q - 1.0)
        gradient = []
        for (U, V), F, slope in zip(pieces, features, slopes):
            G = F.T @ apart
            gradient += [(G @ V + slope * U).ravel(), (G.T @ U + slope * V).ravel()]
        return 0.5 * total**2 + C * np.sum((f - y) ** 2), np.concatenate([*gradient, np.bincount(codes, pull, tasks)])

    start = np.concatenate([0.3 * rng.normal(size=sum(sizes)), np.zeros(tasks)])
    found = minimize(value, start, jac=True, method="L-BFGS-B", options={"maxiter": 50_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9})
    return found.fun
