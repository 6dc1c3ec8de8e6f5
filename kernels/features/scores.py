"""Worst-case analysis for features: correlations ``c = X'u`` and the B largest of them.

Source: Algorithm 2 of Tan, Tsang and Wang (JMLR 15, 2014); docs/theory/fgm.md, "Scores and the column skip rule".

Reproducibility: each ``c_j`` is the plain sum over ascending rows ``((0 + x_1j u_1) + x_2j u_2) + ...`` in float64, with products and sums
rounded one by one. Zero terms change nothing, so sparse and dense columns, both memory orders, any stripes, row chunks (:func:`accumulate`)
and skipped rows with ``u_i = 0`` give the same bits. Four accumulators gained nothing in measurements once u does not fit in the
first-level cache.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from ..jit import compiled
from .views import Columns, DenseView, Heap, SparseView, TopB, checked_dual, flat, merge_top, offer, refuse, shape, sparse_view, top_b, view

__all__ = ["TopB", "accumulate", "apply_scaling", "correlations", "correlations_many", "merge_top"]
__all__ += ["select_sparse", "top_b"]

TILE = 2048  # Columns whose accumulators stay in the first cache (16 KiB) while rows stream past.
NONE = np.zeros(0)


@compiled
def sparse_dots(values: Array, rows: Array, starts: Array, u: Array, c: Array) -> None:
    """Add, to each c[j], the sum of ``values * u`` over the entries of column j in ascending rows."""
    for j in range(c.size):
        total = c[j]
        for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
            total += values[p] * u[rows[p]]
        c[j] = total


@compiled
def _sparse_dots_by_four(values: Array, rows: Array, starts: Array, duals: Array, c: Array) -> None:
    """Compute the same as sparse_dots for duals (n * width), width a multiple of 4, and c (width, k). Four sums are computed in one pass
    over a column's non-zeros.
    """
    width = np.uint64(c.shape[0])
    for j in range(c.shape[1]):
        first, last = np.uint64(starts[j]), np.uint64(starts[j + 1])
        for q in range(np.uint64(0), width, np.uint64(4)):
            a0, a1, a2, a3 = c[q, j], c[q + 1, j], c[q + 2, j], c[q + 3, j]
            for p in range(first, last):
                x = values[p]
                at = rows[p] * width + q
                a0 += x * duals[at]
                a1 += x * duals[at + np.uint64(1)]
                a2 += x * duals[at + np.uint64(2)]
                a3 += x * duals[at + np.uint64(3)]
            c[q, j], c[q + 1, j], c[q + 2, j], c[q + 3, j] = a0, a1, a2, a3


@compiled
def _row_major(x: Array, step: int, active: Array, duals: Array, c: Array, tile: int) -> None:
    """Add ``duals @ X`` over the active rows to c (m, k), for duals (m, n). The loop is vectorised across columns, so that each sum keeps
    its order.

    Eight rows are read at a time, because memory delivers several streams faster than one.
    """
    n_columns = c.shape[1]
    whole = active.size & ~7
    for begin in range(0, n_columns, tile):
        width = min(tile, n_columns - begin)
        for q in range(0, whole, 8):
            rows = active[q : q + 8]
            x0 = x[rows[0] * step + begin : rows[0] * step + begin + width]
            x1 = x[rows[1] * step + begin : rows[1] * step + begin + width]
            x2 = x[rows[2] * step + begin : rows[2] * step + begin + width]
            x3 = x[rows[3] * step + begin : rows[3] * step + begin + width]
            x4 = x[rows[4] * step + begin : rows[4] * step + begin + width]
            x5 = x[rows[5] * step + begin : rows[5] * step + begin + width]
            x6 = x[rows[6] * step + begin : rows[6] * step + begin + width]
            x7 = x[rows[7] * step + begin : rows[7] * step + begin + width]
            for a in range(c.shape[0]):
                u = duals[a]
                u0, u1, u2, u3 = u[rows[0]], u[rows[1]], u[rows[2]], u[rows[3]]
                u4, u5, u6, u7 = u[rows[4]], u[rows[5]], u[rows[6]], u[rows[7]]
                total = c[a, begin : begin + width]
                for j in range(width):
                    s = total[j] + x0[j] * u0
                    s += x1[j] * u1
                    s += x2[j] * u2
                    s += x3[j] * u3
                    s += x4[j] * u4
                    s += x5[j] * u5
                    s += x6[j] * u6
                    total[j] = s + x7[j] * u7
        for q in range(whole, active.size):
            i = active[q]
            xi = x[i * step + begin : i * step + begin + width]
            for a in range(c.shape[0]):
                total = c[a, begin : begin + width]
                for j in range(width):
                    total[j] += xi[j] * duals[a, i]


@compiled
def _column_major(x: Array, step: int, active: Array, duals: Array, c: Array) -> None:
    """Compute the same as _row_major for column-major x, four columns at a time, because in a single sum each addition would wait for the
    previous one.
    """
    n_columns = c.shape[1]
    stride = np.uint64(step)
    for j in range(0, n_columns, 4):
        last = n_columns - 1
        j1, j2, j3 = min(j + 1, last), min(j + 2, last), min(j + 3, last)
        o0, o1, o2, o3 = np.uint64(j) * stride, np.uint64(j1) * stride, np.uint64(j2) * stride, np.uint64(j3) * stride
        for a in range(c.shape[0]):
            s0, s1, s2, s3 = c[a, j], c[a, j1], c[a, j2], c[a, j3]
            for t in range(active.size):
                i = np.uint64(active[t])
                ui = duals[a, i]
                s0 += x[o0 + i] * ui
                s1 += x[o1 + i] * ui
                s2 += x[o2 + i] * ui
                s3 += x[o3 + i] * ui
            c[a, j], c[a, j1], c[a, j2], c[a, j3] = s0, s1, s2, s3


def _accumulate_sparse(c: Array, X: SparseView, duals: Array) -> None:
    if len(duals) == 1:
        sparse_dots(*X, duals[0], c[0])
        return
    width = -(-len(duals) // 4) * 4
    padded = np.zeros((duals.shape[1], width))
    padded[:, : len(duals)] = duals.T
    wide = np.zeros((width, c.shape[1]))
    wide[: len(duals)] = c
    _sparse_dots_by_four(*X, padded.ravel(), wide)
    c[:] = wide[: len(duals)]


def _accumulate_dense(c: Array, X: DenseView, duals: Array, active: Array | None) -> None:
    rows = np.flatnonzero(duals.any(axis=0)) if active is None else np.ascontiguousarray(active, dtype=np.int64)
    if X.column_step == 1:
        _row_major(X.flat, X.row_step, rows, duals, c, TILE)
    else:
        _column_major(X.flat, X.column_step, rows, duals, c)


def accumulate(c: Array, X: Columns, u: Array, active: Array | None = None) -> None:
    """Add ``X'u`` of one chunk of rows to ``c`` in place. Chunks added in ascending row order give a result that is bit-identical to the
    sum over all rows.

    ``c`` is contiguous float64 ``(k,)``, or ``(m, k)`` for several dual vectors. ``X``, ``(n, k)``, holds the rows of the chunk, and ``u``
    is ``(n,)`` or ``(m, n)`` on these rows. ``active`` lists the rows with a non-zero ``u_i``, ascending, if known (dense only).
    """
    n, k = shape(X)
    duals = np.atleast_2d(checked_dual(u, n))
    if c.dtype != np.float64 or not c.flags.c_contiguous or c.size != len(duals) * k:
        raise ValueError(f"c is {c.dtype} {c.shape}; it must be contiguous float64 of shape ({len(duals)}, {k})")
    if c.size == 0:
        return
    sums, block = c.reshape(len(duals), k), view(X)
    if isinstance(block, SparseView):
        _accumulate_sparse(sums, block, duals)
    else:
        _accumulate_dense(sums, block, duals, active)


def correlations_many(X: Columns, U: Array) -> Array:
    """Return ``U @ X``, float64 ``(m, k)``, for dual vectors ``(m, n)`` in one reading of the columns ``(n, k)``.

    Row a is bit-identical to ``correlations(X, U[a])``.
    """
    c = np.zeros((len(U), shape(X)[1]))
    accumulate(c, X, np.asarray(U))
    return c


def correlations(X: Columns, u: Array, active: Array | None = None) -> Array:
    """Return ``c = X'u``, float64 ``(k,)``, with reproducible bits (module docstring); ``active`` is as in :func:`accumulate`."""
    c = np.zeros(shape(X)[1])
    accumulate(c, X, u, active)
    return c


