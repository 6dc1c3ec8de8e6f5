"""Branch and bound over all groups of tasks: the groups with the largest ``M_w / d_w^2``, and a bound of all others.

``M_w = (sum_j m_wj^P)^(1/P)``, P = p / (2 (p - 1)) >= 1. Its square root is a norm of the vectors of the tasks in w. Adding r tasks to a
group therefore increases this root by at most the sum of the r largest roots of single tasks; the effect of removing tasks is bounded in
the same way. With these bounds, some thousands of the 2^42 groups of 42 tasks are visited (docs/theory/latent_task_mkl.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..jit import compiled

# The lattice of groups of tasks and its inverse: ancestors, quadratic forms of groups, weights of task pairs, sums over descendants.
#
# A group is a row of a boolean array ``(n_groups, n_tasks)``. In the lattice the ancestors of a group are its non-empty subsets, the
# sources are the single tasks, and ``d_w = a^|w|``; in the inverse they are its supersets, the source is the group of all tasks, and ``d_w
# = a^(T - |w|)``. Both are one thing, subsets of a set of ``marks``: the tasks of the group, or those left out of it.
#
# With ``A_j[s, t] = beta_s' K_j beta_t`` over the rows of tasks s and t, the form of kernel j of group w is
# ``m_wj = sum_{t in w} A_j[t, t] + (1/mu) sum_{s, t in w} A_j[s, t]``: no group's Gram matrix is ever built (source: Jawanpuria, "Learning
# Kernels for Multiple Predictive Tasks", 2014, chapter 6; closed forms: docs/theory/latent_task_mkl.md).

Groups = NDArray[np.bool_]
Words = NDArray[np.uint64]

WORD_BITS = 64  # Bits of a word of a key.


@dataclass(frozen=True)
class TaskLattice:
    """The groups of ``n_tasks`` tasks T, ordered by inclusion; ``a`` > 0 is the penalty of one step away from the sources.

    In the inverse lattice the group of all tasks is the source, and steps remove tasks. The marked tasks of a group are its tasks or, in
    the inverse lattice, the tasks it lacks. A key stores the marked tasks as bits of 64-bit words, ``(n_words,)``, as stored in a
    :class:`gramplane.kernels.graphs.hulls.NodeSet`.
    """

    n_tasks: int
    a: float = 1.5
    inverted: bool = False

    @property
    def width(self) -> int:
        """Number of words in a key."""
        return -(-self.n_tasks // WORD_BITS)

    @property
    def deepest(self) -> int:
        """Largest number of marked tasks of a group."""
        return self.n_tasks - 1 if self.inverted else self.n_tasks

    def marks(self, groups: Groups) -> Groups:
        """Return the marked tasks of each group: its tasks or, in the inverse lattice, all other tasks. The function is its own inverse."""
        return ~groups if self.inverted else groups

    def keys(self, groups: Groups) -> Words:
        """Return the keys ``(n_groups, n_words)`` of groups ``(n_groups, T)``."""
        bits = np.zeros((len(groups), WORD_BITS * self.width), bool)
        bits[:, : self.n_tasks] = self.marks(groups)
        return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)

    def groups(self, keys: Words) -> Groups:
        """Return the groups ``(n_groups, T)`` of keys."""
        raw = np.ascontiguousarray(keys, "<u8").view(np.uint8).reshape(len(keys), 8 * self.width)
        return self.marks(np.unpackbits(raw, axis=1, count=self.n_tasks, bitorder="little").astype(bool))

    def sources(self) -> Words:
        """Return the keys of the groups without a proper ancestor."""
        return self.keys(np.ones((1, self.n_tasks), bool) if self.inverted else np.eye(self.n_tasks, dtype=bool))

    def depths(self, groups: Groups) -> IntArray:
        """Return the number of marked tasks of each group."""
        return self.marks(groups).sum(axis=1)

    def penalties(self, keys: Words) -> FloatArray:
        """Return the penalties ``d_w`` of groups given by their keys."""
        return np.power(float(self.a), self.depths(self.groups(keys)).astype(np.float64))

    def parents(self, key: Words) -> Words:
        """Return the keys with one bit cleared (one marked task fewer), ``(r, n_words)``. A single task has no parents."""
        bits = self._bits()[self.marks(self.groups(key[None]))[0]]
        return key ^ bits if self.inverted or len(bits) > 1 else np.zeros((0, self.width), np.uint64)

    def frontier(self, hull: Words) -> Words:
        """Return the sources outside of a hull, ascending: keys that are not in the hull but whose parents all are."""
        marks, bits = self.marks(self.groups(hull)), self._bits()
        grown = [hull[~marks[:, t]] | bits[t] for t in range(self.n_tasks)]
        keys, times = np.unique(np.concatenate([*grown, hull]), axis=0, return_counts=True)
        inside = np.isin(_as_items(keys), _as_items(hull))
        depths = self.depths(self.groups(keys))
        # A child in question is grown once from each of its parents in the hull.
        return keys[~inside & (times == depths) & (depths <= self.deepest)]

    def _bits(self) -> Words:
        return TaskLattice(self.n_tasks).keys(np.eye(self.n_tasks, dtype=bool))

    def descendant_bounds(self, groups: Groups, forms: FloatArray, mu: float) -> FloatArray:
        """Return, for groups s, the sum over descendants w of ``beta' (sum_j K_wj) beta / (sum of d_v over v between s and w)^2``.

        ``forms`` ``(T, T)`` is the sum over the kernels of ``A_j``, and ``mu`` the weight of the group mean. The result is the left side of
        the sufficient condition of optimality (Jawanpuria, 2014, equation 6.6). It takes O(T^2) per group instead of a sum over 2^(T - |s|)
        groups: each task that is not in s is in a descendant with odds b = (1 + a)^-2, independently of the others.
        """
        odds = (1.0 + self.a) ** -2.0
        marks, tasks = self.marks(groups), self.n_tasks
        steps = marks.sum(axis=1)
        share = np.where(groups, 1.0 / (1.0 + odds), 0.0) if self.inverted else np.where(groups, 1.0, odds / (1.0 + odds))
        single = (share + (share - share**2) / mu) @ np.diagonal(forms)
        return self.a ** (-2.0 * steps) * (1.0 + odds) ** (tasks - steps) * (single + np.einsum("gs,st,gt->g", share, forms, share) / mu)


def _as_items(words: Words) -> NDArray[np.void]:
    words = np.ascontiguousarray(words)
    return words.view([("", words.dtype)] * words.shape[1]).reshape(-1)


def group_forms(groups: Groups, forms: FloatArray, mu: float) -> FloatArray:
    """Return ``m_wj = sum_{t in w} A_j[t, t] + (1/mu) sum_{s, t in w} A_j[s, t]``, clipped at 0, ``(n_groups, k)``, from A
    ``(k, T, T)``.
    """
    inside = groups.astype(np.float64)
    k, tasks = forms.shape[:2]
    half = (inside @ forms.transpose(1, 0, 2).reshape(tasks, k * tasks)).reshape(len(groups), k, tasks)
    crossed = np.einsum("gkt,gt->gk", half, inside)
    return np.maximum(inside @ np.diagonal(forms, axis1=1, axis2=2).T + crossed / mu, 0.0)


def pair_weights(groups: Groups, weights: FloatArray, mu: float) -> FloatArray:
    """Return ``S_j[s, t] = sum over groups w with s and t of W_wj (1/mu + [s = t])``: the weight of kernel j between two tasks.

    ``weights`` ``(n_groups, k)`` are ``W_wj`` >= 0. The result ``(k, T, T)`` is exactly symmetric and positive semi-definite.
    """
    inside = groups.astype(np.float64)
    k, tasks = weights.shape[1], inside.shape[1]
    weighted = (weights[:, :, None] * inside[:, None, :]).reshape(len(groups), k * tasks)
    shared = (weighted.T @ inside).reshape(k, tasks, tasks) / mu
    shared = np.tril(shared) + np.tril(shared, -1).transpose(0, 2, 1)
    diagonal = np.arange(tasks)
    shared[:, diagonal, diagonal] *= 1.0 + mu
    return shared


def kernel_norms(values: FloatArray, exponent: float) -> FloatArray:
    """Return ``(sum_j values_wj^exponent)^(1/exponent)`` of each row, computed relative to its largest entry."""
    top = values.max(axis=1, initial=0.0)
    return top * np.power(values / np.where(top > 0, top, 1.0)[:, None], exponent).sum(axis=1) ** (1.0 / exponent)


def kernel_shares(norms: FloatArray, p: float) -> FloatArray:
    """Return ``(theta_wj / ||theta_w||_p)^(2 - p)``; multiplied by the weight of a group, these are the weights of its kernels.

    They attain ``||theta_w||_p^2 = min over s of sum_j theta_wj^2 / s_j``, ``||s||_{p / (2 - p)} = 1``. If all norms are zero, the shares
    are equal.
    """
    total = kernel_norms(norms, p)
    equal = norms.shape[1] ** (-1.0 / p)
    return np.where(total[:, None] > 0, norms / np.where(total > 0, total, 1.0)[:, None], equal) ** (2.0 - p)


MAX_VISITS = 20_000_000  # Groups visited before the search ends with what it has: some tens of seconds.


@dataclass(frozen=True)
class GroupSearch:
    """The groups found by a search, and a bound for all others."""

    groups: Groups  # (n_found, T) whose value is above the threshold, the greatest first; at most max_groups
    values: FloatArray  # their M_w / d_w^2
    bound: float  # of the value of every group that is not among them: at most the threshold when the search was complete
    visits: int  # groups visited
    complete: bool  # whether neither the cap on visits nor that on the depth cut off anything above the threshold


def search_groups(
    lattice: TaskLattice, forms: FloatArray, mu: float, p: float, threshold: float, max_groups: int,
    max_depth: int | None = None, max_visits: int = MAX_VISITS,
) -> GroupSearch:  # fmt: skip
    """Return the groups with the largest ``M_w / d_w^2`` above a threshold >= 0, from ``A_j[s, t] = beta_s' K_j beta_t``, ``(k, T, T)``.

    ``mu`` is the weight of the group mean, ``p`` in (1, 2] the norm over the kernels. Once ``max_groups`` groups have been found, the
    smallest of their values becomes the threshold. Groups have at most ``max_depth`` tasks (in the inverse lattice, they leave out at most
    that many).
    """
    inner = p / (2.0 * (p - 1.0))
    tasks = lattice.n_tasks
    single = np.diagonal(forms, axis1=1, axis2=2)
    # Tasks in descending order of their norms, so that a bound reads the next ones.
    order = np.argsort(-_inner_norms(single.T * (1.0 + 1.0 / mu), inner), kind="stable")
    sorted_forms = np.ascontiguousarray(forms[:, order[:, None], order], np.float64)
    roots = np.sqrt(_inner_norms(single.T[order] * (1.0 + 1.0 / mu), inner))
    n_marks = lattice.deepest
    deepest = n_marks if max_depth is None else max(min(max_depth, n_marks), 1)
    values, marks = np.zeros(max_groups), np.zeros((max_groups, tasks), np.uint8)
    n_found, visits, bound, complete = _branch_and_bound(
        sorted_forms, roots, 1.0 / mu, inner, float(lattice.a), lattice.inverted, deepest, n_marks, float(threshold), max_visits,
        values, marks,
    )  # fmt: skip
    chosen = np.zeros((n_found, tasks), bool)
    chosen[:, order] = marks[:n_found].astype(bool)
    ranked = np.argsort(-values[:n_found], kind="stable")
    return GroupSearch(lattice.marks(chosen)[ranked], values[:n_found][ranked], float(bound), int(visits), bool(complete))


def _inner_norms(forms: FloatArray, inner: float) -> FloatArray:
    """Return the norm over the last axis with exponent ``inner``, without overflow."""
    top = forms.max(axis=-1, initial=0.0)
    safe = np.where(top > 0, top, 1.0)
    return np.where(top > 0, safe * ((np.maximum(forms, 0.0) / safe[..., None]) ** inner).sum(axis=-1) ** (1.0 / inner), 0.0)


@compiled(deferred=True)
def _branch_and_bound(
    forms: FloatArray, roots: FloatArray, shared: float, inner: float, a: float, inverted: bool, deepest: int, n_marks: int,
    threshold: float, max_visits: int, values: FloatArray, marks: NDArray[np.uint8],
) -> tuple[int, int, float, bool]:  # fmt: skip
    """Search depth first over sets of marked tasks in ascending order. Row l of each stack belongs to the current set of l marked tasks;
    the stacks hold the forms of the set and the columns of its tasks.
    """
    k, tasks = forms.shape[0], forms.shape[1]
    sign = -1.0 if inverted else 1.0
    levels, crossed = np.zeros((deepest + 2, k)), np.zeros((deepest + 1, k, tasks))
    upcoming, chosen = np.zeros(deepest + 1, np.int64), np.zeros(deepest + 1, np.int64)
    root_sums, scale = np.zeros(tasks + 1), np.ones(tasks + 1)
    for t in range(tasks):
        root_sums[t + 1] = root_sums[t] + roots[t]
        scale[t + 1] = scale[t] / (a * a)
    if inverted:
        for j in range(k):
            for s in range(tasks):
                levels[0, j] += forms[j, s, s]
                for t in range(tasks):
                    crossed[0, j, t] += forms[j, s, t]
                    levels[0, j] += shared * forms[j, s, t]
    n_found, weakest, visits, depth, bound, complete = 0, 0, 0, 0, 0.0, True
    raw, first = 0.0, 0
    while depth >= 0 and visits < max_visits:
        if visits > 0 or not inverted:
            t = upcoming[depth]
            if t == tasks or depth == deepest:
                depth -= 1
                continue
            upcoming[depth] = t + 1
            for j in range(k):
                form = forms[j, t, t]
                levels[depth + 1, j] = max(levels[depth, j] + sign * (form + 2.0 * shared * crossed[depth, j, t]) + shared * form, 0.0)
            depth, first = depth + 1, t + 1
            chosen[depth] = t
        visits += 1
        raw = _row_norm(levels, depth, inner)
        value = raw * scale[depth]
        cut = values[weakest] if n_found == len(values) else threshold
        if value > cut:
            at = n_found if n_found < len(values) else weakest
            bound = max(bound, values[at])
            values[at] = value
            for t in range(tasks):
                marks[at, t] = 0
            for level in range(1, depth + 1):
                marks[at, chosen[level]] = 1
            n_found = max(n_found, at + 1)
            for slot in range(n_found):
                if values[slot] < values[weakest]:
                    weakest = slot
            cut = values[weakest] if n_found == len(values) else threshold
        else:
            bound = max(bound, value)
        # The best that r more marks, each after t, can make of it.
        best = _bound_extensions(np.sqrt(raw), root_sums, scale, first, depth, n_marks)
        if depth > 0 and (best <= cut or depth == deepest):
            bound, complete = max(bound, best), complete and best <= cut
            depth -= 1
        elif depth > 0:
            upcoming[depth] = first
            for j in range(k):
                for s in range(tasks):
                    crossed[depth, j, s] = crossed[depth - 1, j, s] + sign * forms[j, chosen[depth], s]
    # What a search that was cut off would still have visited.
    for level in range(depth + 1):
        best = _bound_extensions(np.sqrt(_row_norm(levels, level, inner)), root_sums, scale, upcoming[level], level, n_marks)
        bound, complete = max(bound, best), complete and best <= (values[weakest] if n_found == len(values) else threshold)
    return n_found, visits, bound, complete


@compiled(deferred=True)
def _bound_extensions(root: float, root_sums: FloatArray, scale: FloatArray, first: int, depth: int, n_marks: int) -> float:
    """Return an upper bound for a set with the given root after marking further tasks, from ``first`` on."""
    best = 0.0
    for r in range(1, min(n_marks - depth, root_sums.size - 1 - first) + 1):
        greatest = root + root_sums[first + r] - root_sums[first]
        best = max(best, greatest * greatest * scale[depth + r])
    return best


@compiled(deferred=True)
def _row_norm(levels: FloatArray, row: int, inner: float) -> float:
    top, total = 0.0, 0.0
    for j in range(levels.shape[1]):
        top = max(top, levels[row, j])
    if top <= 0.0:
        return 0.0
    for j in range(levels.shape[1]):
        ratio = levels[row, j] / top
        total += ratio * np.sqrt(ratio) if inner == 1.5 else ratio**inner
    return top * total ** (1.0 / inner)
