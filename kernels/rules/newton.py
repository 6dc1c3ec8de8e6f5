"""Newton steps for a linear model on 0/1 columns with a ridge penalty per column and a smoothed hinge loss; the bias is eliminated.

For one task: minimise over f and b, with weights delta > 0,

    1/2 sum_w f_w^2 / delta_w + sum_i C_i H_h(1 - y_i ((Phi f)_i - b)),

where H_h(t) = 0, t^2 / (2h), t - h/2 for t <= 0, 0 < t < h, t >= h. With g = f / sqrt(delta) the Hessian is I + D Phi_Z' diag(C/h) Phi_Z D
over the zone alone, the rows Z with 0 < t < h, minus the part of the bias. The bias is the root of the monotone function sum_i y_i alpha_i,
alpha_i = C_i H_h'(t_i), so alpha is dual feasible at every iterate. If Z has far fewer rows than there are columns, the same direction is
computed from a system with one unknown per row (:func:`zone_direction`).
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .bits import Bytes, apply_columns, apply_transpose, weighted_gram, zone_columns
from .row_losses import RowLoss

_potrf, _potrs = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)

NEGLIGIBLE_SHARE = 1e-10  # Columns whose delta is a smaller share of the largest are dropped from a step.
ARMIJO = 1e-4  # Share of the decrease along the slope that a step has to reach.
MIN_DECREASE_SHARE = 1e-7  # Newton steps that lower the value by a smaller share are the last.
COLUMNS_PER_ROW = 2  # So many times more columns than rows in the zone make the system of the rows the shorter way.
MAX_LINE_SEARCHES = 25  # Lengths of one Newton step that are tried.
SLOPE_LEFT = 0.1  # Share of the slope at the start of a line that may be left at its end.
SECANT_MARGIN = 0.1  # A secant's step keeps this share of the interval to both ends.
MAX_PLANES = 8
"""Number of bits of a row's cost in the Hessian. Costs that are not small multiples of one number are rounded up, in the Hessian only."""


def cost_planes(cost: FloatArray) -> tuple[IntArray, float]:
    """Return integers ``(n,)`` and a unit: integer times unit is the cost of a row, or slightly more."""
    largest = float(cost.max(initial=0.0))
    if largest == 0.0:
        return np.zeros(len(cost), np.int64), 0.0
    unit = float(cost[cost > 0].min())
    multiples = cost / unit
    if largest / unit >= 2**MAX_PLANES or np.abs(multiples - np.rint(multiples)).max() > 1e-9 * largest / unit:
        unit = largest / (2**MAX_PLANES - 1)
        multiples = np.ceil(cost / unit - 1e-9)
    return np.rint(multiples).astype(np.int64), unit


