"""Weights along a path as few functions: kernels of like alignment share the matrices from which every point's sum is mixed.

A weight depends on the alignment alone, ``eta_i(p) = h(a_i, p)``, and h is smooth in a. Kernels are sorted by a and cut into *cells*.
Inside a cell that reaches from a_l to a_u, with ``t_i = (a_i - a_l) / (a_u - a_l)``,

    w_i(p) = (1 - t_i) h(a_l, p) + t_i h(a_u, p),

so the sum over the cell's kernels at any point is a mixture of two matrices, ``sum (1 - t_i) K_i`` and ``sum t_i K_i``, which are summed
once. A cell is never cut by an activity threshold, so it is active as a whole or not at all; cells are halved until, at every point,
``sum_i |w_i - eta_i| <= tol sum_i eta_i``: kernels of unit trace so give a sum within tol of the exact one in trace norm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ..arrays import Array


@dataclass(frozen=True)
class Cells:
    """Cells of the kernels that are active somewhere on some points of a path. ``members`` ``(k,)`` are the kernels by rising alignment,
    ``starts`` ``(n_cells + 1,)`` the first member of each cell, ``shares`` ``(k,)`` t of every member. ``low`` and ``high`` ``(n_points,
    n_cells)`` are the weights at the ends of the cells, 0 where a cell is not active; ``error`` ``(n_points,)`` is ``sum |w - eta| / sum
    eta``.
    """

    members: Array
    starts: Array
    shares: Array
    low: Array
    high: Array
    error: Array

    @property
    def count(self) -> int:
        """Number of cells."""
        return len(self.starts) - 1

    def members_of(self, cells: range) -> Iterator[tuple[int, Array, Array]]:
        """Yield the number, the kernels and their shares of some cells."""
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
    needed. Weights are >= 0, 0 where a kernel is not active, and rise with the alignments a ``(n,)``; equal ones have equal weights.
    ``tol`` is the largest ``sum |w - eta| / sum eta`` at any point.
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
    """Halve the cell with the largest error at the worst point, where half of its error lies, until no point is worse than tol."""
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
    """Return how far the interpolated weights of one cell are from their own, times the kernels that share them."""
    t = np.divide(levels - levels[0], levels[-1] - levels[0], out=np.zeros(len(levels)), where=levels[-1] > levels[0])
    ends = mass[:, [0, -1]] / times[[0, -1]]
    return np.abs(np.outer(ends[:, 0], 1.0 - t) + np.outer(ends[:, 1], t) - mass / times) * times
