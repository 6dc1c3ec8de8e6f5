"""Newton directions of F on the live groups.

On a live group (r_h = ||omega_h|| > 0) F has the gradient gamma v - c and the second derivative

H = Z'DZ - g g' / sum(D) + v v' + blockdiag((gamma / r_h) (I - v_h v_h')),   v_h = omega_h / r_h,  g = Z'D1

where the second term is there when a bias is eliminated (docs/methods.md, "Bias").
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from .rows import Curvature

_potrf: Any
_potrs: Any
_potrf, _potrs = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)


class LiveColumns(NamedTuple):
    """The live groups of a point, laid out per live column, ``(q,)`` each. ``columns``: their columns in Z, ascending; ``owner``: the group
    of each; ``unit``: v, its entry of omega_h / r_h; ``stiffness``: gamma / r_h.
    """

    columns: IntArray
    owner: IntArray
    unit: FloatArray
    stiffness: FloatArray


def live_groups(
    omega: FloatArray, correlations: FloatArray, norms: FloatArray, gamma: float, starts: IntArray
) -> tuple[LiveColumns, FloatArray]:
    """Return the layout of the groups with a positive norm, and the gradient gamma v - c of F on their columns."""
    columns, owner, unit, stiffness, gradient = _live_columns(omega, correlations, norms, gamma, starts)
    return LiveColumns(columns, owner, unit, stiffness), gradient


@compiled
def _live_columns(
    omega: FloatArray, correlations: FloatArray, norms: FloatArray, gamma: float, starts: IntArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray, FloatArray]:
    size = 0
    for h in range(norms.size):
        if norms[h] > 0.0:
            size += starts[h + 1] - starts[h]
    columns, owner = np.empty(size, np.int64), np.empty(size, np.int64)
    unit, stiffness, gradient = np.empty(size), np.empty(size), np.empty(size)
    at = 0
    for h in range(norms.size):
        if norms[h] > 0.0:
            for j in range(starts[h], starts[h + 1]):
                columns[at], owner[at] = j, h
                unit[at], stiffness[at] = omega[j] / norms[h], gamma / norms[h]
                gradient[at] = gamma * unit[at] - correlations[j]
                at += 1
    return columns, owner, unit, stiffness, gradient


def newton_direction(curvature: Curvature, live: LiveColumns, gradient: FloatArray, fit_bias: bool, blend: float) -> FloatArray:
    """Solve H d = -gradient, (q,), on the live columns; `blend` is the share of the majorant in the penalty's part of H, from 0 to 1. If H
    is numerically singular the blend rises; the majorant diag(gamma / r_h) is positive definite by itself, and should even that fail the
    direction is the negative gradient over the largest diagonal entry of H.
    """
    size = len(live.columns)
    hessian = np.empty((size, size), order="F")
    pull = 1.0 / curvature.total if fit_bias and curvature.total > 0 else 0.0
    largest = 1.0
    for share in (blend, max(blend, 1e-3), 1.0):
        largest = fill_hessian(hessian.T, curvature.gram.T, tuple(live), curvature.sums, pull, share)
        with one_thread():
            factor, failed = _potrf(hessian, lower=1, clean=0, overwrite_a=1)
            direction = None if failed else _potrs(factor, -gradient, lower=1)[0]
        # An entry that is not finite shows in the slope.
        if direction is not None and -math.inf < direction @ gradient < 0:
            return direction
    return gradient / -largest


def bias_shift(direction: FloatArray, curvature: Curvature, fit_bias: bool) -> float:
    """Return the bias step along a direction that keeps the balance to first order."""
    return float(curvature.sums @ direction) / curvature.total if fit_bias and curvature.total > 0 else 0.0


@compiled
def fill_hessian(out: FloatArray, gram: FloatArray, live: tuple[Array, ...], sums: FloatArray, pull: float, blend: float) -> float:
    """Write H; `out` and `gram` are the transposed views of lower triangles. Return the largest diagonal entry."""
    columns, owner, unit, stiffness = live
    size = columns.size
    largest = 0.0
    for i in range(size):
        row = out[i]
        source = gram[columns[i]]
        tug = pull * sums[columns[i]]
        across = (1.0 - blend) * unit[i]
        for j in range(i, size):
            row[j] = source[columns[j]] - tug * sums[columns[j]] + across * unit[j]
        j = i
        while j < size and owner[j] == owner[i]:
            row[j] -= stiffness[i] * across * unit[j]
            j += 1
        row[i] += stiffness[i]
        largest = max(largest, row[i])
    return largest
