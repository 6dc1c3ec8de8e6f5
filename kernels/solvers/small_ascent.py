"""Accelerated projected gradient for the weights of cuts, compiled: dozens of variables, hundreds of cheap steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..domains_norms import elastic_response, power_response, project_elastic
from ..jit import compiled

FloatArray = NDArray[np.float64]


@compiled
def _response(s: FloatArray, elastic: bool, shape: float) -> FloatArray:
    return elastic_response(s, shape) if elastic else power_response(s, shape)


@compiled
def _project_simplex(w: FloatArray) -> FloatArray:
    """Return the projection onto the weights with sum one: lifted above the boundary, at most one and equal to one are the same."""
    lifted = project_elastic(w - w.min() + 1.0, 1.0)
    return lifted / lifted.sum()


@compiled
def ascend(
    c: FloatArray, S: FloatArray, p: FloatArray, elastic: bool, shape: float, tol: float, max_iter: int
) -> tuple[FloatArray, FloatArray, int]:
    """Maximise c'p - 1/2 sigma(S'p) over the simplex by accelerated projected gradients with restarts.

    sigma is the support function of an elastic-net set (shape v < 1) or of a p-norm ball (shape p > 1). The step is found by
    backtracking; momentum starts anew whenever it points downhill.

    Returns
    -------
    p : ndarray of shape (t,)
        The best weights met.
    theta : ndarray of shape (Q,)
        The response with the least greatest cut.
    steps : int
    """
    q, ahead, momentum, step = p.copy(), p.copy(), 1.0, -1.0
    best, low = -np.inf, np.inf
    best_p, best_theta = p.copy(), np.zeros(S.shape[1])
    for steps in range(max_iter + 1):
        # At `ahead`: value, gradient and both sides of the certificate.
        theta = _response(ahead @ S, elastic, shape)
        slope = c - 0.5 * (S @ theta)
        value = ahead @ slope
        inside = ahead.min() >= 0.0
        if inside and value > best:
            best, best_p = value, ahead.copy()
        if slope.max() < low:
            low, best_theta = slope.max(), theta
        if low - best <= tol or steps == max_iter:
            break
        centred = slope - slope.mean()
        if step < 0.0:
            step = 1.0 / max(np.sqrt(np.sum(centred * centred)), 1e-300)
        step *= 1.5
        while True:
            trial = _project_simplex(ahead + step * centred)
            move = trial - ahead
            response = _response(trial @ S, elastic, shape)
            reached = trial @ (c - 0.5 * (S @ response))
            # A concave function with curvature 1/step lies above this parabola.
            bound = value + slope @ move - 0.5 / step * (move @ move)
            if reached >= bound - 1e-14 * abs(value):
                break
            step *= 0.5
        if reached > best:
            best, best_p = reached, trial.copy()
        turned = slope @ (trial - q) < 0.0
        following = 1.0 if turned else 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = trial.copy() if turned else trial + (momentum - 1.0) / following * (trial - q)
        if not turned and ahead.min() < 0.0:
            ahead = _project_simplex(ahead)
        q, momentum = trial, following
    return best_p, best_theta, steps
