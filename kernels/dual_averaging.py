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
def _margin_apart(rows: Rows, i: int, sums: Array, norms: Norms, groups: Groups, t: float, fade: float) -> float:
    """Return ``-gamma sqrt(t) <w, x_i>`` for groups that do not overlap, or none."""
    # What the loop reads is named first: reaching into a tuple of arrays inside it counts references each time.
    indices, values, owner, inner, cost = rows.indices, rows.values, groups.owner, groups.inner, groups.cost
    squares, magic, even, alone = norms.squares, np.uint64(groups.magic), groups.even, groups.cost.size == 0
    level, total, k, tau = t * groups.single + fade, 0.0, 0.0, 0.0
    limit = level * level * (1.0 - MARGIN)
    if even and not alone:
        k, tau = t * cost[0], t * inner[0] + fade
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
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
    return total


@compiled
def _margin_overlap(rows: Rows, i: int, sums: Array, norms: Norms, groups: Groups, t: float, fade: float) -> float:
    """Return ``-gamma sqrt(t) <w, x_i>`` for groups that overlap: the sum over the copies of a feature."""
    total, begins, owners, squares = 0.0, groups.feature_starts, groups.feature_groups, norms.squares
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        j = rows.indices[p]
        for e in range(begins[j], begins[j + 1]):
            g = owners[e]
            k, tau = t * groups.cost[g], t * groups.inner[g] + fade
            if squares[g] > (k + tau) * (k + tau) * (1.0 - MARGIN):
                total += rows.values[p] * _scale(sums, norms, groups, g, t, k, tau) * shrunken(sums[j], tau)
    return total


@compiled
def _add_row(rows: Rows, i: int, step: float, sums: Array, squares: Array, groups: Groups) -> None:
    """Add ``step x_i`` to the sums and maintain the norms."""
    if step == 0.0:
        return
    indices, values, owner, magic = rows.indices, rows.values, groups.owner, np.uint64(groups.magic)
    begins, owners = groups.feature_starts, groups.feature_groups
    alone, overlap = squares.size == 0, begins.size > 0
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
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
    n, first, n_held = len(rows.order), 0, len(held.order)
    for place in range(n + 1):
        t = float(counts[0])
        root, fade = rule.gamma * np.sqrt(t), rule.fade * np.sqrt(t)
        if place < n:
            i = rows.order[place]
            slopes[place] = 0.0
            if weight[i] > 0.0:
                f = 0.0
                if t > 0.0:
                    if groups.feature_starts.size:
                        f = _margin_overlap(rows, i, sums, norms, groups, t, fade)
                    else:
                        f = _margin_apart(rows, i, sums, norms, groups, t, fade)
                    f = -(f + totals[0]) / root if rule.intercept else -f / root
                loss, slope = loss_slope(rule.loss, target[i], f)
                slopes[place] = weight[i] * slope
                totals[1] += weight[i] * loss
                totals[2] += weight[i]
                counts[1] += 1
        if counts[1] == rule.batch or (place == n and finish and counts[1] > 0):
            if mean.size and t > 0.0:
                add_shrunken(sums, groups, t, fade, -1.0 / root, mean)
                totals[3] -= totals[0] / root
            share, last = 1.0 / counts[1], min(place + 1, n)
            for h in range(n_held):
                _add_row(held, held.order[h], share * kept[h], sums, norms.squares, groups)
                totals[0] += share * kept[h]
            for h in range(first, last):
                _add_row(rows, rows.order[h], share * slopes[h], sums, norms.squares, groups)
                totals[0] += share * slopes[h]
            first, n_held = last, 0
            counts[0] += 1
            counts[1] = 0
            if counts[0] % REBUILD == 0:
                fill_squares(sums, groups, norms.squares)
    return first if n_held == 0 else -1
