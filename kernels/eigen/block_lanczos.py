"""The leading eigenpairs of a large symmetric matrix that is accessed only through products with a few vectors; each product is a pass over
its blocks.

The method is block Lanczos with full orthogonalisation and thick restarts. Block Krylov spaces need fewer products than subspace iteration,
and a block finds repeated eigenvalues (source: Golub and Van Loan, Matrix Computations, 4th edition, sections 10.3.6 and 10.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.linalg
from scipy.linalg import eigh, qr

from ..arrays import FloatArray
from ..jit import one_thread

SPARE_COLUMNS = 4  # Vectors of a block beyond the pairs asked for.
MAX_COLUMNS = 96  # Vectors that are held before a restart, or four blocks.
MAX_PRODUCTS = 300  # Products at most.
TOLERANCE = 1e-8  # Largest residual of the pairs returned, in units of the largest eigenvalue.
VANISHING = 1e-12  # A direction of this length relative to its block is rounding.


@dataclass(frozen=True)
class LeadingEigenpairs:
    """Leading eigenpairs of a matrix.

    * ``values`` ``(r,)``: eigenvalues, descending.
    * ``vectors`` ``(n, r)``: orthonormal eigenvectors.
    * ``residual``: the largest ``||A v - lambda v||``, relative to the eigenvalue of largest magnitude.
    * ``products``: the number of products.
    """

    values: FloatArray
    vectors: FloatArray
    residual: float
    products: int


def block_columns(count: int) -> tuple[int, int]:
    """Return the number of vectors per product, and the largest number of vectors v that are held in memory together with ``A v``."""
    block = count + SPARE_COLUMNS
    return block, max(MAX_COLUMNS, 4 * block)


def leading_pairs(product: Callable[[FloatArray], FloatArray], n: int, count: int) -> LeadingEigenpairs:
    """Return the ``count`` <= n largest eigenvalues of a symmetric matrix A ``(n, n)`` with their eigenvectors; ``product`` maps V
    ``(n, b)`` to ``A V``.

    The iteration ends when the residuals are at most TOLERANCE, or after MAX_PRODUCTS products.
    """
    block, most = block_columns(count)
    start = np.random.default_rng(0).standard_normal((n, min(block, n)))
    with one_thread():
        fresh, basis, images = _orthonormalise(start), np.zeros((n, 0)), np.zeros((n, 0))
        for products in range(1, MAX_PRODUCTS + 1):  # noqa: B007
            with_images = product(fresh)
            basis, images = np.hstack([basis, fresh]), np.hstack([images, with_images])
            inner = basis.T @ images
            values, turn = eigh(0.5 * (inner + inner.T))
            values, turn = values[::-1], turn[:, ::-1]
            wanted = min(count, len(values))
            vectors, left = basis @ turn[:, :wanted], images @ turn[:, :wanted]
            residual = float(np.linalg.norm(left - vectors * values[:wanted], axis=0).max() / max(np.abs(values).max(), 1e-300))
            fresh = _next_block(with_images, basis)
            is_whole = not fresh.shape[1] or basis.shape[1] + fresh.shape[1] > n
            if (wanted == count and residual <= TOLERANCE) or is_whole:
                break
            if basis.shape[1] + fresh.shape[1] > most:
                basis, images = basis @ turn[:, : 2 * block], images @ turn[:, : 2 * block]
    return LeadingEigenpairs(values[:wanted], vectors, residual, products)


def _next_block(block: FloatArray, basis: FloatArray) -> FloatArray:
    """Return an orthonormal basis of what a block adds to the given basis; no columns if the block adds only rounding errors."""
    length = float(np.linalg.norm(block, axis=0).max())
    for _ in range(2):
        block = block - basis @ (basis.T @ block)
    directions, triangle, _ = cast("Any", qr(block, mode="economic", pivoting=True))
    n_directions = int(np.count_nonzero(np.abs(np.diag(triangle)) > VANISHING * length))
    directions = directions[:, :n_directions]
    directions = directions - basis @ (basis.T @ directions)
    return _orthonormalise(directions) if n_directions else directions


def _orthonormalise(block: FloatArray) -> FloatArray:
    return cast("Any", qr(block, mode="economic"))[0]


# Signs of eigenvectors, which no equation decides: one rule everywhere, which rounding does not change.

TIE_TOLERANCE = 1e-6
"""Relative difference below which entry magnitudes count as equal, because the processor's rounding decides which is larger."""


def column_signs(vectors: FloatArray) -> FloatArray:
    """Return the sign (-1 or +1) of the entry of largest magnitude in each column of ``(n, r)``, n > 0; in a tie, of the first one."""
    size = np.abs(vectors)
    first = np.argmax(size >= (1.0 - TIE_TOLERANCE) * size.max(axis=0), axis=0)
    return np.where(np.take_along_axis(vectors, first[None], axis=0)[0] < 0, -1.0, 1.0)


# Positive eigenpairs of matrices that are small enough to be dense.

MIN_ROWS_BY_VALUE = 200  # Rows from which only the positive eigenpairs of a dense matrix are computed; below, all of them come sooner.


def dense_bytes(n: int) -> int:
    """Return the memory in bytes that a dense eigendecomposition of n rows takes, ``32 n^2``: the matrix, the solver's copy, the
    eigenvectors and the selected ones among them.
    """
    return 32 * n * n


def dense_positive(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the positive eigenvalues of a dense symmetric matrix, descending, and their eigenvectors.

    Eigenvalues within rounding of zero, ``n eps max_i sum_j |A_ij|``, do not count as positive.
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
