"""Gradients of many tasks, feature by feature, with a bound on their change that limits which features can enter a working set.

The gradient of task q along feature j is ``z_jq = sum_{i in q} c_i s_i x_ij``. Each group of the penalty is a feature over all tasks, with
the weights kappa and r, and only its dual norm matters. If the slopes s change by ``delta``, the dual norm changes by at most

    |Omega*_j(z_j(s + delta)) - Omega*_j(z_j(s))| <= sqrt(a_j) (sum_i c_i delta_i^2)^(1/2) Q^e / (kappa + r),

with ``a_j = max_q sum_{i in q} c_i x_ij^2``, and ``e = max(1/2 - 1/p, 0)`` for L_p norms over Q tasks (0 for p = 2). Reason: ``kappa
||v||_p + r ||v||_1 >= (kappa Q^-e + r) ||v||_2``, with r = 0 unless p = 2, bounds the dual norm by ``||z||_2 Q^e / (kappa + r)``, and the
Cauchy-Schwarz inequality bounds ``z_jq(delta)^2`` by ``a_j sum_{i in q} c_i delta_i^2``. Once the norm of a feature is known, the feature
can be skipped until the sum of these changes could have raised it to lam.

Sums run over ascending rows, in float64: sparse and dense columns, both memory orders and any division into stripes give the same bits.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..features.views import Columns, SparseView, checked_dual, flat, shape, view
from ..jit import compiled
from .penalty import GroupPenalty, single_features

BATCH_BYTES = 8 << 20  # bytes of the sums of all tasks over some columns


@compiled
def _sparse_sums(values: Array, rows: Array, starts: Array, weight: Array, codes: Array, sums: Array, squares: bool) -> None:
    """Add the sum of ``weight * x`` (or ``weight * x^2``) over the rows of task q in column j to ``sums[q, j]``."""
    for j in range(sums.shape[1]):
        for p in range(starts[j], starts[j + 1]):
            i, x = rows[p], np.float64(values[p])
            sums[codes[i], j] += weight[i] * (x * x if squares else x)


@compiled
def _dense_sums(x: Array, row_step: int, column_step: int, shift: Array, weight: Array, codes: Array, sums: Array, squares: bool) -> None:
    # Columns outermost in strips: sums run over ascending rows in both memory orders.
    width = sums.shape[1]
    for begin in range(0, width, 16):
        end = min(begin + 16, width)
        for i in range(weight.size):
            w, q = weight[i], codes[i]
            if w == 0.0:
                continue
            for j in range(begin, end):
                value = np.float64(x[i * row_step + j * column_step]) - shift[j]
                sums[q, j] += w * (value * value if squares else value)


def task_sums(X: Columns, weight: Array, codes: IntArray, n_tasks: int, *, shift: Array | None = None, squares: bool = False) -> FloatArray:
    """Return ``sum_i weight_i (x_ij - shift_j)`` over the rows of each task, or the sums of squares, for a block ``(n, k)`` of columns.

    The result is float64 ``(n_tasks, k)``. ``weight`` is ``(n,)``, ``codes`` the int64 ``(n,)`` task of each row, and ``shift`` ``(k,)``
    for dense columns only.
    """
    n, k = shape(X)
    factors, sums, block = checked_dual(weight, n, "weight"), np.zeros((n_tasks, k)), view(X)
    if not k or not n:
        return sums
    if isinstance(block, SparseView):
        _sparse_sums(*block, factors, flat(codes), sums, squares)
    else:
        centre = np.zeros(k) if shift is None else np.ascontiguousarray(shift, np.float64)
        _dense_sums(*block, centre, factors, flat(codes), sums, squares)
    return sums


def feature_norms(
    X: Columns, weight: Array, codes: IntArray, n_tasks: int, alike: GroupPenalty, *, shift: Array | None, factor: Array | None
) -> FloatArray:
    """Return the dual norm of each column's sums, ``(k,)``, for columns ``(x - shift) * factor`` and ``weight`` ``(n,)`` as in
    :func:`task_sums`.

    ``alike`` is a penalty of single features; all features have the weights of the first.
    """
    parts = [np.zeros(0)]
    for lo, hi in _batches(shape(X)[1], n_tasks):
        sums = task_sums(_part(X, lo, hi), weight, codes, n_tasks, shift=None if shift is None else shift[lo:hi])
        if factor is not None:
            sums *= factor[lo:hi]
        parts.append(single_features(hi - lo, float(alike.kappa[0]), float(alike.inner[0]), alike.p).dual_norms(sums))
    return np.concatenate(parts)


def feature_reaches(X: Columns, cost: Array, codes: IntArray, n_tasks: int, *, shift: Array | None, factor: Array | None) -> FloatArray:
    """Return ``sqrt(a_j)`` of each column, ``(k,)``: the maximum over the tasks of its weighted Euclidean norms."""
    parts = [np.zeros(0)]
    for lo, hi in _batches(shape(X)[1], n_tasks):
        squares = task_sums(_part(X, lo, hi), cost, codes, n_tasks, shift=None if shift is None else shift[lo:hi], squares=True)
        parts.append(np.sqrt(squares.max(axis=0)) * (1.0 if factor is None else np.abs(factor[lo:hi])))
    return np.concatenate(parts)


def _batches(width: int, n_tasks: int) -> list[tuple[int, int]]:
    step = max(1, BATCH_BYTES // (8 * n_tasks))
    return [(lo, min(lo + step, width)) for lo in range(0, width, step)]


def _part(X: Columns, lo: int, hi: int) -> Columns:
    return X if (lo, hi) == (0, shape(X)[1]) else X[:, lo:hi]


def norm_move(penalty: GroupPenalty, cost: Array, before: Array, after: Array, n_tasks: int = 1) -> float:
    """Return the factor of ``sqrt(a_j)`` in the bound on the change of dual norms between two vectors of slopes ``(n,)``."""
    change, spread = after - before, n_tasks ** max(0.5 - 1.0 / penalty.p, 0.0)
    return float(np.sqrt(cost @ (change * change))) * spread / float(penalty.kappa[0] + penalty.inner[0])
