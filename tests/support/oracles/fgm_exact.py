"""Slow, obvious twins of the whole FGM problem on few features: the norm, the explicit maps, generic solvers of its limits."""

from itertools import combinations, combinations_with_replacement

import numpy as np
from scipy.optimize import minimize

from tests.support.oracles.fgm_subproblem import dual_optimum, free_columns, loss_residual, loss_value

PRECISE = {"maxiter": 20_000, "maxfun": 400_000, "ftol": 1e-15, "gtol": 1e-10}


def loss_slope(loss, y, f, cost):
    """Derivative of the loss in the decision values."""
    return -loss_residual(loss, y, f, cost)


# --- the norm ---------------------------------------------------------------------------------------------------------------------


def norm_case(w, B):
    """The r of section 2: how many of the B largest |w_j| lie below the water level, minus one."""
    v = np.concatenate([[np.inf], np.sort(np.abs(w))[::-1]])
    found = [r for r in range(B) if v[B - r - 1] > v[B - r :].sum() / (r + 1) >= v[B - r]]
    assert len(found) == 1, "r is unique"
    return found[0]


def norm_squared(w, B):
    """||w||_B^2 by its closed form."""
    v, r = np.sort(np.abs(w))[::-1], norm_case(w, B)
    return np.sum(v[: B - r - 1] ** 2) + v[B - r - 1 :].sum() ** 2 / (r + 1)


def norm_squared_by_solver(w, B):
    """min over d in [0,1]^m with sum d <= B of sum w_j^2 / d_j, by SLSQP."""
    m = len(w)
    spent = {"type": "ineq", "fun": lambda d: B - d.sum(), "jac": lambda d: -np.ones(m)}
    return minimize(
        lambda d: np.sum(w**2 / d),
        np.full(m, B / m),
        jac=lambda d: -((w / d) ** 2),
        bounds=[(1e-9, 1)] * m,
        constraints=[spent],
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-15},
    ).fun


def exact_objective(X, y, cost, B, loss, w, intercept):
    """1/2 ||w||_B^2 + P(Xw + intercept)."""
    return 0.5 * norm_squared(w, B) + loss_value(loss, y, X @ w + intercept, cost)


# --- generic solvers --------------------------------------------------------------------------------------------------------------


def ridge_optimum(X, y, cost, loss, free):
    """min 1/2 ||w||^2 + P(Xw + Ag), A columns without a penalty or whether there is a bias, by L-BFGS-B. Returns value, weights, g (of a
    bias, or where there is none, a number).
    """
    m, columns = X.shape[1], free_columns(free, len(y))

    def value(v):
        f = X @ v[:m] + columns @ v[m:]
        slope = loss_slope(loss, y, f, cost)
        gradient = np.concatenate([v[:m] + X.T @ slope, columns.T @ slope])
        return 0.5 * v[:m] @ v[:m] + loss_value(loss, y, f, cost), gradient

    found = minimize(value, np.zeros(m + columns.shape[1]), jac=True, method="L-BFGS-B", options=PRECISE)
    return found.fun, found.x[:m], found.x[m:] if np.ndim(free) else float(np.sum(found.x[m:]))


def half_squared_l1_optimum(X, y, cost, loss, fit_bias):
    """min 1/2 ||w||_1^2 + P(Xw + b) over w = p - q with p, q >= 0, by L-BFGS-B. Returns its value."""
    m = X.shape[1]

    def value(v):
        f = X @ (v[:m] - v[m : 2 * m]) + (v[2 * m] if fit_bias else 0.0)
        slope, total = loss_slope(loss, y, f, cost), v[: 2 * m].sum()
        parts = [total + X.T @ slope, total - X.T @ slope, [slope.sum()] if fit_bias else []]
        return 0.5 * total**2 + loss_value(loss, y, f, cost), np.concatenate(parts)

    bounds = [(0, None)] * (2 * m) + [(None, None)] * fit_bias
    return minimize(value, np.full(2 * m + fit_bias, 0.01), jac=True, bounds=bounds, method="L-BFGS-B", options=PRECISE).fun


def groups_optimum(X, y, cost, groups, eta, B, loss, fit_bias):
    """The QCQP over all B-sets of groups, every member column copied for each group and multiplied by sqrt(eta). Returns its value."""
    blocks = [X[:, group] * np.sqrt(weight) for group, weight in zip(groups, eta)]
    sets = [np.hstack([blocks[g] for g in chosen]) for chosen in combinations(range(len(groups)), B)]
    starts = np.concatenate([[0], np.cumsum([block.shape[1] for block in sets])])
    return dual_optimum(np.hstack(sets), y, cost, starts, loss, fit_bias)


# --- explicit maps ----------------------------------------------------------------------------------------------------------------


def poly2_map(X, gamma, coef0):
    """The coordinates of (gamma x'z + coef0)^2 without the constant, in the order of their names: (X mapped, names (k, 2))."""
    m = X.shape[1]
    columns = {(j, -1): np.sqrt(2 * gamma * coef0) * X[:, j] for j in range(m)}
    for i, j in combinations_with_replacement(range(m), 2):
        columns[i, j] = (gamma if i == j else np.sqrt(2) * gamma) * X[:, i] * X[:, j]
    names = sorted(columns)
    return np.stack([columns[name] for name in names], axis=1), np.array(names)


def unary_map(x, n_bins, exponent=None):
    """n_bins columns 1[x >= k M / n_bins] sqrt(M / n_bins), M the maximum: inner products are min(x, z) on multiples of M / n_bins. With an
    exponent, |x|^exponent takes the place of x.
    """
    x = x if exponent is None else np.abs(x) ** exponent
    edges = np.arange(1, n_bins + 1) * x.max() / n_bins
    return (x[:, None] >= edges - 1e-9) * np.sqrt(x.max() / n_bins)
