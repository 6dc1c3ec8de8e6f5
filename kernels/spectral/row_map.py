"""Coordinates of unseen rows: kernel ridge regression of coordinates that are known on the training rows only.

With ``A = K + rho I``, the map is ``z(x) = Z' A^-1 k(x)``. Leaving row i out changes its value to ``z_i - (A^-1 Z)_i / (A^-1)_ii``; the
ridge rho is that with the smallest sum of these squared residuals.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.linalg

from ..arrays import FloatArray
from ..jit import one_thread

RIDGES = np.logspace(-6.0, 0.0, 13)  # in units of the kernel's mean diagonal entry


class RowMap(NamedTuple):
    """A fitted map.

    * ``coef`` ``(n, k)``: the coefficients ``A^-1 Z``.
    * ``ridge``: rho.
    * ``error``: sum of the squared leave-one-out residuals, as a share of the sum of the squared coordinates.
    """

    coef: FloatArray
    ridge: float
    error: float


def fit_row_map(kernel: FloatArray, points: FloatArray) -> RowMap:
    """Fit the map from a kernel of the rows, ``(n, n)``, which is overwritten, to coordinates ``points``, ``(n, k)``.

    One eigendecomposition serves all ridges; it takes ``n^3`` operations and ``8 (4 n^2 + 4 n k)`` bytes.
    """
    with one_thread():
        unit = float(np.trace(kernel)) / len(kernel)
        values, vectors = scipy.linalg.eigh(kernel.T, overwrite_a=True, check_finite=False)
        values, rotated, squares = np.maximum(values, 0.0), vectors.T @ points, vectors**2
        best = RowMap(points, float("nan"), float("inf"))
        for ridge in (unit * RIDGES).tolist():
            inverse = 1.0 / (values + ridge)
            coef = vectors @ (inverse[:, None] * rotated)
            error = float(((coef / (squares @ inverse)[:, None]) ** 2).sum())
            if error < best.error:
                best = RowMap(coef, ridge, error)
        total = float((points**2).sum())
        return best._replace(error=best.error / total if total > 0.0 else 0.0)
