r"""Kernels of ordered pairs of users, made of a kernel K of users, and products with their Gram matrix that never hold it.

====================  ==================================================  =====================================================
name                  k((u, v), (s, t))                                   the score f(u, v)
====================  ==================================================  =====================================================
similarity            ``1 + c^2 sum_q theta_q K^q(u,v) K^q(s,t)``         offset plus a weighted sum of the views at (u, v)
difference            ``K(u,s) + K(v,t) - K(u,t) - K(v,s)``               g(u) - g(v): every user gets the same order
mlpk                  the square of the difference                        symmetric in u and v
tensor                ``K(u,s) K(v,t)``                                   directed
tensor-symmetric      ``K(u,s) K(v,t) + K(u,t) K(v,s)``                   symmetric in u and v
====================  ==================================================  =====================================================

The difference is the kernel of the source (Zhuang: Kernel learning, thesis, 2011, section 7.3.2). Its scores obey f(u,v) = -f(v,u) and
f(u,u) = 0, and it ranks the candidates v the same way for every u; it suits comparisons "u: v rather than v'". The others rank for each
user. ``mlpk``: Vert, Qiu, Noble, BMC Bioinformatics 8 (2007); ``tensor``: Ben-Hur, Noble, Bioinformatics 21 (2005).

With coefficients a of the pairs (s_j, t_j) gathered in a sparse matrix A over the users, ``sum_j a_j k(., (s_j, t_j))`` at (u, v) is an
entry of ``K A K``, or three of them: a product takes n rows of ``K A`` at a time in place of all pairs against all pairs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..jit import one_thread

USER_KERNELS = ("difference", "mlpk", "tensor", "tensor-symmetric")  # Kernels of pairs made of one kernel of users.
PAIR_KERNELS = ("similarity", *USER_KERNELS)
VIEW_SCALE = 10.0  # c of the similarity kernel: entries of views divided by their row maxima are small beside the offset's 1.
USERS_PER_TILE = 256  # Rows of K A in memory at a time.
COLUMNS_PER_TILE = 1024  # Columns of K read in float64 at a time.


def pair_block(K: NDArray[Any], left: IntArray, right: IntArray, kind: str) -> FloatArray:
    """Return the kernel (one of ``USER_KERNELS``) between pairs ``(a, 2)`` and ``(b, 2)``, ``(a, b)``, from gathered entries of K."""

    def entries(side: int, other: int) -> FloatArray:
        return K[left[:, side][:, None], right[:, other][None, :]].astype(np.float64)

    if kind == "tensor":
        return entries(0, 0) * entries(1, 1)
    if kind == "tensor-symmetric":
        return entries(0, 0) * entries(1, 1) + entries(0, 1) * entries(1, 0)
    difference = entries(0, 0) + entries(1, 1) - entries(0, 1) - entries(1, 0)
    return difference * difference if kind == "mlpk" else difference


def pair_diagonal(K: NDArray[Any], pairs: IntArray, kind: str) -> FloatArray:
    """Return the kernel of every pair with itself, ``(len(pairs),)``."""
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
    """Return what the similarity kernel is an inner product of, ``(m, k + 1)``: 1 and ``c sqrt(theta_q) K^q(u, v)``. ``entries``: ``(k,
    m)`` entries of the views at m pairs; ``theta``: ``(k,)`` weights of the views; ``scale``: c.
    """
    return np.column_stack([np.ones(entries.shape[1]), scale * np.sqrt(theta) * entries.T])


class PairSum:
    """``f(u, v) = sum_j a_j k((u, v), (s_j, t_j))`` of m pairs (s, t) with coefficients a, among n users, as a function of rows of K."""

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
        """Return f at pairs of the users themselves, ``(len(pairs),)``; K is ``(n, n)``."""
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
        """Return f(x, v) of some users x and every v, ``(len(left), n)``; ``left`` are their rows of the kernel with the n users of K."""
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
        """Return the diagonal of K A K, computed once for a matrix: callers take the users some at a time."""
        if self._diagonal_of is None or self._diagonal_of[0] is not K:
            parts = (K[lo : lo + USERS_PER_TILE].astype(np.float64) for lo in range(0, self.n, USERS_PER_TILE))
            self._diagonal_of = K, np.concatenate([np.einsum("ij,ij->i", rows @ self._matrix, rows) for rows in parts])
        return self._diagonal_of[1]


def _multiply(K: NDArray[Any], vector: FloatArray) -> FloatArray:
    with one_thread():
        return np.concatenate([K[lo : lo + USERS_PER_TILE].astype(np.float64) @ vector for lo in range(0, len(K), USERS_PER_TILE)])


class PairGram:
    """The Gram matrix of pairs ``(m, 2)`` as a solver reads it, of a kernel K ``(n, n)`` of the users; nothing of its size is stored."""

    def __init__(self, K: NDArray[Any], pairs: IntArray, kind: str) -> None:
        ids, places = np.unique(pairs, return_inverse=True)
        self.K = K if len(ids) == len(K) else np.ascontiguousarray(K[np.ix_(ids, ids)])
        self.pairs, self.kind, self.n = places.reshape(-1, 2), kind, len(pairs)

    def diag(self) -> FloatArray:
        """Return the diagonal, ``(m,)``."""
        return pair_diagonal(self.K, self.pairs, self.kind)

    def rows(self, idx: IntArray) -> FloatArray:
        """Return rows ``idx``, ``(len(idx), m)``."""
        return pair_block(self.K, self.pairs[idx], self.pairs, self.kind)

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return the product with ``v``, ``(m,)``."""
        return PairSum(self.pairs, v, len(self.K), self.kind).at(self.K, self.pairs)


class FactorGram:
    """``F F'`` of a factor ``(m, r)`` as a solver reads it."""

    def __init__(self, factor: FloatArray) -> None:
        self.factor, self.n = factor, len(factor)

    def diag(self) -> FloatArray:
        """Return the diagonal, ``(m,)``."""
        return np.einsum("ij,ij->i", self.factor, self.factor)

    def rows(self, idx: IntArray) -> FloatArray:
        """Return rows ``idx``, ``(len(idx), m)``."""
        return self.factor[idx] @ self.factor.T

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return the product with ``v``, ``(m,)``."""
        return self.factor @ (self.factor.T @ v)
