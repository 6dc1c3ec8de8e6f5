"""Newton directions of F on the live groups.

On a live group (r_h = ||omega_h|| > 0) F has the gradient gamma v - c and the second derivative

H = Z'DZ - g g' / sum(D) + v v' + blockdiag((gamma / r_h) (I - v_h v_h')),   v_h = omega_h / r_h,  g = Z'D1

where the second term is there when a bias is eliminated (docs/methods.md, "Bias").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from .row_hessian import RowSystem
from .rows import Curvature, LiveColumns, RowCurvature

_potrf: Any
_potrs: Any
_potrf, _potrs = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)


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


def newton_direction(
    curvature: Curvature | RowCurvature, live: LiveColumns, gradient: FloatArray, fit_bias: bool, blend: float
) -> FloatArray:
    """Solve H d = -gradient, (q,), on the live columns; `blend` is the share of the majorant in the penalty's part of H, from 0 to 1. If H
    is numerically singular the blend rises; the majorant diag(gamma / r_h) is positive definite by itself, and should even that fail the
    direction is the negative gradient over the largest diagonal entry of H.
    """
    of_rows = isinstance(curvature, RowCurvature)
    system = RowSystem(curvature, live, fit_bias) if of_rows else _ColumnSystem(curvature, live, fit_bias)
    for share in (blend, max(blend, 1e-3), 1.0):
        direction = system.solve(gradient, share)
        # An entry that is not finite shows in the slope.
        if direction is not None and -math.inf < direction @ gradient < 0:
            return direction
    return gradient / -system.largest


class _ColumnSystem:
    """H itself; ``largest`` is the greatest entry of its diagonal."""

    largest = 1.0

    def __init__(self, curvature: Curvature, live: LiveColumns, fit_bias: bool) -> None:
        self._curvature, self._live = curvature, live
        self._matrix = np.empty((len(live.columns), len(live.columns)), order="F")
        self._pull = 1.0 / curvature.total if fit_bias and curvature.total > 0 else 0.0

    def solve(self, gradient: FloatArray, blend: float) -> FloatArray | None:
        """Return the direction, ``(q,)``, or ``None`` if H is numerically singular."""
        at = self._curvature
        self.largest = fill_hessian(self._matrix.T, at.gram.T, tuple(self._live), at.sums, self._pull, blend)
        with one_thread():
            factor, failed = _potrf(self._matrix, lower=1, clean=0, overwrite_a=1)
            return None if failed else _potrs(factor, -gradient, lower=1)[0]


def bias_shift(direction: FloatArray, curvature: Curvature | RowCurvature, fit_bias: bool) -> float:
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
