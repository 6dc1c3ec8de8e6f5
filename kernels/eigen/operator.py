"""A large symmetric matrix: the sum of a sparse part and a low-rank part. The low-rank part may be centred.

The matrix is split into its connected components. Each component is multiplied by panels of 64 columns; scaling, shift and the three-term
recurrence of the filter are part of the same loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from ..arrays import Array, FloatArray
from ..jit import compiled

Block = NDArray[Any]

MAX_UNSPLIT_ROWS = 200  # Rows up to which a matrix is not worth taking apart.
PANEL_WIDTH = 64  # Columns of a panel: one gathered row of a float32 panel is four lines of the cache.


@dataclass(frozen=True)
class SymmetricOperator:
    """``A = S + (H F) diag(w) (H F)'`` with ``H = I - 11'/n`` if ``centre``, else ``H = I``.

    S, ``(n, n)``, is symmetric. F, ``(n, k)``, is dense, sparse or None. w, ``(k,)``, may have any sign and is 1 by default.
    """

    sparse: sp.csr_array
    factor: Any = None
    weights: FloatArray | None = None
    centre: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sparse", _check_sparse(self.sparse))
        if self.factor is None:
            if self.weights is not None:
                raise ValueError("weights: given without factor; each weight belongs to one column of factor")
            return
        factor, weights = _check_factor(self.factor, self.weights, self.n)
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "weights", weights)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.n, self.n)

    @property
    def n(self) -> int:
        return len(self.sparse.indptr) - 1

    def product(self, block: NDArray[Any]) -> FloatArray:
        """Return ``A V`` for V of shape ``(n, b)`` or ``(n,)``, in the same shape."""
        out = self.sparse @ block
        return out if self.factor is None else out + self.low_rank(block)

    def low_rank(self, block: NDArray[Any]) -> FloatArray:
        """Return ``(H F) diag(w) (H F)' V``, or zero without a factor."""
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
        """Return ``H F`` as an array, ``(n, k)``; without a factor it has no columns."""
        if self.factor is None:
            return np.zeros((self.n, 0))
        columns = self.factor.toarray() if sp.issparse(self.factor) else self.factor
        return columns - self._means() if self.centre else columns

    def restricted(self, basis: NDArray[Any]) -> FloatArray:
        """Return ``V' A V``, ``(r, r)``, for a basis V ``(n, r)``; this matrix determines the best kernel of the form ``V E V'``."""
        if basis.ndim != 2 or len(basis) != self.n:
            raise ValueError(f"basis: shape {basis.shape}; must be ({self.n}, r)")
        inner = basis.T @ self.product(basis)
        return 0.5 * (inner + inner.T)

    def row_sums(self) -> FloatArray:
        """Return upper bounds of the absolute row sums, ``(n,)``; their maximum bounds every eigenvalue."""
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
        raise ValueError(f"sparse: must be symmetric, but x'Ay = {forward:.9g} and y'Ax = {back:.9g} for two test vectors x, y")
    return matrix


