r"""Similarities of the users of a photo-sharing community in seven views, and their normalisation before they are weighted.

=========  =======================================================  ====================
view       similarity of u and v                                    function
=========  =======================================================  ====================
visual     ``exp(-||m_u - m_v||^2 / s^2)``, m mean visual words     :func:`visual_kernel`
text       cosine of tf-idf tag vectors                             :func:`text_kernel`
comment    comments between both; on the diagonal, on own photos    :func:`comment_kernel`
group      groups joined by both                                    :func:`incidence_kernel`
contact    common contacts                                          :func:`incidence_kernel`
location   cells of a grid on the earth where both took photos      :func:`incidence_kernel`
favourite  photos that both marked                                  :func:`incidence_kernel`
=========  =======================================================  ====================

Incidence kernels are positive semi-definite; the comment counts are only symmetric. Each row is divided by its largest entry, which makes a
matrix asymmetric and usually indefinite. The mean with its transpose is therefore shifted by its smallest eigenvalue (Zhuang: Kernel
learning, thesis, Nanyang Technological University, 2011, sections 7.2 and 7.4). With d = 1 / row maxima,

.. math:: K'_{uv} = \tfrac12 (d_u + d_v) K_{uv} + \delta\, [u = v], \qquad \delta = \max(0, -\lambda_{\min}).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray, IntArray
from ..grams.blocks import gram_block
from ..grams.spec import KernelSpec
from ..jit import one_thread
from .tags import check_counts

MAX_DENSE_ORDER = 768  # Matrices up to this order give their least eigenvalue by a full decomposition, larger ones by Lanczos steps.
LANCZOS_STEPS = 300
LANCZOS_TOL = 1e-6
"""Residual of the smallest eigenvalue at which the Lanczos steps end, relative to the eigenvalue of largest magnitude. The shift includes
the residual.
"""


def visual_kernel(means: ArrayLike, width: float | None = None) -> FloatArray:
    """Return ``exp(-||m_u - m_v||^2 / s^2)``, ``(n, n)``, of the users' mean bags of visual words ``(n, n_words)``.

    The width s defaults to the mean distance of two users. Raises ValueError if entries are not finite, the width is not positive, or if
    all users are equal and ``width`` is None.
    """
    rows = np.ascontiguousarray(means, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or not np.isfinite(rows).all():
        raise ValueError(f"means: shape {rows.shape}; must be finite and of shape (n_users, n_words)")
    if width is None:
        # Loaded on demand, as every worker would pay for it.
        from scipy.spatial.distance import pdist

        width = float(pdist(rows).mean()) if len(rows) > 1 else 0.0
    if not (np.isfinite(width) and width > 0):
        raise ValueError(f"width={width!r}: must be above 0; by default it is the mean distance of users, which is 0 if all are equal")
    return gram_block([KernelSpec("rbf", (("gamma", float(width) ** -2.0),))], rows, None, dtype=np.float64)[0]


def text_kernel(tags: object) -> FloatArray:
    """Return the cosine of the users' tf-idf vectors, ``(n, n)``: ``tf log(n / r_j)`` with counts tf ``(n, n_tags)``; r_j users
    have tag j.
    """
    counts: Any = check_counts("tags", tags)
    n, n_tags = counts.shape
    counts.data *= np.log(n / np.maximum(np.bincount(counts.indices, minlength=n_tags), 1))[counts.indices]
    rows = np.repeat(np.arange(n), np.diff(counts.indptr))
    lengths = np.sqrt(np.bincount(rows, counts.data**2, n))
    counts.data /= np.where(lengths > 0, lengths, 1.0)[rows]
    return _inner_products(counts)


def comment_kernel(comments: object) -> FloatArray:
    """Return the number of comments between each two users in either direction, ``(n, n)``. The diagonal holds users' comments on their own
    photos.

    ``comments``, ``(n, n)``, dense or sparse, counts comments with the writer as row and the owner of the photo as column.
    """
    counts: Any = check_counts("comments", comments)
    if counts.shape[0] != counts.shape[1]:
        raise ValueError(f"comments: shape {counts.shape}; must be (n_users, n_users)")
    directed = counts.toarray()
    both = directed + directed.T
    np.fill_diagonal(both, np.diagonal(directed))
    return both


def incidence_kernel(membership: object) -> FloatArray:
    """Return how many items each two users share, ``B B'`` of the binary incidence B, ``(n, n)``: groups, contacts, cells or favourites.

    In ``membership`` ``(n, n_items)``, dense or sparse, every entry above 0 counts as 1.
    """
    binary = check_counts("membership", membership)
    binary.data[:] = 1.0
    return _inner_products(binary)


def _inner_products(rows: sp.csr_array) -> FloatArray:
    return np.ascontiguousarray((rows @ rows.T).toarray(), dtype=np.float64)


def row_factors(maxima: FloatArray) -> FloatArray:
    """Return ``1 / maxima``, or 0 for rows without a positive entry, which stay zero."""
    return np.divide(1.0, maxima, out=np.zeros_like(maxima), where=maxima > 0.0)


def scaled_block(block: NDArray[Any], left: FloatArray, right: FloatArray) -> FloatArray:
    """Return ``(d_u + d_v) / 2 * K_uv``, float64, for raw entries ``(..., h, w)`` with the factors d of rows and columns."""
    return np.multiply(block, 0.5 * (left[..., :, None] + right[..., None, :]), dtype=np.float64)


def least_eigenvalue(product: Callable[[FloatArray], FloatArray], n: int, dense: Callable[[], FloatArray] | None = None) -> float:
    """Return the smallest eigenvalue of a symmetric ``n x n`` matrix, or slightly less, from ``product(x)``, the matrix times x ``(n,)``.

    ``dense`` returns the matrix; it is called if n is at most MAX_DENSE_ORDER. For larger matrices, Lanczos steps with full
    re-orthogonalisation start from a fixed vector; they store ``n * LANCZOS_STEPS`` numbers. The residual of the Ritz value is subtracted
    from this value, so that after a shift by the result no eigenvalue that the steps resolved is negative.
    """
    with one_thread():
        if dense is not None and n <= MAX_DENSE_ORDER:
            return float(np.linalg.eigvalsh(dense())[0])
        return least_eigenvalues([n], lambda which, vectors: [product(vectors[0])])[0]


Steps = Generator[FloatArray, FloatArray, float]


def least_eigenvalues(orders: Sequence[int], products: Callable[[list[int], list[FloatArray]], Sequence[FloatArray]]) -> list[float]:
    """Return the smallest eigenvalue of each of several symmetric matrices, or slightly less, by simultaneous Lanczos steps.

    ``products(which, vectors)`` are the products of the unfinished matrices ``which`` with one vector each. The steps of a matrix do not
    depend on the other matrices.
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
    """Yield vectors; for each, the caller sends back its product with the matrix. At the end, return a lower bound of the smallest
    eigenvalue.
    """
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


