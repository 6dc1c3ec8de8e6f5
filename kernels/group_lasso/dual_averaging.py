"""Dual averaging over a stream of rows, exact and lazy: the cost of a row depends on its non-zeros alone.

After t rounds with subgradient sum s the weights are (Yang 2011, Theorem 1, multiplied by t)

``w_g = -(1 / (gamma sqrt(t))) [1 - t k_g / ||c_g||]_+ c_g``, ``c_g = S(s_g, t tau_g + rho gamma sqrt(t))``,

so s alone is the state, and only the weights needed for a row are computed. The intercept has its own steps:
`gramplane.kernels.group_lasso.step_lengths`.

A group can be non-zero only while some ``|s_j|`` in it exceeds ``t (tau_g + k_g / sqrt(d_g)) + rho gamma sqrt(t)``, because ``||S(s_g,
tau)|| <= sqrt(d_g) (max |s_j| - tau)``. This threshold never falls, so a group becomes active only when one of its sums changes. One bit
per feature records whether the feature's group may be active; the sums of features without this bit are not read. The scale of an active
group is computed once per round.

A round has a fixed number of rows, independent of how calls split the stream. The rows of an incomplete round wait, with their slopes,
until the round is complete. Results are therefore bit-identical however the stream is split.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array, Entry
from ..jit import compiled, prefetch
from ..losses import LossKind, value_and_slope
from .lp_norms import prox_entry, prox_size
from .penalty import Groups, add_shrunken, group_of, shrunken
from .step_lengths import intercept_after

BAR_MARGIN = 1e-9  # Relative margin by which a sum may fall short and its group still counts as active: round-off is a millionth of that.
MIN_PREFETCH_FEATURES = 1 << 16
"""Number of features above which the sums do not fit in the cache, so that the sums of the next row are prefetched."""


class Rows(NamedTuple):
    """Rows in CSR form, with int32 indices and float64 values, and ``order``, int64 ``(n,)``, the order in which the rows are processed."""

    indptr: Array
    indices: Array
    values: Array
    order: Array


N_TOTALS = 6  # Sums that a machine has beside those of its features, see `advance_average`.


class Rule(NamedTuple):
    """Settings of a stream.

    * ``loss``: the number of the loss.
    * ``batch``: rows per round.
    * ``gamma``: the weight of the proximal term; ``fade``: ``rho * gamma``.
    * ``intercept``: whether there is an intercept; ``steepness``: the constant 4 L in the length of the intercept's steps.
    """

    loss: int
    batch: int
    gamma: float
    fade: float
    intercept: bool
    steepness: float


@compiled(inline=True)
def note_loss(rule: Rule, y: Entry, weight: Entry, product: Entry, totals: Array) -> Entry:
    """Record the loss of a row, where ``product`` is ``<w, x>``; return the weighted slope of the loss."""
    if rule.intercept and rule.loss == LossKind.SQUARED and totals[2] == 0.0:
        # The first row of all: its loss counts, and learning begins at its target.
        totals[0], loss, slope = y, 0.5 * y * y, 0.0
    else:
        loss, slope = value_and_slope(rule.loss, y, product + totals[0])
    totals[1] += weight * loss
    totals[2] += weight
    totals[5] += weight
    return weight * slope


@compiled(inline=True)
def move_intercept(rule: Rule, slope: float, share: float, totals: Array) -> None:
    """Move the intercept at the end of a round. ``slope`` is the slope of the mean loss; ``share`` is the weight of one row in the means of
    the round.
    """
    mean = share * totals[5]
    totals[4] += mean * mean
    totals[5] = 0.0
    if rule.intercept and totals[4] > 0.0:
        totals[0] = intercept_after(totals[0], slope, rule.steepness, totals[4], rule.loss != LossKind.SQUARED)


class ActiveGroups(NamedTuple):
    """The groups that may be non-zero, updated from round to round; all fields can be recomputed from the sums.

    * ``flags``, uint8: one bit per feature, set if its group may be non-zero.
    * ``scales``, float64 ``(n_groups, 2)``: for each group ``[1 - t k_g / ||c_g||]_+``, and the round in which this was computed. Round 0
      means that the group was never active.
    """

    flags: Array
    scales: Array


@compiled
def _scale(sums: Array, flags: Array, starts: Array, members: Array, g: Entry, k: Entry, tau: Entry, bar: float) -> float:
    """Return ``[1 - t k_g / ||c_g||]_+`` of a group; deactivate the group if no sum in it exceeds ``bar`` in magnitude."""
    total, peak, listed = 0.0, 0.0, members.size > 0
    for p in range(starts[g], starts[g + 1]):
        size = abs(sums[members[p] if listed else p])
        # NaN stays active.
        peak = peak if size <= peak else size
        c = max(size - tau, 0.0)
        total += c * c
    if peak <= bar:
        for p in range(starts[g], starts[g + 1]):
            j = members[p] if listed else p
            flags[j >> 3] &= np.uint8(~(1 << (j & 7)))
    norm = np.sqrt(total)
    return 1.0 - k / norm if norm > k else 0.0


@compiled(inline=True)
def _find_active(indices: Array, first: Entry, last: Entry, flags: Array, entries: Array) -> Entry:
    """Write the positions of those entries of a row whose groups are active; return their number. There are no unpredictable branches."""
    n = 0
    for p in range(first, last):
        # Unsigned indices need no test for counting from the end.
        j = np.uint32(indices[p])
        entries[n] = p
        n += np.int64((flags[j >> np.uint32(3)] >> (j & np.uint32(7))) & np.uint8(1))
    return n


@compiled
def _products_even(
    rows: Rows, first: int, last: int, weight: Array, sums: Array, active: ActiveGroups, groups: Groups, t: float, fade: float,
    entries: Array, out: Array,
) -> None:  # fmt: skip
    """Write ``-gamma sqrt(t) <w, x>`` of the rows ``order[first:last]`` for contiguous groups of equal size and weights."""
    # What the loops read is named first: reaching into a tuple of arrays inside them counts references each time.
    indptr, order, indices, values = rows.indptr, rows.order, rows.indices, rows.values
    flags, scales, starts, members, magic = active.flags, active.scales, groups.starts, groups.members, np.uint64(groups.magic)
    k, tau, bar = t * groups.cost[0], t * groups.inner[0] + fade, (t * groups.zero_level + fade) * (1.0 - BAR_MARGIN)
    for at in range(first, last):
        i, total = order[at], 0.0
        if weight[i] == 0.0:
            continue
        n = _find_active(indices, indptr[i], indptr[i + 1], flags, entries)
        for e in range(n):
            p = entries[e]
            j = np.uint32(indices[p])
            g = np.uint32((np.uint64(j) * magic) >> np.uint64(32))
            if scales[g, 1] != t:
                scales[g, 0], scales[g, 1] = _scale(sums, flags, starts, members, np.int64(g), k, tau, bar), t
            total += values[p] * (scales[g, 0] * shrunken(sums[j], tau))
        out[at] = total


@compiled
def _products_partition(
    rows: Rows, first: int, last: int, weight: Array, sums: Array, active: ActiveGroups, groups: Groups, t: float, fade: float,
    entries: Array, out: Array,
) -> None:  # fmt: skip
    """Write ``-gamma sqrt(t) <w, x>`` of some rows, for groups that do not overlap, or if there are no groups."""
    indptr, order, indices, values = rows.indptr, rows.order, rows.indices, rows.values
    flags, scales, starts, members = active.flags, active.scales, groups.starts, groups.members
    owner, inner, cost, alone = groups.owner, groups.inner, groups.cost, groups.cost.size == 0
    level, bar = t * groups.single + fade, (t * groups.zero_level + fade) * (1.0 - BAR_MARGIN)
    for at in range(first, last):
        i, total = order[at], 0.0
        if weight[i] == 0.0:
            continue
        n = _find_active(indices, indptr[i], indptr[i + 1], flags, entries)
        for e in range(n):
            p = entries[e]
            j = np.uint32(indices[p])
            if alone:
                total += values[p] * shrunken(sums[j], level)
                continue
            g = owner[j]
            k, tau = t * cost[g], t * inner[g] + fade
            if scales[g, 1] != t:
                scales[g, 0], scales[g, 1] = _scale(sums, flags, starts, members, np.int64(g), k, tau, bar), t
            total += values[p] * (scales[g, 0] * shrunken(sums[j], tau))
        out[at] = total


@compiled
def _products_overlap(
    rows: Rows, first: int, last: int, weight: Array, sums: Array, active: ActiveGroups, groups: Groups, t: float, fade: float, out: Array
) -> None:
    """Write ``-gamma sqrt(t) <w, x>`` of some rows for overlapping groups, summing over the copies of a feature."""
    begins, owners, scales, flags = groups.feature_starts, groups.feature_groups, active.scales, active.flags
    for at in range(first, last):
        i, total = rows.order[at], 0.0
        if weight[i] == 0.0:
            continue
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            j = rows.indices[p]
            if not (flags[j >> 3] >> (j & 7)) & 1:
                continue
            for e in range(begins[j], begins[j + 1]):
                g = owners[e]
                if scales[g, 1] == 0.0:
                    continue
                k, tau = t * groups.cost[g], t * groups.inner[g] + fade
                if scales[g, 1] != t:
                    # No group is deactivated: its features may be those of another one.
                    scales[g, 0], scales[g, 1] = _scale(sums, flags, groups.starts, groups.members, g, k, tau, -1.0), t
                total += rows.values[p] * (scales[g, 0] * shrunken(sums[j], tau))
        out[at] = total


@compiled
def _products_lp(
    rows: Rows, first: int, last: int, weight: Array, sums: Array, active: ActiveGroups, groups: Groups, t: float, norm: float, out: Array
) -> None:
    """Write ``-gamma sqrt(t) <w, x>`` of some rows for groups with L_p norms, p = ``norm``. The scale of a group is ``gamma sqrt(t)
    ||w_g||_p``.
    """
    begins, owners, scales, overlap = groups.feature_starts, groups.feature_groups, active.scales, groups.feature_starts.size > 0
    for at in range(first, last):
        i, total = rows.order[at], 0.0
        if weight[i] == 0.0:
            continue
        for p in range(rows.indptr[i], rows.indptr[i + 1]):
            j = np.int64(rows.indices[p])
            begin, end = (begins[j], begins[j + 1]) if overlap else (np.int64(0), np.int64(1))
            for e in range(begin, end):
                g = np.int64(owners[e]) if overlap else group_of(groups, j)
                if scales[g, 1] == 0.0:
                    continue
                k = t * groups.cost[g]
                if scales[g, 1] != t:
                    size = prox_size(sums, groups.members, groups.starts[g], groups.starts[g + 1], k, norm)
                    scales[g, 0], scales[g, 1] = size, t
                total += rows.values[p] * prox_entry(sums[j], scales[g, 0], k, norm)
        out[at] = total


@compiled
def _activate(active: ActiveGroups, groups: Groups, j: Entry) -> None:
    """Set the bits of all features in the groups of feature j."""
    flags, scales = active.flags, active.scales
    if groups.cost.size == 0:
        flags[j >> 3] |= np.uint8(1 << (j & 7))
        return
    overlap, listed = groups.feature_starts.size > 0, groups.members.size > 0
    first, last = (groups.feature_starts[j], groups.feature_starts[j + 1]) if overlap else (np.int64(0), np.int64(1))
    for e in range(first, last):
        g = np.int64(groups.feature_groups[e]) if overlap else group_of(groups, j)
        # The bit of a feature does not tell which of its groups are active; no round has the number -1.
        if overlap and scales[g, 1] != 0.0:
            continue
        scales[g, 1] = -1.0
        for p in range(groups.starts[g], groups.starts[g + 1]):
            member = groups.members[p] if listed else p
            flags[member >> 3] |= np.uint8(1 << (member & 7))


@compiled(inline=True)
def _add_row(indices: Array, values: Array, first: Entry, last: Entry, step: float, sums: Array, flags: Array, bar: float) -> bool:
    """Add ``step * x`` to the sums. Return whether one of them now exceeds the threshold ``bar`` although its bit is not set."""
    must_activate = False
    for p in range(first, last):
        j = np.uint32(indices[p])
        new = sums[j] + step * values[p]
        sums[j] = new
        must_activate |= (not abs(new) <= bar) & ((flags[j >> np.uint32(3)] >> (j & np.uint32(7))) & np.uint8(1) == 0)
    return must_activate


@compiled
def _add_rows(
    rows: Rows, first: int, last: int, slopes: Array, share: float, sums: Array, active: ActiveGroups, groups: Groups, bar: float,
    total: float,
) -> float:  # fmt: skip
    """Add ``share * slope * x`` of some rows to the sums, in order, and activate groups. Return ``total`` plus the sum of ``share *
    slope``.
    """
    indptr, order, indices, values = rows.indptr, rows.order, rows.indices, rows.values
    flags, overlap, ahead = active.flags, groups.feature_starts.size > 0, len(order) if sums.size > MIN_PREFETCH_FEATURES else 0
    for at in range(first, last):
        i, step = order[at], share * slopes[at]
        if at + 1 < ahead:
            for p in range(indptr[order[at + 1]], indptr[order[at + 1] + 1]):
                prefetch(sums, np.uint32(indices[p]))
        if step == 0.0:
            continue
        total += step
        if _add_row(indices, values, indptr[i], indptr[i + 1], step, sums, flags, bar) or overlap:
            for p in range(indptr[i], indptr[i + 1]):
                j = np.int64(indices[p])
                if (not abs(sums[j]) <= bar) & (overlap | ((flags[j >> 3] >> (j & 7)) & 1 == 0)):
                    _activate(active, groups, j)
    return total


@compiled
def row_products(rows: Rows, weights: Array, flags: Array, out: Array) -> None:
    """Write ``<w, x>`` of each row in storage order; in ``flags``, the bit of every feature with a non-zero weight is set."""
    indptr, indices, values, longest = rows.indptr, rows.indices, rows.values, 0
    for i in range(indptr.size - 1):
        longest = max(longest, indptr[i + 1] - indptr[i])
    entries = np.empty(longest + 1, np.int64)
    for i in range(indptr.size - 1):
        total = 0.0
        n = _find_active(indices, indptr[i], indptr[i + 1], flags, entries)
        for e in range(n):
            total += values[entries[e]] * weights[np.uint32(indices[entries[e]])]
        out[i] = total


@compiled
def activate_groups(sums: Array, groups: Groups, rule: Rule, t: float, active: ActiveGroups) -> None:
    """Set the bits of all groups that may be non-zero after t rounds."""
    bar = (t * groups.zero_level + rule.fade * np.sqrt(t)) * (1.0 - BAR_MARGIN)
    for j in range(sums.size):
        if not abs(sums[j]) <= bar:
            _activate(active, groups, j)


@compiled
def advance_average(
    rows: Rows, target: Array, weight: Array, open_rows: Rows, open_slopes: Array, rule: Rule, groups: Groups,
    sums: Array, active: ActiveGroups, counts: Array, totals: Array, slopes: Array, mean: Array, finish: bool, norm: float | None = None,
) -> int:  # fmt: skip
    """Process rows by dual averaging. Return the position, in the order of processing, of the first row of the open round, or -1 if that
    round began in an earlier call. The open round is the one that is not complete yet.

    ``target`` holds the targets (labels -1 and 1) and ``weight`` the weights of the rows; rows of weight 0 are skipped. ``open_rows`` holds
    the rows of the open round from earlier calls, and ``open_slopes`` the slopes of these rows. ``finish`` closes the open round after the
    last row, even if it is incomplete. ``norm`` is the p of the groups' norms if it is not 2: code for None has no part for it.

    The function changes its arguments:

    * The sums s and the active groups.
    * ``counts``: the number of closed rounds, and the number of rows in the open round.
    * ``totals``: six numbers as in :class:`gramplane.kernels.group_lasso.streams.StreamPoint`.
    * ``slopes``: the slope of each row.
    * ``mean``, unless it is empty: the sum over the rounds of the model's weights.
    """
    n, first, n_open, at, longest = len(rows.order), 0, len(open_rows.order), 0, 0
    for i in rows.order:
        longest = max(longest, rows.indptr[i + 1] - rows.indptr[i])
    entries = np.empty(longest + 1, np.int64)
    while True:
        t = float(counts[0])
        root, fade = rule.gamma * np.sqrt(t), rule.fade * np.sqrt(t)
        # The rows up to the end of the round, or of the call.
        begin, count = at, counts[1]
        while at < n and count < rule.batch:
            count += 1 if weight[rows.order[at]] > 0.0 else 0
            at += 1
        # Before the first round no group is active, and all products are zero.
        if norm is not None:
            _products_lp(rows, begin, at, weight, sums, active, groups, t, norm, slopes)
        elif groups.feature_starts.size:
            _products_overlap(rows, begin, at, weight, sums, active, groups, t, fade, slopes)
        elif groups.magic:
            _products_even(rows, begin, at, weight, sums, active, groups, t, fade, entries, slopes)
        else:
            _products_partition(rows, begin, at, weight, sums, active, groups, t, fade, entries, slopes)
        for k in range(begin, at):
            i = rows.order[k]
            slopes[k] = note_loss(rule, target[i], weight[i], -slopes[k] / root if t > 0.0 else 0.0, totals) if weight[i] > 0.0 else 0.0
        counts[1] = count
        if count < rule.batch and not (finish and count > 0):
            return first if n_open == 0 else -1
        if mean.size and t > 0.0:
            add_shrunken(sums, groups, t, fade, -1.0 / root, mean, norm)
            totals[3] += totals[0]
        share, bar = 1.0 / count, ((t + 1.0) * groups.zero_level + rule.fade * np.sqrt(t + 1.0)) * (1.0 - BAR_MARGIN)
        slope = _add_rows(open_rows, 0, n_open, open_slopes, share, sums, active, groups, bar, 0.0) if n_open else 0.0
        slope = _add_rows(rows, first, at, slopes, share, sums, active, groups, bar, slope)
        move_intercept(rule, slope, share, totals)
        first, n_open = at, 0
        counts[0] += 1
        counts[1] = 0


# Forward-backward splitting over a stream of rows (FOBOS), the comparator of dual averaging.
#
# Round t takes a gradient step of length ``eta_t = 1 / (gamma sqrt(t))`` and then the proximal step of ``eta_t Omega`` (Yang 2011, (3.8)).
# Thresholds vanish with the steps, so iterates are less sparse than those of dual averaging; and every round sweeps over all features. The
# intercept has steps of its own, as in dual averaging.


@compiled
def _step_row(rows: Rows, i: int, step: float, weights: Array) -> None:
    for p in range(rows.indptr[i], rows.indptr[i + 1]):
        weights[rows.indices[p]] -= step * rows.values[p]


@compiled
def advance_fobos(
    rows: Rows, target: Array, weight: Array, open_rows: Rows, open_slopes: Array, rule: Rule, groups: Groups,
    weights: Array, counts: Array, totals: Array, slopes: Array, mean: Array, finish: bool, norm: float | None = None,
) -> int:  # fmt: skip
    """Process rows by forward-backward splitting; arguments as in `gramplane.kernels.group_lasso.dual_averaging.advance_average`.

    ``weights`` are the model's weights in the current round. ``mean`` is work space of the same length.
    """
    n, first, n_open = len(rows.order), 0, len(open_rows.order)
    for at in range(n + 1):
        if at < n:
            i = rows.order[at]
            slopes[at] = 0.0
            if weight[i] > 0.0:
                product = 0.0
                for p in range(rows.indptr[i], rows.indptr[i + 1]):
                    product += rows.values[p] * weights[rows.indices[p]]
                slopes[at] = note_loss(rule, target[i], weight[i], product, totals)
                counts[1] += 1
        if counts[1] == rule.batch or (at == n and finish and counts[1] > 0):
            eta = 1.0 / (rule.gamma * np.sqrt(float(counts[0] + 1)))
            share, last, slope = eta / counts[1], min(at + 1, n), 0.0
            for h in range(n_open):
                _step_row(open_rows, open_rows.order[h], share * open_slopes[h], weights)
                slope += open_slopes[h]
            for h in range(first, last):
                _step_row(rows, rows.order[h], share * slopes[h], weights)
                slope += slopes[h]
            move_intercept(rule, slope / counts[1], 1.0 / counts[1], totals)
            mean[:] = 0.0
            add_shrunken(weights, groups, eta, 0.0, 1.0, mean, norm)
            for j in range(weights.size):
                weights[j] = mean[j]
            first, n_open = last, 0
            counts[0] += 1
            counts[1] = 0
    return first if n_open == 0 else -1