def _check_factor(factor: object, weights: ArrayLike | None, n: int) -> tuple[Any, FloatArray]:
    matrix: Any = sp.csr_array(factor, dtype=np.float64) if sp.issparse(factor) else np.asarray(factor, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != n:
        raise ValueError(f"factor: shape {matrix.shape}; must be ({n}, k), one row per row of the sparse part")
    if not np.isfinite(np.asarray(matrix.data if sp.issparse(matrix) else matrix)).all():
        raise ValueError("factor: holds an entry that is not finite")
    scale = np.ones(matrix.shape[1]) if weights is None else np.asarray(weights, dtype=np.float64)
    if scale.shape != (matrix.shape[1],) or not np.isfinite(scale).all():
        raise ValueError(f"weights: shape {scale.shape}; must be finite and of shape ({matrix.shape[1]},), one for each column of factor")
    return matrix, scale


@dataclass(frozen=True)
class MatrixPart:
    """A diagonal block of a matrix after reordering: ``operator`` is ``A[rows, rows]``."""

    rows: NDArray[np.intp]
    operator: SymmetricOperator


def connected_parts(operator: SymmetricOperator) -> list[MatrixPart]:
    """Return the connected components of a matrix, ordered by their first row; a small matrix is not split. Components without a non-zero
    entry are left out.

    Each component is in reverse Cuthill-McKee order, so that most of the rows that a product gathers together are close in memory. With a
    low-rank part, all rows form one component.
    """
    sparse = operator.sparse
    if not sparse.data.all():
        sparse = sparse.copy()
        sparse.eliminate_zeros()
    if operator.n <= MAX_UNSPLIT_ROWS and operator.factor is None:
        rows = np.flatnonzero(np.diff(sparse.indptr))
        return [MatrixPart(rows, SymmetricOperator(sparse[rows][:, rows] if len(rows) < operator.n else sparse))] if len(rows) else []
    pattern = sp.csr_matrix((np.ones(sparse.nnz), sparse.indices, sparse.indptr), shape=sparse.shape)
    if operator.factor is not None:
        return [_make_part(operator, sparse, pattern, np.arange(operator.n))]
    count, labels = connected_components(pattern, directed=False)
    order = np.argsort(labels, kind="stable")
    ends = np.searchsorted(labels[order], np.arange(count + 1))
    filled = np.diff(sparse.indptr) > 0
    groups = (order[lo:hi] for lo, hi in pairwise(ends))
    return [_make_part(operator, sparse, pattern, rows) for rows in groups if filled[rows[0]]]


def _make_part(operator: SymmetricOperator, sparse: sp.csr_array, pattern: sp.csr_matrix, rows: NDArray[np.intp]) -> MatrixPart:
    if len(rows) > 2:
        rows = rows[reverse_cuthill_mckee(pattern[rows][:, rows], symmetric_mode=True)]
    matrix = sp.csr_array(sparse[rows][:, rows])
    matrix.sort_indices()
    factor = None if operator.factor is None else operator.factor[rows]
    return MatrixPart(rows, SymmetricOperator(matrix, factor, operator.weights, operator.centre))


@compiled
def filter_step(indptr: Array, indices: Array, data: Array, x: Array, out: Array, scale: float, centre: float, back: float) -> None:
    """Compute ``scale * (A - centre * I) @ x + back * out`` into ``out``, for panels ``(n, 64)``; all scalars and ``data`` have the panels'
    dtype.
    """
    total = np.empty(64, x.dtype)
    for i in range(len(indptr) - 1):
        for k in range(64):
            total[k] = -centre * x[i, k]
        for e in range(indptr[i], indptr[i + 1]):
            a = data[e]
            row = x[indices[e]]
            for k in range(64):
                total[k] += a * row[k]
        for k in range(64):
            out[i, k] = scale * total[k] + back * out[i, k]


@dataclass(frozen=True)
class Panels:
    """The matrix, prepared for products with panels of 64 columns in one precision."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    operator: SymmetricOperator

    @classmethod
    def of(cls, operator: SymmetricOperator, dtype: type[np.floating]) -> Panels:
        sparse = operator.sparse
        return cls(sparse.indptr, sparse.indices, sparse.data.astype(dtype), operator)

    def step(self, x: Block, out: Block, scale: float, centre: float, back: float) -> None:
        """Compute ``scale * (A - centre * I) @ x + back * out`` into ``out``."""
        kind = self.data.dtype.type
        filter_step(self.indptr, self.indices, self.data, x, out, kind(scale), kind(centre), kind(back))
        if self.operator.factor is not None:
            out += (scale * self.operator.low_rank(x)).astype(x.dtype)

    def product(self, columns: Block) -> Block:
        """Return ``A X``, ``(n, m)``, panel by panel."""
        n, m = columns.shape
        out = np.empty((n, m), self.data.dtype)
        x, y = np.zeros((n, PANEL_WIDTH), self.data.dtype), np.zeros((n, PANEL_WIDTH), self.data.dtype)
        for lo in range(0, m, PANEL_WIDTH):
            wide = min(PANEL_WIDTH, m - lo)
            x[:, :wide] = columns[:, lo : lo + wide]
            self.step(x, y, 1.0, 0.0, 0.0)
            out[:, lo : lo + wide] = y[:, :wide]
        return out
