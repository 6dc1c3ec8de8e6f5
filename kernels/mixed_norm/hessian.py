"""Newton directions of F on the live groups.

On a live group (r_h = ||omega_h|| > 0) F has the gradient gamma v - c and the second derivative

H = Z'DZ - Z'DX (X'DX)^+ X'DZ + v v' + blockdiag((gamma / r_h) (I - v_h v_h')),   v_h = omega_h / r_h

where X are columns without a penalty, eliminated; a bias is a column of ones (docs/theory/fgm.md, "Columns without a penalty").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from .elimination import free_roots
from .row_hessian import RowSystem
from .rows import Curvature, LiveColumns, RowCurvature

_syrk: Any
_potrf: Any
_potrs: Any
_syrk = get_blas_funcs("syrk", dtype=np.float64)
_potrf, _potrs = get_lapack_funcs(("potrf", "potrs"), dtype=np.float64)


def live_groups(
    omega: FloatArray, correlations: FloatArray, norms: FloatArray, gamma: float, starts: IntArray
) -> tuple[LiveColumns, FloatArray]:
    """Return the layout of the groups with a positive norm, and the gradient gamma v - c of F on their columns."""
    columns, owner, unit, stiffness, gradient = _live_columns(omega, correlations, norms, gamma, starts)
    return LiveColumns(columns, owner, unit, stiffness), gradient


@compiled(deferred=True)
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


def newton_direction(curvature: Curvature | RowCurvature, live: LiveColumns, gradient: FloatArray, blend: float) -> FloatArray:
    """Solve H d = -gradient, (q,), on the live columns; `blend` is the share of the majorant in the penalty's part of H, from 0 to 1. If H
    is numerically singular the blend rises; the majorant diag(gamma / r_h) is positive definite by itself, and should even that fail the
    direction is the negative gradient over the largest diagonal entry of H.
    """
    roots = free_roots(curvature.bends)
    system = RowSystem(curvature, live, roots) if isinstance(curvature, RowCurvature) else _ColumnSystem(curvature, live, roots)
    for share in (blend, max(blend, 1e-3), 1.0):
        direction = system.solve(gradient, share)
        # An entry that is not finite shows in the slope.
        if direction is not None and -math.inf < direction @ gradient < 0:
            return direction
    return gradient / -system.largest


class _ColumnSystem:
    """H itself; ``largest`` bounds the entries of its diagonal."""

    largest = 1.0

    def __init__(self, curvature: Curvature, live: LiveColumns, roots: FloatArray) -> None:
        self._gram, self._live = curvature.gram, live
        self._matrix = np.empty((len(live.columns), len(live.columns)), order="F")
        self._without = np.asfortranarray(curvature.cross[live.columns] @ roots) if roots.size else roots

    def solve(self, gradient: FloatArray, blend: float) -> FloatArray | None:
        """Return the direction, ``(q,)``, or ``None`` if H is numerically singular."""
        self.largest = fill_hessian(self._matrix.T, self._gram.T, tuple(self._live), blend)
        with one_thread():
            if self._without.size:
                _syrk(-1.0, self._without, beta=1.0, c=self._matrix, lower=1, overwrite_c=1)
            factor, failed = _potrf(self._matrix, lower=1, clean=0, overwrite_a=1)
            return None if failed else _potrs(factor, -gradient, lower=1)[0]


def free_shift(direction: FloatArray, curvature: Curvature | RowCurvature) -> FloatArray:
    """Return the step of the coefficients without a penalty along a direction that keeps their balance to first order."""
    if not curvature.bends.size:
        return np.zeros(0)
    roots = free_roots(curvature.bends)
    return -(roots @ (roots.T @ (curvature.cross.T @ direction)))


@compiled(deferred=True)
def fill_hessian(out: FloatArray, gram: FloatArray, live: tuple[Array, ...], blend: float) -> float:
    """Write H but for what columns without a penalty take; `out` and `gram` are the transposed views of lower triangles. Return the largest
    diagonal entry.
    """
    columns, owner, unit, stiffness = live
    size = columns.size
    largest = 0.0
    for i in range(size):
        row = out[i]
        source = gram[columns[i]]
        across = (1.0 - blend) * unit[i]
        for j in range(i, size):
            row[j] = source[columns[j]] + across * unit[j]
        j = i
        while j < size and owner[j] == owner[i]:
            row[j] -= stiffness[i] * across * unit[j]
            j += 1
        row[i] += stiffness[i]
        largest = max(largest, row[i])
    return largest