@compiled
def _scan_sparse(
    block: tuple[Array, ...], dual: tuple[Array, float, float], bounds: Array, factor: Array, centre: Array, offset: int, first: Array,
    threshold: float, hk: Array, hi: Array, hv: Array,
) -> tuple[int, int]:  # fmt: skip
    """Return the heap size, and the position of a score that is not finite (or -1)."""
    values, rows, starts = block
    u, total, reach = dual
    size = int(np.int64(0))
    bar = max(threshold, 5e-324)
    # The columns known to be large come first, one by one; then the stretches between them, whatever the bound cannot exclude.
    for stretch in range(2 * first.size + 1):
        gap = stretch - first.size
        if gap < 0:
            begin, end, weakest = first[stretch], first[stretch] + 1, 0.0
        else:
            begin = first[gap - 1] + 1 if gap > 0 else 0
            end = first[gap] if gap < first.size else bounds.size
            weakest = bar / reach
        for j in range(begin, end):
            if bounds[j] < weakest:
                continue
            c = 0.0
            for p in range(np.uint64(starts[j]), np.uint64(starts[j + 1])):
                c += values[p] * u[rows[p]]
            if centre.size:
                c -= centre[j] * total
            if factor.size:
                c *= factor[j]
            key = abs(c)
            if key < bar:
                continue
            if not key < np.inf:
                return size, j
            size = offer(hk, hi, hv, size, key, offset + j, c)
            if size == hk.size and hk[0] > bar:
                bar = hk[0]
                weakest = bar / reach
    return size, -1


