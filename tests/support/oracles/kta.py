"""Slow, obvious twins of kernel target alignment: dense centred Grams, every pair's distance, scalar root finding, whole objectives."""

import numpy as np
from scipy.optimize import brentq, minimize_scalar

GENERATORS = {
    "euclidean": (lambda x: x * x, lambda x: 2 * x),
    "kl": (lambda x: x * np.log(x) - x if x > 0 else 0.0, lambda x: np.log(x)),
}
"""F and F' as functions of one number."""


# --- alignments -------------------------------------------------------------------------------------------------------------------


def distances(x):
    """Non-zero distances of all pairs, sorted."""
    away = np.abs(x[:, None] - x)[np.triu_indices(len(x), 1)]
    return np.sort(away[away > 0])


def lower_median(x):
    """The least non-zero distance with half of them at or below it."""
    away = distances(x)
    return away[(len(away) + 1) // 2 - 1]


def gram(x, kernel, width=1.0):
    return np.exp(-((x[:, None] - x) ** 2) / (2 * width**2)) if kernel == "rbf" else np.outer(x, x)


def alignment(x, y, kernel, width=1.0):
    """y' H K H y / trace(H K H) with every matrix written out; alignment and trace."""
    m = len(x)
    H = np.eye(m) - 1 / m
    centred = H @ gram(np.asarray(x, float), kernel, width) @ H
    return y @ centred @ y / np.trace(centred), np.trace(centred)


# --- weights ----------------------------------------------------------------------------------------------------------------------


def divergence(name, x, centre):
    F, slope = GENERATORS[name]
    return F(x) - F(centre) - (x - centre) * slope(centre)


def objective(eta, a, p, lam1, lam2, name, centre):
    """The objective (7.1) of a vector of weights."""
    parts = [(lam1 * divergence(name, x, centre) if lam1 else 0) + lam2 * x**p - x * ai for x, ai in zip(eta, a, strict=True)]
    return float(np.sum(parts))


def weight(a, p, lam1, lam2, name, centre):
    """One weight by bracketing G in log eta."""
    slope = GENERATORS[name][1]
    pull = lam1 * slope(centre) if lam1 else 0.0

    def G(log_eta):
        eta = np.exp(log_eta)
        return (lam1 * slope(eta) if lam1 else 0.0) + lam2 * p * eta ** (p - 1) - pull - a

    if G(-600.0) >= 0:
        return 0.0
    return float(np.exp(brentq(G, -600.0, 100.0, xtol=1e-15, rtol=1e-15)))


def log_weight_kl(a, p, lam1, lam2, centre):
    """Logarithm of one weight for KL, where the weight itself may be beyond float64: bisection."""
    low, high = -1e13, 1e13
    for _ in range(200):
        middle = (low + high) / 2
        norm = lam2 * p * np.exp(min((p - 1) * middle, 700.0))
        low, high = (low, middle) if lam1 * (middle - np.log(centre)) + norm > a else (middle, high)
    return middle


def weight_by_minimiser(a, p, lam1, lam2, name, centre):
    """One weight by a generic minimiser of the objective, which knows nothing of its derivatives."""
    found = minimize_scalar(
        lambda x: objective([x], [a], p, lam1, lam2, name, centre), bounds=(0, 500), method="bounded", options={"xatol": 1e-10}
    )
    return found.x


# --- l_p multiple kernel learning with the square loss: where the monotone path fails ---------------------------------------------


def square_loss_log_weight(p, angle_kernel=1.1, angle_target=1.35):
    """log eta_1 of two rank-one kernels at the optimum of 1/2 y' Q^-1 y + lam2 sum eta^p (appendix A.3.3).

    Q = sum eta_i K_i + I / (2 lam1). In the log domain, because the first weight is as small as 1e-11 where it comes back.
    """
    u1, u2 = np.array([1.0, 0.0]), np.array([np.cos(angle_kernel), np.sin(angle_kernel)])
    y = np.array([np.cos(angle_target), np.sin(angle_target)])
    K1, K2 = np.outer(u1, u1), np.outer(u2, u2)
    lam1 = (y @ K1 @ y) / (2 * (y @ K2 @ K1 @ y - y @ K1 @ y))
    lam2 = (y @ K1 @ y) * (y @ K2 @ y) / (3 * (y @ K2 @ K1 @ K2 @ y))

    def pull(eta):
        """The slopes 1/2 (u_i' Q^-1 y)^2 of the loss."""
        v = np.linalg.solve(eta[0] * K1 + eta[1] * K2 + np.eye(2) / (2 * lam1), y)
        return 0.5 * np.array([(u1 @ v) ** 2, (u2 @ v) ** 2])

    second = 0.0
    for _ in range(200):
        # The first weight is too small to move the objective: alternate exact roots of the two conditions.
        first = brentq(lambda t, s=second: np.log(lam2 * p) + (p - 1) * t - np.log(pull(np.exp([t, s]))[0] + 1e-300), -300, 5, xtol=1e-13)
        second = brentq(lambda s, t=first: np.log(lam2 * p) + (p - 1) * s - np.log(pull(np.exp([t, s]))[1]), -30, 5, xtol=1e-13)
    return first


def removal_cost(eta, p, lam1, lam2, name):
    """By how much the objective rises when a weight eta that solves the problem at p is set to zero, whatever the centre; times n with
    eta = eps it bounds the excess of a path that drops weights below eps (Jawanpuria 2014, lemma 7.4.1)."""
    return lam1 * {"euclidean": eta * eta, "kl": eta}[name] + lam2 * (p - 1.0) * eta**p
