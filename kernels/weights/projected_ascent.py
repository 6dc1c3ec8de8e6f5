"""Accelerated projected gradient for the weights of cuts, compiled: dozens of variables, hundreds of cheap steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from .norm_sets import elastic_response, greatest, power_response, project_elastic

FloatArray = NDArray[np.float64]


@compiled
def inner(x: FloatArray, y: FloatArray) -> float:
    """Return x'y."""
    total = 0.0
    for k in range(x.size):
        total += x[k] * y[k]
    return total


@compiled
def blend(x: FloatArray, a: float, y: FloatArray) -> FloatArray:
    """Return x + a y."""
    out = np.empty(x.size)
    for k in range(x.size):
        out[k] = x[k] + a * y[k]
    return out


@compiled
def image(matrix: FloatArray, x: FloatArray) -> FloatArray:
    """Return matrix x."""
    return matrix @ x


@compiled
def _response(s: FloatArray, elastic: bool, shape: float) -> FloatArray:
    return elastic_response(s, shape) if elastic else power_response(s, shape)


@compiled
def _project_simplex(w: FloatArray) -> FloatArray:
    """Return the projection onto the weights with sum one: lifted above the boundary, at most one and equal to one are the same."""
    ones = np.ones(w.size)
    lifted = project_elastic(blend(w, 1.0 + greatest(blend(np.zeros(w.size), -1.0, w)), ones), 1.0)
    total = inner(lifted, ones)
    for k in range(w.size):
        lifted[k] /= total
    return lifted


@compiled
def ascend(
    c: FloatArray, S: FloatArray, turned: FloatArray, p: FloatArray, elastic: bool, shape: float, tol: float, max_iter: int
) -> tuple[FloatArray, FloatArray, int]:
    """Maximise c'p - 1/2 sigma(S'p) over the simplex by accelerated projected gradients with restarts.

    sigma is the support function of an elastic-net set (shape v < 1) or of a p-norm ball (shape p > 1). The step is found by
    backtracking; momentum starts anew whenever it points downhill. `turned` is S transposed.

    Returns
    -------
    p : ndarray of shape (t,)
        The best weights met.
    theta : ndarray of shape (Q,)
        The response with the least greatest cut.
    steps : int
    """
    ones, start = np.ones(p.size), blend(p, 0.0, p)
    q, ahead, momentum, step = start, start, 1.0, -1.0
    best, low = -np.inf, np.inf
    best_p, best_theta = start, np.zeros(S.shape[1])
    for steps in range(max_iter + 1):
        # At `ahead`: value, gradient and both sides of the certificate.
        theta = _response(image(turned, ahead), elastic, shape)
        slope = blend(c, -0.5, image(S, theta))
        value = inner(ahead, slope)
        if value > best and _inside(ahead):
            best, best_p = value, ahead
        top = greatest(slope)
        if top < low:
            low, best_theta = top, theta
        if low - best <= tol or steps == max_iter:
            break
        centred = blend(slope, -inner(slope, ones) / slope.size, ones)
        if step < 0.0:
            step = 1.0 / max(np.sqrt(inner(centred, centred)), 1e-300)
        step *= 1.5
        while True:
            trial = _project_simplex(blend(ahead, step, centred))
            move = blend(trial, -1.0, ahead)
            response = _response(image(turned, trial), elastic, shape)
            reached = inner(trial, blend(c, -0.5, image(S, response)))
            # A concave function with curvature 1/step lies above this parabola.
            bound = value + inner(slope, move) - 0.5 / step * inner(move, move)
            if reached >= bound - 1e-14 * abs(value):
                break
            step *= 0.5
        if reached > best:
            best, best_p = reached, trial
        last = blend(trial, -1.0, q)
        turns = inner(slope, last) < 0.0
        following = 1.0 if turns else 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = trial if turns else blend(trial, (momentum - 1.0) / following, last)
        if not _inside(ahead):
            ahead = _project_simplex(ahead)
        q, momentum = trial, following
    return best_p, best_theta, steps


@compiled
def _inside(p: FloatArray) -> bool:
    lowest = 0.0
    for k in range(p.size):
        lowest = min(lowest, p[k])
    return lowest >= 0.0
