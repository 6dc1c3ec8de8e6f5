"""The parts of a symmetric matrix that no entry links, each in an order that keeps what is linked close together."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components, reverse_cuthill_mckee

from .operator import SymmetricOperator

MAX_UNSPLIT_ROWS = 200  # Rows up to which a matrix is not worth taking apart.


@dataclass(frozen=True)
class MatrixPart:
    """A diagonal block of a matrix, after its rows were put in another order. ``rows``: rows of the whole, in the order of the part;
    ``operator``: the matrix ``A[rows, rows]``.
    """

    rows: NDArray[np.intp]
    operator: SymmetricOperator


def connected_parts(operator: SymmetricOperator) -> list[MatrixPart]:
    """Return the connected parts of a matrix, by their first row, without those that hold no entry; all in one if it is small. Each is in
    reverse Cuthill-McKee order: rows that a product gathers together then mostly lie in the cache together. A low rank part links
    everything.
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
