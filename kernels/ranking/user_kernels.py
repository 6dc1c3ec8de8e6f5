r"""Similarities of the users of a photo-sharing community in seven views, and how they are made comparable before they are weighted.

=========  =======================================================  ====================
view       similarity of u and v                                    function
=========  =======================================================  ====================
visual     ``exp(-||m_u - m_v||^2 / s^2)``, m mean visual words     :func:`visual_kernel`
text       cosine of tf-idf tag vectors                             :func:`text_kernel`
comment    comments between both; on the diagonal one's own         :func:`comment_kernel`
group      groups joined by both                                    :func:`incidence_kernel`
contact    common contacts                                          :func:`incidence_kernel`
location   cells of a grid on the earth where both took photos      :func:`incidence_kernel`
favourite  photos that both marked                                  :func:`incidence_kernel`
=========  =======================================================  ====================

Incidence kernels are positive semi-definite, the comment counts only symmetric. Before use every row is divided by its largest entry,
which makes a matrix asymmetric and mostly indefinite, too: the mean with the transpose is shifted by its least eigenvalue (Zhuang: Kernel
learning, thesis, Nanyang Technological University, 2011, sections 7.2 and 7.4). With d = 1 / row maxima and H of ones that is

.. math:: K'_{uv} = \tfrac12 (d_u + d_v) K_{uv} + \delta\, [u = v], \qquad \delta = \max(0, -\lambda_{\min}).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray
from ..grams.blocks import gram_block
from ..grams.spec import KernelSpec
from ..jit import one_thread
from .tags import check_counts

MAX_DENSE_ORDER = 768  # Matrices up to this order give their least eigenvalue by a full decomposition, larger ones by Lanczos steps.
LANCZOS_STEPS = 300
LANCZOS_TOL = 1e-6
"""Residual of the least eigenvalue, relative to the largest in size, at which the steps end; the shift contains the residual."""


def visual_kernel(means: ArrayLike, width: float | None = None) -> FloatArray:
    """Return ``exp(-||m_u - m_v||^2 / s^2)``, ``(n, n)``, of the users' mean bags of visual words ``(n, n_words)``. The width s is the mean
    distance of two users unless one is given. Raises ValueError: entries that are not finite, a width that is not positive, or users who
    are all alike and no width.
    """
    rows = np.ascontiguousarray(means, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"means: shape {rows.shape}; must be (n_users, n_words), finite")
    if width is None:
        # Loaded on demand, as every worker would pay for it.
        from scipy.spatial.distance import pdist

        width = float(pdist(rows).mean()) if len(rows) > 1 else 0.0
    if not (np.isfinite(width) and width > 0):
        raise ValueError(f"width={width!r}: must be above 0; without one it is the mean distance, which is 0 where all users are alike")
    return gram_block([KernelSpec("rbf", (("gamma", float(width) ** -2.0),))], rows, None, dtype=np.float64)[0]


def text_kernel(tags: object) -> FloatArray:
    """Return the cosine of the users' tf-idf vectors, ``(n, n)``: ``tf log(n / r_j)``, tf counts ``(n, n_tags)``, r_j users carry tag j."""
    counts: Any = check_counts("tags", tags)
    n, n_tags = counts.shape
    counts.data *= np.log(n / np.maximum(np.bincount(counts.indices, minlength=n_tags), 1))[counts.indices]
    rows = np.repeat(np.arange(n), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(rows, counts.data**2, n))
    counts.data /= np.where(lengths > 0, lengths, 1.0)[rows]
    return _inner_products(counts)


def comment_kernel(comments: object) -> FloatArray:
    """Return the number of comments between every two users, ``(n, n)``: those of u on v and of v on u; on the diagonal one's own. The
    counts ``(n, n)``, dense or sparse, have the writer as row, the owner of the photo as column.
    """
    counts: Any = check_counts("comments", comments)
    if counts.shape[0] != counts.shape[1]:
        raise ValueError(f"comments: shape {counts.shape}; must be (n_users, n_users)")
    directed = counts.toarray()
    both = directed + directed.T
    np.fill_diagonal(both, np.diagonal(directed))
    return both


def incidence_kernel(membership: object) -> FloatArray:
    """Return how many items every two users share, ``B B'`` of the binary incidence B, ``(n, n)``: groups, contacts, cells, favourites. Of
    ``membership`` ``(n, n_items)``, dense or sparse, every entry above 0 counts as 1.
    """
    binary = check_counts("membership", membership)
    binary.data[:] = 1.0
    return _inner_products(binary)


