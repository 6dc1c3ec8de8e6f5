"""Slow, obvious twins of the FGM sub-problem: formulas written out, general-purpose optimisers, enumeration of all cuts."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import xlogy


class MarginLoss(NamedTuple):
    """A loss of the margin m of a row of cost 1: value and p = minus its slope; of p utility, its slope, bound, and curvature."""

    value: Callable[[Any], Any]
    share: Callable[[Any], Any]
    utility: Callable[[Any], Any]
    utility_slope: Callable[[Any], Any]
    most: float | None
    curvature: Callable[[Any], Any]


LOSSES = {
    "squared_hinge": MarginLoss(
        lambda m: np.maximum(0.0, 1.0 - m) ** 2 / 2,
        lambda m: np.maximum(0.0, 1.0 - m),
        lambda p: p - p * p / 2,
        lambda p: 1.0 - p,
        None,
        lambda p: 1.0 * (p > 0),
    ),
    "logistic": MarginLoss(
        lambda m: np.logaddexp(0.0, -m),
        lambda m: 1.0 / (1.0 + np.exp(m)),
        lambda p: -xlogy(p, p) - xlogy(1.0 - p, 1.0 - p),
        lambda p: np.log((1.0 - p) / p),
        1.0,
        lambda p: p * (1.0 - p),
    ),
}
"""By name, every loss that the product has."""


def loss_value(loss, y, f, cost):
    return sum(c * LOSSES[loss].value(m) for c, m in zip(cost, y * f))


def objective(Z, y, cost, starts, loss, omega, bias):
    """1/2 (sum of group norms)^2 + P at Z omega - bias."""
    total = sum(np.linalg.norm(omega[a:b]) for a, b in pairwise(starts))
    return 0.5 * total**2 + loss_value(loss, y, np.asarray(Z @ omega, dtype=float) - bias, cost)


def utility(loss, alpha, cost):
    """The dual utility, constant included; rows without cost do not exist."""
    used = cost > 0
    return np.sum(cost[used] * LOSSES[loss].utility(alpha[used] / cost[used]))


def dual_optimum(Z, y, cost, starts, loss, fit_bias):
    """max U(alpha) - q subject to q >= 1/2 ||Z_h'(alpha y)||^2 for every group: the QCQP, by SLSQP. Returns its value."""
    used = cost > 0
    signed, y, cost = Z[used] * y[used, None], y[used], cost[used]
    n = len(cost)
    grams = [signed[:, a:b] @ signed[:, a:b].T for a, b in pairwise(starts)]
    most = LOSSES[loss].most
    inset = np.zeros(n) if most is None else 1e-9 * cost
    bounds = [(e, None if most is None else c * most - e) for e, c in zip(inset, cost)] + [(0, None)]

    def value(v):
        return -(utility(loss, v[:n], cost) - v[n])

    def gradient(v):
        return np.append(-LOSSES[loss].utility_slope(v[:n] / cost), 1.0)

    constraints = [
        {
            "type": "ineq",
            "fun": lambda v, K=K: v[n] - 0.5 * v[:n] @ K @ v[:n],
            "jac": lambda v, K=K: np.append(-K @ v[:n], 1.0),
        }
        for K in grams
    ]
    if fit_bias:
        constraints.append({"type": "eq", "fun": lambda v: v[:n] @ y, "jac": lambda v: np.append(y, 0.0)})
    start = 0.5 * cost * np.where(y > 0, cost[y < 0].sum(), cost[y > 0].sum()) / cost.sum() if fit_bias else 0.5 * cost
    first = np.append(start, max(0.5 * start @ K @ start for K in grams))
    found = minimize(
        value, first, jac=gradient, bounds=bounds, constraints=constraints, method="SLSQP", options={"maxiter": 2000, "ftol": 1e-14}
    )
    return -found.fun


def relaxed_optimum(X, y, cost, budget, loss, fit_bias):
    """min over d in [0,1]^m with sum d <= budget, w, b of 1/2 sum w_j^2 / d_j + P(X w - b): equation (47), by SLSQP. Returns its value."""
    m = X.shape[1]

    def split(v):
        return v[:m], v[m : 2 * m], v[2 * m] if fit_bias else 0.0

    def value(v):
        w, d, b = split(v)
        return 0.5 * np.sum(w * w / d) + loss_value(loss, y, X @ w - b, cost)

    def gradient(v):
        w, d, b = split(v)
        margins = y * (X @ w - b)
        alpha = cost * LOSSES[loss].share(margins)
        parts = [w / d - X.T @ (alpha * y), -0.5 * (w / d) ** 2]
        return np.concatenate([*parts, [np.sum(alpha * y)]] if fit_bias else parts)

    first = np.concatenate([np.zeros(m), np.full(m, budget / m), np.zeros(1 if fit_bias else 0)])
    bounds = [(None, None)] * m + [(1e-9, 1)] * m + [(None, None)] * (1 if fit_bias else 0)
    spent = {
        "type": "ineq",
        "fun": lambda v: budget - v[m : 2 * m].sum(),
        "jac": lambda v: np.concatenate([np.zeros(m), -np.ones(m), np.zeros(len(v) - 2 * m)]),
    }
    return minimize(
        value, first, jac=gradient, bounds=bounds, constraints=[spent], method="SLSQP", options={"maxiter": 2000, "ftol": 1e-14}
    ).fun


def every_cut(X, budget):
    """All budget-subsets of the columns side by side, as groups: Z and starts."""
    subsets = list(combinations(range(X.shape[1]), budget))
    return X[:, np.concatenate(subsets)], np.arange(0, len(subsets) * budget + 1, budget)


def prox_by_bisection(u, starts, tau):
    """argmin tau/2 ||w - u||^2 + 1/2 (sum ||w_h||)^2: with S the optimal sum of norms each norm is max(0, ||u_h|| - S / tau)."""
    norms = np.array([np.linalg.norm(u[a:b]) for a, b in pairwise(starts)])
    low, high = 0.0, norms.sum()
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(norms - middle / tau, 0).sum() > middle else (low, middle)
    w = np.zeros_like(u)
    for norm, a, b in zip(norms, starts, starts[1:]):
        if norm > 0:
            w[a:b] = u[a:b] * max(0.0, 1 - low / tau / norm)
    return w
