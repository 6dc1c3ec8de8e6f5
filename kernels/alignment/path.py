"""Path of kernel weights over the norm p, for generalised l_p-norm kernel target alignment.

As p falls from p_start to p_end, weights below ``eps < 1/e`` only fall (Jawanpuria, PhD thesis 2014, theorem 7.3.2), so a kernel that has
become inactive stays inactive. The active kernels are known without computing the path: G rises with eta, so ``eta_i(p) > eps`` exactly if
the load b_i exceeds

    tau(p) = lam1 F'(eps) + lam2 p eps^(p-1),

and tau rises as p falls. Kernels become inactive in ascending order of their loads. The weight of kernels with equal loads is computed
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray, IntArray
from .path_weights import DIVERGENCES as DIVERGENCES
from .path_weights import EUCLIDEAN as EUCLIDEAN
from .path_weights import KL as KL
from .path_weights import AlignmentProblem, bracket_weights, closed_form, correct_weights, weight_derivatives
from .path_weights import Divergence as Divergence
from .path_weights import weights_at as weights_at

NEVER_ACTIVE = np.inf
ALWAYS_ACTIVE = 0.0
MIN_WEIGHT = 1e-150  # A weight below it counts as zero even with eps = 0: its powers leave float64.


@dataclass(frozen=True, eq=False)
class KernelPath:
    """Weights at the points of a path.

    * ``p_grid`` ``(n_points,)``: descending values of p.
    * ``weights`` ``(n_points, n)``: the weights at each p, 0 for inactive kernels.
    * ``n_active``: the number of active kernels at each p, which never increases along the path.
    * ``junctures``: kernel i is active at p exactly if ``p > junctures[i]``. The juncture is inf if the kernel is inactive at p_start
      already, and 0 if it is still active at p_end.
    * ``newton_steps``: the total number of Newton steps; kernels with equal loads count once.
    * ``p_end``: where the search for junctures ended.
    """

    p_grid: FloatArray
    weights: sp.csr_array
    n_active: IntArray
    junctures: FloatArray
    newton_steps: IntArray
    p_end: float

    def selected(self, point: int) -> IntArray:
        """Return the active kernels at grid point ``point``, ascending."""
        first, last = self.weights.indptr[point], self.weights.indptr[point + 1]
        return self.weights.indices[first:last].astype(np.int64)

    def p_for(self, n_features: int) -> float:
        """Return a p at which ``n_features`` kernels are active; see :func:`p_for`."""
        return p_for(self.junctures, n_features, float(self.p_grid[0]), self.p_end)


def _check_eps(eps: float) -> None:
    if not 0.0 <= eps < np.exp(-1.0):
        raise ValueError(f"eps is {eps}; it must be in [0, 1/e), otherwise an inactive kernel could become active again")


def p_grid(p_start: float = 2.0, p_end: float = 1.0, dp: float = 0.01) -> FloatArray:
    """Return ``p_start - k * dp`` for k = 0, 1, ... down to p_end. The end p_end itself is included only if a step falls on it. Raises
    ValueError if the range is not allowed.
    """
    if not (np.isfinite(p_start) and 1.0 <= p_end <= p_start):
        raise ValueError(f"p_start is {p_start} and p_end {p_end}; they must satisfy 1 <= p_end <= p_start")
    if not (np.isfinite(dp) and dp > 0.0):
        raise ValueError(f"dp is {dp}; it must be finite and > 0")
    grid = p_start - dp * np.arange(int((p_start - p_end) / dp + 1e-9) + 1, dtype=np.float64)
    if abs(grid[-1] - p_end) <= 1e-9 * p_end:
        grid[-1] = p_end
    return grid


def threshold(problem: AlignmentProblem, p: float, eps: float) -> float:
    """Return tau(p). A kernel is active (weight above eps) exactly if its load exceeds tau(p)."""
    eps = max(eps, MIN_WEIGHT)
    norm = problem.lam2 * p * eps ** (p - 1.0)
    return norm if problem.lam1 == 0.0 else problem.lam1 * float(problem.divergence.first(np.array([eps]))[0]) + norm


def juncture_points(problem: AlignmentProblem, a: FloatArray, *, eps: float = 1e-4, p_start: float = 2.0, p_end: float = 1.0) -> FloatArray:
    """Return for each kernel the p below which it is inactive, ``(n,)``: the root of ``tau(p) = b_i``, without computing weights.

    A kernel of alignment ``a[i] >= 0`` is active at p in [p_end, p_start] exactly if p exceeds its juncture. The juncture is inf if the
    kernel is inactive at p_start, and 0 if it is still active at p_end. The threshold eps is in [0, 1/e).
    """
    _check_eps(eps)
    p_grid(p_start, p_end)
    return _find_junctures(problem, problem.loads(a), eps, p_start, p_end)


def _find_junctures(problem: AlignmentProblem, loads: FloatArray, eps: float, p_start: float, p_end: float) -> FloatArray:
    out = np.full(loads.shape, NEVER_ACTIVE)
    out[loads > threshold(problem, p_start, eps)] = ALWAYS_ACTIVE
    leaves = (out == ALWAYS_ACTIVE) & (loads <= threshold(problem, p_end, eps))
    if not leaves.any():
        return out
    shift = threshold(problem, 1.0, eps) - problem.lam2
    target, log_eps = np.log((loads[leaves] - shift) / problem.lam2), np.log(max(eps, MIN_WEIGHT))
    # log p + (p - 1) log eps is concave and falls: Newton from p_start, where it lies below the target, descends to the root.
    p = np.full(target.shape, p_start)
    for _ in range(50):
        step = (np.log(p) + (p - 1.0) * log_eps - target) / (1.0 / p + log_eps)
        p -= step
        if np.abs(step).max() <= 1e-15 * p_start:
            break
    out[leaves] = np.clip(p, p_end, p_start)
    return out


def p_for(junctures: FloatArray, n_features: int, p_start: float = 2.0, p_end: float = 1.0) -> float:
    """Return the middle of the range of p in which exactly ``n_features`` kernels are active. If there is no such range, use the largest
    number below ``n_features`` that has one.

    The number is smaller if several kernels become inactive at the same p (equal loads) or if fewer kernels are active at p_start.
    ``junctures`` come from :func:`juncture_points`. Raises ValueError if more kernels are active even at p_end, or if no kernel would be
    active.
    """
    if n_features < 1:
        raise ValueError(f"n_features is {n_features}; it must be at least 1")
    ordered = np.sort(junctures)
    if n_features >= ordered.size or ordered[n_features] > p_start:
        return p_start
    high = float(ordered[n_features])
    n_last = int(np.searchsorted(ordered, p_end, side="left"))
    if high == ALWAYS_ACTIVE or high < p_end:
        raise ValueError(f"n_features is {n_features}, but {n_last} kernels are still active at p = {p_end}; raise lam2 or eps")
    if not np.searchsorted(ordered, high, side="left"):
        last = int((ordered == high).sum())
        raise ValueError(
            f"n_features is {n_features}, but the last {last} kernels become inactive together at p = {high}; "
            f"set n_features to at least {last}"
        )
    return 0.5 * (max(float(ordered[ordered < high][-1]), p_end) + high)


def _predict_weights(problem: AlignmentProblem, eta: FloatArray, p: float, step: float, order: int) -> FloatArray:
    """Return the Taylor prediction of the weights at p - step; each predicted weight is at least half of the weight at p."""
    if order == 0 or problem.lam2 == 0.0:
        return eta
    first, second = weight_derivatives(problem, eta, p, order)
    return np.maximum(eta - step * first + (0.5 * step * step) * second, 0.5 * eta)


def _solve_point(
    problem: AlignmentProblem, eta: FloatArray, loads: FloatArray, before: float, p: float, order: int
) -> tuple[FloatArray, int]:
    if p == 1.0:
        exact = closed_form(problem, loads, p)
        if exact is not None:
            return exact, 0
    return correct_weights(problem, _predict_weights(problem, eta, before, before - p, order), loads, p)


def kernel_path(
    problem: AlignmentProblem, a: Array, *, p_start: float = 2.0, p_end: float = 1.0, dp: float = 0.01, eps: float = 1e-4, order: int = 1
) -> KernelPath:
    """Return the weights at each p of a grid by a predictor-corrector method (Jawanpuria 2014, algorithm 5).

    The alignments a, ``(n,)``, are >= 0; p_end = 1 needs lam1 > 0. The threshold eps is in [0, 1/e); weights at or below it are set to zero
    and stay zero. The predictor is the weight at the previous p (``order`` 0), plus one or two derivative terms of its Taylor series in p
    (``order`` 1 or 2).
    """
    _check_eps(eps)
    if order not in (0, 1, 2):
        raise ValueError(f"order is {order!r}; it must be 0, 1 or 2")
    grid = p_grid(p_start, p_end, dp)
    problem.check_p(grid[-1])
    all_loads = problem.loads(a)
    # Only the loads matter, so equal ones are solved once, and the active ones are the upper end of the sorted.
    loads, kinds = np.unique(all_loads, return_inverse=True)
    low, eta = loads.size, np.zeros(0)
    rows, steps = [], np.zeros(grid.size, np.int64)
    for point, p in enumerate(map(float, grid)):
        first = int(np.searchsorted(loads, threshold(problem, p, eps), side="right"))
        if point == 0:
            low, eta = first, closed_form(problem, loads[first:], p)
            eta = bracket_weights(problem, loads[first:], p) if eta is None else eta
        else:
            low, eta = first, eta[first - low :]
            eta, steps[point] = _solve_point(problem, eta, loads[low:], float(grid[point - 1]), p, order)
        ids = np.flatnonzero(kinds >= low)
        rows.append((ids, eta[kinds[ids] - low]))
    n_active = np.array([len(ids) for ids, _ in rows], np.int64)
    return KernelPath(
        grid, _stack_rows(rows, all_loads.size), n_active, _find_junctures(problem, all_loads, eps, p_start, p_end), steps, p_end
    )


def _stack_rows(rows: list[tuple[IntArray, FloatArray]], n: int) -> sp.csr_array:
    ends = np.cumsum([0] + [len(ids) for ids, _ in rows])
    index = np.int32 if max(int(ends[-1]), n) < 2**31 else np.int64
    indices = np.concatenate([ids for ids, _ in rows]).astype(index)
    return sp.csr_array((np.concatenate([values for _, values in rows]), indices, ends.astype(index)), shape=(len(rows), n))


# Weights along a path as few functions: kernels of like alignment share the matrices from which every point's sum is mixed.
#
# A weight depends on the alignment alone, ``eta_i(p) = h(a_i, p)``, and h is smooth in a. Kernels are sorted by a and cut into *cells*.
# Inside a cell that reaches from a_l to a_u, with ``t_i = (a_i - a_l) / (a_u - a_l)``,
#
#     w_i(p) = (1 - t_i) h(a_l, p) + t_i h(a_u, p),
#
# so the sum over the cell's kernels at any point is a mixture of two matrices, ``sum (1 - t_i) K_i`` and ``sum t_i K_i``, which are summed
# once. A cell is never cut by an activity threshold, so it is active as a whole or not at all; cells are halved until, at every point,
# ``sum_i |w_i - eta_i| <= tol sum_i eta_i``: kernels of unit trace so give a sum within tol of the exact one in trace norm.


@dataclass(frozen=True)
class Cells:
    """Kernel weights at some points of a path, described as piecewise linear functions of the alignment. A cell is a range of alignments on
    which the functions are linear. Kernels that are never active are left out.

    * ``members`` ``(k,)``: the kernels by rising alignment.
    * ``starts`` ``(n_cells + 1,)``: the position in ``members`` of the first kernel of each cell.
    * ``shares`` ``(k,)``: the position t of each member in its cell, from 0 to 1.
    * ``low``, ``high`` ``(n_points, n_cells)``: the weights at the ends of the cells, 0 for inactive cells.
    * ``error`` ``(n_points,)``: ``sum |w - eta| / sum eta``, for described weights w and exact weights eta.
    """

    members: Array
    starts: Array
    shares: Array
    low: Array
    high: Array
    error: Array

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    def members_of(self, cells: range) -> Iterator[tuple[int, Array, Array]]:
        """Yield for each of the given cells its number, its kernels, and the positions t of these kernels in the cell."""
        for cell in cells:
            part = slice(self.starts[cell], self.starts[cell + 1])
            yield cell, self.members[part], self.shares[part]

    def weights(self, point: int) -> tuple[Array, Array]:
        """Return the kernels active at a point, ascending, and their weights."""
        sizes = np.diff(self.starts)
        w = (1.0 - self.shares) * np.repeat(self.low[point], sizes) + self.shares * np.repeat(self.high[point], sizes)
        active = np.repeat(self.high[point] > 0.0, sizes)
        order = np.argsort(self.members[active])
        return self.members[active][order], w[active][order]


def cut_into_cells(a: Array, weights: Array, *, tol: float, max_cells: int) -> Cells | None:
    """Return cells that describe the weights ``(n_points, n)`` at some points of a path, or None if more than ``max_cells`` would be
    needed.

    Weights are >= 0, 0 for inactive kernels, and rise with the alignments a ``(n,)``; equal alignments have equal weights. ``tol`` is the
    largest error ``sum |w - eta| / sum eta`` allowed at any point, for described weights w and exact weights eta.
    """
    order = np.argsort(a, kind="stable")
    order = order[np.any(weights[:, order] > 0.0, axis=0)]
    levels, first = np.unique(a[order], return_index=True)
    eta, times = weights[:, order[first]], np.diff(np.append(first, len(order)))
    total = weights.sum(axis=1)
    # A point's active kernels are the upper end of the sorted ones.
    edges = np.unique(np.append((eta == 0.0).sum(axis=1), len(levels)))
    edges = np.unique(np.append(edges, 0)) if len(levels) else np.zeros(1, np.int64)
    edges = _refine_cells(levels, eta * times, times, edges, total, tol, max_cells)
    if edges is None:
        return None
    low, high, sizes = eta[:, edges[:-1]], eta[:, edges[1:] - 1], np.diff(edges)
    first_level, span = np.repeat(levels[edges[:-1]], sizes), np.repeat(levels[edges[1:] - 1] - levels[edges[:-1]], sizes)
    shares = np.divide(levels - first_level, span, out=np.zeros(len(levels)), where=span > 0.0)
    mixed = (1.0 - shares) * np.repeat(low, sizes, axis=1) + shares * np.repeat(high, sizes, axis=1)
    error = np.divide((np.abs(mixed - eta) * times).sum(axis=1), total, out=np.zeros(len(total)), where=total > 0.0)
    return Cells(order, np.append(first, len(order))[edges], np.repeat(shares, times), low, high, error)


def _refine_cells(levels: Array, mass: Array, times: Array, edges: Array, total: Array, tol: float, max_cells: int) -> Array | None:
    """Split cells until the error is at most tol at every point. In each round, the point with the largest error is chosen, and at this
    point the cell with the largest error. The cell is split at the alignment below which half of its error arises.
    """
    unit = np.divide(1.0, total, out=np.zeros(len(total)), where=total > 0.0)[:, None]

    def errors(lo: int, hi: int) -> Array:
        return _cell_errors(levels[lo:hi], mass[:, lo:hi], times[lo:hi]) * unit

    cells = [(int(lo), int(hi)) for lo, hi in pairwise(edges)]
    cell_sums = [errors(*cell).sum(axis=1) for cell in cells]
    while len(cells) <= max_cells:
        worst = np.sum(cell_sums, axis=0) if cell_sums else np.zeros(len(total))
        if worst.max() <= tol:
            return np.array(sorted({edge for cell in cells for edge in cell} | {0}), np.int64)
        point = int(np.argmax(worst))
        largest = max(range(len(cell_sums)), key=lambda c: float(cell_sums[c][point]))
        lo, hi = cells.pop(largest)
        cell_sums.pop(largest)
        running = np.cumsum(errors(lo, hi)[point])
        middle = lo + int(np.clip(np.searchsorted(running, 0.5 * running[-1]) + 1, 1, hi - lo - 1))
        for cell in ((lo, middle), (middle, hi)):
            cells.append(cell)
            cell_sums.append(errors(*cell).sum(axis=1))
    return None


def _cell_errors(levels: Array, mass: Array, times: Array) -> Array:
    """Return the differences between interpolated and exact weights of one cell. Each is multiplied by the number of kernels with this
    weight.
    """
    t = np.divide(levels - levels[0], levels[-1] - levels[0], out=np.zeros(len(levels)), where=levels[-1] > levels[0])
    ends = mass[:, [0, -1]] / times[[0, -1]]
    return np.abs(np.outer(ends[:, 0], 1.0 - t) + np.outer(ends[:, 1], t) - mass / times) * times
