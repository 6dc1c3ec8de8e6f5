"""Newton directions of F on the non-zero groups.

On a group with r_h = ||omega_h|| > 0, F has the gradient gamma v - c and the second derivative

H = Z'DZ - Z'DX (X'DX)^+ X'DZ + v v' + blockdiag((gamma / r_h) (I - v_h v_h')),   v_h = omega_h / r_h

where X are the eliminated unpenalised columns; a bias is a column of ones (docs/theory/fgm.md, "Columns without a penalty").
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import get_blas_funcs, get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from .elimination import free_roots
from .rows import Curvature, LiveColumns, RowCurvature

# Newton directions of F from a system of the size of the rows, where many more columns are live than rows have curvature.
#
# With the square roots of the rows' second derivatives d and what columns X without a penalty leave of them, the second derivative of
# :mod:`gramplane.kernels.mixed_norm.hessian` is
#
# H = M + B'B,   B = [(I - W W') diag(sqrt d) Z; sqrt(1 - s) v'],   W an orthonormal basis of diag(sqrt d) X
#
# with the penalty's part M = blockdiag(kappa_h (I - (1 - s) v_h v_h')), kappa_h = gamma / r_h, s the blend, whose inverse is
# blockdiag((I + (1 - s) / s v_h v_h') / kappa_h). By Woodbury's identity H d = -g is solved by
#
# d = -M^-1 (g - B' x),   (I + B M^-1 B') x = B M^-1 g.
#
# Maps with hundreds of columns a feature (histogram intersection) meet this: 10,000 live columns on some hundred rows.

PANEL = 1024  # Columns written out at a time.


class RowSystem:
    """The linear system at one point, solved in the space of the rows; ``largest`` bounds the diagonal of H."""

    def __init__(self, curvature: RowCurvature, live: LiveColumns, roots: FloatArray) -> None:
        self._curvature, self._live = curvature, live
        self._free = (curvature.roots[:, None] * curvature.columns) @ roots
        self._heads = np.flatnonzero(np.diff(live.owner, prepend=-1))
        self._kappa = live.stiffness[self._heads]
        self._matrix, self._ties, steepest = self._products()
        self.largest = steepest + float(live.stiffness.max()) + 1.0

    def solve(self, gradient: FloatArray, blend: float) -> FloatArray | None:
        """Return the direction, ``(q,)``, or ``None`` if the matrix is numerically singular."""
        k, rest = len(self._matrix), math.sqrt(1.0 - blend)
        system = np.empty((k + 1, k + 1), order="F")
        system[:k, :k] = self._matrix + (self._ties * ((1.0 - blend) / blend / self._kappa)) @ self._ties.T
        system[k, :k] = rest * (self._ties @ (1.0 / (blend * self._kappa)))
        system[k, k] = rest * rest * float((1.0 / (blend * self._kappa)).sum())
        np.einsum("ii->i", system)[:] += 1.0
        pulled = self._soften(gradient, blend)
        with one_thread():
            factor, failed = _potrf(system, lower=1, clean=0, overwrite_a=1)
            x = None if failed else _potrs(factor, np.append(self._forward(pulled), rest * float(self._live.unit @ pulled)), lower=1)[0]
        return None if x is None else -self._soften(gradient - self._backward(x[:k]) - rest * x[k] * self._live.unit, blend)

    def _products(self) -> tuple[FloatArray, FloatArray, float]:
        """Return A diag(1 / kappa) A', A v_h for each group, and the largest squared norm of a column of A, where A is diag(sqrt d) Z
        without its projection on the unpenalised columns.
        """
        curvature, live, k = self._curvature, self._live, len(self._curvature.rows)
        matrix, ties, steepest = np.zeros((k, k), order="F"), np.zeros((k, len(self._heads))), 0.0
        places = np.repeat(np.arange(len(self._heads)), np.diff(self._heads, append=len(live.owner)))
        # Without a row that has curvature H is the penalty's part alone.
        for lo in range(0, len(live.columns) if k else 0, PANEL):
            part = slice(lo, lo + PANEL)
            panel = curvature.block.dense(curvature.rows, live.columns[part]) * curvature.roots[:, None]
            if self._free.size:
                panel -= self._free @ (self._free.T @ panel)
            steepest = max(steepest, float(np.einsum("ij,ij->j", panel, panel).max(initial=0.0)))
            group = places[part]
            heads = np.flatnonzero(np.diff(group, prepend=-1))
            ties[:, group[heads]] += np.add.reduceat(panel * live.unit[part], heads, axis=1)
            with one_thread():
                matrix = _syrk(1.0, np.asfortranarray(panel / np.sqrt(live.stiffness[part])), beta=1.0, c=matrix, lower=1, overwrite_c=1)
        return matrix, ties, steepest

    def _soften(self, values: FloatArray, blend: float) -> FloatArray:
        """Return M^-1 applied to a vector, where M is the penalty's part of H."""
        unit, along = self._live.unit, np.add.reduceat(self._live.unit * values, self._heads)
        spread = np.repeat((1.0 - blend) / blend * along, np.diff(self._heads, append=len(values)))
        return (values + spread * unit) / self._live.stiffness

    def _forward(self, values: FloatArray) -> FloatArray:
        whole = np.zeros(self._curvature.block.p)
        whole[self._live.columns] = values
        return self._without_free(self._curvature.product(whole))

    def _backward(self, x: FloatArray) -> FloatArray:
        return self._curvature.transposed(self._without_free(x))[self._live.columns]

    def _without_free(self, x: FloatArray) -> FloatArray:
        return x - self._free @ (self._free.T @ x) if self._free.size else x


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
    """Solve ``H d = -gradient``, (q,), on the columns of the non-zero groups. ``blend``, from 0 to 1, is the share of the majorant in the
    penalty's part of H.

    If H is numerically singular, the blend is raised; the majorant diag(gamma / r_h) alone is positive definite. If even the majorant
    fails, the direction is the negative gradient divided by the largest diagonal entry of H.
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
    """The linear system with the matrix H itself; ``largest`` bounds its diagonal."""

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
    """Return the step of the unpenalised coefficients that keeps X'u = 0 to first order when omega moves along ``direction``."""
    if not curvature.bends.size:
        return np.zeros(0)
    roots = free_roots(curvature.bends)
    return -(roots @ (roots.T @ (curvature.cross.T @ direction)))


@compiled(deferred=True)
def fill_hessian(out: FloatArray, gram: FloatArray, live: tuple[Array, ...], blend: float) -> float:
    """Write H without the part of the unpenalised columns and return its largest diagonal entry. ``out`` and ``gram`` are transposed views
    of lower triangles.
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