@compiled
def zone_curvature(rows: Bytes, multiples: IntArray, unit: float, zone: IntArray, keep: IntArray) -> FloatArray:
    """Return Phi_Z' diag(c) Phi_Z of some columns, with the bias eliminated; c are the costs of the zone."""
    columns = np.zeros((keep.size + 1, (zone.size + 63) // 64), np.uint64)
    bits = zone_columns(rows, zone, keep)
    for v in range(keep.size):  # a loop: an assignment would compile the texts of errors about shapes
        for w in range(bits.shape[1]):
            columns[v + 1, w] = bits[v, w]
    many = 0
    for at in range(zone.size):
        columns[0, at >> 6] |= np.uint64(1) << np.uint64(at & 63)
        many |= multiples[zone[at]]
    planes = np.zeros((MAX_PLANES, columns.shape[1]), np.uint64)
    values = np.empty(MAX_PLANES)
    count = 0
    for q in range(MAX_PLANES):
        if (many >> q) & 1:
            for at in range(zone.size):
                if (multiples[zone[at]] >> q) & 1:
                    planes[count, at >> 6] |= np.uint64(1) << np.uint64(at & 63)
            values[count] = unit * (1 << q)
            count += 1
    full = np.empty((keep.size + 1, keep.size + 1))
    weighted_gram(columns, planes, values[:count], full)
    out = np.empty((keep.size, keep.size))
    total = max(full[0, 0], 1e-300)
    for v in range(keep.size):
        for w in range(keep.size):
            out[v, w] = full[v + 1, w + 1] - full[0, v + 1] * full[0, w + 1] / total
    return out


def half_square(g: FloatArray) -> float:
    return 0.5 * inner(g, g)


@compiled
def inner(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for v in range(a.size):
        total += a[v] * b[v]
    return total


def search_line(
    F: FloatArray, dF: FloatArray, g: FloatArray, direction: FloatArray, b: float, value: float, slope: float, y: FloatArray,
    cost: FloatArray, loss: RowLoss,
) -> tuple[FloatArray, float, FloatArray, float]:  # fmt: skip
    """Return F, bias, g and value at the best of the steps tried.

    The full step is tried first, then secant steps towards the zero of the (monotone) slope, until the slope is a small fraction of the
    slope at 0. Rows enter and leave the zone along a step, so the full step usually goes too far; an accurate search is worth several more
    directions.
    """
    step, low, low_slope, high, high_slope = 1.0, 0.0, slope, np.inf, 0.0
    length = inner(direction, direction)
    best = (F, b, g, np.inf)
    for _ in range(MAX_LINE_SEARCHES):
        trial_F, trial_g = np.empty_like(F), g + step * direction
        trial_b, trial, trial_slope = loss.look_along(F, dF, step, y, cost, b, trial_F)
        trial += half_square(trial_g)
        trial_slope += inner(g, direction) + step * length
        if trial < best[3]:
            best = (trial_F, trial_b, trial_g, trial)
        if (trial_slope <= 0.0 and high == np.inf) or (abs(trial_slope) <= SLOPE_LEFT * -slope and trial <= value + ARMIJO * step * slope):
            break
        if trial_slope > 0.0:
            high, high_slope = step, trial_slope
        else:
            low, low_slope = step, trial_slope
        margin = SECANT_MARGIN * (high - low)
        step = min(max(low - low_slope * (high - low) / (high_slope - low_slope), low + margin), high - margin)
    return best


def take_newton_steps(
    rows: Bytes, multiples: IntArray, unit: float, y: FloatArray, cost: FloatArray, delta: FloatArray, f: FloatArray, b: float,
    loss: RowLoss, steps: int,
) -> tuple[FloatArray, float, FloatArray, int]:  # fmt: skip
    """Take up to `steps` Newton steps from f; return f, b, ``F = Phi @ f``, and the number of steps. Columns with negligible delta are
    dropped.
    """
    keep = np.flatnonzero(delta > NEGLIGIBLE_SHARE * delta.max())
    D = np.sqrt(delta[keep])
    g = f[keep] / D
    full = np.zeros(f.size)
    full[keep] = f[keep]
    F = apply_columns(rows, full)
    b = loss.bias(F, y, cost, b)
    value = half_square(g) + loss.value(F, y, cost, b)
    taken, signs, h = 0, loss.signs(y), loss.h
    for _ in range(steps):
        alpha = loss.multipliers(F, y, cost, b)
        gradient = g - D * apply_transpose(rows, signs * alpha, f.size)[keep]
        zone = loss.zone(F, y, cost, b)
        if is_short(zone, keep):
            direction = zone_direction(rows[zone], multiples[zone] * (unit / h), keep, D, gradient)
        else:
            direction = newton_direction(zone_curvature(rows, multiples, unit / h, zone, keep), D, gradient)
        slope = inner(gradient, direction)
        full[keep] = D * direction
        dF = apply_columns(rows, full)
        trial_F, trial_b, trial_g, trial = search_line(F, dF, g, direction, b, value, slope, y, cost, loss)
        taken += 1
        if not trial < value:
            break
        decrease = value - trial
        F, b, g, value = trial_F, trial_b, trial_g, trial
        if decrease <= MIN_DECREASE_SHARE * value:
            break
    full[keep] = D * g
    return full, b, F, taken


def newton_direction(H: FloatArray, D: FloatArray, gradient: FloatArray) -> FloatArray:
    """Return -(I + D H D)^-1 gradient by a Cholesky factor; overwrites H."""
    H *= np.multiply.outer(D, D)
    return -solve_shifted(H, np.ones(D.size), gradient)


def is_short(zone: IntArray, keep: IntArray) -> bool:
    """Return whether the Newton direction is cheaper to compute from the system in the zone's rows."""
    return COLUMNS_PER_ROW * zone.size <= keep.size


def zone_direction(held: Bytes, weight: Array, keep: IntArray, D: FloatArray, gradient: FloatArray) -> FloatArray:
    """Return the direction of :func:`newton_direction` from the rows of the zone, packed ``(z, ceil(W / 8))``, and their weights c / h.

    With A = Phi_Z D and u = (diag(h / c) + A A')^-1 (beta - A gradient), where beta is such that 1'u = 0, the direction is -(gradient +
    A'u).
    """
    if not len(held):
        return -gradient
    A = np.take(np.unpackbits(held, axis=1, bitorder="little"), keep, axis=1) * D
    ends = solve_shifted(A @ A.T, 1.0 / weight, np.column_stack([A @ gradient, np.ones(len(held))]))
    of_gradient, of_bias = ends.T
    u = of_bias * (of_gradient.sum() / of_bias.sum()) - of_gradient
    return -(gradient + u @ A)


def solve_shifted(H: FloatArray, shift: FloatArray, right: FloatArray) -> FloatArray:
    """Return ``(H + diag(shift))^-1 @ right`` for a positive semidefinite H by a Cholesky factor; overwrites H."""
    diagonal = H.reshape(-1)[:: len(H) + 1]
    diagonal += shift + 1e-13 * diagonal.max(initial=0.0)
    # Symmetric: the transpose, which LAPACK reads as it lies, is the matrix itself.
    factor, failed = _potrf(H.T, lower=1, overwrite_a=1, clean=0)
    if failed:
        raise np.linalg.LinAlgError("Matrix is not positive definite.")
    return _potrs(factor, right, lower=1)[0]
