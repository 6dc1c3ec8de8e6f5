r"""Sparse codes of points by the others, as :func:`umkl.coded_bases` finds them, without a matrix of all pairs.

With a symmetric positive semi-definite Q, inner products of the points in their space or in that of a kernel, the code of point i is

.. math:: \arg\min_d \tfrac12 \big( Q_{ii} - 2 d'q_i + d'Qd \big) + \lambda_i \|d\|_1, \qquad d_i = 0 .

A code is solved over a few candidates of its own; it is that of all points once no residual ``|q_i - Q d|`` outside exceeds the penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray
from .umkl import BasisArray, code_point

ROWS = 1024  # Points whose residuals are formed at a time.


class Largest(NamedTuple):
    """The points that a point's residual is most correlated with: ``(n, m)`` numbers and magnitudes, -1 and -inf where there are fewer."""

    ids: BasisArray
    values: FloatArray


def solve_code(square: FloatArray, penalty: float) -> FloatArray:
    """Return the code ``(a,)`` of the first of some points by the others, ``square`` their part of Q ``(a + 1, a + 1)``."""
    d, products = np.empty(len(square)), np.empty(len(square))
    code_point(np.ascontiguousarray(square), 0, float(penalty), d, products)
    return d[1:]


def largest_residuals(strip: Array, first: int, codes: sp.csr_array, count: int) -> Largest:
    """Return the ``count`` largest residuals of every point among points ``first``, ``first + 1`` ... of zero coefficient; ``strip`` ``(c,
    n)`` are their rows of Q, ``codes`` ``(n, n)`` those of all points, row by row.
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
    """Return the largest of several parts of the points."""
    return _best(np.concatenate([part.ids for part in parts], axis=1), np.concatenate([part.values for part in parts], axis=1), count)


def _best(ids: Array, values: FloatArray, count: int) -> Largest:
    if values.shape[1] > count:
        some = np.argpartition(-values, count - 1, axis=1)[:, :count]
        ids, values = (np.take_along_axis(array, some, axis=1) for array in (ids, values))
    order = np.lexsort((ids, -values), axis=1)
    best = np.take_along_axis(values, order, axis=1)
    return Largest(np.where(np.isfinite(best), np.take_along_axis(ids, order, axis=1), -1).astype(np.int32), best)


def bases_of_codes(codes: sp.csr_array, left: Largest, size: int, *, stop: str = "size") -> BasisArray:
    """Return the points of the largest coefficients, ``(n, size)``, filled up by those that the residuals are most correlated with, or with
    ``stop="gain"`` by -1.
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
