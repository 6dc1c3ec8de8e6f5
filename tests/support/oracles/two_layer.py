"""Slow, obvious twins of two-layer multiple kernel learning: matrices written out, a general-purpose solver for the machine."""

import numpy as np
from scipy.optimize import minimize, minimize_scalar


def second_layer(grams, mu):
    """exp of the weighted sum, entry by entry."""
    return np.exp(np.tensordot(mu, grams, 1))


def machine(gram, y, C):
    """Dual value and signed coefficients of the machine with one bias, by SLSQP."""
    n = len(y)
    signed = gram * np.outer(y, y)
    found = minimize(
        lambda a: 0.5 * a @ signed @ a - a.sum(),
        np.full(n, 0.1 * C),
        jac=lambda a: signed @ a - 1.0,
        bounds=[(0.0, C)] * n,
        constraints={"type": "eq", "fun": lambda a: a @ y, "jac": lambda a: y},
        method="SLSQP",
        options={"maxiter": 2000, "ftol": 1e-13},
    )
    return -found.fun, found.x * y


def value(grams, y, C, mu, penalty=1.0):
    """F at given weights."""
    return machine(second_layer(grams, mu), y, C)[0] + penalty * np.sum(mu)


def minimum(grams, y, C, start, penalty=1.0):
    """Smallest F found from a start by a method without derivatives."""
    found = minimize(
        lambda mu: value(grams, y, C, np.abs(mu), penalty),
        start,
        method="Nelder-Mead",
        options={"maxiter": 120, "xatol": 1e-3, "fatol": 1e-5},
    )
    return found.fun


def gaussian_slopes(kernel, beta, Q, widths, scale=1.0):
    """Slope of F towards exp(-w Q), and its derivative in w."""
    shares = [kernel * np.outer(beta, beta) * np.exp(-w * Q) * scale for w in widths]
    return np.array([1.0 - 0.5 * s.sum() for s in shares]), np.array([0.5 * (s * Q).sum() for s in shares])


def gaussian_alone(beta, Q, widths):
    """1/2 v' exp(k_w) v, and its derivative in w (minus sign: the print of the source lacks it)."""
    kernels = [np.exp(-w * Q) for w in widths]
    values = [0.5 * beta @ np.exp(k) @ beta for k in kernels]
    return np.array(values), np.array([-0.5 * beta @ (np.exp(k) * k * Q) @ beta for k in kernels])


def best_width(slope, low, high):
    """Width with the smallest slope, by a fine grid and Brent's method."""
    grid = np.geomspace(low, high, 60)
    at = int(np.argmin([slope(w) for w in grid]))
    found = minimize_scalar(lambda u: slope(np.exp(u)), bounds=np.log([grid[max(at - 1, 0)], grid[min(at + 1, 59)]]), method="bounded")
    return float(np.exp(found.x)), float(found.fun)