def _vector(values: Array | None, k: int, name: str) -> Array:
    if values is None:
        return NONE
    out = flat(np.ascontiguousarray(values, dtype=np.float64))
    if out.shape != (k,):
        raise ValueError(f"{name} has {out.size} entries; it needs one for each of the {k} columns")
    return out


def _scaled_bounds(norm1: Array, k: int, factor: Array, centre: Array) -> Array:
    """Return float32 upper bounds of ``|score_j| / max|u|``, rounded up."""
    bounds = flat(np.ascontiguousarray(norm1, dtype=np.float32))
    if bounds.size != k:
        raise ValueError(f"norm1 has {bounds.size} entries; it needs one for each of the {k} columns")
    if not factor.size and not centre.size:
        return bounds
    # A bound that overflows, or becomes NaN, excludes nothing.
    with np.errstate(over="ignore", invalid="ignore"):
        exact = (bounds + centre if centre.size else bounds) * (np.abs(factor) if factor.size else 1.0)
        return np.asarray(exact, np.float32) * np.float32(1.000001) + np.finfo(np.float32).tiny


def apply_scaling(c: Array, u: Array, scale: Array | None, shift: Array | None) -> Array:
    """Convert ``X'u`` to the correlations of scaled columns, ``s * (X'u - mu * sum(u))``, in place.

    ``c`` is ``(k,)``, or ``(m, k)`` for several dual vectors; ``u`` is ``(n,)`` or ``(m, n)``. ``scale`` ``(k,)`` is s, and ``shift``
    ``(k,)`` is mu.
    """
    if shift is None and scale is None:
        return c
    # Selection refuses what overflows here, and names it.
    with np.errstate(over="ignore", invalid="ignore"):
        if shift is not None:
            c -= np.multiply.outer(np.ascontiguousarray(u, dtype=np.float64).sum(axis=-1), _vector(shift, c.shape[-1], "shift"))
        if scale is not None:
            c *= _vector(scale, c.shape[-1], "scale")
    return c


class DualVector(NamedTuple):
    """A dual vector, its sum, and an upper bound of ``max|u|`` that allows for the rounding of a score. Sum and bound are computed once for
    many stripes.
    """

    values: Array
    total: float
    reach: float

    @classmethod
    def of(cls, u: Array) -> DualVector:
        """Check a dual vector and compute its sum and bound."""
        n = len(u)
        values = checked_dual(u, n)
        largest = max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))  # no copy of n numbers
        # Both sums, of |x| and of x u, are rounded at most once per row.
        return cls(values, float(values.sum()), max(largest * (1.0 + (4 * n + 64) * 2.0**-53), np.finfo(float).tiny))


def select_sparse(
    X: sp.csc_array,
    u: Array | DualVector,
    norm1: Array,
    B: int,
    *,
    offset: int = 0,
    scale: Array | None = None,
    shift: Array | None = None,
    first: Array | None = None,
    threshold: float = 0.0,
) -> TopB:
    """Return the B largest ``|s_j (x_j'u - mu_j sum(u))|``, reading only columns that can be among them.

    A column is skipped if ``|s_j| norm1_j max|u|`` is strictly below the current B-th key. Ties are read, so the result is bit-identical to
    that of a full pass (docs/theory/fgm.md, "Scores and the column skip rule").

    Parameters
    ----------
    X, u
        ``(n, k)`` stripe and ``(n,)`` dual vector; pass a :class:`DualVector` to score many stripes.
    norm1
        ``(k,)`` upper bounds of ``sum_i |x_ij|`` (:func:`~gramplane.kernels.features.views.column_norm1`).
    B, offset
        Number of columns to return, and the id of the first column.
    scale, shift
        ``(k,)`` column factors ``s`` and centres ``mu``.
    first
        Ids to read first because they are likely large (those selected before); ids outside the stripe are ignored.
    threshold
        A valid lower bound of the overall B-th key; smaller keys are skipped.
    """
    n, k = shape(X)
    dual = u if isinstance(u, DualVector) else DualVector.of(checked_dual(u, n))
    if len(dual.values) != n:
        raise ValueError(f"u has {len(dual.values)} entries; it must have one for each of the {n} rows of X")
    heap, block = Heap.empty(B), sparse_view(X)
    likely = np.zeros(0, np.int64) if first is None else np.unique(np.asarray(first, np.int64)) - offset
    likely = likely[(likely >= 0) & (likely < k)]
    factor, centre = _vector(scale, k, "scale"), _vector(shift, k, "shift")
    columns = _scaled_bounds(norm1, k, factor, np.abs(centre * (dual.total / dual.reach))), factor, centre
    size, bad = _scan_sparse(tuple(block), (dual.values, dual.total, dual.reach), *columns, offset, likely, float(threshold), *heap)
    if bad >= 0:
        refuse(offset + bad)
    return heap.top(size)
