"""Slow, obvious twins of the FGM sub-problem: formulas written out, general-purpose optimisers, enumeration of all cuts."""

from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, xlogy


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
        lambda m: expit(-m),
        lambda p: -xlogy(p, p) - xlogy(1.0 - p, 1.0 - p),
        lambda p: np.log((1.0 - p) / p),
        1.0,
        lambda p: p * (1.0 - p),
    ),
}
"""By name, every loss of labels that the product has."""


class TargetLoss(NamedTuple):
    """A loss of the residual r of a row of cost 1: value, minus its slope in the decision value, and curvature; its tube and bound."""

    value: Callable[[Any], Any]
    share: Callable[[Any], Any]
    curvature: Callable[[Any], Any]
    tube: float
    most: float


TARGETS = {
    "squared": TargetLoss(lambda r: r * r / 2, lambda r: r, lambda r: 1.0 + 0.0 * r, 0.0, np.inf),
    "squared_epsilon_insensitive": TargetLoss(
        lambda r: np.maximum(0.0, np.abs(r) - 0.1) ** 2 / 2,
        lambda r: np.sign(r) * np.maximum(0.0, np.abs(r) - 0.1),
        lambda r: 1.0 * (np.abs(r) > 0.1),
        0.1,
        np.inf,
    ),
    "huber": TargetLoss(
        lambda r: np.where(np.abs(r) <= 1.35, r * r / 2, 1.35 * np.abs(r) - 1.35**2 / 2),
        lambda r: np.clip(r, -1.35, 1.35),
        lambda r: 1.0 * (np.abs(r) < 1.35),
        0.0,
        1.35,
    ),
}
"""By name, every loss of real targets, with the widths it has by itself."""


def loss_value(loss, y, f, cost):
    if loss in TARGETS:
        return sum(c * TARGETS[loss].value(r) for c, r in zip(cost, y - f))
    return sum(c * LOSSES[loss].value(m) for c, m in zip(cost, y * f))


def loss_residual(loss, y, f, cost):
    """The signed dual variables u, minus the gradient of the loss in the decision values."""
    return cost * TARGETS[loss].share(y - f) if loss in TARGETS else y * cost * LOSSES[loss].share(y * f)


def loss_bends(loss, y, f, cost):
    """The second derivatives of the loss in the decision values."""
    return cost * (TARGETS[loss].curvature(y - f) if loss in TARGETS else LOSSES[loss].curvature(LOSSES[loss].share(y * f)))


def objective(Z, y, cost, starts, loss, omega, offset):
    """1/2 (sum of group norms)^2 + P at Z omega + offset."""
    total = sum(np.linalg.norm(omega[a:b]) for a, b in pairwise(starts))
    return 0.5 * total**2 + loss_value(loss, y, np.asarray(Z @ omega, dtype=float) + offset, cost)


def utility(loss, y, u, cost):
    """The dual utility of signed dual variables, constant included; rows without cost do not exist."""
    y, u, cost = (part[cost > 0] for part in (y, u, cost))
    if loss not in TARGETS:
        return np.sum(cost * LOSSES[loss].utility(u * y / cost))
    assert (np.abs(u) <= cost * TARGETS[loss].most * (1 + 1e-12)).all()
    return np.sum(u * y - TARGETS[loss].tube * np.abs(u) - u * u / (2 * cost))


def free_columns(free, n):
    """Columns without a penalty: those given, or one of ones (a bias), or none."""
    return np.asarray(free, dtype=float).reshape(n, -1) if np.ndim(free) else np.ones((n, int(free)))


def _dual_parts(loss, y, cost):
    """Signed dual variables as u = S v with v >= 0: S, the utility of v and its slope, upper bounds of v, and where to begin."""
    if loss in LOSSES:
        part, most = LOSSES[loss], LOSSES[loss].most
        inset = 0.0 if most is None else 1e-9
        bounds = [(c * inset, None if most is None else c * (most - inset)) for c in cost]
        return np.diag(y), lambda v: np.sum(cost * part.utility(v / cost)), lambda v: part.utility_slope(v / cost), bounds, 0.5 * cost
    part, both, twice = TARGETS[loss], np.concatenate([y, -y]), np.concatenate([cost, cost])
    S = np.hstack([np.eye(len(y)), -np.eye(len(y))])
    bounds = [(0, c * part.most if np.isfinite(part.most) else None) for c in twice]

    def value(v):
        return v @ (both - part.tube) - 0.5 * np.sum((S @ v) ** 2 / cost)

    return S, value, lambda v: both - part.tube - S.T @ (S @ v / cost), bounds, 0.1 * twice


def dual_optimum(Z, y, cost, starts, loss, free):
    """max U(u) - q subject to q >= 1/2 ||Z_h'u||^2 for every group and A'u = 0, A the columns without a penalty or whether there is a bias:
    the QCQP, by SLSQP. Returns its value.
    """
    used, columns = cost > 0, free_columns(free, len(y))
    Z, y, cost, columns = Z[used], y[used], cost[used], columns[used]
    S, utility_of, slope, bounds, start = _dual_parts(loss, y, cost)
    k, tall = S.shape[1], S.T @ Z
    grams = [tall[:, a:b] @ tall[:, a:b].T for a, b in pairwise(starts)]
    if loss in LOSSES and columns.shape[1]:
        start = start * np.where(y > 0, cost[y < 0].sum(), cost[y > 0].sum()) / cost.sum()

    def value(v):
        return -(utility_of(v[:k]) - v[k]), np.append(-slope(v[:k]), 1.0)

    constraints = [
        {"type": "ineq", "fun": lambda v, K=K: v[k] - 0.5 * v[:k] @ K @ v[:k], "jac": lambda v, K=K: np.append(-K @ v[:k], 1.0)}
        for K in grams
    ]
    if columns.shape[1]:
        across = columns.T @ S
        slopes = np.hstack([across, np.zeros((len(across), 1))])
        constraints.append({"type": "eq", "fun": lambda v: across @ v[:k], "jac": lambda v: slopes})
    first = np.append(start, max(0.5 * start @ K @ start for K in grams))
    options = {"maxiter": 2000, "ftol": 1e-14}
    found = minimize(value, first, jac=True, bounds=[*bounds, (None, None)], constraints=constraints, method="SLSQP", options=options)
    return -found.fun


def relaxed_optimum(X, y, cost, budget, loss, free):
    """min over d in [0,1]^m with sum d <= budget, w, g of 1/2 sum w_j^2 / d_j + P(X w + A g): equation (47), by SLSQP; A are the columns
    without a penalty, or whether there is a bias. Returns its value.
    """
    m, columns = X.shape[1], free_columns(free, len(y))

    def split(v):
        return v[:m], v[m : 2 * m], v[2 * m :]

    def value(v):
        w, d, g = split(v)
        return 0.5 * np.sum(w * w / d) + loss_value(loss, y, X @ w + columns @ g, cost)

    def gradient(v):
        w, d, g = split(v)
        u = loss_residual(loss, y, X @ w + columns @ g, cost)
        return np.concatenate([w / d - X.T @ u, -0.5 * (w / d) ** 2, -columns.T @ u])

    first = np.concatenate([np.zeros(m), np.full(m, budget / m), np.zeros(columns.shape[1])])
    bounds = [(None, None)] * m + [(1e-9, 1)] * m + [(None, None)] * columns.shape[1]
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
