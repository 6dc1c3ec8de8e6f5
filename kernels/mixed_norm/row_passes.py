"""One compiled pass over the rows each: loss, bias, line and curvature from decision values z.

All passes use f_i = z_i - b (the paper's sign) and margins m_i = y_i f_i. `kind` is the number of a loss of
:mod:`gramplane.kernels.losses`; it does not change in a loop, so the compiler makes a loop of its own for every loss: that of the squared
hinge has no exponentials and vectorises.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from ..losses import curvature_at_dual, margin_terms


@compiled(reassociate=True)
def point_pass(kind: int, z: FloatArray, y: FloatArray, cost: FloatArray, bias: float, residual: FloatArray) -> tuple[float, float]:
    """Write u = alpha y into `residual` and return the loss P and the balance sum_i u_i."""
    loss, balance = 0.0, 0.0
    for i in range(z.size):
        value, alpha, _ = margin_terms(kind, y[i] * (z[i] - bias), cost[i])
        residual[i] = alpha * y[i]
        loss += value
        balance += alpha * y[i]
    return loss, balance


# Below costs are factors of the sums: taken into the terms they would be kept apart from what they are multiplied with.


@compiled(reassociate=True)
def bias_pass(kind: int, z: FloatArray, y: FloatArray, cost: FloatArray, bias: float) -> tuple[float, float, float]:
    """Return sum_i u_i, its derivative in the bias, and sum_i |u_i|."""
    balance, slope, mass = 0.0, 0.0, 0.0
    for i in range(z.size):
        _, share, curvature = margin_terms(kind, y[i] * (z[i] - bias), 1.0)
        balance += cost[i] * share * y[i]
        slope += cost[i] * curvature
        mass += cost[i] * share
    return balance, slope, mass


@compiled(reassociate=True)
def line_pass(
    kind: int, z: FloatArray, move: FloatArray, y: FloatArray, cost: FloatArray, bias: float, shift: float, steps: FloatArray
) -> FloatArray:
    """Return P, its slope and its curvature at z + s move, b + s shift for every step s: shape (3, n_steps)."""
    out = np.zeros((3, steps.size))
    for k in range(steps.size):
        step, loss, slope, curvature = steps[k], 0.0, 0.0, 0.0
        for i in range(z.size):
            speed = move[i] - shift
            value, share, bend = margin_terms(kind, y[i] * (z[i] - bias + step * speed), 1.0)
            loss += cost[i] * value
            slope -= cost[i] * share * y[i] * speed
            curvature += cost[i] * bend * speed * speed
        out[0, k], out[1, k], out[2, k] = loss, slope, curvature
    return out


@compiled
def curvature_pass(kind: int, residual: FloatArray, cost: FloatArray, weights: FloatArray) -> float:
    """Write the second derivatives D of P in z into `weights` and return their sum; they follow from u alone."""
    total = 0.0
    for i in range(residual.size):
        alpha = abs(residual[i])
        weight = curvature_at_dual(kind, alpha, cost[i]) if alpha > 0.0 else 0.0
        weights[i] = weight
        total += weight
    return total


@compiled
def changed_rows(weights: FloatArray, summed: FloatArray) -> tuple[IntArray, FloatArray, int]:
    """Return the rows where the weights differ from those summed so far, the differences, and how many weights are not zero."""
    changed, used = 0, 0
    for i in range(weights.size):
        changed += weights[i] != summed[i]
        used += weights[i] != 0.0
    rows, changes = np.empty(changed, np.int64), np.empty(changed)
    at = 0
    for i in range(weights.size):
        if weights[i] != summed[i]:
            rows[at], changes[at] = i, weights[i] - summed[i]
            at += 1
    return rows, changes, used
