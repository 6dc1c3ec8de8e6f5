"""Slow, obvious twins of the tri-class machine: the objective as printed, and its global optimum by enumeration of assignments."""

from itertools import product

import numpy as np

from tests.support.oracles.svm_dual import qp_optimum


def min_loss(u, eps):
    return min(max(0.0, 1 - u), max(0.0, 1 + u), max(0.0, abs(u) - eps))


def objective(lam, w2, f, labels, unlabelled, r, eps, all_relevant=False):
    """J of (5.2) in its own units."""
    total = 0.5 * lam * w2
    for u, y, free, weight in zip(f, labels, unlabelled, r):
        if free:
            total += weight * (max(0.0, 1 - abs(u)) if all_relevant else min_loss(u, eps))
        else:
            total += weight * (max(0.0, abs(u) - eps) if y == 0 else max(0.0, 1 - y * u))
    return total


def convex_optimum(K, labels, cost, eps):
    """min of 1/2 ||w||^2 + hinges towards labels -1, +1 and tubes for 0, by a generic solver of the dual."""
    lo, hi = np.where(labels > 0, 0.0, -cost), np.where(labels < 0, 0.0, cost)
    return qp_optimum(K, labels, lo, hi, np.where(labels == 0, eps, 0.0))


def global_optimum(K, labels, unlabelled, cost, eps, pieces=(-1, 0, 1)):
    """min of J / lambda over (w, b): the least of the convex optima over all assignments, as the loss is the least of its pieces."""
    free, best = np.flatnonzero(unlabelled), np.inf
    for choice in product(pieces, repeat=len(free)):
        t = labels.copy()
        t[free] = choice
        best = min(best, convex_optimum(K, t, cost, eps)[0])
    return best
