"""Calibration of decision values to probabilities, by a sigmoid or by isotonic regression."""

from __future__ import annotations

import numpy as np

MAX_STEPS = 100  # Newton steps of a sigmoid; a dozen do
GRADIENT_SHARE = 1e-12  # of the total weight: a gradient of a sigmoid's loss below it is rounding
RIDGE = 1e-12  # is added to the diagonal of the second derivative, which values that are all alike leave singular (Lin, Lin and Weng)
ARMIJO = 1e-4  # share of the decrease that a step promises, which it must keep
MIN_LENGTH = 1e-10  # shortest step that is tried


def fit_sigmoid(values: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Fit ``P(positive | f) = 1 / (1 + exp(a f + b))`` to decision values f ``(n,)`` with weights ``(n,)``; return a and b.

    This is Platt's maximum likelihood with target ``(N+ + 1) / (N+ + 2)`` for positive rows and ``1 / (N- + 2)`` for the others, where N+
    and N- are the total weights of positive and other rows. Newton steps with backtracking solve it (Lin, Lin, Weng: A note on Platt's
    probabilistic outputs for support vector machines. Machine Learning 68, 2007).
    """
    up, down = float(weight[positive].sum()), float(weight[~positive].sum())
    target = np.where(positive, (up + 1.0) / (up + 2.0), 1.0 / (down + 2.0))
    scale = float(np.abs(values).max(initial=0.0)) or 1.0
    x = values / scale
    point = np.array([0.0, np.log((down + 1.0) / (up + 1.0))])
    value = _loss(point, x, target, weight)
    for _ in range(MAX_STEPS):
        gradient, step = _newton_step(point, x, target, weight)
        if np.abs(gradient).max() <= GRADIENT_SHARE * (up + down):
            break
        length, slope = 1.0, float(gradient @ step)
        while (trial := _loss(point + length * step, x, target, weight)) > value + ARMIJO * length * slope and length > MIN_LENGTH:
            length *= 0.5
        if trial >= value:
            break
        point, value = point + length * step, trial
    return float(point[0] / scale), float(point[1])


def _loss(point: np.ndarray, x: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
    z = point[0] * x + point[1]
    return float(np.sum(weight * (np.logaddexp(0.0, z) - (1.0 - target) * z)))


def _newton_step(point: np.ndarray, x: np.ndarray, target: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient of the loss and the Newton step."""
    p = logistic(-(point[0] * x + point[1]))
    slopes, bends = weight * (target - p), weight * p * (1.0 - p)
    gradient = np.array([np.sum(slopes * x), np.sum(slopes)])
    a, b, c = float(np.sum(bends * x * x)) + RIDGE, float(np.sum(bends * x)), float(np.sum(bends)) + RIDGE
    step = np.array([c * gradient[0] - b * gradient[1], a * gradient[1] - b * gradient[0]]) / (b * b - a * c)
    return gradient, step


def logistic(z: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-z))``, without overflow."""
    small = np.exp(-np.abs(z))
    return np.where(z >= 0.0, 1.0, small) / (1.0 + small)


def fit_steps(values: np.ndarray, positive: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Fit an isotonic regression of the labels on the decision values; return the knots (decision values) and the levels there, both
    ascending.

    The function is linear between knots and constant beyond them. Rows with equal values are merged into their mean.
    """
    from scipy.optimize import isotonic_regression  # loaded on demand: it takes a third of a second

    corners, places = np.unique(values, return_inverse=True)
    mass = np.bincount(places, weight, len(corners))
    means = np.bincount(places, weight * positive, len(corners)) / mass
    levels = np.clip(isotonic_regression(means, weights=mass).x, 0.0, 1.0)
    # Of equal levels the first and the last say all.
    inner = np.zeros(len(levels), bool)
    inner[1:-1] = (levels[1:-1] == levels[:-2]) & (levels[1:-1] == levels[2:])
    return corners[~inner], levels[~inner]
