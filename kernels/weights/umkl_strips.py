"""Bases and terms of unsupervised multiple kernel learning for some points at a time, from their rows of the kernel and all rows of data.

No n x n array is held: inner products of a point with all others are computed block by block. The objective, its terms and the greedy
choice are those of :mod:`umkl`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from .umkl import BasisArray, WeightTerms, code_point, linear_costs, rebuilt_products

RowBlock = Any  # Rows of a data set in float64: an array, or csr.


class Rows(Protocol):
    """The rows of a data set, dense or csr in float64."""

    def blocks(self) -> Iterator[tuple[int, RowBlock]]:
        """Yield consecutive blocks of rows with the index of their first row."""
        ...

    def take(self, ids: IntArray) -> RowBlock:
        """Return rows by index, in the given order."""
        ...


def row_products(left: RowBlock, right: RowBlock) -> FloatArray:
    """Return the inner products of rows, dense or csr, as a dense array."""
    if sp.issparse(left):
        return np.ascontiguousarray((left @ right.T).toarray())
    return left @ right.T


def square_norms(rows: RowBlock) -> FloatArray:
    """Return the squared norms of rows, dense or csr."""
    return np.asarray(rows.power(2).sum(axis=1)).ravel() if sp.issparse(rows) else np.einsum("ij,ij->i", rows, rows)


@compiled
def _fill_costs(
    gram: Array, inner: FloatArray, lo: int, own: FloatArray, squares: FloatArray, gamma1: float, gamma2: float, cost: FloatArray
) -> None:
    for i in range(len(own)):
        for j in range(len(squares)):
            k = np.float64(gram[i, lo + j])
            far = own[i] + squares[j] - 2.0 * inner[i, j]
            cost[i, lo + j] = 0.5 * k * k * squares[j] + k * (gamma1 * far - inner[i, j]) + gamma2


@compiled
def _add_costs(gram: Array, products: FloatArray, lo: int, weights: FloatArray, cost: FloatArray) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        if weight != 0.0:
            for j in range(products.shape[1]):
                cost[i, lo + j] += weight * np.float64(gram[i, lo + j]) * products[i, j]


def greedy_strip(gram: Array, first: int, rows: Rows, size: int, gamma1: float, gamma2: float, *, stop: str = "size") -> BasisArray:
    """Choose the bases of points ``first``, ``first + 1`` ... as :func:`umkl.greedy_bases` does; ``gram`` ``(c, n)`` holds their rows of K.

    Returns ``(c, size)``, in the order of choice, with -1 for bases not chosen.
    """
    c, points = len(gram), np.arange(len(gram))
    cost, bases = np.empty(gram.shape), np.full((c, size), -1, np.int32)
    with one_thread():
        own = rows.take(first + points)
        norms = square_norms(own)
        for lo, block in rows.blocks():
            _fill_costs(gram, row_products(own, block), lo, norms, square_norms(block), float(gamma1), float(gamma2), cost)
        cost[points, first + points] = np.inf
        is_open = np.ones(c, bool)
        for b in range(size):
            best = np.argmin(cost, axis=1)
            if stop == "gain":
                is_open &= cost[points, best] < 0.0
            bases[is_open, b] = best[is_open]
            if b + 1 == size or not is_open.any():
                break
            cost[points, best] = np.inf
            weights, chosen = np.where(is_open, gram[points, best], 0.0).astype(np.float64), rows.take(best)
            for lo, block in rows.blocks():
                _add_costs(gram, row_products(chosen, block), lo, weights, cost)
    return bases


class BaseProducts(NamedTuple):
    """Squared norms and inner products of some points and their bases.

    * ``own`` ``(c,)``: squared norms of the points.
    * ``squares`` ``(c, B)``: squared norms of the bases.
    * ``across`` ``(c, B)``: inner products of a point with its bases.
    * ``between`` ``(c, B, B)``: inner products among the bases of a point.
    """

    own: FloatArray
    squares: FloatArray
    across: FloatArray
    between: FloatArray

    @classmethod
    def of(cls, points: RowBlock, bases: RowBlock, step: int) -> BaseProducts:
        """Return the products of ``points`` (c rows) and their ``bases`` (c B rows, point by point), computed for ``step`` points at a
        time.
        """
        size = bases.shape[0] // points.shape[0]
        parts = [cls._of_some(points[lo : lo + step], bases[lo * size : (lo + step) * size]) for lo in range(0, points.shape[0], step)]
        return cls(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    @classmethod
    def _of_some(cls, points: RowBlock, bases: RowBlock) -> BaseProducts:
        at = base_places(points.shape[0], bases.shape[0])
        with one_thread():
            across = row_products(points, bases)[np.arange(len(at))[:, None], at]
            between = row_products(bases, bases)[at[:, :, None], at[:, None, :]]
        return cls(square_norms(points), np.diagonal(between, axis1=1, axis2=2), across, between)


def base_places(points: int, bases: int) -> IntArray:
    """Return the positions, ``(points, B)``, of each point's bases in the list of all bases, point by point."""
    return np.arange(bases).reshape(points, -1)


