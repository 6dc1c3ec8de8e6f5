"""Slow, obvious twins of social strength modelling: alignments, pair kernels, the logistic problem, harmonic labels."""

import numpy as np
from scipy.optimize import minimize

from gramplane.kernels.ranking.user_kernels import row_factors


def shifted(K):
    """K, with its smallest eigenvalue taken off the diagonal if that is negative."""
    return K + max(0.0, -np.linalg.eigvalsh(K)[0]) * np.eye(len(K))


def normalise_cosine(gram):
    """K_uv / sqrt(K_uu K_vv), shifted where the result is indefinite; rows without length become zero."""
    factors = row_factors(np.sqrt(np.maximum(np.diagonal(gram), 0.0)))
    return shifted(gram * factors[:, None] * factors)


def centred(K):
    H = np.eye(len(K)) - 1.0 / len(K)
    return H @ K @ H


def without_diagonal(K):
    """Entries beside the diagonal about their mean."""
    off = ~np.eye(len(K), dtype=bool)
    return np.where(off, K - K[off].mean(), 0.0)


def alignment(K, Y, centre=centred):
    A, B = centre(K), centre(Y)
    return np.sum(A * B) / np.sqrt(np.sum(A * A) * np.sum(B * B))


def best_alignment(views, Y, centre=centred, starts=8):
    """Largest alignment of a sum with weights >= 0, by direct maximisation from many starts, and its weights of norm 1."""
    rng, best = np.random.default_rng(0), (-np.inf, np.zeros(len(views)))
    A, B = np.array([centre(K) for K in views]), centre(Y)
    M, a, square = np.einsum("sij,tij->st", A, A), np.einsum("sij,ij->s", A, B), np.sum(B * B)
    unit = 1.0 / np.sqrt(np.diag(M))

    def loss(x):
        theta = unit * x
        norm = theta @ M @ theta
        rho = theta @ a / np.sqrt(norm * square)
        slope = a / np.sqrt(norm * square) - rho * (M @ theta) / norm
        return -rho, -unit * slope

    for _ in range(starts):
        found = minimize(loss, rng.random(len(a)) + 0.1, jac=True, bounds=[(0, None)] * len(a), method="L-BFGS-B", tol=1e-15)
        if -found.fun > best[0]:
            theta = unit * found.x
            best = -found.fun, theta / np.linalg.norm(theta)
    return best


def pair_kernel(K, p, q, kind):
    (u, v), (s, t) = p, q
    apart = K[u, s] + K[v, t] - K[u, t] - K[v, s]
    return {
        "difference": apart,
        "mlpk": apart**2,
        "tensor": K[u, s] * K[v, t],
        "tensor-symmetric": K[u, s] * K[v, t] + K[u, t] * K[v, s],
    }[kind]


def pair_matrix(K, left, right, kind):
    return np.array([[pair_kernel(K, p, q, kind) for q in right] for p in left])


def similarity_matrix(views, theta, left, right, c=10.0):
    def inner(p, q):
        return 1.0 + c**2 * sum(w * V[p[0], p[1]] * V[q[0], q[1]] for w, V in zip(theta, views))

    return np.array([[inner(p, q) for q in right] for p in left])


def objective(Kp, z, C, a):
    f = Kp @ a
    return np.mean(np.log1p(np.exp(-(2 * z - 1) * f))) + 0.5 * C * a @ f


def logistic_optimum(Kp, z, C):
    """Value of (7.3) and decision values at its minimum, by BFGS in the coordinates of a factor of the Gram matrix."""
    values, vectors = np.linalg.eigh(Kp)
    F, y = vectors * np.sqrt(np.maximum(values, 0.0)), 2.0 * z - 1.0

    def loss(w):
        m = y * (F @ w)
        return np.mean(np.logaddexp(0.0, -m)) + 0.5 * C * w @ w, -F.T @ (y / (1.0 + np.exp(m))) / len(y) + C * w

    found = minimize(loss, np.zeros(len(y)), jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 5000})
    return found.fun, F @ found.x


def undamped_newton(Kp, z, C, steps=50):
    """Objectives along Newton's steps on f without a search along them."""
    n, y = len(z), 2.0 * z - 1.0
    f, along = np.zeros(n), []
    for _ in range(steps):
        b = 1.0 / (1.0 + np.exp(y * f))
        a = y * b / (C * n)
        along.append(objective(Kp, z, C, a))
        f = f + np.linalg.solve(np.eye(n) + Kp * (b * (1 - b) / (C * n)), Kp @ a - f)
    return np.array(along)


def dual_value(Kp, z, C, b):
    n, v = len(z), (2.0 * z - 1.0) * b
    entropy = np.sum(
        np.where(b > 0, b * np.log(np.maximum(b, 1e-300)), 0.0) + np.where(b < 1, (1 - b) * np.log(np.maximum(1 - b, 1e-300)), 0.0)
    )
    return -entropy / n - v @ Kp @ v / (2 * C * n**2)


def one_step_with(Kp, z, C, chosen, a, j):
    """Objective after one Newton step on the coefficients of ``chosen`` and j, from ``a`` and 0."""
    S, n, y = [*chosen, j], len(z), 2.0 * z - 1.0
    K, Kss, now = Kp[:, S], Kp[np.ix_(S, S)], np.append(a, 0.0)
    f = K @ now
    b = 1.0 / (1.0 + np.exp(y * f))
    slope = -K.T @ (y * b) / n + C * Kss @ now
    hessian = K.T @ ((b * (1 - b) / n)[:, None] * K) + C * Kss
    new = now - np.linalg.lstsq(hessian, slope, rcond=None)[0]
    return np.mean(np.log1p(np.exp(-y * (K @ new)))) + 0.5 * C * new @ Kss @ new


def harmonic(W, labels):
    """Minimise sum_ij W_ij (f_i - f_j)^2 over the unknown values by a generic solver."""
    known = ~np.isnan(labels)
    rows, cols = np.nonzero(np.triu(W, 1))
    D = np.zeros((len(rows), len(W)))
    D[np.arange(len(rows)), rows], D[np.arange(len(rows)), cols] = 1.0, -1.0
    D *= np.sqrt(W[rows, cols])[:, None]
    out = labels.copy()
    out[~known] = np.linalg.lstsq(D[:, ~known], -D[:, known] @ labels[known], rcond=None)[0]
    return out
