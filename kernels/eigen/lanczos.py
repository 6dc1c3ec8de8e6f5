"""Positive eigenpairs of a large symmetric matrix that has few of them, by restarted Lanczos."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse.linalg as sla

from ..arrays import FloatArray
from ..jit import one_thread
from .operator import SymmetricOperator


def lanczos_positive(
    operator: SymmetricOperator, rank: int, *, tol: float, seed: int = 0, max_rank: int | None = None
) -> tuple[FloatArray, FloatArray] | None:
    """Return the positive eigenvalues, descending, and their eigenvectors, or nothing if they are too many or do not settle. ``rank`` is
    their estimated number: five more pairs are computed, then twice as many, until one is not positive. ``tol`` is the relative error of
    ``||A_+||_F^2``, ``seed`` draws the first vector, and at most ``max_rank`` pairs are returned, the largest.
    """
    n, limit = operator.n, operator.n if max_rank is None else max_rank
    size = min(rank, limit) + 5
    rng = np.random.default_rng((seed, 4))
    first = rng.standard_normal(n)
    wrap, solve = cast("Any", sla.LinearOperator), cast("Any", sla.eigsh)
    matrix = wrap((n, n), matvec=lambda v: operator.product(np.ravel(v)), dtype=np.float64)
    while 4 * size < n:
        try:
            with one_thread():
                values, vectors = solve(matrix, k=size, which="LA", v0=first, tol=min(1e-6, tol), rng=rng)
        except sla.ArpackNoConvergence:
            return None
        order = np.argsort(-values, kind="stable")
        values, vectors = values[order], vectors[:, order]
        if values[-1] <= 0 or size >= limit:
            n_pairs = min(int(np.count_nonzero(values > 0)), limit)
            return values[:n_pairs], vectors[:, :n_pairs]
        size *= 2
    return None
