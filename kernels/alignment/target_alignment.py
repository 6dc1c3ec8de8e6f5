r"""Kernel weights by the alignment of the kernels' sum with a target matrix.

For kernels :math:`K^t` and a target Y over n rows, centred by :math:`H = I - 11'/n` on both sides,

.. math::

    M_{st} = \langle K^s_c, K^t_c \rangle, \quad a_t = \langle K^t_c, Y_c \rangle, \qquad
    \min_{\theta \ge 0} \theta' M \theta - 2 a' \theta .

The direction of the minimiser maximises :math:`\rho = a'\theta / \sqrt{\theta' M \theta \, \langle Y_c, Y_c \rangle}` over
:math:`\theta \ge 0` (Zhuang: Kernel learning, thesis, 2011, section 7.3; Cortes, Mohri, Rostamizadeh, JMLR 13, 2012). M and a must use the
same centred matrices, a requirement that the printed theorem omits. Inner products, row sums and diagonals of the raw matrices are enough;
the target is treated as one more matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..jit import one_thread

Alignment = Literal["unit", "off-diagonal"]

RIDGE_SHARE = 1e-12  # Added to the diagonal of M, relative to it: kernels that are multiples of one another share a weight.
CONSTANT_SHARE = 1e-14  # A centred matrix whose squared norm is below this share of the raw one is constant but for rounding.


@dataclass(frozen=True)
class MatrixSums:
    """Inner products ``(k, k)``, row sums ``(k, n)`` and diagonals ``(k, n)`` of k symmetric matrices.

    ``count`` rows are used; the others are zero.
    """

    products: FloatArray
    row_sums: FloatArray
    diagonals: FloatArray
    count: int

    @classmethod
    def of(cls, matrices: NDArray[np.floating]) -> MatrixSums:
        """Return the sums of matrices in memory, ``(k, n, n)``."""
        k, n = matrices.shape[:2]
        flat = np.asarray(matrices, np.float64).reshape(k, -1)
        with one_thread():
            products = flat @ flat.T
        diagonals = np.diagonal(matrices, axis1=1, axis2=2).astype(np.float64)
        return cls(products, np.asarray(matrices, np.float64).sum(axis=2), diagonals, n)

    def shifted(self, shifts: FloatArray, rows: NDArray[np.bool_]) -> MatrixSums:
        """Return the sums after adding ``shifts[t]`` to the diagonal of matrix t, on the given rows only."""
        cross = np.outer(shifts, self.diagonals[:, rows].sum(axis=1))
        products = self.products + cross + cross.T + np.outer(shifts, shifts) * rows.sum()
        more = shifts[:, None] * rows
        return replace(self, products=products, row_sums=self.row_sums + more, diagonals=self.diagonals + more)

    def with_matrix(self, products: FloatArray, square: float, row_sums: FloatArray, diagonal: FloatArray) -> MatrixSums:
        """Return the sums with one more matrix at the end, given by its inner products ``(k,)`` with the others, its squared norm, row sums
        and diagonal.
        """
        whole = np.block([[self.products, products[:, None]], [products[None, :], np.array([[square]])]])
        return replace(self, products=whole, row_sums=np.vstack([self.row_sums, row_sums]), diagonals=np.vstack([self.diagonals, diagonal]))

    def centred(self, alignment: Alignment = "unit") -> FloatArray:
        """Return the inner products of the centred matrices, ``(k, k)``.

        ``"off-diagonal"`` ignores the diagonals: from all other entries, the mean of these entries is subtracted.
        """
        n = self.count
        if alignment == "off-diagonal":
            off_diagonal = self.row_sums.sum(axis=1) - self.diagonals.sum(axis=1)
            raw = self.products - self.diagonals @ self.diagonals.T
            centred = raw - np.outer(off_diagonal, off_diagonal) / max(n * (n - 1), 1)
        else:
            raw, totals = self.products, self.row_sums.sum(axis=1) / n
            centred = raw - (2.0 / n) * (self.row_sums @ self.row_sums.T) + np.outer(totals, totals)
        constant = np.diagonal(centred) <= CONSTANT_SHARE * np.diagonal(raw)
        centred[constant] = 0.0
        centred[:, constant] = 0.0
        return centred


@dataclass(frozen=True)
class AlignedWeights:
    """Kernel weights by alignment.

    * ``weights`` ``(k,)``: theta >= 0 of norm 1.
    * ``value``: rho of the weighted sum.
    * ``uniform``: rho of the equally weighted sum.
    * ``singles`` ``(k,)``: rho of each kernel alone.
    """

    weights: FloatArray
    value: float
    uniform: float
    singles: FloatArray


def solve_aligned_weights(centred: FloatArray, *, uniform: bool = False) -> AlignedWeights:
    """Return the weights of largest alignment with the target, or equal weights if ``uniform``.

    The last row and column of ``centred``, ``(k + 1, k + 1)``, belong to the target. Raises ValueError if the target is constant, or if no
    kernel is aligned with it.
    """
    M, a, square = centred[:-1, :-1], centred[:-1, -1], float(centred[-1, -1])
    k = len(a)
    if not square > 0.0:
        raise ValueError("the target is constant: all pairs of users are linked, or none are, so no view can predict links")
    singles = np.array([_alignment_value(M, a, square, row) for row in np.eye(k)])
    equal = np.full(k, k**-0.5)
    weights = equal if uniform else _solve_weights(M, a)
    if not weights.any():
        best = int(np.argmax(singles))
        raise ValueError(
            f"no view is aligned with the links: the largest alignment is {singles[best]:.3g} (view {best}) and must be above 0; "
            "set weights='uniform' to give all views the same weight"
        )
    return AlignedWeights(weights, _alignment_value(M, a, square, weights), _alignment_value(M, a, square, equal), singles)


def _alignment_value(M: FloatArray, a: FloatArray, square: float, theta: FloatArray) -> float:
    norm = float(theta @ M @ theta)
    return float(a @ theta) / float(np.sqrt(norm * square)) if norm > 0.0 else 0.0


def _solve_weights(M: FloatArray, a: FloatArray) -> FloatArray:
    """Return argmin over theta >= 0 of ``theta'M theta - 2 a'theta``, scaled to norm 1; zeros if the minimiser is zero."""
    # Loaded on demand: it takes a third of a second, which every worker would pay.
    from scipy.optimize import nnls

    diagonal = np.diagonal(M)
    used = diagonal > 0.0
    if not np.any(a[used] > 0.0):
        return np.zeros(len(a))
    # In units of each matrix' norm: scaling a kernel scales its weight and nothing else.
    unit = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(len(a)), where=used)
    scaled = (M * unit * unit[:, None])[np.ix_(used, used)]
    scaled.flat[:: len(scaled) + 1] += RIDGE_SHARE * len(scaled)
    with one_thread():
        values, vectors = np.linalg.eigh(scaled)
        root = np.sqrt(np.maximum(values, RIDGE_SHARE))
        scaled_theta, _ = nnls(root[:, None] * vectors.T, (vectors.T @ (a * unit)[used]) / root)
    theta = np.zeros(len(a))
    theta[used] = scaled_theta
    theta *= unit
    return theta / np.linalg.norm(theta)
