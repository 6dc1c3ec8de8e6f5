"""Penalties on groups of features, for one target or many: value, dual norm and proximal step.

A group g has the features I_g, and a vector ``v_g`` with one number per feature and task. If groups share features, each group has its own
copy, ``w = sum_g scatter(v_g)`` (latent overlapping groups). The penalty is a function of the copies:

    Omega(v) = lam sum_g (kappa_g ||v_g||_p + r_g ||v_g||_1),   p = 2, or 1 < p <= inf with r = 0.

================================  =================================================  ==========================================
penalty                           weights                                            source (Yang 2011)
================================  =================================================  ==========================================
group lasso                       kappa_g = sqrt(d_g), r = 0                         equation (3.2), lam in mean-loss scale
sparse group lasso                kappa_g = sqrt(d_g), r_g                           equation (3.3)
lasso                             groups of one feature                              section 3.3
L_{1,inf}                         kappa_g = d_g, r = 0, p = inf                      section 3.3, Remark 2
rows of a matrix (aMTFS)          one feature a group, all tasks, kappa = 1, r = 0   equation (4.5)
entries of a matrix (iMTFS)       one feature a group, kappa = 0, r = 1              equation (4.4)
rows and entries (MTFTS)          one feature a group, kappa = 1, r_j                equation (4.6)
================================  =================================================  ==========================================

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapters 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Entry, FloatArray
from ..features.groups import GroupIndex
from ..jit import compiled
from .lp_norms import group_norms, prox_entry, prox_size, shrink_groups

MAX_ROOT_STEPS = 100  # Newton steps after which the root of a group's shrunk norm is what a float64 can hold; a handful suffices.


@dataclass(frozen=True)
class GroupPenalty:
    """Groups of features and their weights; ``lam`` is passed to the methods that need it.

    Group g has the copies ``indptr[g]:indptr[g + 1]``, and copy p belongs to feature ``members[p]``. ``kappa``, float64
    ``(n_groups,)``, holds the weights of the Euclidean norms, and ``inner``, float64 ``(n_groups,)``, the weights r_g of the absolute
    norms. No weight is negative, and the two weights of a group are not both 0. With ``p`` other than 2, L_p norms take the place of the
    Euclidean ones, and ``inner`` is 0.
    """

    indptr: Array
    members: Array
    kappa: FloatArray
    inner: FloatArray
    n_features: int
    p: float = 2.0

    @property
    def n_groups(self) -> int:
        return len(self.kappa)

    @property
    def n_copies(self) -> int:
        """Number of copies: the sum of the group sizes."""
        return len(self.members)

    @property
    def power(self) -> float | None:
        """``p``, or None if it is 2; compiled loops have code for L_p norms only where it is a number."""
        return None if self.p == 2.0 else self.p

    @cached_property
    def owner(self) -> Array:
        """The group of each copy, int64 ``(n_copies,)``."""
        return np.repeat(np.arange(self.n_groups), np.diff(self.indptr))

    @cached_property
    def overlapping(self) -> bool:
        """Whether a feature has several copies."""
        return self.n_copies > 0 and int(np.bincount(self.members).max()) > 1

    def scatter(self, copies: FloatArray) -> FloatArray:
        """Return the weights ``(n_tasks, n_features)`` from copies ``(n_tasks, n_copies)``: the weight of a feature is the sum of its
        copies.
        """
        weights = np.zeros((len(copies), self.n_features))
        for task, values in enumerate(copies):
            np.add.at(weights[task], self.members, values)
        return weights

    def norms(self, copies: FloatArray) -> FloatArray:
        """Return the norm of each group over all tasks, ``(n_groups,)``."""
        if self.p != 2.0:
            return self._lp_norms(copies, np.arange(self.n_copies), self.p)
        return np.sqrt(np.bincount(self.owner, np.square(copies).sum(axis=0), self.n_groups))

    def _lp_norms(self, values: FloatArray, members: Array, p: float) -> FloatArray:
        out = np.empty(self.n_groups)
        group_norms(np.ascontiguousarray(values, dtype=np.float64), self.indptr, members, p, out)
        return out

    def value(self, copies: FloatArray) -> float:
        """Return ``Omega / lam`` of copies ``(n_tasks, n_copies)``."""
        absolute = np.bincount(self.owner, np.abs(copies).sum(axis=0), self.n_groups)
        return float(self.kappa @ self.norms(copies) + self.inner @ absolute)

    def dual_norms(self, slopes: FloatArray) -> FloatArray:
        """Return, per group, the smallest s with ``||S(z_g, s r_g)|| <= s kappa_g`` for z ``(n_tasks, n_features)``.

        ``Omega*(z)`` is the maximum over the groups: z is dual feasible if ``Omega*(z)`` is at most lam. lambda_max is ``Omega*`` of the
        loss's negative gradient at the intercept-only fit. For p other than 2 it is ``||z_g||_q / kappa_g`` with 1/p + 1/q = 1.
        """
        if self.p != 2.0:
            return self._lp_norms(slopes, self.members, 1.0 if self.p == np.inf else self.p / (self.p - 1.0)) / self.kappa
        out = np.empty(self.n_groups)
        _dual_norms(np.ascontiguousarray(slopes, dtype=np.float64), self.indptr, self.members, self.kappa, self.inner, out)
        return out

    def prox(self, copies: FloatArray, length: float) -> FloatArray:
        """Return argmin ``1/2 ||v - copies||^2 + length Omega(v)/lam``: entries are shrunk by r_g, then groups by kappa_g."""
        if self.p != 2.0:
            moved = np.array(copies, dtype=np.float64, order="C")
            shrink_groups(moved, self.indptr, length * self.kappa, self.p)
            return moved
        shrunk = np.sign(copies) * np.maximum(np.abs(copies) - (length * self.inner)[self.owner], 0.0)
        norms, bar = self.norms(shrunk), length * self.kappa
        factor = np.zeros(self.n_groups)
        alive = norms > bar
        factor[alive] = 1.0 - bar[alive] / norms[alive]
        return shrunk * factor[self.owner]

    def copies_of(self, groups: Array) -> Array:
        """Return the indices of the copies of ``groups``, group after group."""
        sizes = np.diff(self.indptr)[groups]
        return np.repeat(self.indptr[groups] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))

    def restricted(self, groups: Array, features: Array) -> GroupPenalty:
        """Return the penalty of ``groups`` alone, in this order; ``features`` lists all features of these groups, in their new order."""
        position = {int(j): k for k, j in enumerate(features)}
        members = np.array([position[int(j)] for j in self.members[self.copies_of(groups)]], np.int64)
        indptr = np.concatenate(([0], np.cumsum(np.diff(self.indptr)[groups]))).astype(np.int64)
        return GroupPenalty(indptr, members, self.kappa[groups], self.inner[groups], len(features), self.p)


def group_penalty(index: GroupIndex, kappa: FloatArray, inner: FloatArray | float = 0.0) -> GroupPenalty:
    """Return the penalty of indexed groups (:func:`gramplane.kernels.features.groups.build_groups`).

    ``kappa``, ``(n_groups,)``, are the weights of the Euclidean norms, ``sqrt(index.sizes)`` for the group lasso. ``inner`` is the weight r
    of the absolute norms, one number or one per group. Raises ValueError if a weight is negative or not finite, or both weights of a group
    are 0.
    """
    euclidean = np.ascontiguousarray(np.broadcast_to(kappa, index.n_groups), dtype=np.float64)
    absolute = np.ascontiguousarray(np.broadcast_to(inner, index.n_groups), dtype=np.float64)
    bad = np.flatnonzero(~(np.isfinite(euclidean + absolute) & (euclidean >= 0) & (absolute >= 0) & (euclidean + absolute > 0)))
    if bad.size:
        g = int(bad[0])
        raise ValueError(
            f"group {g} has the weights kappa={euclidean[g]}, r={absolute[g]}; they must be finite, not negative and not both 0"
        )
    return GroupPenalty(index.indptr, index.members, euclidean.copy(), absolute.copy(), index.n_features)


def single_features(n_features: int, kappa: float = 1.0, inner: float = 0.0, p: float = 2.0) -> GroupPenalty:
    """Return the penalty with one group per feature: the lasso; for several tasks, a penalty on the rows of the weight matrix."""
    every = np.arange(n_features + 1, dtype=np.int64)
    return GroupPenalty(every, every[:-1], np.full(n_features, kappa), np.full(n_features, inner), n_features, p)


def edge_groups(edges: object, n_features: int) -> tuple[Array, Array]:
    """Return ``(indptr, members)`` of the graph lasso: each edge is a group of two features, and each feature without an edge is a group of
    its own.

    ``edges``, ``(m, 2)``, are pairs of features in any order. Groups are the edges as given, then the single features, ascending (Yang
    2011, Remark 5). Raises ValueError if an edge is not a pair, names a feature that does not exist, joins a feature to itself, or is
    repeated.
    """
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1:] != (2,) or not len(pairs) or pairs.dtype.kind not in "iu":
        raise ValueError(f"edges has shape {pairs.shape} and type {pairs.dtype}; it must be an integer array (m, 2) with m >= 1")
    ends = np.sort(pairs.astype(np.int64), axis=1)
    for wrong, rule in (
        ((ends[:, 0] < 0) | (ends[:, 1] >= n_features), f"features are 0 to {n_features - 1}"),
        (ends[:, 0] == ends[:, 1], "an edge must join two different features"),
        (_is_repeated(ends), "this edge occurs earlier in the list"),
    ):
        if wrong.any():
            m = int(np.argmax(wrong))
            raise ValueError(f"edges[{m}] is {pairs[m].tolist()}: {rule}")
    alone = np.setdiff1d(np.arange(n_features), ends)
    indptr = np.concatenate([np.arange(0, 2 * len(ends), 2), 2 * len(ends) + np.arange(len(alone) + 1)]).astype(np.int64)
    return indptr, np.concatenate([ends.ravel(), alone])


def _is_repeated(rows: Array) -> Array:
    """Return which rows are equal to an earlier one."""
    repeated = np.ones(len(rows), bool)
    repeated[np.unique(rows, axis=0, return_index=True)[1]] = False
    return repeated


@compiled
def _dual_norms(z: Array, indptr: Array, members: Array, kappa: Array, inner: Array, out: Array) -> None:
    """Write the root of h(s) = ||S(z, s r)|| - s kappa for each group. h is convex and decreasing, so Newton steps from below never pass
    the root.
    """
    for g in range(kappa.size):
        k, r = kappa[g], inner[g]
        size = (indptr[g + 1] - indptr[g]) * z.shape[0]
        square, peak = 0.0, 0.0
        for p in range(indptr[g], indptr[g + 1]):
            for t in range(z.shape[0]):
                entry = abs(z[t, members[p]])
                square += entry * entry
                peak = max(peak, entry)
        norm = np.sqrt(square)
        if k == 0.0:
            out[g] = peak / r
            continue
        root = norm / (k + r * np.sqrt(size))
        for _ in range(MAX_ROOT_STEPS if r > 0.0 else 0):
            square, total = 0.0, 0.0
            for p in range(indptr[g], indptr[g + 1]):
                for t in range(z.shape[0]):
                    entry = abs(z[t, members[p]]) - root * r
                    if entry > 0.0:
                        square += entry * entry
                        total += entry
            if square == 0.0:
                break
            norm = np.sqrt(square)
            step = (norm - root * k) / (k + r * total / norm)
            root += step
            if step <= 1e-15 * root:
                break
        out[g] = root


# Penalties on groups of features as loops over single rows read them: what a group costs, and where its members lie.
#
# With ``k_g = lam kappa_g`` and ``tau_g = lam r_g`` the penalty is ``Omega(v) = sum_g (k_g ||v_g|| + tau_g ||v_g||_1)``, see
# `GroupPenalty`; groups of one feature that are all alike have ``Omega(w) = single ||w||_1``.


class Groups(NamedTuple):
    """Groups in the form that compiled loops read. Without groups, each feature stands alone and has the threshold ``single``.

    * ``members``, ``starts``: group g holds ``members[starts[g]:starts[g + 1]]``; if ``members`` is empty, group g holds the features
      ``starts[g]:starts[g + 1]``.
    * ``owner``: the int32 group of each feature. It is empty if all groups have one size and equal weights and are contiguous; the group
      of feature j is then ``j * magic >> 32``.
    * ``feature_starts``, ``feature_groups``: the groups of each feature if groups overlap, else empty.
    * ``cost``, ``inner``: the thresholds ``k_g = lam kappa_g`` and ``tau_g = lam r_g``, float64 ``(n_groups,)`` each.
    * ``single``: the threshold of a feature alone; if all groups have equal weights (``even``), their common ``k_g + tau_g``.
    * ``zero_level``: the smallest ``tau_g + k_g / sqrt(d_g)``, for L_p norms ``k_g / d_g^(1 - 1/p)``; a group is zero while no member
      exceeds it.
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
    """Return a penalty times ``lam`` in the form that compiled loops read. Equal groups of one feature each are treated as no groups."""
    none, owner, magic = np.zeros(0, np.int64), np.zeros(0, np.int32), 0
    cost, inner = lam * penalty.kappa, lam * penalty.inner
    both, d, sizes = cost + inner, penalty.n_features, np.diff(penalty.indptr)
    single, even = float(both[0]), bool((both == both[0]).all() and (inner == inner[0]).all())
    roots = np.sqrt(sizes) if penalty.p == 2.0 else sizes ** (1.0 - 1.0 / penalty.p)
    zero_level = float((inner + cost / roots).min())
    contiguous = penalty.n_copies == d and is_range(penalty.members)
    if not contiguous and penalty.overlapping:
        order, counts = np.argsort(penalty.members, kind="stable"), np.bincount(penalty.members, minlength=d)
        indptr, owners = np.concatenate(([0], np.cumsum(counts))).astype(np.int64), penalty.owner[order]
        return Groups(penalty.indptr, penalty.members, owner, 0, indptr, owners, cost, inner, single, even, zero_level)
    if even and penalty.n_groups == d:
        zero = np.zeros(0)
        return Groups(np.zeros(1, np.int64), none, owner, 0, none.copy(), none.copy(), zero, zero.copy(), single, True, single)
    if even and contiguous and (sizes == sizes[0]).all() and d * int(sizes[0]) < 1 << 32:
        # j // size for all j < d by one product: the error of the factor stays below one part of size.
        magic = (1 << 32) // int(sizes[0]) + 1
    else:
        owner = np.empty(d, np.int32)
        owner[penalty.members] = penalty.owner
    members = none if contiguous else penalty.members
    return Groups(penalty.indptr, members, owner, magic, none.copy(), none.copy(), cost, inner, single, even, zero_level)


