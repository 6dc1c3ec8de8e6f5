"""A large symmetric matrix as the sum of a sparse part and a low rank part that may be centred."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray


@dataclass(frozen=True)
class SymmetricOperator:
    """``A = S + (H F) diag(w) (H F)'`` with ``H = I - 11'/n`` when ``centre``, else ``H = I``.

    S, ``(n, n)``, is symmetric, F ``(n, k)`` dense or sparse, or nothing, and w, ``(k,)``, of any sign, by default one.
    """

    sparse: sp.csr_array
    factor: Any = None
    weights: FloatArray | None = None
    centre: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sparse", _check_sparse(self.sparse))
        if self.factor is None:
            if self.weights is not None:
                raise ValueError("weights: given without a factor whose columns they belong to")
            return
        factor, weights = _check_factor(self.factor, self.weights, self.n)
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "weights", weights)

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, n)``."""
        return (self.n, self.n)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.sparse.indptr) - 1

    def product(self, block: NDArray[Any]) -> FloatArray:
        """Return ``A V`` for V of shape ``(n, b)`` or ``(n,)``, in the same shape."""
        out = self.sparse @ block
        return out if self.factor is None else out + self.low_rank(block)

    def low_rank(self, block: NDArray[Any]) -> FloatArray:
        """Return ``(H F) diag(w) (H F)' V``; zero without a factor."""
        if self.factor is None or self.weights is None:
            return np.zeros(np.shape(block))
        inner = self.factor.T @ block
        means = self._means()
        if self.centre:
            inner = inner - np.multiply.outer(means, block.sum(axis=0))
        inner = (inner.T * self.weights).T
        out = self.factor @ inner
        return out - means @ inner if self.centre else out

    def _means(self) -> FloatArray:
        return np.asarray(self.factor.sum(axis=0), dtype=np.float64).ravel() / max(1, self.n)

    def dense(self) -> FloatArray:
        """Return A as an array, ``(n, n)``, exactly symmetric."""
        out = self.sparse.toarray()
        if self.factor is not None and self.weights is not None:
            columns = self.dense_factor()
            out += (columns * self.weights) @ columns.T
        return 0.5 * (out + out.T)

    def dense_factor(self) -> FloatArray:
        """Return ``H F`` as an array, ``(n, k)``; no column without a factor."""
        if self.factor is None:
            return np.zeros((self.n, 0))
        columns = self.factor.toarray() if sp.issparse(self.factor) else self.factor
        return columns - self._means() if self.centre else columns

    def restricted(self, basis: NDArray[Any]) -> FloatArray:
        """Return ``V' A V``, ``(r, r)``, for a basis V ``(n, r)``: the matrix that decides on kernels ``V E V'``."""
        if basis.ndim != 2 or len(basis) != self.n:
            raise ValueError(f"basis: shape {basis.shape}; must be ({self.n}, r)")
        inner = basis.T @ self.product(basis)
        return 0.5 * (inner + inner.T)

    def row_sums(self) -> FloatArray:
        """Return an upper bound of the sums of absolute values of the rows, ``(n,)``; their maximum bounds every eigenvalue."""
        out = np.asarray(abs(self.sparse).sum(axis=1), dtype=np.float64).ravel()
        if self.factor is not None and self.weights is not None:
            columns = np.abs(self.dense_factor())
            out += columns @ (np.abs(self.weights) * columns.sum(axis=0))
        return out


def _check_sparse(sparse: object) -> sp.csr_array:
    matrix: Any = sp.csr_array(sparse, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"sparse: shape {matrix.shape}; must be square")
    if not np.isfinite(matrix.data).all():
        raise ValueError("sparse: holds an entry that is not finite")
    # One bilinear form with fixed irregular vectors distinguishes a matrix from its transpose, at the cost of two products.
    left, right = np.cos(np.arange(matrix.shape[0]) * 1.7 + 0.3), np.sin(np.arange(matrix.shape[0]) * 2.3 + 0.9)
    forward, back = left @ (matrix @ right), right @ (matrix @ left)
    if abs(forward - back) > 1e-9 * np.abs(matrix.data).sum():
        raise ValueError(f"sparse: must be symmetric; x'Ay = {forward:.9g} but y'Ax = {back:.9g}")
    return matrix


def _check_factor(factor: object, weights: ArrayLike | None, n: int) -> tuple[Any, FloatArray]:
    matrix: Any = sp.csr_array(factor, dtype=np.float64) if sp.issparse(factor) else np.asarray(factor, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != n:
        raise ValueError(f"factor: shape {matrix.shape}; must be ({n}, k), one row per row of the sparse part")
    entries = matrix.data if sp.issparse(matrix) else matrix
    if not np.isfinite(np.asarray(entries)).all():
        raise ValueError("factor: holds an entry that is not finite")
    scale = np.ones(matrix.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if scale.shape != (matrix.shape[1],) or not np.isfinite(scale).all():
        raise ValueError(f"weights: shape {scale.shape}; must be ({matrix.shape[1]},), finite, one for each column of factor")
    return matrix, scale
