"""Dual averaging and forward-backward splitting written down from their definitions: dense, round by round, groups as lists."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize


def upsilon(w, mean, beta, cost, inner, groups, rho=0.0):
    """``<mean, w> + sum_g (k_g ||w_g|| + tau_g ||w_g||_1) + beta (1/2 ||w||^2 + rho ||w||_1)``."""
    penalty = sum(k * np.linalg.norm(w[g]) + tau * np.abs(w[g]).sum() for k, tau, g in zip(cost, inner, groups))
    return mean @ w + penalty + beta * (0.5 * w @ w + rho * np.abs(w).sum())


def generic_minimum(mean, beta, cost, inner, groups, rho, rng):
    """The least value of `upsilon` that a general solver finds from a few starts."""
    starts = [-mean / beta, rng.normal(size=mean.size)]
    found = [minimize(upsilon, w, (mean, beta, cost, inner, groups, rho), "Powell", options={"xtol": 1e-6, "ftol": 1e-11}) for w in starts]
    return min(result.fun for result in found)


def kkt_residual(w, mean, beta, cost, inner, groups, rho=0.0):
    """How far `w` is from the optimality conditions of `upsilon`, group by group."""
    worst = 0.0
    for k, tau, g in zip(cost, inner + beta * rho, groups):
        u, v = mean[g], w[g]
        norm = np.linalg.norm(v)
        if norm == 0.0:
            worst = max(worst, np.linalg.norm(np.maximum(np.abs(u) - tau, 0.0)) - k)
            continue
        on = v != 0
        worst = max(worst, np.abs(u + tau * np.sign(v) + k * v / norm + beta * v)[on].max())
        worst = max(worst, (np.abs(u[~on]) - tau).max(initial=0.0))
    return worst


def shrunk_groups(values, cost, inner, groups):
    """``[1 - k_g / ||c_g||]_+ c_g`` with ``c_g = S(values_g, tau_g)``, one copy per group, added up."""
    out = np.zeros(values.size)
    for k, tau, g in zip(cost, inner, groups):
        c = np.sign(values[g]) * np.maximum(np.abs(values[g]) - tau, 0.0)
        norm = np.linalg.norm(c)
        out[g] += (1.0 - k / norm) * c if norm > k else 0.0
    return out


def slope_and_loss(loss, y, f):
    if loss == "squared":
        return f - y, 0.5 * (f - y) ** 2
    if loss == "hinge":
        return np.where(y * f < 1, -y, 0.0), np.maximum(1 - y * f, 0.0)
    return -y / (1 + np.exp(y * f)), np.logaddexp(0.0, -y * f)


class Intercept:
    """Steps ``g / (4 L sqrt(A))``, A the sum of the squared mean weights of rounds, of arsinh b where slopes are bounded.

    Numbers begin at the first of them.
    """

    def __init__(self, loss):
        self.loss, self.value, self.paid, self.begun = loss, 0.0, 0.0, False

    def slopes(self, y, products):
        """Slopes and losses of the rows of a round."""
        slope, suffered = slope_and_loss(self.loss, y, products + self.value)
        if self.loss == "squared" and not self.begun:
            self.value = y[0]
            slope = products + self.value - y
            suffered[1:] = 0.5 * slope[1:] ** 2
        self.begun = True
        return slope, suffered

    def close(self, slope, weight):
        """Let a round of rows with these slopes and weights end."""
        self.paid += np.mean(weight) ** 2
        bound = {"logistic": 0.25, "squared": 1.0, "hinge": 0.5}[self.loss]
        step = np.mean(weight * slope) / (4 * bound * np.sqrt(self.paid))
        self.value = self.value - step if self.loss == "squared" else np.sinh(np.arcsinh(self.value) - step)


def dual_averaging(X, y, cost, inner, groups, gamma, *, rho=0.0, batch=1, loss="logistic", intercept=True, weight=None):
    """Weights and biases before every round and after the last, and the losses suffered."""
    keep = np.arange(len(y)) if weight is None else np.flatnonzero(weight > 0)
    weight = np.ones(len(y)) if weight is None else weight
    s, b, path, losses = np.zeros(X.shape[1]), Intercept(loss), [(np.zeros(X.shape[1]), 0.0)], []
    for t, lo in enumerate(range(0, len(keep), batch), start=1):
        rows = keep[lo : lo + batch]
        products = X[rows] @ path[-1][0]
        slope, suffered = b.slopes(y[rows], products) if intercept else slope_and_loss(loss, y[rows], products)
        losses += (weight[rows] * suffered).tolist()
        s = s + (weight[rows] * slope) @ X[rows] / len(rows)
        b.close(slope, weight[rows])
        beta = gamma / np.sqrt(t)
        w = -shrunk_groups(s / t, cost, inner + beta * rho, groups) / beta
        path.append((w, b.value if intercept else 0.0))
    return path, np.array(losses)


def fobos(X, y, cost, inner, groups, gamma, *, batch=1, loss="logistic"):
    """Weights and bias after the last round."""
    w, b = np.zeros(X.shape[1]), Intercept(loss)
    for t, lo in enumerate(range(0, len(y), batch), start=1):
        eta = 1.0 / (gamma * np.sqrt(t))
        slope, _ = b.slopes(y[lo : lo + batch], X[lo : lo + batch] @ w)
        w = shrunk_groups(w - eta * slope @ X[lo : lo + batch] / len(slope), eta * cost, eta * inner, groups)
        b.close(slope, np.ones(len(slope)))
    return w, b.value
