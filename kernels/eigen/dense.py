"""Positive eigenpairs of matrices that are small enough to be dense."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ..arrays import FloatArray
from ..jit import one_thread

MIN_ROWS_BY_VALUE = 200  # Rows from which only the positive eigenpairs of a dense matrix are computed; below, all of them come sooner.


def dense_bytes(n: int) -> int:
    """Return the bytes of a dense decomposition of n rows: the matrix, the solver's copy, eigenvectors and their selection, ``32 n^2``."""
    return 32 * n * n


def dense_positive(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the positive eigenvalues, descending, and their eigenvectors, of a dense symmetric matrix. Eigenvalues within rounding of
    zero, ``n eps max_i sum_j |A_ij|``, are not positive.
    """
    n = len(matrix)
    cut = n * np.finfo(float).eps * float(np.abs(matrix).sum(axis=1).max(initial=0.0))
    if cut == 0:
        return np.zeros(0), np.zeros((n, 0))
    with one_thread():
        if n < MIN_ROWS_BY_VALUE:
            values, vectors = np.linalg.eigh(matrix)
            keep = values > cut
            values, vectors = values[keep], vectors[:, keep]
        else:
            values, vectors = scipy.linalg.eigh(matrix, subset_by_value=(cut, np.inf), check_finite=False)
    return values[::-1].copy(), vectors[:, ::-1]
