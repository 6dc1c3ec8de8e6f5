"""Slow, obvious twins of feature selection over many tasks: one step by signs and a general solver, rounds in dense NumPy, the batch."""

import itertools

import numpy as np
from scipy.optimize import minimize

from tests.support.oracles.lp_norms import row_prox


def step_value(W, mean, row, entry, beta):
    """Objective of one step; W is (d, Q)."""
    norms = np.sqrt(np.square(W).sum(axis=1))
    return float(np.sum(mean * W) + row * norms.sum() + entry * np.abs(W).sum() + 0.5 * beta * np.square(W).sum())


def step_row(mean, row, entry, beta):
    """Least objective of one row of W: zero, or the best over all patterns of signs, each a smooth problem with bounds."""
    best = 0.0
    for signs in itertools.product((-1.0, 1.0), repeat=len(mean)):
        s = np.array(signs)

        def value(v, s=s):
            return step_value((s * v)[None], mean, row, entry, beta)

        def slope(v, s=s):
            norm = np.sqrt(v @ v)
            return s * mean + row * v / max(norm, 1e-300) + entry + beta * v

        start = np.maximum(-s * mean, 0.0) / beta + 1e-3
        bounds = [(0.0, None)] * len(mean)
        found = minimize(value, start, jac=slope, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-12})
        best = min(best, found.fun)
    return best


def kkt_residual(W, mean, row, entry, beta):
    """Largest violation of the conditions of a minimum of one step."""
    worst = 0.0
    for w, g in zip(W, mean, strict=True):
        shrunk = np.sign(g) * np.maximum(np.abs(g) - entry, 0.0)
        if not w.any():
            worst = max(worst, np.linalg.norm(shrunk) - row) if row else max(worst, np.abs(shrunk).max())
            continue
        on = w != 0
        pull = g + row * w / np.linalg.norm(w) + beta * w
        worst = max(worst, np.abs(pull + entry * np.sign(w))[on].max(), (np.abs(g[~on]) - entry).max(initial=0.0))
    return worst


def closed(mean, row, entry, beta, p=2.0):
    """The step in closed form, row by row."""
    if p != 2.0:
        return -np.stack([row_prox(m, row, p) for m in mean]) / beta
    shrunk = np.sign(mean) * np.maximum(np.abs(mean) - entry, 0.0)
    norms = np.linalg.norm(shrunk, axis=1)
    factors = np.array([max(1 - row / norm, 0.0) if norm > 0 else 0.0 for norm in norms])
    return -factors[:, None] * shrunk / beta


def loss_and_slope(name, y, f):
    if name == "squared":
        return 0.5 * (f - y) ** 2, f - y
    if name == "logistic":
        return np.log1p(np.exp(-y * f)), -y / (1 + np.exp(y * f))
    return max(1 - y * f, 0.0), -y if y * f < 1 else 0.0


def dense_rounds(X, y, codes, order, n_tasks, row, entry, gamma, loss, bias=False, p=2.0, fobos=False):
    """Every round in dense arithmetic, by dual averaging or FOBOS.

    Returns rounds, weights, intercepts, losses in order, and the weights before every round.
    """
    G, t, rows_of = np.zeros((X.shape[1], n_tasks)), 0, np.zeros(n_tasks)
    steep = {"logistic": 1.0, "squared": 4.0, "hinge": 2.0}[loss]
    W, B, opened, told, path, slopes = np.zeros_like(G), np.zeros(n_tasks), {}, [], [], []

    def close():
        nonlocal t, W, opened
        now = np.zeros_like(G)
        for q, (i, u) in opened.items():
            now[:, q] = u * X[i]
            rows_of[q] += bias
            B[q] = y[i] if bias and loss == "squared" and rows_of[q] == 1 else B[q]
            step = u / (steep * np.sqrt(rows_of[q])) if bias else 0.0
            B[q] = B[q] - step if loss == "squared" else np.sinh(np.arcsinh(B[q]) - step)
        G[...] += now
        path.append(W)
        slopes.append(now)
        t, opened = t + 1, {}
        beta = gamma / np.sqrt(t)
        eta = 1 / (gamma * np.sqrt(t))
        W = -closed(W - eta * now, eta * row, eta * entry, 1.0, p) if fobos else closed(G / t, row, entry, beta, p)

    for i in order:
        if opened and (i < 0 or codes[i] in opened):
            close()
        if i < 0:
            continue
        q = codes[i]
        value, u = loss_and_slope(loss, y[i], X[i] @ W[:, q] + B[q])
        u = 0.0 if bias and loss == "squared" and rows_of[q] == 0 else u
        told.append(value)
        opened[q] = (i, u)
        if len(opened) == n_tasks:
            close()
    return t, W, B, np.array(told), path, slopes


def batch_optimum(X, y, codes, n_tasks, row, entry, bias=False):
    """Least squares of (4.3) by L-BFGS on positive and negative parts, norms rounded at 1e-7."""
    d = X.shape[1]
    shares = 1.0 / np.bincount(codes, minlength=n_tasks)[codes]

    def value(v):
        P, N, B = v[: d * n_tasks].reshape(d, n_tasks), v[d * n_tasks : 2 * d * n_tasks].reshape(d, n_tasks), v[2 * d * n_tasks :]
        W = P - N
        rest = (X * W[:, codes].T).sum(axis=1) + (B[codes] if bias else 0.0) - y
        norms = np.sqrt(np.square(W).sum(axis=1) + 1e-14)
        slope = row * W / norms[:, None]
        for q in range(n_tasks):
            slope[:, q] += X[codes == q].T @ (shares * rest)[codes == q]
        down = np.bincount(codes, shares * rest, n_tasks) * bias
        told = 0.5 * shares @ rest**2 + row * norms.sum() + entry * v[: 2 * d * n_tasks].sum()
        return told, np.concatenate([(slope + entry).ravel(), (entry - slope).ravel(), down])

    bounds = [(0, None)] * (2 * d * n_tasks) + [(None, None)] * n_tasks
    options = {"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-10}
    return minimize(value, np.zeros(2 * d * n_tasks + n_tasks), jac=True, bounds=bounds, method="L-BFGS-B", options=options).fun