# Kernels of ordered pairs of users, made of a kernel K of users, and products with their Gram matrix that never hold it.
#
# ====================  ==================================================  =====================================================
# name                  k((u, v), (s, t))                                   the score f(u, v)
# ====================  ==================================================  =====================================================
# similarity            ``1 + c^2 sum_q theta_q K^q(u,v) K^q(s,t)``         offset plus a weighted sum of the views at (u, v)
# difference            ``K(u,s) + K(v,t) - K(u,t) - K(v,s)``               g(u) - g(v): every user gets the same order
# mlpk                  the square of the difference                        symmetric in u and v
# tensor                ``K(u,s) K(v,t)``                                   directed
# tensor-symmetric      ``K(u,s) K(v,t) + K(u,t) K(v,s)``                   symmetric in u and v
# ====================  ==================================================  =====================================================
#
# The difference is the kernel of the source (Zhuang: Kernel learning, thesis, 2011, section 7.3.2). Its scores obey f(u,v) = -f(v,u) and
# f(u,u) = 0, and it ranks the candidates v the same way for every u; it suits comparisons "u: v rather than v'". The others rank for each
# user. ``mlpk``: Vert, Qiu, Noble, BMC Bioinformatics 8 (2007); ``tensor``: Ben-Hur, Noble, Bioinformatics 21 (2005).
#
# With coefficients a of the pairs (s_j, t_j) gathered in a sparse matrix A over the users, ``sum_j a_j k(., (s_j, t_j))`` at (u, v) is an
# entry of ``K A K``, or three of them: a product takes n rows of ``K A`` at a time in place of all pairs against all pairs.