def neighbours(labels: object, n_features: int) -> Array | None:
    """Return where each group begins, followed by ``n_features``, int64 ``(n_groups + 1,)``. Return ``None`` unless ``labels`` holds one
    integer >= 0 per feature, in ascending order.
    """
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
    """Return the group of a feature, for groups that do not overlap."""
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
def add_shrunken(values: Array, groups: Groups, factor: float, fade: float, step: float, out: Array, p: float | None = None) -> float:
    """Add ``step [1 - factor k_g / ||c_g||]_+ c_g``, ``c_g = S(values_g, factor tau_g + fade)``, of all groups to ``out``; return Omega.

    This is the closed form of dual averaging (Yang 2011, Theorem 1: equations (3.10), (3.12), (3.14)) with sums in place of means.
    Its arguments are then: values s, factor t, fade ``rho gamma sqrt(t)`` and step ``-1/(gamma sqrt(t))``. Each of several
    overlapping groups has its own copy, and the copies are added. With factor eta, fade 0 and step 1 the result is the proximal step
    of a gradient method. With ``p``, ``step`` times the proximal point of ``factor k_g ||.||_p`` is added; code for None has no such part.
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
        if p is not None:
            norm = prox_size(values, members, starts[g], starts[g + 1], k, p)
            for e in range(starts[g], starts[g + 1]):
                j = members[e] if listed else e
                out[j] += step * prox_entry(values[j], norm, k, p)
            omega += costs[g] * size * norm
            continue
        norm = shrunken_norm(values, starts, members, g, tau)
        if norm > k:
            scale, total = step * (1.0 - k / norm), 0.0
            for e in range(starts[g], starts[g + 1]):
                j = members[e] if listed else e
                c = shrunken(values[j], tau)
                out[j] += scale * c
                total += abs(scale * c)
            omega += costs[g] * size * (norm - k) + inners[g] * total
    return omega


@compiled
def mark_active(values: Array, groups: Groups, factor: float, fade: float, active: Array, p: float | None = None) -> None:
    """Set ``active[g]`` for the groups with ``||S(values_g, factor tau_g + fade)|| > factor k_g``; thresholds as in `add_shrunken`."""
    if groups.cost.size == 0:
        for j in range(values.size):
            active[j] |= shrunken(values[j], factor * groups.single + fade) != 0.0
        return
    starts, members, costs, inners = groups.starts, groups.members, groups.cost, groups.inner
    for g in range(costs.size):
        if p is not None:
            active[g] |= prox_size(values, members, starts[g], starts[g + 1], factor * costs[g], p) > 0.0
            continue
        active[g] |= shrunken_norm(values, starts, members, g, factor * inners[g] + fade) > factor * costs[g]
