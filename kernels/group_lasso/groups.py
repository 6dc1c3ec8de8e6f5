r"""Penalties on groups of features as loops over single rows read them: what a group costs, and where its members lie.

With ``k_g = lam kappa_g`` and ``tau_g = lam r_g`` the penalty is ``Omega(v) = sum_g (k_g ||v_g|| + tau_g ||v_g||_1)``, see `GroupPenalty`;
groups of one feature that are all alike have ``Omega(w) = single ||w||_1``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array, Entry
from ..jit import compiled
from .penalty import GroupPenalty


class Groups(NamedTuple):
    """Groups as compiled loops see them; without any, every feature is by itself and costs ``single``.

    Group g holds ``members[starts[g]:starts[g + 1]]``; empty members: the positions themselves. ``owner``: int32 group of each feature;
    empty where all groups have one size and follow each other, then it is ``j * magic >> 32``. ``feature_starts``, ``feature_groups``:
    groups of each feature, where groups overlap; else empty. ``cost``, ``inner``: float64 ``(n_groups,)`` k_g and tau_g; ``single``:
    threshold of a feature that is by itself; where all groups are alike (``even``) their ``k_g + tau_g``. ``zero_level``: least
    ``tau_g + k_g / sqrt(d_g)``: while no member of a group exceeds it, the group is zero.
    """

    starts: Array
    members: Array
    owner: Array
    magic: int
    feature_starts: Array
    feature_groups: Array
    cost: Array
    inner: Array
    single: float
    even: bool
    zero_level: float


def stream_groups(penalty: GroupPenalty, lam: float) -> Groups:
    """Return a penalty times ``lam`` as compiled loops read it; groups of one feature that are all alike count as none."""
    none, owner, magic = np.zeros(0, np.int64), np.zeros(0, np.int32), 0
    cost, inner = lam * penalty.kappa, lam * penalty.inner
    both, d, sizes = cost + inner, penalty.n_features, np.diff(penalty.indptr)
    single, even = float(both[0]), bool((both == both[0]).all() and (inner == inner[0]).all())
    zero_level = float((inner + cost / np.sqrt(sizes)).min())
    contiguous = penalty.n_copies == d and is_range(penalty.members)
    if not contiguous and penalty.overlapping:
        order, counts = np.argsort(penalty.members, kind="stable"), np.bincount(penalty.members, minlength=d)
        indptr, owners = np.concatenate(([0], np.cumsum(counts))).astype(np.int64), penalty.owner[order]
        return Groups(penalty.indptr, penalty.members, owner, 0, indptr, owners, cost, inner, single, even, zero_level)
    if even and penalty.n_groups == d:
        zero = np.zeros(0)
        return Groups(np.zeros(1, np.int64), none, owner, 0, none.copy(), none.copy(), zero, zero.copy(), single, True, single)
    if contiguous and (sizes == sizes[0]).all() and d * int(sizes[0]) < 1 << 32:
        # j // size for all j < d by one product: the error of the factor stays below one part of size.
        magic = (1 << 32) // int(sizes[0]) + 1
    else:
        owner = np.empty(d, np.int32)
        owner[penalty.members] = penalty.owner
    members = none if contiguous else penalty.members
    return Groups(penalty.indptr, members, owner, magic, none.copy(), none.copy(), cost, inner, single, even, zero_level)


def neighbours(labels: object, n_features: int) -> Array | None:
    """Return where each group begins, and the end, int64 ``(n_groups + 1,)``; ``None`` unless labels ascend from feature to feature."""
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "iu" or labels.shape != (n_features,) or not n_features:
        return None
    starts = np.empty(n_features + 1, np.int64)
    count = _runs(labels, starts)
    return None if count < 0 else starts[: count + 1].copy()


@compiled
def _runs(labels: Array, starts: Array) -> int:
    count, starts[0] = 1, 0
    if labels[0] < 0:
        return -1
    for j in range(1, labels.size):
        if labels[j] != labels[j - 1]:
            if labels[j] < labels[j - 1]:
                return -1
            starts[count] = j
            count += 1
    starts[count] = labels.size
    return count


@compiled
def is_range(values: Array) -> bool:
    """Return whether an array is 0, 1, 2, ..."""
    wrong = False
    for k in range(values.size):
        wrong |= values[k] != k
    return not wrong


@compiled
def group_of(groups: Groups, j: Entry) -> Entry:
    """Return the group of a feature, where groups do not overlap."""
    return np.int64((np.uint64(j) * np.uint64(groups.magic)) >> np.uint64(32)) if groups.magic else np.int64(groups.owner[j])


@compiled
def shrunken(value: Entry, tau: Entry) -> Entry:
    """Return S(value, tau) = sign(value) max(|value| - tau, 0)."""
    # No branch: signs cannot be foreseen.
    return np.copysign(max(abs(value) - tau, 0.0), value)


@compiled
def shrunken_norm(values: Array, starts: Array, members: Array, g: int, tau: Entry) -> float:
    """Return ``||S(values_g, tau)||`` of one group."""
    total, listed = 0.0, members.size > 0
    for p in range(starts[g], starts[g + 1]):
        c = max(abs(values[members[p] if listed else p]) - tau, 0.0)
        total += c * c
    return np.sqrt(total)


@compiled
def add_shrunken(values: Array, groups: Groups, factor: float, fade: float, step: float, out: Array) -> float:
    r"""Add ``step [1 - factor k_g / ||c_g||]_+ c_g``, ``c_g = S(values_g, factor tau_g + fade)``, of all groups to ``out``; return Omega.

    This is the closed form of dual averaging (Yang 2011, Theorem 1: equations (3.10), (3.12), (3.14)) with sums for means: values s,
    factor t, fade ``rho gamma sqrt(t)`` and step ``-1/(gamma sqrt(t))``; groups that overlap each get a copy, and the copies are added. It
    is the proximal step of a gradient method, too: factor eta, fade 0 and step 1.
    """
    omega, size = 0.0, abs(step)
    if groups.cost.size == 0:
        for j in range(values.size):
            c = shrunken(values[j], factor * groups.single + fade)
            out[j] += step * c
            omega += groups.single * size * abs(c)
        return omega
    # What the loop reads is named first: reaching into a tuple of arrays inside it counts references each time.
    starts, members, costs, inners, listed = groups.starts, groups.members, groups.cost, groups.inner, groups.members.size > 0
    for g in range(costs.size):
        tau, k = factor * inners[g] + fade, factor * costs[g]
        norm = shrunken_norm(values, starts, members, g, tau)
        if norm > k:
            scale, total = step * (1.0 - k / norm), 0.0
            for p in range(starts[g], starts[g + 1]):
                j = members[p] if listed else p
                c = shrunken(values[j], tau)
                out[j] += scale * c
                total += abs(scale * c)
            omega += costs[g] * size * (norm - k) + inners[g] * total
    return omega


@compiled
def mark_active(values: Array, groups: Groups, factor: float, fade: float, active: Array) -> None:
    """Set ``active[g]`` for the groups with ``||S(values_g, factor tau_g + fade)|| > factor k_g``; thresholds as of `add_shrunken`."""
    if groups.cost.size == 0:
        for j in range(values.size):
            active[j] |= shrunken(values[j], factor * groups.single + fade) != 0.0
        return
    starts, members, costs, inners = groups.starts, groups.members, groups.cost, groups.inner
    for g in range(costs.size):
        active[g] |= shrunken_norm(values, starts, members, g, factor * inners[g] + fade) > factor * costs[g]