USER_KERNELS = ("difference", "mlpk", "tensor", "tensor-symmetric")  # Kernels of pairs made of one kernel of users.
PAIR_KERNELS = ("similarity", *USER_KERNELS)
VIEW_SCALE = 10.0  # c of the similarity kernel: entries of views divided by their row maxima are small beside the offset's 1.
USERS_PER_TILE = 256  # Rows of K A in memory at a time.
COLUMNS_PER_TILE = 1024  # Columns of K read in float64 at a time.


def pair_block(K: NDArray[Any], left: IntArray, right: IntArray, kind: str) -> FloatArray:
    """Return the kernel (one of ``USER_KERNELS``) between pairs ``(a, 2)`` and ``(b, 2)`` as an array ``(a, b)``, from gathered entries
    of K.
    """

    def entries(side: int, other: int) -> FloatArray:
        return K[left[:, side][:, None], right[:, other][None, :]].astype(np.float64)

    if kind == "tensor":
        return entries(0, 0) * entries(1, 1)
    if kind == "tensor-symmetric":
        return entries(0, 0) * entries(1, 1) + entries(0, 1) * entries(1, 0)
    difference = entries(0, 0) + entries(1, 1) - entries(0, 1) - entries(1, 0)
    return difference * difference if kind == "mlpk" else difference


def pair_diagonal(K: NDArray[Any], pairs: IntArray, kind: str) -> FloatArray:
    """Return the kernel of each pair with itself, ``(len(pairs),)``."""
    u, v = pairs.T
    first, second, both = (K[i, j].astype(np.float64) for i, j in ((u, u), (v, v), (u, v)))
    if kind == "tensor":
        return first * second
    if kind == "tensor-symmetric":
        return first * second + both * both
    # Below zero only by the rounding of single precision.
    difference = np.maximum(first + second - 2.0 * both, 0.0)
    return difference * difference if kind == "mlpk" else difference


def similarity_features(entries: FloatArray, theta: FloatArray, scale: float = VIEW_SCALE) -> FloatArray:
    """Return the feature vectors of the similarity kernel, ``(m, k + 1)``: 1 and ``c sqrt(theta_q) K^q(u, v)``.

    ``entries``, ``(k, m)``, are the entries of the views at m pairs, ``theta``, ``(k,)``, the weights of the views, and ``scale`` is c.
    """
    return np.column_stack([np.ones(entries.shape[1]), scale * np.sqrt(theta) * entries.T])


