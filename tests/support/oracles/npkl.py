"""Non-parametric kernel learning written down as its definition, and slow generic solutions."""

import numpy as np
from scipy.optimize import brentq, minimize

LOSSES = {
    "linear": (lambda z: -z, lambda z: -np.ones_like(z)),
    "squared_hinge": (lambda z: 0.5 * np.maximum(0, 1 - z) ** 2, lambda z: -np.maximum(0, 1 - z)),
    "square": (lambda z: 0.5 * (1 - z) ** 2, lambda z: z - 1),
    "hinge": (lambda z: np.maximum(0, 1 - z), lambda z: -(z < 1).astype(float)),
}
"""Value and derivative of every loss at z = T_ij K_ij."""


def laplacian(S):
    """I - D^{-1/2} S D^{-1/2}, zero rows and columns for points without a neighbour."""
    n, degrees = len(S), S.sum(axis=1)
    L = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if degrees[i] > 0 and degrees[j] > 0:
                L[i, j] = (i == j) - S[i, j] / np.sqrt(degrees[i] * degrees[j])
    return L


def objective(K, L, T, loss, C, p=2.0, G=None):
    """tr(LK) + C sum over ORDERED pairs of the loss, plus the penalty."""
    value = np.sum(L * K)
    for i, j in zip(*np.nonzero(T), strict=True):
        value += C * float(LOSSES[loss][0](np.array(T[i, j] * K[i, j])))
    if G is not None:
        value += G / p * np.sum(np.maximum(np.linalg.eigvalsh(K), 0) ** p)
    return value


def nearest_in_ball(K, p, B):
    """The nearest positive semidefinite matrix with tr K^p <= B."""
    values, vectors = np.linalg.eigh(K)
    s = np.maximum(values, 0)
    if np.sum(s**p) > B:
        s = s * np.sqrt(B / np.sum(s**2)) if p == 2 else _shrunk(s, p, B)
    return (vectors * s) @ vectors.T


def _shrunk(s, p, B):
    if p == 1:
        ordered = np.sort(s)[::-1]
        steps = (np.cumsum(ordered) - B) / np.arange(1, len(s) + 1)
        return np.maximum(s - steps[np.flatnonzero(ordered > steps)[-1]], 0)

    def root(value, nu):
        return brentq(lambda x: x + nu * x ** (p - 1) - value, 0, value, xtol=1e-15) if value > 0 else 0.0

    def at(nu):
        return np.array([root(value, nu) for value in s])

    high = 1.0
    while np.sum(at(high) ** p) > B:
        high *= 4
    return at(brentq(lambda nu: np.sum(at(nu) ** p) - B, 0, high, xtol=1e-14))


def solve(L, T, loss, C, p=2.0, B=None, G=None, starts=3, seed=0):
    """The least value that BFGS finds over factors K = V V', scaled into the cap where there is one."""
    n = len(L)
    i, j = np.nonzero(T)
    signs = T[i, j]

    def value_of(flat):
        V = flat.reshape(n, n)
        K = V @ V.T
        size = max(float(np.sum(np.maximum(np.linalg.eigvalsh(K), 0) ** p)), 1e-300)
        scale = 1.0 if B is None else min(1.0, (B / size) ** (1 / p))
        return objective(scale * K, L, T, loss, C, p, G)

    def gradient(flat):
        V = flat.reshape(n, n)
        K = V @ V.T
        values, vectors = np.linalg.eigh(K)
        values = np.maximum(values, 0)
        size = max(float(np.sum(values**p)), 1e-300)
        scale = 1.0 if B is None else min(1.0, (B / size) ** (1 / p))
        M = L.copy()
        np.add.at(M, (i, j), C * LOSSES[loss][1](signs * scale * K[i, j]) * signs)
        power = (vectors * values ** (p - 1)) @ vectors.T
        if G is not None:
            M = M + G * power
        dK = scale * M
        if scale < 1:
            dK = dK - np.sum(M * K) * scale / size * power
        return ((dK + dK.T) @ V).ravel()

    rng = np.random.default_rng(seed)
    found = []
    for _ in range(starts):
        start = rng.normal(size=n * n) * 0.3
        for _ in range(3):
            start = minimize(value_of, start, jac=gradient, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10}).x
        found.append(value_of(start))
    return min(found)


def projected_gradient(L, T, loss, C, p, B, steps=20000):
    """The least value of projected gradients on K itself, for losses with a Lipschitz derivative; also the last K."""
    i, j = np.nonzero(T)
    signs = T[i, j]
    K = np.zeros_like(L)
    step = 0.9 / C
    ahead, momentum = K, 1.0
    for _ in range(steps):
        gradient = L.copy()
        np.add.at(gradient, (i, j), C * LOSSES[loss][1](signs * ahead[i, j]) * signs)
        new = nearest_in_ball(ahead - step * gradient, p, B)
        if np.sum((ahead - new) * (new - K)) > 0:
            momentum = 1.0
        following = 0.5 * (1 + np.sqrt(1 + 4 * momentum**2))
        ahead = new + (momentum - 1) / following * (new - K)
        if np.abs(new - K).max() < 1e-13 and momentum > 1:
            K = new
            break
        K, momentum = new, following
    return objective(K, L, T, loss, C), K


def neighbours(X, k):
    """k nearest other rows by (squared distance, id): distances summed feature by feature."""
    n = len(X)
    ids = []
    for a in range(n):
        keys = []
        for b in range(n):
            if a != b:
                total = 0.0
                for x, z in zip(X[a], X[b], strict=True):
                    total += (float(x) - float(z)) * (float(x) - float(z))
                keys.append((total, b))
        ids.append([b for _, b in sorted(keys)[:k]])
    return np.array(ids)