def _inner_products(rows: sp.csr_array) -> FloatArray:
    return np.ascontiguousarray((rows @ rows.T).toarray(), dtype=np.float64)


def row_factors(maxima: FloatArray) -> FloatArray:
    """Return ``1 / maxima``, and 0 for rows without a positive entry, which stay zero."""
    return np.divide(1.0, maxima, out=np.zeros_like(maxima), where=maxima > 0.0)


def scaled_block(block: NDArray[Any], left: FloatArray, right: FloatArray) -> FloatArray:
    """Return ``(d_u + d_v) / 2 K_uv``, float64, of raw entries ``(..., h, w)`` with factors d of rows and columns."""
    return np.multiply(block, 0.5 * (left[..., :, None] + right[..., None, :]), dtype=np.float64)


def shift_to_semidefinite(matrix: FloatArray) -> FloatArray:
    """Return a symmetric matrix less its least eigenvalue on the diagonal where that is negative; in place."""
    matrix.flat[:: len(matrix) + 1] += max(0.0, -least_eigenvalue(lambda x: matrix @ x, len(matrix), lambda: matrix))
    return matrix


def least_eigenvalue(product: Callable[[FloatArray], FloatArray], n: int, dense: Callable[[], FloatArray] | None = None) -> float:
    """Return the least eigenvalue of a symmetric matrix of order n, or a little less, from ``product(x)``, the matrix times x ``(n,)``.
    ``dense`` returns the matrix; used up to order MAX_DENSE_ORDER. Else Lanczos steps with full re-orthogonalisation are taken from a fixed
    vector, in ``n * LANCZOS_STEPS`` numbers. The residual of the Ritz value is subtracted from it, so that a shift by the result leaves no
    eigenvalue negative where the steps saw it.
    """
    with one_thread():
        if dense is not None and n <= MAX_DENSE_ORDER:
            return float(np.linalg.eigvalsh(dense())[0])
        return least_eigenvalues([n], lambda which, vectors: [product(vectors[0])])[0]


Steps = Generator[FloatArray, FloatArray, float]


def least_eigenvalues(orders: Sequence[int], products: Callable[[list[int], list[FloatArray]], Sequence[FloatArray]]) -> list[float]:
    """Return the least eigenvalue of several symmetric matrices, or a little less, by Lanczos steps side by side: ``products(which,
    vectors)`` are the products of those whose steps go on with a vector each. The steps of a matrix do not depend on the others.
    """
    searches = {q: _lanczos_steps(n) for q, n in enumerate(orders)}
    waiting, found = {q: next(search) for q, search in searches.items()}, {}
    while waiting:
        which = list(waiting)
        for q, image in zip(which, products(which, [waiting.pop(q) for q in which]), strict=True):
            try:
                waiting[q] = searches[q].send(image)
            except StopIteration as end:
                found[q] = float(end.value)
    return [found[q] for q in range(len(orders))]


def _lanczos_steps(n: int) -> Steps:
    """Yield vectors whose products are sent back, and return the bound."""
    # Loaded on demand, as every worker would pay for it.
    from scipy.linalg import eigh_tridiagonal

    steps = min(n, LANCZOS_STEPS)
    basis, diagonal, off_diagonal = np.zeros((steps, n)), np.zeros(steps), np.zeros(steps)
    vector = np.random.default_rng(0).standard_normal(n)
    basis[0] = vector / np.linalg.norm(vector)
    lowest = residual = 0.0
    for k in range(steps):
        image = yield basis[k]
        diagonal[k] = image @ basis[k]
        for _ in range(2):
            image -= basis[: k + 1].T @ (basis[: k + 1] @ image)
        off_diagonal[k] = np.linalg.norm(image)
        if k + 1 == steps or k % 10 == 9 or off_diagonal[k] <= 1e-14 * np.abs(diagonal[: k + 1]).max():
            values, vectors = eigh_tridiagonal(diagonal[: k + 1], off_diagonal[:k])  # pyright: ignore[reportAssignmentType] (vectors are returned)
            lowest, residual = float(values[0]), float(off_diagonal[k] * abs(vectors[-1, 0]))
            if residual <= LANCZOS_TOL * np.abs(values).max():
                break
        if k + 1 < steps:
            basis[k + 1] = image / off_diagonal[k]
    return lowest - residual
