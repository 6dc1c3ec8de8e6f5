r"""Penalties on groups of features, as numbers per group that compiled loops read: what a group costs, and where its members lie.

With thresholds ``tau_g = lam r_g`` and costs ``k_g = lam sqrt(d_g)`` the penalty is ``Omega(w) = sum_g (k_g ||w_g|| + tau_g ||w_g||_1)``; l1,
and groups of one feature each, have ``Omega(w) = single ||w||_1``. Groups that overlap each own a copy v_g of their features,
``w = sum_g v_g`` and ``Omega = sum_g (k_g ||v_g|| + tau_g ||v_g||_1)``.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, section 3.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from .groups import GroupIndex, build_groups
from .jit import compiled

Array = np.ndarray
PenaltyName = Literal["gl", "sgl", "egl", "l1"]


class Groups(NamedTuple):
    """Groups as compiled loops see them; without any, every feature is by itself and costs ``single``.

    Attributes
    ----------
    starts, members
        int64: group g holds ``members[starts[g]:starts[g + 1]]``; empty members: the positions themselves.
    owner, magic
        int32: group of each feature; empty where all groups have one size and follow each other, then it is ``j * magic >> 32``.
    feature_starts, feature_groups
        int64: groups of each feature, where groups overlap; else empty.
    cost, inner
        float64 ``(n_groups,)`` k_g and tau_g.
    single
        Threshold of a feature that is by itself; where all groups are alike their ``k_g + tau_g``.
    even
        Whether all groups are alike.
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


def group_penalty(penalty: PenaltyName, lam: float, r: float | Sequence[float], n_features: int, groups: object = None) -> Groups:
    """Return the numbers of a penalty.

    Parameters
    ----------
    penalty
        ``"gl"``, ``"sgl"``, ``"egl"`` or ``"l1"`` (which looks at no groups).
    lam, r
        Weight of the penalty beside the mean loss; share of the l1 norm, one number or one per group, ``"sgl"`` and ``"egl"`` only.
    n_features
        Number of features.
    groups
        One label per feature, list of index arrays, or ``None``: every feature by itself.

    Raises
    ------
    ValueError
        Groups that do not cover the features, or another number of ``r`` than of groups.
    """
    shares = np.asarray(0.0 if penalty in ("gl", "l1") else r, np.float64)
    if penalty == "l1" or (groups is None and shares.ndim == 0):
        return _alone(lam * (1.0 + float(shares)) if penalty != "l1" else lam)
    index = build_groups(np.arange(n_features) if groups is None else groups, n_features, "none")  # pyright: ignore[reportArgumentType] (checked there)
    covered = np.diff(index.feature_indptr) > 0
    if not covered.all():
        raise ValueError(f"groups puts feature {int(np.argmin(covered))} in no group: a group lasso needs a group for every feature")
    if shares.ndim and len(shares) != index.n_groups:
        raise ValueError(f"r has {len(shares)} entries; it needs one number, or one for each of the {index.n_groups} groups")
    return _placed(index, lam * np.sqrt(index.sizes), np.broadcast_to(lam * shares, index.n_groups).copy())


def _alone(single: float) -> Groups:
    none, zero = np.zeros(0, np.int64), np.zeros(0)
    return Groups(np.zeros(1, np.int64), none, np.zeros(0, np.int32), 0, none, none, zero, zero.copy(), float(single), True)


def _placed(index: GroupIndex, cost: Array, inner: Array) -> Groups:
    none, owner, magic = np.zeros(0, np.int64), np.zeros(0, np.int32), 0
    starts, sizes, d = np.ascontiguousarray(index.indptr, np.int64), index.sizes, index.n_features
    both = cost + inner
    alike = float(both[0]), bool((both == both[0]).all() and (inner == inner[0]).all())
    if index.kind != "disjoint":
        return Groups(starts, index.members, owner, 0, index.feature_indptr, index.feature_groups, cost, inner, *alike)
    contiguous = np.array_equal(index.members, np.arange(d))
    if contiguous and (sizes == sizes[0]).all() and d * int(sizes[0]) < 1 << 32:
        # j // size for all j < d by one product: the error of the factor stays below one part of size.
        magic = (1 << 32) // int(sizes[0]) + 1
    else:
        owner = index.feature_groups.astype(np.int32)
    return Groups(starts, none if contiguous else index.members, owner, magic, none, none.copy(), cost, inner, *alike)


