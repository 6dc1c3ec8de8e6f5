"""The lattice of groups of tasks and its inverse: ancestors, quadratic forms of groups, weights of task pairs, sums over descendants.

A group is a row of a boolean array ``(n_groups, n_tasks)``. In the lattice the ancestors of a group are its non-empty subsets, the sources
are the single tasks, and ``d_w = a^|w|``; in the inverse they are its supersets, the source is the group of all tasks, and
``d_w = a^(T - |w|)``. Both are one thing, subsets of a set of ``marks``: the tasks of the group, or those left out of it.

With ``A_j[s, t] = beta_s' K_j beta_t`` over the rows of tasks s and t, the form of kernel j of group w is
``m_wj = sum_{t in w} A_j[t, t] + (1/mu) sum_{s, t in w} A_j[s, t]``: no group's Gram matrix is ever built (source: Jawanpuria, "Learning
Kernels for Multiple Predictive Tasks", 2014, chapter 6; closed forms: docs/theory/latent_task_mkl.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray

Groups = NDArray[np.bool_]
Words = NDArray[np.uint64]

WORD_BITS = 64  # Bits of a word of a key.


@dataclass(frozen=True)
class TaskLattice:
    """The groups of ``n_tasks`` tasks T, ordered by inclusion; ``a`` > 0 is the penalty of one step away from the sources. In the inverse
    the group of all tasks is the source, and steps leave tasks out. A key is the marks of a group as bits of 64-bit words, ``(n_words,)``:
    what sets of nodes (:class:`gramplane.kernels.graphs.hulls.NodeSet`) hold.
    """

    n_tasks: int
    a: float = 1.5
    inverted: bool = False

    @property
    def width(self) -> int:
        """Words of a key."""
        return -(-self.n_tasks // WORD_BITS)

    @property
    def deepest(self) -> int:
        """Greatest number of marks of a group."""
        return self.n_tasks - 1 if self.inverted else self.n_tasks

    def marks(self, groups: Groups) -> Groups:
        """Return the tasks that count as steps: those of each group, or in the inverse those left out; its own inverse."""
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
        """Return the number of marks of groups."""
        return self.marks(groups).sum(axis=1)

    def penalties(self, keys: Words) -> FloatArray:
        """Return ``d_w`` of keys."""
        return np.power(float(self.a), self.depths(self.groups(keys)).astype(np.float64))

    def parents(self, key: Words) -> Words:
        """Return the keys with one mark less, ``(r, n_words)``; a single task has none."""
        bits = self._bits()[self.marks(self.groups(key[None]))[0]]
        return key ^ bits if self.inverted or len(bits) > 1 else np.zeros((0, self.width), np.uint64)

    def frontier(self, hull: Words) -> Words:
        """Return the sources of what is outside a hull, ascending: keys that are not in it, all of whose parents are."""
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
        """Return, of groups s, the sum over descendants w of ``beta' (sum_j K_wj) beta / (sum of d_v over v between s and w)^2``. ``forms``
        ``(T, T)`` is the sum over the kernels of ``A_j``, ``mu`` the weight of the group mean. The left side of the sufficient condition of
        optimality (Jawanpuria, 2014, equation 6.6), in O(T^2) per group instead of a sum over 2^(T - |s|) groups: every task that is not in
        s is in a descendant with odds b = (1 + a)^-2, independently.
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
    """Return ``m_wj = sum_{t in w} A_j[t, t] + (1/mu) sum_{s, t in w} A_j[s, t]``, never below 0, ``(n_groups, k)``, of A ``(k, T, T)``."""
    inside = groups.astype(np.float64)
    k, tasks = forms.shape[:2]
    half = (inside @ forms.transpose(1, 0, 2).reshape(tasks, k * tasks)).reshape(len(groups), k, tasks)
    crossed = np.einsum("gkt,gt->gk", half, inside)
    return np.maximum(inside @ np.diagonal(forms, axis1=1, axis2=2).T + crossed / mu, 0.0)


def pair_weights(groups: Groups, weights: FloatArray, mu: float) -> FloatArray:
    """Return ``S_j[s, t] = sum over groups w with s and t of W_wj (1/mu + [s = t])``: the weight of kernel j between two tasks. ``weights``
    ``(n_groups, k)`` are ``W_wj`` >= 0. The result ``(k, T, T)`` is symmetric to the bit and positive semi-definite.
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
    """Return ``(sum_j values_wj^exponent)^(1/exponent)`` of each row, relative to its greatest entry."""
    top = values.max(axis=1, initial=0.0)
    return top * np.power(values / np.where(top > 0, top, 1.0)[:, None], exponent).sum(axis=1) ** (1.0 / exponent)


def kernel_shares(norms: FloatArray, p: float) -> FloatArray:
    """Return ``(theta_wj / ||theta_w||_p)^(2 - p)``: times the weight of a group, the weights of its kernels. ``||theta_w||_p^2 = min over
    s of sum_j theta_wj^2 / s_j``, ``||s||_{p / (2 - p)} = 1``, is attained there. Equal shares where all norms are zero.
    """
    total = kernel_norms(norms, p)
    equal = norms.shape[1] ** (-1.0 / p)
    return np.where(total[:, None] > 0, norms / np.where(total > 0, total, 1.0)[:, None], equal) ** (2.0 - p)
