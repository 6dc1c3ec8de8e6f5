"""Slow, obvious twins of batch group lasso: the printed primal, and its dual by a general-purpose optimiser."""

import itertools

import numpy as np
from scipy.optimize import minimize
from scipy.special import xlogy


def losses(loss, y, f):
    if loss == "squared":
        return [(a - b) ** 2 / 2 for a, b in zip(y, f)]
    if loss == "hinge":
        return [max(0.0, 1.0 - a * b) for a, b in zip(y, f)]
    return [np.logaddexp(0.0, -a * b) for a, b in zip(y, f)]


def penalty(parts, kappa, inner, p=2):
    """sum_g kappa_g ||v_g||_p + r_g ||v_g||_1 of a list of vectors."""
    return sum(k * np.linalg.norm(v, p) + r * np.abs(v).sum() for v, k, r in zip(parts, kappa, inner))


def primal(tasks, loss, lam, weights, biases, parts, kappa, inner, p=2):
    """tasks: list of (X, y, cost)."""
    total = sum(float(np.dot(cost, losses(loss, y, X @ w + b))) for (X, y, cost), w, b in zip(tasks, weights, biases))
    return total + lam * penalty(parts, kappa, inner, p)


def dual_optimum(tasks, groups, kappa, inner, lam, loss, bias, p=2.0):
    """max_a over the dual set, by SLSQP: ||S(z_g, lam r_g)||^2 <= (lam kappa_g)^2 for z_j = sum_i c_i u_i x_ij; returns the value.

    For other norms p and 1/p + 1/q = 1: ||z_g||_q^q <= (lam kappa_g)^q, for p = inf s'z_g <= lam kappa_g for all vectors s of signs.
    """
    X = np.zeros((sum(len(y) for _, y, _ in tasks), len(tasks) * tasks[0][0].shape[1]))
    d, lo, owner = tasks[0][0].shape[1], 0, []
    for q, (part, y, _) in enumerate(tasks):
        X[lo : lo + len(y), q * d : (q + 1) * d] = part
        lo, owner = lo + len(y), owner + [q] * len(y)
    y, cost = np.concatenate([t[1] for t in tasks]), np.concatenate([t[2] for t in tasks])
    sign = np.ones(len(y)) if loss == "squared" else y
    images = [(X[:, [q * d + j for q in range(len(tasks)) for j in g]] * (sign * cost)[:, None]).T for g in groups]

    def value(a):
        if loss == "squared":
            return -float(cost @ (y * a - a * a / 2))
        return -float(cost @ a) if loss == "hinge" else float(cost @ (xlogy(a, a) + xlogy(1 - a, 1 - a)))

    def slope(a):
        if loss == "squared":
            return -cost * (y - a)
        return -cost if loss == "hinge" else cost * np.log(a / (1 - a))

    def corners(size):
        return np.array(list(itertools.product((-1.0, 1.0), repeat=size)))

    def room(a, image, k, r):
        z = image @ a
        if k == 0:
            return (lam * r) ** 2 - z * z
        if p == np.inf:
            return lam * k - corners(len(z)) @ z
        if p != 2.0:
            return np.array([(lam * k) ** (p / (p - 1)) - (np.abs(z) ** (p / (p - 1))).sum()])
        shrunk = np.maximum(np.abs(z) - lam * r, 0.0)
        return np.array([(lam * k) ** 2 - shrunk @ shrunk])

    def room_slope(a, image, k, r):
        z = image @ a
        if k == 0:
            return -2 * z[:, None] * image
        if p == np.inf:
            return -corners(len(z)) @ image
        if p != 2.0:
            return -p / (p - 1) * (np.sign(z) * np.abs(z) ** (1 / (p - 1)))[None] @ image
        return -2 * (np.sign(z) * np.maximum(np.abs(z) - lam * r, 0.0))[None] @ image

    constraints = [{"type": "ineq", "fun": room, "jac": room_slope, "args": (image, k, r)} for image, k, r in zip(images, kappa, inner)]
    if bias:
        for q in range(len(tasks)):
            balance = np.where(np.array(owner) == q, sign * cost, 0.0)
            constraints.append({"type": "eq", "fun": lambda a, m=balance: m @ a, "jac": lambda a, m=balance: m})
    bounds = None if loss == "squared" else [(1e-9, 1 - 1e-9)] * len(y)
    start = np.zeros(len(y)) if loss == "squared" else np.full(len(y), 0.3)
    found = minimize(
        value, start, jac=slope, bounds=bounds, constraints=constraints, method="SLSQP", options={"maxiter": 2000, "ftol": 1e-14}
    )
    assert found.success or found.status == 8, found.message
    return -found.fun
