"""L_p norms and their proximal step, by a general solver."""

import numpy as np
from scipy.optimize import brentq, minimize


def dual_power(p):
    """q with 1/p + 1/q = 1."""
    return 1.0 if p == np.inf else np.inf if p == 1 else p / (p - 1)


def norm(v, p):
    peak = np.abs(v).max(initial=0.0)
    return peak * float(np.linalg.norm(np.ravel(v) / peak, p)) if peak else 0.0


def prox(v, bar, p):
    """``argmin 1/2 ||w - v||^2 + bar ||w||_p`` by general solvers, with the signs of v; p = inf as a program with a ceiling."""
    signs, size = np.sign(v), np.abs(v)
    if p == np.inf:
        found = minimize(
            lambda x: 0.5 * np.sum((x[1:] - size) ** 2) + bar * x[0],
            np.append(size.max(), size),
            constraints=[{"type": "ineq", "fun": lambda x: x[0] - x[1:]}],
            bounds=[(0, None)] * (len(v) + 1),
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 1000},
        )
        return signs * found.x[1:]

    def value(w):
        return 0.5 * np.sum((w - size) ** 2) + bar * norm(w, p)

    starts = [minimize(value, share * size, bounds=[(0, None)] * len(v), method="SLSQP", options={"ftol": 1e-15}) for share in (1.0, 0.5)]
    best = min(starts, key=lambda found: found.fun)
    return signs * minimize(value, best.x, method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-16, "maxiter": 20_000}).x


def row_prox(v, bar, p):
    """The same point for p = 1.5, 3 and inf, where entries have closed forms, by the one number that is left: ``w + s w^(p-1) = |v|``."""
    size = np.abs(v)
    if norm(size, dual_power(p)) <= bar:
        return np.zeros_like(v)
    if p == np.inf:
        ceiling = brentq(lambda c: np.maximum(size - c, 0).sum() - bar, 0.0, size.max(), xtol=1e-15)
        return np.sign(v) * np.minimum(size, ceiling)

    def entries(u):
        s = u / (1 - u)
        return 2 * size / (1 + np.sqrt(1 + 4 * s * size)) if p == 3 else (2 * size / (s + np.sqrt(s * s + 4 * size) + 1e-300)) ** 2

    return np.sign(v) * entries(brentq(lambda u: norm(size - entries(u), dual_power(p)) - bar, 0.0, 1 - 1e-12, xtol=1e-16))
