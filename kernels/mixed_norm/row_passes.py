"""One compiled pass over the rows each: loss, bias, line and curvature from decision values z.

All passes use f_i = z_i - b (the paper's sign) and margins m_i = y_i f_i. `logistic` chooses between the two losses of
:mod:`gramplane.kernels.mixed_norm.losses`; the two loops are written out so that the squared hinge has no exponentials and vectorises.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled

FloatArray = NDArray[np.float64]


@compiled(inline=True)
def _sigmoid_parts(margin: float) -> tuple[float, float, float]:
    # 1 / (1 + e^m), its derivative's size, and log(1 + e^-m), from one exponential that cannot overflow.
    small = math.exp(-abs(margin))
    other = 1.0 / (1.0 + small)
    share = small * other if margin > 0.0 else other
    return share, small * other * other, max(-margin, 0.0) + math.log1p(small)


@compiled(reassociate=True)
def point_pass(logistic: bool, z: FloatArray, y: FloatArray, cost: FloatArray, bias: float, residual: FloatArray) -> tuple[float, float]:
    """Write u = alpha y into `residual` and return the loss P and the balance sum_i u_i."""
    loss = 0.0
    balance = 0.0
    if logistic:
        for i in range(z.size):
            share, _, value = _sigmoid_parts(y[i] * (z[i] - bias))
            residual[i] = cost[i] * share * y[i]
            loss += cost[i] * value
            balance += residual[i]
    else:
        for i in range(z.size):
            slack = max(1.0 - y[i] * (z[i] - bias), 0.0)
            alpha = cost[i] * slack
            residual[i] = alpha * y[i]
            loss += 0.5 * alpha * slack
            balance += alpha * y[i]
    return loss, balance


@compiled(reassociate=True)
def bias_pass(logistic: bool, z: FloatArray, y: FloatArray, cost: FloatArray, bias: float) -> tuple[float, float, float]:
    """Return sum_i u_i, its derivative in the bias, and sum_i |u_i|."""
    balance = 0.0
    slope = 0.0
    mass = 0.0
    if logistic:
        for i in range(z.size):
            share, curvature, _ = _sigmoid_parts(y[i] * (z[i] - bias))
            balance += cost[i] * share * y[i]
            slope += cost[i] * curvature
            mass += cost[i] * share
    else:
        for i in range(z.size):
            slack = max(1.0 - y[i] * (z[i] - bias), 0.0)
            balance += cost[i] * slack * y[i]
            slope += cost[i] if slack > 0.0 else 0.0
            mass += cost[i] * slack
    return balance, slope, mass


@compiled(reassociate=True)
def line_pass(
    logistic: bool,
    z: FloatArray,
    move: FloatArray,
    y: FloatArray,
    cost: FloatArray,
    bias: float,
    shift: float,
    steps: FloatArray,
) -> FloatArray:
    """Return P, its slope and its curvature at z + s move, b + s shift for every step s: shape (3, n_steps)."""
    out = np.zeros((3, steps.size))
    for k in range(steps.size):
        step = steps[k]
        loss = 0.0
        slope = 0.0
        curvature = 0.0
        if logistic:
            for i in range(z.size):
                speed = move[i] - shift
                share, bend, value = _sigmoid_parts(y[i] * (z[i] - bias + step * speed))
                loss += cost[i] * value
                slope -= cost[i] * share * y[i] * speed
                curvature += cost[i] * bend * speed * speed
        else:
            for i in range(z.size):
                speed = move[i] - shift
                slack = max(1.0 - y[i] * (z[i] - bias + step * speed), 0.0)
                loss += 0.5 * cost[i] * slack * slack
                slope -= cost[i] * slack * y[i] * speed
                curvature += cost[i] * speed * speed if slack > 0.0 else 0.0
        out[0, k] = loss
        out[1, k] = slope
        out[2, k] = curvature
    return out


@compiled
def curvature_pass(logistic: bool, residual: FloatArray, cost: FloatArray, weights: FloatArray) -> float:
    """Write the second derivatives D of P in z into `weights` and return their sum.

    They follow from u alone: C_i where u_i is not zero (squared hinge, generalised derivative), alpha_i (1 - alpha_i / C_i) (logistic).
    """
    total = 0.0
    for i in range(residual.size):
        alpha = abs(residual[i])
        weight = 0.0
        if alpha > 0.0:
            weight = alpha * max(1.0 - alpha / cost[i], 0.0) if logistic else cost[i]
        weights[i] = weight
        total += weight
    return total


@compiled
def changed_rows(weights: FloatArray, summed: FloatArray) -> tuple[NDArray[np.int64], FloatArray, int]:
    """Return the rows where the weights differ from those summed so far, the differences, and how many weights are not zero."""
    changed = 0
    used = 0
    for i in range(weights.size):
        changed += weights[i] != summed[i]
        used += weights[i] != 0.0
    rows = np.empty(changed, np.int64)
    changes = np.empty(changed)
    at = 0
    for i in range(weights.size):
        if weights[i] != summed[i]:
            rows[at] = i
            changes[at] = weights[i] - summed[i]
            at += 1
    return rows, changes, used
