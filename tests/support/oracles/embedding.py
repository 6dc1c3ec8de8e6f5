"""Embeddings by slow generic solvers: projected gradients on the kernel matrix itself, and a dual with all triples."""

import numpy as np
from scipy.optimize import minimize


def centring(n):
    return np.eye(n) - 1.0 / n


def edge_matrices(n, rows, cols):
    """T_e = (e_i - e_j)(e_i - e_j)', ``(m, n, n)``."""
    apart = np.eye(n)[rows] - np.eye(n)[cols]
    return apart[:, :, None] * apart[:, None, :]


def projected(K, B):
    """The nearest positive semidefinite matrix of squared norm at most B: the part of the cone, shrunk into the ball."""
    values, vectors = np.linalg.eigh(0.5 * (K + K.T))
    K = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return K * min(1.0, np.sqrt(B) / max(np.linalg.norm(K), 1e-300))


def squares_objective(K, M, T, goal, C):
    """-tr(MK) + C/2 sum (goal - tr K T)^2."""
    return -np.sum(M * K) + 0.5 * C * np.sum((goal - np.tensordot(T, K)) ** 2)


def squares_minimum(M, T, goal, C, B, steps=20000):
    """Its least value and K by accelerated projected gradients with restarts."""
    n, m = len(M), len(goal)
    step = 1.0 / max(C * np.linalg.norm(T.reshape(m, -1), 2) ** 2, 1e-12)
    K = ahead = np.zeros((n, n))
    t = 1.0
    for _ in range(steps):
        slope = -M - C * np.tensordot(goal - np.tensordot(T, ahead), T, 1)
        new = projected(ahead - step * slope, B)
        if np.sum((ahead - new) * (new - K)) > 0:
            t = 1.0
        if np.linalg.norm(new - K) <= 1e-11 * np.linalg.norm(new):
            break
        following = 0.5 * (1 + np.sqrt(1 + 4 * t * t))
        ahead, K, t = new + (t - 1) / following * (new - K), new, following
    return squares_objective(K, M, T, goal, C), K


def all_triples(adjacency):
    """Every (i, j, k): k a neighbour of i, j another row that is none."""
    n = len(adjacency)
    return np.array(
        [(i, j, k) for i in range(n) for j in range(n) for k in range(n) if j != i and not adjacency[i, j] and adjacency[i, k]], dtype=int
    ).reshape(-1, 3)


def squared_distance(K, i, j):
    return K[i, i] + K[j, j] - 2 * K[i, j]


def violations(K, triples):
    return np.array([squared_distance(K, i, k) - squared_distance(K, i, j) for i, j, k in triples])


def structure_minimum(M, triples, C, B):
    """Least value of -tr(MK) + C max(0, largest violation) by the dual over all triples, alpha >= 0 with a sum of at most C."""
    n = len(M)
    e = np.eye(n)
    T = np.array([np.outer(e[i] - e[j], e[i] - e[j]) - np.outer(e[i] - e[k], e[i] - e[k]) for i, j, k in triples])

    def value(alpha):
        values, vectors = np.linalg.eigh(M + np.tensordot(alpha, T, 1))
        plus = (vectors * np.maximum(values, 0.0)) @ vectors.T
        length = np.linalg.norm(plus)
        return np.sqrt(B) * length, np.sqrt(B) / length * np.tensordot(T, plus)

    rule = {"type": "ineq", "fun": lambda a: C - a.sum(), "jac": lambda a: -np.ones(len(a))}
    found = minimize(
        value,
        np.full(len(triples), 0.5 * C / len(triples)),
        jac=True,
        bounds=[(0, None)] * len(triples),
        constraints=rule,
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    return -found.fun


def volume_value(K, T, goal, C, count):
    """-(first eigenvalues) + (the others) + C/2 sum (goal - tr K T)^2."""
    values = np.sort(np.linalg.eigvalsh(K))[::-1]
    return values[count:].sum() - values[:count].sum() + 0.5 * C * np.sum((goal - np.tensordot(T, K)) ** 2)