def point_costs(entries: FloatArray, bases: BasisArray, products: BaseProducts, gamma1: float, gamma2: float) -> FloatArray:
    """Return each point's share J_i of the objective, ``(c,)``; ``entries`` ``(c, B)`` are the entries of K at the bases."""
    present = bases >= 0
    values = np.where(present, entries, 0.0)
    linear = linear_costs(present, products.own, products.squares, products.across, gamma1)
    square = np.einsum("ib,ibc,ic->i", values, products.between, values)
    return 0.5 * products.own + 0.5 * square + np.einsum("ib,ib->i", values, linear) + gamma2 * present.sum(axis=1)


def point_terms(entries: FloatArray, bases: BasisArray, products: BaseProducts, gamma1: float, gamma2: float) -> WeightTerms:
    """Return the terms of J that come from some points, for fixed bases; ``entries`` ``(k, c, B)`` are the entries of each kernel at the
    bases.
    """
    present = bases >= 0
    values = np.where(present, entries, 0.0)
    linear = linear_costs(present, products.own, products.squares, products.across, gamma1)
    with one_thread():
        W = rebuilt_products(values, products.between)
        u = values.reshape(len(values), -1) @ linear.ravel()
    return WeightTerms(0.5 * (W + W.T), u, 0.5 * float(products.own.sum()) + gamma2 * int(present.sum()))


# Sparse codes of points by the others, as :func:`umkl.coded_bases` finds them, without a matrix of all pairs.
#
# With a symmetric positive semi-definite Q, inner products of the points in their space or in that of a kernel, the code of point i is
#
# .. math:: \arg\min_d \tfrac12 \big( Q_{ii} - 2 d'q_i + d'Qd \big) + \lambda_i \|d\|_1, \qquad d_i = 0 .
#
# A code is solved over a few candidates of its own; it is that of all points once no residual ``|q_i - Q d|`` outside exceeds the penalty.

ROWS = 1024  # Points whose residuals are formed at a time.


class Largest(NamedTuple):
    """The points most correlated with a point's residual: indices and magnitudes ``(n, m)``, -1 and -inf if there are fewer than m."""

    ids: BasisArray
    values: FloatArray


def solve_code(square: FloatArray, penalty: float) -> FloatArray:
    """Return the code ``(a,)`` of the first of a + 1 points by the other a points; ``square`` ``(a + 1, a + 1)`` holds the entries
    between these points of Q, the inner products.
    """
    d, products = np.empty(len(square)), np.empty(len(square))
    code_point(np.ascontiguousarray(square), 0, float(penalty), d, products)
    return d[1:]


def largest_residuals(strip: Array, first: int, codes: sp.csr_array, count: int) -> Largest:
    """Return, for every point, those ``count`` of the c points ``first``, ``first + 1`` ... that are most correlated with its residual
    and have coefficient zero in its code.

    ``strip`` ``(c, n)`` holds the c points' rows of Q, the inner products of all points. ``codes`` ``(n, n)`` holds the codes of all
    points, row by row.
    """
    columns = np.ascontiguousarray(strip.T, dtype=np.float64)
    n, c = columns.shape
    parts = []
    for lo in range(0, n, ROWS):
        some = codes[lo : lo + ROWS]
        left = np.abs(columns[lo : lo + ROWS] - some @ columns)
        taken: Any = some.tocoo()
        inside = (taken.coords[1] >= first) & (taken.coords[1] < first + c) & (taken.data != 0.0)
        left[taken.coords[0][inside], taken.coords[1][inside] - first] = -np.inf
        own = np.arange(max(lo, first), min(lo + len(left), first + c))
        left[own - lo, own - first] = -np.inf
        parts.append(_best(np.broadcast_to(np.arange(first, first + c, dtype=np.int32), left.shape), left, count))
    return Largest(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def merge_largest(parts: Sequence[Largest], count: int) -> Largest:
    """Merge the results for several parts of the points: keep, for every point, the ``count`` points most correlated with its residual."""
    return _best(np.concatenate([part.ids for part in parts], axis=1), np.concatenate([part.values for part in parts], axis=1), count)


def _best(ids: Array, values: FloatArray, count: int) -> Largest:
    if values.shape[1] > count:
        some = np.argpartition(-values, count - 1, axis=1)[:, :count]
        ids, values = (np.take_along_axis(array, some, axis=1) for array in (ids, values))
    order = np.lexsort((ids, -values), axis=1)
    best = np.take_along_axis(values, order, axis=1)
    return Largest(np.where(np.isfinite(best), np.take_along_axis(ids, order, axis=1), -1).astype(np.int32), best)


def bases_of_codes(codes: sp.csr_array, left: Largest, size: int, *, stop: str = "size") -> BasisArray:
    """Return the bases of each point, ``(n, size)``: the points with the largest coefficients in its code. The rest is filled with the
    points most correlated with its residual, or with -1 if ``stop="gain"``.
    """
    n, indptr, indices = len(left.ids), np.asarray(codes.indptr), np.asarray(codes.indices)
    bases = np.full((n, size), -1, np.int32)
    for i in range(n):
        lo, hi = indptr[i : i + 2]
        ids, values = indices[lo:hi], np.abs(codes.data[lo:hi])
        chosen = ids[np.lexsort((ids, -values))][: min(size, int(np.count_nonzero(values)))]
        rest = left.ids[i, : size - len(chosen)] if stop == "size" else chosen[:0]
        bases[i, : len(chosen)] = chosen
        bases[i, len(chosen) : len(chosen) + len(rest)] = rest
    return bases
