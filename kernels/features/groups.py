"""Groups of features (disjoint, nested as a tree, or overlapping): scores, selection, and the columns of a cut.

Source: Definition 1 and Algorithm 2 of Tan, Tsang and Wang (JMLR 15, 2014); docs/theory/fgm.md, "Groups".

The score of a group is ``eta_G ||c_G||^2``. It is summed in two float64 words (104 bits). A group can therefore be split at any stripe
borders and its parts added in any order: the score rounds to the same float64. Groups with equal scores tie exactly, whatever their
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ..arrays import Array, Entry
from ..jit import compiled
from .views import Heap, TopB, flat, merge_top, offer, top_b

Kind = Literal["disjoint", "tree", "overlap"]
GroupWeight = Literal["none", "1/size"]


@dataclass(frozen=True)
class GroupIndex:
    """Index of features by group and of groups by feature.

    * ``members``, ``indptr``: group g has the features ``members[indptr[g]:indptr[g + 1]]``, ascending.
    * ``feature_groups``, ``feature_indptr``: feature j is in the groups ``feature_groups[feature_indptr[j]:feature_indptr[j + 1]]``.
    * ``weight``, float64 ``(n_groups,)``: eta_G.
    * ``labels``, int64 ``(n_groups,)``: the caller's names of the groups, a label or the position in the list.
    * ``kind``: ``"tree"`` if any two groups are nested or disjoint.
    * ``parent``, int64 ``(n_groups,)``: for a tree, the smallest group around each group, or -1.
    """

    indptr: Array
    members: Array
    feature_indptr: Array
    feature_groups: Array
    weight: Array
    labels: Array
    kind: Kind
    parent: Array | None

    @property
    def n_groups(self) -> int:
        return len(self.indptr) - 1

    @property
    def n_features(self) -> int:
        return len(self.feature_indptr) - 1

    @property
    def sizes(self) -> Array:
        return np.diff(self.indptr)


class CutGroups(NamedTuple):
    """Partial scores of groups that extend beyond a stripe: each is the sum over those features of the group that are in the stripe.

    * ``ids``: the groups, int64 ``(q,)``, ascending.
    * ``sums``: partial scores in two words, float64 ``(q, 2)``.
    """

    ids: Array
    sums: Array


def _transpose(indptr: Array, members: Array, n_features: int) -> tuple[Array, Array]:
    owners = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    if members.size == n_features and (members[1:] > members[:-1]).all():
        return np.arange(n_features + 1, dtype=np.int64), owners
    order = np.argsort(members, kind="stable")
    return np.concatenate(([0], np.cumsum(np.bincount(members, minlength=n_features)))).astype(np.int64), owners[order]


def _from_labels(labels: Array, n_features: int) -> tuple[Array, Array, Array]:
    if labels.size != n_features:
        raise ValueError(f"groups has {labels.size} labels; it needs one for each of the {n_features} features")
    inside = np.flatnonzero(labels >= 0)
    if inside.size == 0:
        raise ValueError("groups puts no feature in any group: every label is negative")
    if inside.size == n_features and (labels[1:] >= labels[:-1]).all():
        # Neighbours in one group, as most have them: no sorting of millions of labels.
        starts = np.flatnonzero(np.concatenate(([True], labels[1:] != labels[:-1])))
        return np.append(starts, n_features).astype(np.int64), inside.astype(np.int64), labels[starts].astype(np.int64)
    names, which = np.unique(labels[inside], return_inverse=True)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(which)))).astype(np.int64)
    return indptr, inside[np.argsort(which, kind="stable")].astype(np.int64), names.astype(np.int64)


def _checked_members(g: int, group: object, n_features: int) -> Array:
    members = np.asarray(group)
    if members.dtype == bool and members.shape == (n_features,):
        members = np.flatnonzero(members)
    if members.size == 0:
        raise ValueError(f"groups[{g}] is empty; a group holds at least one feature")
    if members.dtype.kind not in "iu" or members.ndim != 1:
        raise ValueError(f"groups[{g}] is a {members.ndim}-dimensional {members.dtype} array; it must be a list of feature indices")
    outside = members[(members < 0) | (members >= n_features)]
    if outside.size:
        raise ValueError(f"groups[{g}] names feature {outside[0]}; features are 0 to {n_features - 1}")
    sorted_members = np.unique(members)
    if sorted_members.size < members.size:
        raise ValueError(f"groups[{g}] names a feature twice")
    return sorted_members.astype(np.int64)


def _from_lists(groups: Sequence[object], n_features: int) -> tuple[Array, Array, Array]:
    if not len(groups):
        raise ValueError("groups is an empty list; give at least one group")
    parts = [_checked_members(g, group, n_features) for g, group in enumerate(groups)]
    members = np.concatenate(parts)
    covered = np.zeros(n_features, bool)
    covered[members] = True
    if not covered.all():
        lone, first = n_features - covered.sum(), int(np.argmin(covered))
        raise ValueError(f"groups leaves out {lone} features, the first is feature {first}; put every feature into a group")
    indptr = np.concatenate(([0], np.cumsum([part.size for part in parts]))).astype(np.int64)
    return indptr, members, np.arange(len(parts), dtype=np.int64)


@compiled
def _nest(indptr: Array, members: Array, by_size: Array, owner: Array, parent: Array) -> bool:
    """Fill ``parent`` for groups in descending order of size; return False if two groups overlap without nesting."""
    for g in by_size:
        around = owner[members[indptr[g]]]
        for p in range(indptr[g], indptr[g + 1]):
            if owner[members[p]] != around:
                return False
            owner[members[p]] = g
        parent[g] = around
    return True


def _structure(indptr: Array, members: Array, n_features: int) -> tuple[Kind, Array | None]:
    if np.bincount(members, minlength=n_features).max() == 1:
        return "disjoint", None
    by_size = np.argsort(-np.diff(indptr), kind="stable")
    parent = np.full(len(indptr) - 1, -1, np.int64)
    if _nest(indptr, members, by_size, np.full(n_features, -1, np.int64), parent):
        return "tree", parent
    return "overlap", None


def _weights(weight: GroupWeight | Array | None, kind: Kind, sizes: Array) -> Array:
    if weight is None:
        weight = "1/size" if kind == "tree" else "none"
    if isinstance(weight, str):
        if weight not in ("none", "1/size"):
            raise ValueError(f"group weight is {weight!r}; it must be 'none', '1/size' or one positive number per group")
        return np.ones(sizes.size) if weight == "none" else 1.0 / sizes
    eta = np.ascontiguousarray(weight, dtype=np.float64)
    if eta.shape != sizes.shape:
        raise ValueError(f"group weight has shape {eta.shape}; it needs one number for each of the {sizes.size} groups")
    bad = np.flatnonzero(~(np.isfinite(eta) & (eta > 0)))
    if bad.size:
        raise ValueError(f"group weight[{bad[0]}] is {eta[bad[0]]}; weights must be positive and finite")
    return eta


def build_groups(
    groups: Array | Sequence[int] | Sequence[Sequence[int]] | Sequence[Array],
    n_features: int,
    weight: GroupWeight | Array | None = None,
) -> GroupIndex:
    """Index groups of features and determine whether they are disjoint, nested or overlapping.

    Parameters
    ----------
    groups
        One integer label per feature (negative: in no group), or a list of arrays of feature indices. Labels need not be
        consecutive; groups are numbered in label order, and ``GroupIndex.labels`` keeps the names. Of equal sets in a tree, the
        later one counts as the child.
    weight
        eta_G: ``"none"`` (1), ``"1/size"``, or one positive number per group. ``None`` takes 1/size for a tree, where the
        unweighted root would always win, and 1 otherwise.
    """
    if isinstance(groups, np.ndarray) or (len(groups) and np.ndim(groups[0]) == 0):
        labels = np.asarray(groups)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise ValueError(f"groups is a {labels.ndim}-dimensional {labels.dtype} array; labels must be one integer per feature")
        indptr, members, names = _from_labels(labels, n_features)
    else:
        indptr, members, names = _from_lists(groups, n_features)
    kind, parent = _structure(indptr, members, n_features)
    eta = _weights(weight, kind, np.diff(indptr))
    return GroupIndex(indptr, members, *_transpose(indptr, members, n_features), eta, names, kind, parent)


@compiled(inline=True)
def _add(high: Entry, low: Entry, more: Entry, more_low: Entry) -> tuple[Entry, Entry]:
    """Add two two-word numbers (Dekker, Knuth)."""
    total = high + more
    part = total - high
    low = low + more_low + ((high - (total - part)) + (more - part))
    high = total + low
    return high, low - (high - total)


@compiled
def _sum_by_group(c: Array, offset: int, indptr: Array, owners: Array, lowest: int, high: Array, low: Array, count: Array) -> None:
    for j in range(c.size):
        square = c[j] * c[j]
        for p in range(indptr[offset + j], indptr[offset + j + 1]):
            g = owners[p] - lowest
            high[g], low[g] = _add(high[g], low[g], square, 0.0)
            count[g] += 1


@compiled
def _weigh(eta: Array, high: Array, low: Array) -> None:
    """Multiply two-word numbers by eta, exactly to two words (Dekker's product)."""
    for g in range(eta.size):
        if eta[g] == 1.0:
            continue
        a, b = eta[g] * 134217729.0, high[g] * 134217729.0
        a1, b1 = a - (a - eta[g]), b - (b - high[g])
        a2, b2 = eta[g] - a1, high[g] - b1
        product = eta[g] * high[g]
        error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
        high[g], low[g] = _add(product, 0.0, error + eta[g] * low[g], 0.0)


def group_scores(c_local: Array, offset: int, index: GroupIndex, B: int) -> tuple[TopB, CutGroups]:
    """Score the groups of one stripe: ``eta_G ||c_G||^2``.

    ``c_local``, float64 ``(k,)``, are the correlations of the features ``offset .. offset + k - 1``. Returns the B best groups that are
    inside the stripe, with their scores, and the partial scores of the groups that extend beyond it, for :func:`merge_partials`.
    """
    c = flat(np.ascontiguousarray(c_local, dtype=np.float64))
    if offset < 0 or offset + c.size > index.n_features:
        raise ValueError(f"the stripe holds features {offset} to {offset + c.size - 1}, but the groups have {index.n_features} features")
    touched = index.feature_groups[index.feature_indptr[offset] : index.feature_indptr[offset + c.size]]
    if touched.size == 0:
        return merge_top([], B), CutGroups(np.zeros(0, np.int64), np.zeros((0, 2)))
    lowest, width = int(touched.min()), int(touched.max() - touched.min()) + 1
    high, low, count = np.zeros(width), np.zeros(width), np.zeros(width, np.int64)
    _sum_by_group(c, offset, flat(index.feature_indptr), flat(index.feature_groups), lowest, high, low, count)
    span = slice(lowest, lowest + width)
    _weigh(flat(index.weight[span]), high, low)
    whole = count == index.sizes[span]
    cut = np.flatnonzero((count > 0) & ~whole)
    keys = np.where(whole, high, 0.0)
    return top_b(keys, keys, B, lowest), CutGroups(cut + lowest, np.stack((high[cut], low[cut]), axis=1))


@compiled
def _merge_sums(positions: Array, sums: Array, high: Array, low: Array) -> None:
    for p in range(positions.size):
        g = positions[p]
        high[g], low[g] = _add(high[g], low[g], sums[p, 0], sums[p, 1])


def merge_partials(parts: Sequence[tuple[Array, Array]]) -> CutGroups:
    """Add the :class:`CutGroups` of stripes; the order does not change the scores."""
    parts = [part for part in parts if len(part[0])]
    if not parts:
        return CutGroups(np.zeros(0, np.int64), np.zeros((0, 2)))
    ids, positions = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    high, low = np.zeros(ids.size), np.zeros(ids.size)
    _merge_sums(positions, np.concatenate([part[1] for part in parts]), high, low)
    return CutGroups(ids, np.stack((high, low), axis=1))


def finish_partials(top: TopB, ids: Array, sums: Array, B: int) -> TopB:
    """Rank the groups that cross stripe borders together with ``top``, the best groups inside stripes. ``ids`` and ``sums`` are the groups
    that cross borders and their scores, merged over all stripes.
    """
    if not len(ids):
        return merge_top([top], B)
    keys = np.ascontiguousarray(sums[:, 0])
    return merge_top([top, top_b(keys, keys, B, np.asarray(ids, np.int64))], B)


@compiled
def _children(parent: Array, begin: Array, child: Array) -> None:
    """List the children of each group in ascending order in ``child``. The last list, under the number n_groups, holds the roots."""
    n = parent.size
    for g in range(n):
        begin[(parent[g] if parent[g] >= 0 else n) + 1] += 1
    for g in range(n + 1):
        begin[g + 1] += begin[g]
    next_child = begin.copy()
    for g in range(n):
        around = parent[g] if parent[g] >= 0 else n
        child[next_child[around]] = g
        next_child[around] += 1


@compiled
def _heaviest(by_size: Array, parent: Array, eta: Array) -> Array:
    """Return, for each group, the largest weight among the groups strictly below it, computed from small to large groups."""
    below = np.zeros(eta.size)
    for g in by_size[::-1]:
        if parent[g] >= 0:
            below[parent[g]] = max(below[parent[g]], eta[g], below[g])
    return below


@compiled
def _search(c: Array, tree: tuple[Array, ...], threshold: float, hk: Array, hi: Array, hv: Array) -> tuple[int, int, int]:
    """Search a tree. Return the heap size, the number of groups scored, and the index of a group whose score is not finite (or -1)."""
    indptr, members, eta, below, begin, child = tree
    n = eta.size
    stack = np.empty(n, np.int64)
    high, low = np.empty(1), np.empty(1)
    size, visited, depth = int(np.int64(0)), 0, 0
    bar = max(threshold, 5e-324)
    for p in range(begin[n + 1] - 1, begin[n] - 1, -1):
        stack[depth] = child[p]
        depth += 1
    while depth > 0:
        depth -= 1
        g = stack[depth]
        visited += 1
        high[0] = low[0] = 0.0
        for p in range(indptr[g], indptr[g + 1]):
            high[0], low[0] = _add(high[0], low[0], c[members[p]] * c[members[p]], 0.0)
        plain = high[0]
        _weigh(eta[g : g + 1], high, low)
        key = high[0]
        if not key < np.inf:
            return size, visited, g
        if key >= bar:
            size = offer(hk, hi, hv, size, key, g, key)
            if size == hk.size:
                bar = max(bar, hk[0])
        if plain * below[g] * (1.0 + 1e-12) < bar:
            continue
        for p in range(begin[g + 1] - 1, begin[g] - 1, -1):
            stack[depth] = child[p]
            depth += 1
    return size, visited, -1


def tree_select(c: Array, index: GroupIndex, B: int, *, threshold: float = 0.0) -> tuple[TopB, int]:
    """Return the B best groups of a tree by depth-first search, and the number of groups scored.

    The sum of squared correlations of a group inside G is at most that of G. All groups below G are therefore skipped if the sum of G times
    the largest weight below G is strictly less than the current B-th score. Ties are visited, and the lower index wins.

    ``c``, float64 ``(n_features,)``, are the correlations of all features; ``threshold`` is a valid lower bound of the B-th score.
    """
    if index.parent is None:
        raise ValueError(f"the groups are of kind {index.kind!r}; the tree search needs nested groups")
    if np.shape(c) != (index.n_features,):
        raise ValueError(f"c has shape {np.shape(c)}; it needs one entry for each of the {index.n_features} features")
    n, heap = index.n_groups, Heap.empty(B)
    begin, child = np.zeros(n + 2, np.int64), np.zeros(n, np.int64)
    parent = flat(index.parent)
    _children(parent, begin, child)
    # The order that fixed the parents: of equal sets the later one is the child.
    below = _heaviest(np.argsort(-index.sizes, kind="stable"), parent, flat(index.weight))
    tree = (flat(index.indptr), flat(index.members), flat(index.weight), below, begin, child)
    size, visited, bad = _search(flat(np.ascontiguousarray(c, dtype=np.float64)), tree, float(threshold), *heap)
    if bad >= 0:
        raise ValueError(f"the score of group {bad} is not finite: the correlations of its features overflow float64")
    return heap.top(size), visited


def cut_columns(index: GroupIndex, chosen: Array) -> tuple[Array, Array]:
    """Return the columns of a cut made of distinct groups: ascending features, and the factor of each feature.

    A feature shared by several groups is one column, scaled by the square root of the sum of the groups' eta. This gives the same kernel as
    one copy of the column per group (docs/theory/fgm.md, "Groups").
    """
    ids = np.sort(np.asarray(chosen, np.int64))
    if ids.size and (ids[0] < 0 or ids[-1] >= index.n_groups):
        raise ValueError(f"group {ids[0] if ids[0] < 0 else ids[-1]} does not exist; groups are 0 to {index.n_groups - 1}")
    parts = [index.members[index.indptr[g] : index.indptr[g + 1]] for g in ids]
    features, total = np.concatenate(parts or [np.zeros(0, np.int64)]), np.repeat(index.weight[ids], [part.size for part in parts])
    if (features[1:] <= features[:-1]).any():
        features, positions = np.unique(features, return_inverse=True)
        total = np.bincount(positions, weights=total, minlength=features.size)
    return features, np.sqrt(total)
