r"""Dual averaging over a stream of rows, exactly and lazily: the cost of a row follows its non-zeros.

After t rounds with subgradient sum s and bias sum s_b the weights are (Yang 2011, Theorem 1 and (3.9), multiplied by t)

``w_g = -(1 / (gamma sqrt(t))) [1 - t k_g / ||c_g||]_+ c_g``, ``c_g = S(s_g, t tau_g + rho gamma sqrt(t))``, ``b = -s_b / (gamma sqrt(t))``,

so that only s is kept, and only the weights a row meets are made. Per group ``||s_g||^2`` is maintained: where it is at most
``(t (k_g + tau_g) + rho gamma sqrt(t))^2`` the group is zero, for if some ``|s_j| > tau`` then
``||S(s_g, tau)|| <= ||s_g|| - tau``. Groups that pass get their scale once a round.

A round takes a fixed number of rows, wherever calls cut the stream: rows of a round that is not full are kept, with their slopes, until it
is. So no cut changes a bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .jit import compiled
from .stream_groups import Array, Groups, add_shrunken, shrunken, shrunken_norm

LOSSES = ("logistic", "squared", "hinge")
"""Losses of a stream, by their number in compiled loops."""

MARGIN = 1e-9
"""Relative margin within which a maintained norm does not decide whether a group is zero: round-off is a millionth of that."""

REBUILD = 1 << 20
"""Norms are computed anew every so many rounds, counted from the start of the stream."""


class Rows(NamedTuple):
    """Rows in CSR form, and the order in which they are taken.

    Attributes
    ----------
    indptr, order
        int64 ``(n + 1,)`` and ``(n,)``.
    indices, values
        int32 and float64 ``(nnz,)``.
    """

    indptr: Array
    indices: Array
    values: Array
    order: Array


class Rule(NamedTuple):
    """How a stream is learned: number of the loss, rows of a round, gamma, ``rho gamma``, whether there is an intercept."""

    loss: int
    batch: int
    gamma: float
    fade: float
    intercept: bool


@compiled
def loss_slope(kind: int, y: Any, f: Any) -> tuple[float, float]:
    """Return the loss of a row and its derivative in the decision value: logistic, squared or hinge."""
    if kind == 1:
        return 0.5 * (f - y) * (f - y), f - y
    m = y * f
    if kind == 2:
        return (1.0 - m, -y) if m < 1.0 else (0.0, 0.0)
    e = np.exp(-abs(m))
    if m > 0.0:
        return np.log1p(e), -y * e / (1.0 + e)
    return np.log1p(e) - m, -y / (1.0 + e)


class Norms(NamedTuple):
    """Per group: float64 ``(n_groups,)`` maintained ``||s_g||^2``, and ``(n_groups, 2)`` scale with the round it was made in."""

    squares: Array
    scales: Array


@compiled
def _scale(sums: Array, norms: Norms, groups: Groups, g: Any, t: float, k: Any, tau: Any) -> Any:
    """Return ``[1 - t k_g / ||c_g||]_+`` of a group that passed the screen, from its members; once a round."""
    if norms.scales[g, 1] != t:
        norm = shrunken_norm(sums, groups, g, tau)
        norms.scales[g, 0] = 1.0 - k / norm if norm > k else 0.0
        norms.scales[g, 1] = t
    return norms.scales[g, 0]


@compiled
def _margins_apart(
    rows: Rows, first: int, last: int, weight: Array, sums: Array, norms: Norms, groups: Groups, t: float, fade: float, out: Array
) -> None:
    """Write ``-gamma sqrt(t) <w, x>`` of the rows at places ``first`` to ``last``, for groups that do not overlap, or none."""
    # What the loops read is named first: reaching into a tuple of arrays inside them counts references each time.
    indptr, order, indices, values = rows.indptr, rows.order, rows.indices, rows.values
    owner, inner, cost = groups.owner, groups.inner, groups.cost
    squares, magic, even, alone = norms.squares, np.uint64(groups.magic), groups.even, groups.cost.size == 0
    level, k, tau = t * groups.single + fade, 0.0, 0.0
    limit = level * level * (1.0 - MARGIN)
    if even and not alone:
        k, tau = t * cost[0], t * inner[0] + fade
    for place in range(first, last):
        i, total = order[place], 0.0
        if weight[i] == 0.0:
            continue
        for p in range(indptr[i], indptr[i + 1]):
            # Unsigned indices need no test for counting from the end.
            j = np.uint32(indices[p])
            if alone:
                total += values[p] * shrunken(sums[j], level)
                continue
            g = (np.uint64(j) * magic) >> np.uint64(32) if magic else np.uint64(owner[j])
            if not even:
                k, tau = t * cost[g], t * inner[g] + fade
                limit = (k + tau) * (k + tau) * (1.0 - MARGIN)
            square = squares[g]
            if square <= limit:
                continue
            # Without a threshold inside the group the maintained norm is the one that counts, unless it is too close to tell.
            clear = tau == 0.0 and square > k * k * (1.0 + MARGIN)
            scale = 1.0 - k / np.sqrt(square) if clear else _scale(sums, norms, groups, g, t, k, tau)
            if scale > 0.0:
                total += values[p] * (scale * shrunken(sums[j], tau))
        out[place] = total


@compiled
def _margins_overlap(
    rows: Rows, first: int, last: int, weight: Array, sums: Array, norms: Norms, groups: Groups, t: float, fade: float, out: Array
) -> None:
    """Write ``-gamma sqrt(t) <w, x>`` of some rows for groups that overlap: the sum over the copies of a feature."""
    begins, owners, squares = groups.feature_starts, groups.feature_groups, norms.squares
    for place in range(first, last):
        i, total = rows.order[place], 0.0
        if weight[i] == 0.0:
            continue
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            j = rows.indices[p]
            for e in range(begins[j], begins[j + 1]):
                g = owners[e]
                k, tau = t * groups.cost[g], t * groups.inner[g] + fade
                if squares[g] > (k + tau) * (k + tau) * (1.0 - MARGIN):
                    total += rows.values[p] * _scale(sums, norms, groups, g, t, k, tau) * shrunken(sums[j], tau)
        out[place] = total


@compiled
def _add_rows(
    rows: Rows, first: int, last: int, slopes: Array, share: float, sums: Array, squares: Array, groups: Groups, total: float
) -> float:
    """Add ``share slope x`` of some rows, in their order, to the sums, and maintain the norms; return ``total + share slope + ...``."""
    indptr, order, indices, values = rows.indptr, rows.order, rows.indices, rows.values
    begins, owners, owner, magic = groups.feature_starts, groups.feature_groups, groups.owner, np.uint64(groups.magic)
    alone, overlap = squares.size == 0, begins.size > 0
    for place in range(first, last):
        i, step = order[place], share * slopes[place]
        if step == 0.0:
            continue
        total += step
        for p in range(indptr[i], indptr[i + 1]):
            j = np.uint32(indices[p])
            old = sums[j]
            new = old + step * values[p]
            sums[j] = new
            if alone:
                continue
            change = (new - old) * (new + old)
            if overlap:
                for e in range(begins[j], begins[j + 1]):
                    squares[owners[e]] += change
            else:
                squares[(np.uint64(j) * magic) >> np.uint64(32) if magic else np.uint64(owner[j])] += change
    return total


@compiled
def fill_squares(sums: Array, groups: Groups, squares: Array) -> None:
    """Compute ``||s_g||^2`` of every group."""
    for g in range(groups.cost.size):
        norm = shrunken_norm(sums, groups, g, 0.0)
        squares[g] = norm * norm


@compiled
def advance_average(
    rows: Rows, target: Array, weight: Array, held: Rows, kept: Array, rule: Rule, groups: Groups,
    sums: Array, norms: Norms, counts: Array, totals: Array, slopes: Array, mean: Array, finish: bool,
) -> int:  # fmt: skip
    """Take rows by dual averaging.

    Parameters
    ----------
    rows, target, weight
        Rows with their targets (labels -1 and 1) and weights; rows of weight 0 are passed over.
    held, kept
        Rows of the open round that earlier calls brought, and their slopes.
    sums, norms
        s, and what is kept per group; changed.
    counts, totals
        Rounds closed and rows of the open one; sum of bias slopes, of losses, of weights, and of biases; changed.
    slopes
        float64 ``(n,)``: the slope of every row, written.
    mean
        Sum of the weights of all rounds; empty: not wanted.
    finish
        Close the open round after the last row, however few rows it has.

    Returns
    -------
    int
        Place of the first row whose round is open still; -1: the held rows, and all, belong to it.
    """
    n, first, n_held, place = len(rows.order), 0, len(held.order), 0
    while True:
        t = float(counts[0])
        root, fade = rule.gamma * np.sqrt(t), rule.fade * np.sqrt(t)
        # The rows up to the end of the round, or of the call.
        begin, count = place, counts[1]
        while place < n and count < rule.batch:
            count += 1 if weight[rows.order[place]] > 0.0 else 0
            place += 1
        if t > 0.0 and groups.feature_starts.size:
            _margins_overlap(rows, begin, place, weight, sums, norms, groups, t, fade, slopes)
        elif t > 0.0:
            _margins_apart(rows, begin, place, weight, sums, norms, groups, t, fade, slopes)
        for at in range(begin, place):
            i = rows.order[at]
            if weight[i] > 0.0:
                f = 0.0
                if t > 0.0:
                    f = -(slopes[at] + totals[0]) / root if rule.intercept else -slopes[at] / root
                loss, slope = loss_slope(rule.loss, target[i], f)
                slopes[at] = weight[i] * slope
                totals[1] += weight[i] * loss
                totals[2] += weight[i]
            else:
                slopes[at] = 0.0
        counts[1] = count
        if count < rule.batch and not (finish and count > 0):
            return first if n_held == 0 else -1
        if mean.size and t > 0.0:
            add_shrunken(sums, groups, t, fade, -1.0 / root, mean)
            totals[3] -= totals[0] / root
        share = 1.0 / count
        totals[0] = _add_rows(held, 0, n_held, kept, share, sums, norms.squares, groups, totals[0])
        totals[0] = _add_rows(rows, first, place, slopes, share, sums, norms.squares, groups, totals[0])
        first, n_held = place, 0
        counts[0] += 1
        counts[1] = 0
        if counts[0] % REBUILD == 0:
            fill_squares(sums, groups, norms.squares)
