"""Compiled accelerated projected gradients for the weights of cuts: dozens of variables, hundreds of cheap steps."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray
from ..jit import compiled
from .norm_sets import elastic_response, greatest_entry, power_response, project_elastic


@compiled(deferred=True)
def inner_product(x: FloatArray, y: FloatArray) -> float:
    """Return x'y."""
    total = 0.0
    for k in range(x.size):
        total += x[k] * y[k]
    return total


@compiled(deferred=True)
def add_scaled(x: FloatArray, a: float, y: FloatArray) -> FloatArray:
    """Return x + a y."""
    out = np.empty(x.size)
    for k in range(x.size):
        out[k] = x[k] + a * y[k]
    return out


@compiled
def multiply(matrix: FloatArray, x: FloatArray) -> FloatArray:
    """Return matrix x."""
    return matrix @ x


@compiled(deferred=True)
def _support_point(s: FloatArray, elastic: bool, shape: float) -> FloatArray:
    return elastic_response(s, shape) if elastic else power_response(s, shape)


@compiled(deferred=True)
def _project_simplex(w: FloatArray) -> FloatArray:
    """Return the projection onto the weights with sum one: of a point above the boundary, it is that onto the sum at most one."""
    ones = np.ones(w.size)
    lifted = project_elastic(add_scaled(w, 1.0 + greatest_entry(add_scaled(np.zeros(w.size), -1.0, w)), ones), 1.0)
    total = inner_product(lifted, ones)
    for k in range(w.size):
        lifted[k] /= total
    return lifted


@compiled(deferred=True)
def ascend_cut_weights(
    c: FloatArray, S: FloatArray, S_t: FloatArray, p: FloatArray, elastic: bool, shape: float, tol: float, max_iter: int
) -> tuple[FloatArray, FloatArray, int]:
    """Maximise c'p - 1/2 sigma(S'p) over the simplex by accelerated projected gradients with restarts. sigma is the support function of an
    elastic-net set (shape v < 1) or of a p-norm ball (shape p > 1); ``S_t`` is S'. Steps are found by backtracking, and the momentum
    restarts whenever it points downhill. Returns the best weights, the response whose greatest cut is least, and the number of steps.
    """
    ones, start = np.ones(p.size), add_scaled(p, 0.0, p)
    q, ahead, momentum, step = start, start, 1.0, -1.0
    best, low = -np.inf, np.inf
    best_p, best_theta = start, np.zeros(S.shape[1])
    for steps in range(max_iter + 1):
        # At `ahead`: value, gradient and both sides of the certificate.
        theta = _support_point(multiply(S_t, ahead), elastic, shape)
        slope = add_scaled(c, -0.5, multiply(S, theta))
        value = inner_product(ahead, slope)
        if value > best and _is_inside(ahead):
            best, best_p = value, ahead
        top = greatest_entry(slope)
        if top < low:
            low, best_theta = top, theta
        if low - best <= tol or steps == max_iter:
            break
        centred = add_scaled(slope, -inner_product(slope, ones) / slope.size, ones)
        if step < 0.0:
            step = 1.0 / max(np.sqrt(inner_product(centred, centred)), 1e-300)
        step *= 1.5
        while True:
            trial = _project_simplex(add_scaled(ahead, step, centred))
            move = add_scaled(trial, -1.0, ahead)
            response = _support_point(multiply(S_t, trial), elastic, shape)
            reached = inner_product(trial, add_scaled(c, -0.5, multiply(S, response)))
            # A concave function with curvature 1/step lies above this parabola.
            bound = value + inner_product(slope, move) - 0.5 / step * inner_product(move, move)
            if reached >= bound - 1e-14 * abs(value):
                break
            step *= 0.5
        if reached > best:
            best, best_p = reached, trial
        last = add_scaled(trial, -1.0, q)
        turns = inner_product(slope, last) < 0.0
        following = 1.0 if turns else 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
        ahead = trial if turns else add_scaled(trial, (momentum - 1.0) / following, last)
        if not _is_inside(ahead):
            ahead = _project_simplex(ahead)
        q, momentum = trial, following
    return best_p, best_theta, steps


@compiled(deferred=True)
def _is_inside(p: FloatArray) -> bool:
    lowest = 0.0
    for k in range(p.size):
        lowest = min(lowest, p[k])
    return lowest >= 0.0
