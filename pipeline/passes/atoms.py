"""Candidate collections of the Feature Generating Machine: single features, groups of features, expanded features.

An atom is what one coordinate of ``d`` switches on (specification section 4): its score is ``||X_atom' u||^2``, its columns form part of a
cut. Degree-2 pairs need several passes and live in :mod:`.pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ...kernels import expansions, groups
from ...kernels.scores import TopB, correlations_many, select_sparse, top_b
from ..records.context import RunContext
from .blocks import Block
from .columns import Columns
from .feature_scores import Partial, Query, select_atoms


def take(raw: Columns, features: np.ndarray, wanted: np.ndarray) -> Columns:
    """Return the columns of ``wanted`` features out of ``raw``, whose columns are the sorted ``features``."""
    where = np.searchsorted(features, wanted)
    if isinstance(raw, np.ndarray):
        return raw[:, where]
    return sp.csc_array(raw[:, where])


def times(columns: Columns, factor: np.ndarray) -> Columns:
    """Multiply each column by its factor; ones cost nothing."""
    if np.all(factor == 1.0):
        return columns
    if isinstance(columns, np.ndarray):
        return columns * factor
    data = columns.data * np.repeat(factor, np.diff(columns.indptr))
    return sp.csc_array((data, columns.indices, columns.indptr), shape=columns.shape)


def _block_correlations(block: Block, duals: np.ndarray) -> np.ndarray:
    """Return ``(n_machines, k)`` correlations of the scaled columns: ``s (X'u - mu sum(u))``."""
    c = correlations_many(block.X, duals)
    if block.shift is not None:
        c -= np.outer(duals.sum(axis=1), block.shift)
    return c if block.factor is None else c * block.factor


@dataclass(frozen=True)
class LinearAtoms:
    """Every feature is an atom: score ``c_j^2``, one column."""

    kind: str = "linear"

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Return the best features of one stripe for every dual vector."""
        if sp.issparse(block.X):
            return [Partial(self._sparse(block, u, query)) for u, query in zip(duals, queries, strict=True)]
        found = _block_correlations(block, duals)
        return [Partial(top_b(np.abs(c), c, query.size, block.offset)) for c, query in zip(found, queries, strict=True)]

    def _sparse(self, block: Block, u: np.ndarray, query: Query) -> TopB:
        bound = block.table("norm1")
        return select_sparse(block.X, u, bound, query.size, offset=block.offset, scale=block.factor, threshold=query.threshold)

    def complete(self, partial: Partial, query: Query) -> TopB:
        """Return the merged list: no feature is ever cut."""
        return partial.top

    def select(self, ctx: RunContext, duals: np.ndarray, queries: Sequence[Query]) -> list[TopB]:
        """Return the best features for every dual vector (one pass)."""
        return select_atoms(ctx, self, duals, queries)

    def squares(self, top: TopB) -> np.ndarray:
        """Return the scores ``||c_atom||^2`` of found atoms."""
        return top.values**2

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the sorted distinct features whose columns the atoms need."""
        return np.unique(ids)

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinate of each column of the atoms' cut and its factor."""
        return ids, np.ones(ids.size)

    def build(self, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the cut's columns from the (scaled) columns of ``features``."""
        return take(raw, features, ids)


@dataclass(frozen=True)
class GroupAtoms(LinearAtoms):
    """Groups of features, disjoint, nested or overlapping: score ``eta_G ||c_G||^2``.

    A feature that q chosen groups share is one column scaled by ``sqrt(sum of their eta)``: the same kernel without a copy.
    """

    index: groups.GroupIndex | None = None
    kind: str = "groups"

    @property
    def groups(self) -> groups.GroupIndex:
        """The group index."""
        assert self.index is not None
        return self.index

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Return the best groups inside one stripe, and the partial sums of groups that its borders cut."""
        return [
            self._partial(c, block.offset, query)
            for c, query in zip(_block_correlations(block, duals), queries, strict=True)
        ]

    def _partial(self, c: np.ndarray, offset: int, query: Query) -> Partial:
        top, (ids, sums) = groups.group_scores(c, offset, self.groups, query.size)
        return Partial(top, ids, sums)

    def complete(self, partial: Partial, query: Query) -> TopB:
        """Rank the groups that stripe borders cut among the others."""
        return groups.finish_partials(partial.top, partial.cut_ids, partial.cut_sums, query.size)

    def squares(self, top: TopB) -> np.ndarray:
        """Return the scores of found groups."""
        return top.keys

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the sorted distinct members of the groups."""
        return groups.cut_columns(self.groups, ids)[0]

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the groups' features and their factors ``sqrt(sum eta)``."""
        return groups.cut_columns(self.groups, ids)

    def build(self, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the members' columns times their factors."""
        wanted, factor = self.coordinates(ids)
        return times(take(raw, features, wanted), factor)


@dataclass(frozen=True)
class ExpansionAtoms(LinearAtoms):
    """Features under an additive map: score ``u' K_j u`` without expanding, ``width`` columns each when chosen."""

    expansion: expansions.Expansion | None = None
    kind: str = "expansion"

    @property
    def map(self) -> expansions.Expansion:
        """The additive map."""
        assert self.expansion is not None
        return self.expansion

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Return the best features of one stripe under the map."""
        return [Partial(self._top(block, u, query)) for u, query in zip(duals, queries, strict=True)]

    def _top(self, block: Block, u: np.ndarray, query: Query) -> TopB:
        keys = expansions.expanded_scores(block.X, u, self.map, self._maxima(block))
        return top_b(keys, keys, query.size, block.offset)

    def _maxima(self, block: Block) -> np.ndarray:
        return block.table("maximum")

    def squares(self, top: TopB) -> np.ndarray:
        """Return the scores ``u' K_j u`` of found features."""
        return top.keys

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``feature * width + column`` for every expanded column."""
        width = self.map.width
        return (ids[:, None] * width + np.arange(width)).ravel(), np.ones(ids.size * width)

    def build(self, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the expanded columns of the chosen features."""
        return expansions.expand(take(raw, features, ids), self.map, ids)