@compiled
def shrunken(value: float, tau: float) -> float:
    """Return S(value, tau) = sign(value) max(|value| - tau, 0)."""
    if value > tau:
        return value - tau
    return value + tau if value < -tau else 0.0


@compiled
def shrunken_norm(values: Array, groups: Groups, g: int, tau: float) -> float:
    """Return ``||S(values_g, tau)||`` of one group."""
    total, listed = 0.0, groups.members.size > 0
    for p in range(groups.starts[g], groups.starts[g + 1]):
        c = abs(values[groups.members[p] if listed else p]) - tau
        if c > 0.0:
            total += c * c
    return np.sqrt(total)


@compiled
def add_shrunken(values: Array, groups: Groups, factor: float, fade: float, step: float, out: Array) -> float:
    r"""Add ``step [1 - factor k_g / ||c_g||]_+ c_g`` with ``c_g = S(values_g, factor tau_g + fade)`` to ``out``, for every group.

    This is the closed form of dual averaging (Theorem 1 of the thesis) with sums for means: values s, factor t, fade ``rho gamma sqrt(t)``
    and step ``-1/(gamma sqrt(t))``; and the proximal step of a gradient method: factor eta, fade 0 and step 1.

    Returns
    -------
    float
        Omega of what was added.
    """
    omega, size = 0.0, abs(step)
    if groups.cost.size == 0:
        for j in range(values.size):
            c = shrunken(values[j], factor * groups.single + fade)
            out[j] += step * c
            omega += groups.single * size * abs(c)
        return omega
    listed = groups.members.size > 0
    for g in range(groups.cost.size):
        tau, k = factor * groups.inner[g] + fade, factor * groups.cost[g]
        norm = shrunken_norm(values, groups, g, tau)
        if norm > k:
            scale, total = step * (1.0 - k / norm), 0.0
            for p in range(groups.starts[g], groups.starts[g + 1]):
                j = groups.members[p] if listed else p
                c = shrunken(values[j], tau)
                out[j] += scale * c
                total += abs(scale * c)
            omega += groups.cost[g] * size * (norm - k) + groups.inner[g] * total
    return omega


def penalty_value(weights: Array, groups: Groups) -> float:
    """Return Omega(w), for groups that do not overlap."""
    if groups.cost.size == 0:
        return groups.single * float(np.abs(weights).sum())
    ordered = weights[groups.members] if groups.members.size else weights
    norms = np.sqrt(np.add.reduceat(ordered * ordered, groups.starts[:-1]))
    return float(groups.cost @ norms + groups.inner @ np.add.reduceat(np.abs(ordered), groups.starts[:-1]))


def dual_average(mean: Array, beta: float, groups: Groups, rho: float = 0.0) -> tuple[Array, float]:
    r"""Minimise ``<mean, w> + Omega(w) + beta (1/2 ||w||^2 + rho ||w||_1)`` in closed form.

    ``w_g = -(1/beta) [1 - k_g / ||c_g||]_+ c_g`` with ``c_g = S(mean_g, tau_g + beta rho)`` (Yang 2011, Theorem 1: equations (3.10), (3.12)
    and (3.14)); groups that overlap each get a copy, and the copies are added.

    Parameters
    ----------
    mean
        float64 ``(n_features,)`` mean of the subgradients.
    beta
        Weight of the proximity term, positive.
    groups
        The penalty.
    rho
        l1 part of the proximity term.

    Returns
    -------
    w : ndarray (n_features,)
        Zeros are exact.
    omega : float
        Omega(w).
    """
    out = np.zeros(mean.size)
    omega = add_shrunken(np.ascontiguousarray(mean, np.float64), groups, 1.0, beta * rho, -1.0 / beta, out)
    return out, float(omega)