class PairSum:
    """The function ``f(u, v) = sum_j a_j k((u, v), (s_j, t_j))`` for m pairs (s, t) of n users with coefficients a, evaluated from rows of
    K.
    """

    def __init__(self, pairs: IntArray, coef: FloatArray, n: int, kind: str) -> None:
        self.kind, self.n = kind, n
        self._diagonal_of: tuple[NDArray[Any], FloatArray] | None = None
        s, t = pairs.T
        if kind == "difference":
            self._weights = np.asarray(np.bincount(s, coef, n) - np.bincount(t, coef, n), np.float64)
            return
        rows, cols, values = [s], [t], [coef]
        if kind == "tensor-symmetric":
            rows, cols, values = [s, t], [t, s], [coef, coef]
        elif kind == "mlpk":
            rows, cols, values = [s, t, s, t], [s, t, t, s], [coef, coef, -coef, -coef]
        self._matrix = sp.csr_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))), shape=(n, n))

    def at(self, K: NDArray[Any], pairs: IntArray) -> FloatArray:
        """Return f at pairs of the known users, ``(len(pairs),)``; K is ``(n, n)``."""
        u, v = pairs.T
        if self.kind == "difference":
            g = _multiply(K, self._weights)
            return g[u] - g[v]
        # Rows of K A of the users in the pairs, some at a time; pairs follow their first user.
        ids, order = np.unique(pairs if self.kind == "mlpk" else u), np.argsort(u, kind="stable")
        out, diagonal = np.zeros(len(pairs)), np.zeros(self.n)
        for lo in range(0, len(ids), USERS_PER_TILE):
            users = ids[lo : lo + USERS_PER_TILE]
            rows = K[users].astype(np.float64)
            product = rows @ self._matrix
            diagonal[users] = np.einsum("ij,ij->i", product, rows)
            inside = order[slice(*np.searchsorted(u, [users[0], users[-1] + 1], sorter=order))]
            for first in range(0, len(inside), USERS_PER_TILE):
                chosen = inside[first : first + USERS_PER_TILE]
                out[chosen] = np.einsum("ij,ij->i", product[np.searchsorted(users, u[chosen])], K[v[chosen]].astype(np.float64))
        return diagonal[u] + diagonal[v] - 2.0 * out if self.kind == "mlpk" else out

    def rows(self, left: NDArray[Any], K: NDArray[Any]) -> FloatArray:
        """Return f(x, v) for some users x and every known user v, ``(len(left), n)``; ``left`` holds one row per user x: its kernel
        with the n users of K.
        """
        left = np.asarray(left, np.float64)
        if self.kind == "difference":
            return (left @ self._weights)[:, None] - _multiply(K, self._weights)
        product = left @ self._matrix
        with one_thread():
            out = np.concatenate(
                [product @ K[:, lo : lo + COLUMNS_PER_TILE].astype(np.float64) for lo in range(0, self.n, COLUMNS_PER_TILE)], axis=1
            )
        return out if self.kind != "mlpk" else np.einsum("ij,ij->i", product, left)[:, None] + self._diagonal(K) - 2.0 * out

    def _diagonal(self, K: NDArray[Any]) -> FloatArray:
        """Return the diagonal of ``K A K`` for the matrix A of coefficients. It is computed once per matrix K because callers process
        users in parts.
        """
        if self._diagonal_of is None or self._diagonal_of[0] is not K:
            parts = (K[lo : lo + USERS_PER_TILE].astype(np.float64) for lo in range(0, self.n, USERS_PER_TILE))
            self._diagonal_of = K, np.concatenate([np.einsum("ij,ij->i", rows @ self._matrix, rows) for rows in parts])
        return self._diagonal_of[1]


def _multiply(K: NDArray[Any], vector: FloatArray) -> FloatArray:
    with one_thread():
        return np.concatenate([K[lo : lo + USERS_PER_TILE].astype(np.float64) @ vector for lo in range(0, len(K), USERS_PER_TILE)])


class PairGram:
    """The Gram matrix of pairs ``(m, 2)`` for a kernel K ``(n, n)`` of the users, in the form that solvers read; it is never stored."""

    def __init__(self, K: NDArray[Any], pairs: IntArray, kind: str) -> None:
        ids, places = np.unique(pairs, return_inverse=True)
        self.K = K if len(ids) == len(K) else np.ascontiguousarray(K[np.ix_(ids, ids)])
        self.pairs, self.kind, self.n = places.reshape(-1, 2), kind, len(pairs)

    def diag(self) -> FloatArray:
        return pair_diagonal(self.K, self.pairs, self.kind)

    def rows(self, idx: IntArray) -> FloatArray:
        return pair_block(self.K, self.pairs[idx], self.pairs, self.kind)

    def matvec(self, v: FloatArray) -> FloatArray:
        return PairSum(self.pairs, v, len(self.K), self.kind).at(self.K, self.pairs)


class FactorGram:
    """``F F'`` of a factor ``(m, r)``, in the form that solvers read."""

    def __init__(self, factor: FloatArray) -> None:
        self.factor, self.n = factor, len(factor)

    def diag(self) -> FloatArray:
        return np.einsum("ij,ij->i", self.factor, self.factor)

    def rows(self, idx: IntArray) -> FloatArray:
        return self.factor[idx] @ self.factor.T

    def matvec(self, v: FloatArray) -> FloatArray:
        return self.factor @ (self.factor.T @ v)
