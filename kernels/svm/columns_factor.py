"""A preconditioner for a matrix that is known by parts: some of its columns, and the diagonal of what they leave.

With the columns C of r rows S, ``K ~ C K_SS^-1 C' = L L'`` (Nyström), and the rest of the diagonal in D, ``P = L L' + D`` is inverted with
a system of order r (Woodbury). Where eigenvalues of K fall quickly, conjugate gradients then need tens of products in place of hundreds
(Frangella, Tropp and Udell, "Randomized Nyström preconditioning", 2023).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, get_blas_funcs, get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from .decomposition import PartGram

MAX_COLUMNS = 1024  # columns at most: a system of that order takes a fraction of a pass
MIN_COLUMNS = 16  # below so many the diagonal alone serves
JITTERS = (1e-6, 1e-5, 1e-4, 1e-2)  # shares of the mean diagonal added in turn until the float32 factor of K_SS exists
STRIP = 4096  # rows of L that are taken to float64 at a time


def count_columns(gram: PartGram, n: int, n_groups: int) -> int:
    """Return how many columns half of the entries that may be held are; 0 where that is too few, or groups need too much beside them."""
    count = min(MAX_COLUMNS, n // 4, gram.room // (2 * n))
    return count if count >= MIN_COLUMNS and 24 * n * n_groups <= gram.room else 0


class ColumnsFactor:
    """``(L L' + D)^-1`` of a matrix with a ridge; ``diag``, ``(n,)``, is the diagonal of K, and the columns are those of rows at equal
    distances.
    """

    def __init__(self, gram: PartGram, diag: FloatArray, ridge: FloatArray, count: int) -> None:
        n = len(diag)
        chosen = (np.arange(count) * n) // count
        columns = fetch_columns(gram, chosen, n)
        self._half = _whiten(columns, chosen)
        left = np.zeros(n)
        for lo in range(0, n, STRIP):
            left[lo : lo + STRIP] = (self._half[:, lo : lo + STRIP].astype(np.float64) ** 2).sum(axis=0)
        self._diag = np.maximum(diag - left, 0.0) + ridge + JITTERS[0] * (float(diag.mean()) or 1.0)
        inner = np.eye(count)
        for lo in range(0, n, STRIP):
            strip = self._half[:, lo : lo + STRIP].astype(np.float64)
            inner += (strip / self._diag[lo : lo + STRIP]) @ strip.T
        self._inner = cho_factor(inner)

    def __call__(self, r: FloatArray) -> FloatArray:
        """Return the preconditioned residual, ``(n,)`` or ``(n, m)``."""
        # Small residuals are scaled up so that they stay in the range of float32.
        size = float(np.abs(r).max()) or 1.0
        scaled = ((r / size).T / self._diag).T
        small = cho_solve(self._inner, (self._half @ scaled.astype(np.float32)).astype(np.float64))
        return size * (scaled - ((self._half.T @ small.astype(np.float32)).T / self._diag).T)


def fetch_columns(gram: PartGram, chosen: IntArray, n: int) -> NDArray[np.float32]:
    """Return columns of a matrix, ``(len(chosen), n)``."""
    ids = np.concatenate([chosen, np.setdiff1d(np.arange(n), chosen)])
    columns, count = np.zeros((len(chosen), n), np.float32), len(chosen)
    for rows, places, values in gram.between(chosen, ids[count:]):
        inside, across = rows < count, places < count
        columns[np.ix_(rows[inside], ids[places])] = values[inside]
        columns[np.ix_(places[across], ids[rows])] = values[:, across].T
    return columns


def _whiten(columns: NDArray[np.float32], chosen: IntArray) -> NDArray[np.float32]:
    """Return L', in the memory of the columns: ``F^-1 C'`` with ``F F' = K_SS``."""
    square: Array = columns[:, chosen]
    (potrf,) = get_lapack_funcs(("potrf",), (square,))
    (trsm,) = get_blas_funcs(("trsm",), (square,))
    mean = float(np.diagonal(square).mean()) or 1.0
    for jitter in JITTERS:
        factor, failed = potrf(square + np.float32(jitter * mean) * np.eye(len(square), dtype=np.float32), lower=1, clean=1)
        if not failed:
            # The columns in C order are their transpose in Fortran order, which is solved from the right in place.
            return trsm(1.0, factor, columns.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
    return np.zeros_like(columns)
