"""Slow, obvious twins of the kernel duals: the QP by SLSQP and by enumeration of active sets, primal values from the losses as printed."""

from itertools import product

import numpy as np
from scipy.optimize import minimize
from scipy.special import xlogy


def dual_value(K, c, kink, ridge, beta):
    return c @ beta - np.sum(kink * np.abs(beta)) - 0.5 * beta @ K @ beta - 0.5 * (ridge * beta) @ beta


def qp_optimum(K, c, lo, hi, kink=0.0, total=0.0, ridge=None, far=1e3, groups=None):
    """max of the dual with beta = p - q, p, q >= 0 where the kink needs it (one number, or one each).

    Infinite bounds become `far`. Returns value and beta.

    With groups every one of them has the sum `total`.
    """
    n = len(c)
    ridge = np.zeros(n) if ridge is None else ridge
    H = K + np.diag(ridge)
    lo, hi = np.maximum(lo, -far), np.minimum(hi, far)
    kinks, whole = np.full(n, kink), np.eye(n)
    plain, up, down = kinks == 0.0, (kinks != 0.0) & (hi > 0.0), (kinks != 0.0) & (lo < 0.0)
    split = np.hstack([whole[:, plain], whole[:, up], -whole[:, down]])
    both = np.concatenate([np.zeros(plain.sum()), kinks[up], kinks[down]])
    least = np.concatenate([lo[plain], np.maximum(lo[up], 0.0), np.maximum(-hi[down], 0.0)])
    bounds = list(zip(least, np.concatenate([hi[plain], hi[up], -lo[down]])))

    def value(v):
        beta = split @ v
        return 0.5 * beta @ H @ beta - c @ beta + both @ v

    def gradient(v):
        return split.T @ (H @ (split @ v) - c) + both

    constraints = []
    if total is not None:
        apart = np.ones((1, n)) if groups is None else (groups == np.unique(groups)[:, None]).astype(float)
        constraints = [{"type": "eq", "fun": lambda v: apart @ (split @ v) - total, "jac": lambda v: apart @ split}]
    best = None
    for scale in (0.0, 0.1):
        first = np.array([min(max(scale, a), b) for a, b in bounds])
        found = minimize(
            value, first, jac=gradient, bounds=bounds, constraints=constraints, method="SLSQP", options={"maxiter": 300, "ftol": 1e-15}
        )
        if best is None or found.fun < best.fun:
            best = found
    beta = split @ best.x
    return dual_value(K, c, kink, ridge, beta), beta


def qp_by_enumeration(K, c, lo, hi, total=0.0):
    """The exact optimum for a handful of variables: every choice of lower bound, upper bound or free, solved as a linear system."""
    n, best = len(c), -np.inf
    for choice in product((0, 1, 2), repeat=n):
        choice = np.array(choice)
        beta = np.where(choice == 0, lo, np.where(choice == 1, hi, 0.0))
        free = np.flatnonzero(choice == 2)
        if len(free):
            m = len(free)
            A = np.block([[K[np.ix_(free, free)], np.ones((m, 1))], [np.ones((1, m)), np.zeros((1, 1))]])
            rhs = np.append(c[free] - K[free] @ beta, total - beta.sum())
            beta[free] = np.linalg.lstsq(A, rhs, rcond=None)[0][:m]
        if abs(beta.sum() - total) < 1e-8 and (beta >= lo - 1e-9).all() and (beta <= hi + 1e-9).all():
            best = max(best, dual_value(K, c, 0.0, np.zeros(n), beta))
    return best


def hinge(y, f, C, power=1, margin=1.0):
    return np.sum(C * np.maximum(margin - y * f, 0.0) ** power)


def tube(target, f, C, epsilon):
    return np.sum(C * np.maximum(np.abs(target - f) - epsilon, 0.0))


def logistic_optimum(K, y, C, bias):
    """min over (beta, b) of 1/2 beta'K beta + sum C log(1 + exp(-y (K beta + b))) by L-BFGS in a factor of K."""
    values, vectors = np.linalg.eigh(K)
    root = vectors * np.sqrt(np.maximum(values, 0.0))

    def value(v):
        f = root @ v[:-1] + (v[-1] if bias else 0.0)
        pull = -C * y / (1 + np.exp(y * f))
        gradient = np.append(v[:-1] + root.T @ pull, pull.sum() if bias else 0.0)
        return 0.5 * v[:-1] @ v[:-1] + np.sum(C * np.logaddexp(0, -y * f)), gradient

    found = minimize(value, np.zeros(len(y) + 1), jac=True, method="L-BFGS-B", options={"maxiter": 10_000, "ftol": 1e-15, "gtol": 1e-10})
    return found.fun


def logistic_dual(K, y, C, beta):
    a = beta * y
    return np.sum(xlogy(C, C) - xlogy(a, a) - xlogy(C - a, C - a)) - 0.5 * beta @ K @ beta
