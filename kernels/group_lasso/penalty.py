"""Penalties on groups of features, for one target or many: value, dual norm, proximal step.

A group g has the features I_g, and a vector ``v_g`` of one number per feature and task. Groups may share features: then each has its own
copy, ``w = sum_g scatter(v_g)`` (latent overlapping groups), and the penalty is that of the copies

    Omega(v) = lam sum_g (kappa_g ||v_g||_2 + r_g ||v_g||_1).

================================  =================================================  ==========================================
penalty                           weights                                            source (Yang 2011)
================================  =================================================  ==========================================
group lasso                       kappa_g = sqrt(d_g), r = 0                         equation (3.2), lam in mean-loss scale
sparse group lasso                kappa_g = sqrt(d_g), r_g                           equation (3.3)
lasso                             groups of one feature                              section 3.3
rows of a matrix (aMTFS)          one feature a group, all tasks, kappa = 1, r = 0   equation (4.5)
entries of a matrix (iMTFS)       one feature a group, kappa = 0, r = 1              equation (4.4)
rows and entries (MTFTS)          one feature a group, kappa = 1, r_j                equation (4.6)
================================  =================================================  ==========================================

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapters 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays import Array, FloatArray
from ..features.groups import GroupIndex
from ..jit import compiled

MAX_ROOT_STEPS = 100  # Newton steps after which the root of a group's shrunk norm is what a float64 can hold; a handful suffices.


@dataclass(frozen=True)
class GroupPenalty:
    """Groups of features and their weights; ``lam`` is given where it is used. Group g has the copies ``indptr[g]:indptr[g + 1]``, copy p
    stands for feature ``members[p]``; ``kappa``, ``inner``: float64 ``(n_groups,)`` weights of the Euclidean and of the absolute norm
    (r_g); not negative, not both 0.
    """

    indptr: Array
    members: Array
    kappa: FloatArray
    inner: FloatArray
    n_features: int

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.kappa)

    @property
    def n_copies(self) -> int:
        """Sum of the sizes of the groups."""
        return len(self.members)

    @cached_property
    def owner(self) -> Array:
        """int64 ``(n_copies,)`` group of each copy."""
        return np.repeat(np.arange(self.n_groups), np.diff(self.indptr))

    @cached_property
    def overlapping(self) -> bool:
        """Whether a feature has several copies."""
        return self.n_copies > 0 and int(np.bincount(self.members).max()) > 1

    def scatter(self, copies: FloatArray) -> FloatArray:
        """Return the weights ``(n_tasks, n_features)`` of copies ``(n_tasks, n_copies)``: the sum over the copies of a feature."""
        weights = np.zeros((len(copies), self.n_features))
        for task, values in enumerate(copies):
            np.add.at(weights[task], self.members, values)
        return weights

    def norms(self, copies: FloatArray) -> FloatArray:
        """Return the Euclidean norm of every group over all tasks, ``(n_groups,)``."""
        return np.sqrt(np.bincount(self.owner, np.square(copies).sum(axis=0), self.n_groups))

    def value(self, copies: FloatArray) -> float:
        """Return ``Omega / lam`` of copies ``(n_tasks, n_copies)``."""
        absolute = np.bincount(self.owner, np.abs(copies).sum(axis=0), self.n_groups)
        return float(self.kappa @ self.norms(copies) + self.inner @ absolute)

    def dual_norms(self, slopes: FloatArray) -> FloatArray:
        """Return, per group, the least s with ``||S(z_g, s r_g)|| <= s kappa_g`` for z ``(n_tasks, n_features)``. ``Omega*(z)`` is their
        maximum: z is dual feasible when it is at most lam, and lambda_max is that of the loss's negative gradient at the intercept-only
        fit.
        """
        out = np.empty(self.n_groups)
        _dual_norms(np.ascontiguousarray(slopes, dtype=np.float64), self.indptr, self.members, self.kappa, self.inner, out)
        return out

    def prox(self, copies: FloatArray, length: float) -> FloatArray:
        """Return argmin ``1/2 ||v - copies||^2 + length Omega(v)/lam``: entries shrink by r_g, then groups by kappa_g."""
        shrunk = np.sign(copies) * np.maximum(np.abs(copies) - (length * self.inner)[self.owner], 0.0)
        norms, bar = self.norms(shrunk), length * self.kappa
        factor = np.zeros(self.n_groups)
        alive = norms > bar
        factor[alive] = 1.0 - bar[alive] / norms[alive]
        return shrunk * factor[self.owner]

    def copies_of(self, groups: Array) -> Array:
        """Return the copies of some groups, group after group."""
        sizes = np.diff(self.indptr)[groups]
        return np.repeat(self.indptr[groups] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))

    def restricted(self, groups: Array, features: Array) -> GroupPenalty:
        """Return the penalty of some groups alone, over the given features (which hold all of theirs), in these orders."""
        position = {int(j): k for k, j in enumerate(features)}
        members = np.array([position[int(j)] for j in self.members[self.copies_of(groups)]], np.int64)
        indptr = np.concatenate(([0], np.cumsum(np.diff(self.indptr)[groups]))).astype(np.int64)
        return GroupPenalty(indptr, members, self.kappa[groups], self.inner[groups], len(features))


def group_penalty(index: GroupIndex, kappa: FloatArray, inner: FloatArray | float = 0.0) -> GroupPenalty:
    """Return the penalty of indexed groups (:func:`gramplane.kernels.features.groups.build_groups`). ``kappa``: ``(n_groups,)`` weights of
    the Euclidean norms, ``sqrt(index.sizes)`` for the group lasso; ``inner``: one weight r of the absolute norms, or one per group. Raises
    ValueError if a weight is negative or not finite, or both of a group are 0.
    """
    euclidean = np.ascontiguousarray(np.broadcast_to(kappa, index.n_groups), dtype=np.float64)
    absolute = np.ascontiguousarray(np.broadcast_to(inner, index.n_groups), dtype=np.float64)
    bad = np.flatnonzero(~(np.isfinite(euclidean + absolute) & (euclidean >= 0) & (absolute >= 0) & (euclidean + absolute > 0)))
    if bad.size:
        g = int(bad[0])
        raise ValueError(f"group {g} has the weights kappa={euclidean[g]}, r={absolute[g]}; they are finite, not negative and not both 0")
    return GroupPenalty(index.indptr, index.members, euclidean.copy(), absolute.copy(), index.n_features)


def single_features(n_features: int, kappa: float = 1.0, inner: float = 0.0) -> GroupPenalty:
    """Return the penalty with a group for every feature: the lasso, and for many tasks that of rows of the matrix of weights."""
    every = np.arange(n_features + 1, dtype=np.int64)
    return GroupPenalty(every, every[:-1], np.full(n_features, kappa), np.full(n_features, inner), n_features)


def edge_groups(edges: object, n_features: int) -> tuple[Array, Array]:
    """Return ``(indptr, members)`` of the graph lasso: every edge is a group of two features, every feature without an edge one by itself.

    ``edges``: ``(m, 2)`` features, in any order; groups are the edges as given, then the features alone, ascending. (Yang 2011, Remark 5.)
    Raises ValueError: no such pairs, a feature that does not exist, an edge to itself, or one that comes twice.
    """
    pairs = np.asarray(edges)
    if pairs.ndim != 2 or pairs.shape[1:] != (2,) or not len(pairs) or pairs.dtype.kind not in "iu":
        raise ValueError(f"edges is {pairs.dtype} of shape {pairs.shape}; it must be pairs of features (m, 2), at least one")
    ends = np.sort(pairs.astype(np.int64), axis=1)
    for wrong, rule in (
        ((ends[:, 0] < 0) | (ends[:, 1] >= n_features), f"features are 0 to {n_features - 1}"),
        (ends[:, 0] == ends[:, 1], "an edge has two features"),
        (_is_repeated(ends), "it stands there before"),
    ):
        if wrong.any():
            m = int(np.argmax(wrong))
            raise ValueError(f"edges[{m}] is {pairs[m].tolist()}: {rule}")
    alone = np.setdiff1d(np.arange(n_features), ends)
    indptr = np.concatenate([np.arange(0, 2 * len(ends), 2), 2 * len(ends) + np.arange(len(alone) + 1)]).astype(np.int64)
    return indptr, np.concatenate([ends.ravel(), alone])


def _is_repeated(rows: Array) -> Array:
    """Return which of some rows are equal to an earlier one."""
    repeated = np.ones(len(rows), bool)
    repeated[np.unique(rows, axis=0, return_index=True)[1]] = False
    return repeated


@compiled
def _dual_norms(z: Array, indptr: Array, members: Array, kappa: Array, inner: Array, out: Array) -> None:
    """Roots of h(s) = ||S(z, s r)|| - s kappa: h is convex and falls, so Newton from below never passes the root."""
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
