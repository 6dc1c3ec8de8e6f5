"""Candidate atoms of the Feature Generating Machine: single features, groups of features, expanded features.

An atom is the set of columns whose weight is one coordinate of the vector ``d``. Its score is ``||X_atom' u||^2``; a cut contains the
columns of its atoms. Degree-2 pairs need several passes and are in :mod:`gramplane.pipeline.methods.fgm.pairs`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache, partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.features import expansions, groups
from ....kernels.features.groups import build_groups
from ....kernels.features.rows_at_hand import RowsAtHand
from ....kernels.features.scores import DualVector, TopB, apply_scaling, correlations_many, select_sparse, top_b
from ....storage import DataError, MemoryRef
from ...core.resources import INLINE_BYTES, Resources
from ...inputs.labels import Inputs
from ...passes.blocks import Block, Blocks, load_blocks, scale_of, serial, table_of
from ...passes.columns import Columns
from ...passes.scaling import scaled, scaled_values
from ...records.data_set import feature_namer
from ...records.scale import FeatureScale
from .config import FGMConfig
from .designs import Atoms
from .model import additive_map, take_columns
from .pairs import PairAtoms
from .score_pass import Partial, Query, scaled_duals, score_pass, select_atoms

_MEASURED = threading.local()


def dual_vectors(duals: np.ndarray) -> list[DualVector]:
    """Return the validated dual vectors of a pass. They are cached for all stripes that this thread scores."""
    measured = getattr(_MEASURED, "duals", None)
    if measured is None or measured() is not duals:
        _MEASURED.vectors = [DualVector.of(u) for u in duals]
        _MEASURED.duals = weakref.ref(duals)
    return _MEASURED.vectors


def _multiply_columns(columns: Columns, factor: np.ndarray) -> Columns:
    if np.all(factor == 1.0):
        return columns
    if isinstance(columns, np.ndarray):
        return columns * factor
    data = columns.data * np.repeat(factor, np.diff(columns.indptr))
    return sp.csc_array((data, columns.indices, columns.indptr), shape=columns.shape)


def feature_ranges(data: Blocks, features: np.ndarray, *, centred: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and largest (scaled) value of the given features, see :func:`~gramplane.pipeline.passes.blocks.scale_of`."""
    scale = scale_of(data, features, centred=centred)
    low, high = (scaled_values(table_of(data, name)[features], scale) for name in ("minimum", "maximum"))
    return low, high


@dataclass(frozen=True)
class LinearAtoms:
    """Single features: each is an atom with score ``c_j^2`` and one column."""

    kind: str = "linear"
    centred: bool = True  # an intercept centres the columns, see passes.blocks.scale_of
    at_hand: dict[tuple[int, int], RowsAtHand] = field(default_factory=dict, compare=False, repr=False)  # of arrays in memory, by stripe

    def correlations(self, block: Block, duals: np.ndarray) -> np.ndarray:
        """Return ``(n_machines, k)`` correlations of the scaled columns; the block is read at most once."""
        if isinstance(block.ref, MemoryRef) and isinstance(block.X, np.ndarray):
            key = serial(block.ref.source), block.ref.index
            if key not in self.at_hand:
                self.at_hand[key] = RowsAtHand(block.X, block.ref.source.n_cols)
            sums = self.at_hand[key].correlations(duals)
        else:
            sums = correlations_many(block.X, duals)
        return apply_scaling(sums, duals, block.factor, block.shift)

    @property
    def width(self) -> int:
        """Number of columns of the widest atom."""
        return 1

    @property
    def n_read(self) -> int:
        """Largest number of features from which the columns of an atom are computed."""
        return 1

    @property
    def signature(self) -> str:
        """Text that distinguishes the atoms' columns from those of other kinds of atoms with the same coordinates and factors."""
        return ""

    def search_bytes(self, data: Blocks, sizes: Sequence[int], driver_memory: int) -> int:
        """Return the memory in bytes of a step of the search pass. ``sizes``: number of atoms that each problem requests."""
        return score_pass(data, tuple(Query(size) for size in sizes)).memory_bound

    def count(self, n_features: int) -> int:
        """Return the number of candidate atoms for ``n_features`` features."""
        return n_features

    def for_workers(self, resources: Resources) -> LinearAtoms:
        return self

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Return the best features of one stripe for every dual vector."""
        if isinstance(block.X, np.ndarray):
            correlations = self.correlations(block, duals)
            return [Partial(top_b(np.abs(c), c, query.size, block.offset)) for c, query in zip(correlations, queries, strict=True)]
        pruned = partial(select_sparse, block.X, norm1=block.table("norm1"), offset=block.offset, scale=block.factor)
        vectors = dual_vectors(duals)
        return [Partial(pruned(u, B=query.size, threshold=query.threshold)) for u, query in zip(vectors, queries, strict=True)]

    def complete(self, partial: Partial, query: Query) -> TopB:
        """Return the merged list, which is complete because stripes never split a feature."""
        return partial.top

    def select(self, data: Blocks, resources: Resources, duals: np.ndarray, queries: Sequence[Query]) -> list[TopB]:
        """Return the best features for every dual vector (one pass)."""
        return select_atoms(data, resources, self, duals, queries)

    def squares(self, top: TopB) -> np.ndarray:
        """Return the scores ``||c_atom||^2`` of ranked atoms."""
        with np.errstate(over="ignore"):  # refused where it matters
            return top.values**2

    def with_weight(self, ids: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return the atoms of a cut with non-zero weight. ``coordinates`` are those coordinates of the cut whose weight is not zero."""
        return coordinates

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the sorted distinct features from which the columns of the atoms are computed."""
        return np.sort(ids)

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinate of each column of a cut with these atoms, and the factor of each column."""
        return ids, np.ones(ids.size)

    def build(self, data: Blocks, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the cut's columns from the (scaled) columns of ``features``."""
        return take_columns(raw, features, ids)


@lru_cache(maxsize=1)
def _load_index(parts: tuple[tuple[str, Any], ...]) -> groups.GroupIndex:
    # Its arrays lie in a run store. Remembered: every task of a pass needs it.
    return groups.GroupIndex(**{name: value.load() if hasattr(value, "load") else value for name, value in parts})


@dataclass(frozen=True)
class GroupAtoms(LinearAtoms):
    """Groups of features, disjoint, nested or overlapping, with score ``eta_G ||c_G||^2``.

    A feature in several chosen groups is a single column, scaled by ``sqrt(sum of their eta)``. The kernel is the same as with one copy per
    group.
    """

    index: groups.GroupIndex | None = None
    parts: tuple[tuple[str, Any], ...] = ()
    kind: str = "groups"

    @property
    def groups(self) -> groups.GroupIndex:
        return _load_index(self.parts) if self.index is None else self.index

    def for_workers(self, resources: Resources) -> GroupAtoms:
        """Return the atoms with their group index stored in the run store, because the index grows with the number of features."""
        if self.index is None or self.index.members.nbytes < INLINE_BYTES or resources.scratch is None or resources.executor.kind == "sync":
            return self
        values = {each.name: getattr(self.index, each.name) for each in fields(self.index)}
        stored = {
            name: resources.scratch.put_array(f"groups-{name}", value) for name, value in values.items() if isinstance(value, np.ndarray)
        }
        return GroupAtoms(parts=tuple({**values, **stored}.items()), centred=self.centred)

    def count(self, n_features: int) -> int:
        return self.groups.n_groups

    @property
    def width(self) -> int:
        """Number of columns of the largest group."""
        return int(self.groups.sizes.max())

    @property
    def n_read(self) -> int:
        """Number of features of the largest group."""
        return self.width

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Return the best groups within one stripe, and the partial sums of the groups that extend beyond the stripe."""
        correlations = self.correlations(block, duals)
        return [Partial(*groups.group_scores(c, block.offset, self.groups, q.size)) for c, q in zip(correlations, queries, strict=True)]

    def complete(self, partial: Partial, query: Query) -> TopB:
        """Return the best groups, including those that stripe borders split."""
        return partial.top if partial.cut is None else groups.finish_partials(partial.top, *partial.cut, query.size)

    def select(self, data: Blocks, resources: Resources, duals: np.ndarray, queries: Sequence[Query]) -> list[TopB]:
        """Return the best groups. Nested groups are searched in this process with pruning; other groups are summed by stripe on workers."""
        if self.groups.kind != "tree" or resources.executor.kind != "sync":
            return select_atoms(data, resources, self, duals, queries)
        blocks = load_blocks(tuple(data.column_blocks()), centred=self.centred)
        correlations = np.hstack([self.correlations(block, scaled_duals(data, duals)) for block in blocks])
        return [groups.tree_select(c, self.groups, query.size)[0] for c, query in zip(correlations, queries, strict=True)]

    def squares(self, top: TopB) -> np.ndarray:
        """Return the scores of ranked groups."""
        return top.keys

    def with_weight(self, ids: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return the groups of a cut that contain a feature with non-zero weight."""
        index = self.groups
        members = [index.members[index.indptr[g] : index.indptr[g + 1]] for g in ids]
        heads = np.cumsum([0, *(len(own) for own in members[:-1])])
        joined = np.concatenate(members)
        places = np.searchsorted(coordinates, joined)  # which ascend
        is_there = np.append(coordinates, -1)[places] == joined
        return ids[np.logical_or.reduceat(is_there, heads)]

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the sorted distinct features of the groups."""
        return groups.cut_columns(self.groups, ids)[0]

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the features of the groups, and the factor ``sqrt(sum eta)`` of each feature."""
        return groups.cut_columns(self.groups, ids)

    def build(self, data: Blocks, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the columns of the groups' features, each multiplied by the factor of its feature."""
        members, factors = self.coordinates(ids)
        return _multiply_columns(take_columns(raw, features, members), factors)


@dataclass(frozen=True)
class ExpansionAtoms(LinearAtoms):
    """Features under an additive map. The score ``u' K_j u`` needs no expansion; a chosen feature has ``width`` columns."""

    expansion: expansions.Expansion | None = None
    kind: str = "expansion"

    @property
    def map(self) -> expansions.Expansion:
        assert self.expansion is not None
        return self.expansion

    @property
    def signature(self) -> str:
        """Name and parameters of the feature map."""
        return repr(self.map)

    @property
    def width(self) -> int:
        """Number of columns per feature."""
        return self.map.width

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Return the best features of one stripe under the map."""
        scale = FeatureScale(block.factor, block.shift)
        low, high = (scaled_values(block.table(name), scale) for name in ("minimum", "maximum"))
        # An empty feature has the map of a constant, but nothing to select it by.
        is_empty, X, best = (low == high) & (self.centred | (low == 0)), scaled(block.X, scale), []
        for u, query in zip(duals, queries, strict=True):
            keys = expansions.expanded_scores(X, u, self.map, low, high)
            keys[is_empty] = 0.0
            best.append(Partial(top_b(keys, keys, query.size, block.offset)))
        return best

    def squares(self, top: TopB) -> np.ndarray:
        """Return the scores ``u' K_j u`` of ranked features."""
        return top.keys

    def with_weight(self, ids: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return the features of a cut that have an expanded column with non-zero weight."""
        return np.unique(coordinates // self.map.width)

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ``feature * width + column`` for every expanded column."""
        width = self.map.width
        return (ids[:, None] * width + np.arange(width)).ravel(), np.ones(ids.size * width)

    def build(self, data: Blocks, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the expanded columns of the chosen features."""
        low, high = feature_ranges(data, ids, centred=self.centred)
        return expansions.expand(take_columns(raw, features, ids), self.map, low, high)


def build_atoms(config: FGMConfig, inputs: Inputs) -> Atoms:
    """Return the candidate atoms. Raises ValueError for parameters that cannot be combined."""
    known = inputs.covariates
    centred = bool(config.fit_intercept) or (known is not None and known.basis(False).spans_constant)
    if inputs.groups is not None:
        if config.feature_map is not None:
            raise ValueError(f"groups cannot be combined with feature_map={config.feature_map!r}: choose one of them")
        weight = np.asarray(config.group_weight) if isinstance(config.group_weight, list) else config.group_weight
        return GroupAtoms(index=build_groups(inputs.groups, int(inputs.data.n_cols), weight), centred=centred)
    if config.group_weight is not None:
        raise ValueError(f"group_weight={config.group_weight!r} needs groups, and there are none")
    if config.feature_map == "poly2":
        return PairAtoms(config.gamma, config.coef0, centred=centred)
    if config.feature_map is not None:
        return ExpansionAtoms(expansion=_additive_expansion(config, inputs.data, centred), centred=centred)
    return LinearAtoms(centred=centred)


def _additive_expansion(config: FGMConfig, data: Blocks, centred: bool) -> expansions.Expansion:
    if data.scale.kind == "unit-row":
        raise ValueError(f"feature_map={config.feature_map!r} cannot be used on rows scaled to unit norm; ingest with another scale")
    if config.feature_map == "additive_chi2" or (config.feature_map == "hik" and config.exponent is None):
        low, _ = feature_ranges(data, np.arange(data.n_cols), centred=centred)
        if low.size and low.min() < 0:
            j = int(np.argmin(low))
            remedy = "set exponent=1 to use absolute values" if config.feature_map == "hik" else "leave it out, or take another map"
            rule = f"feature_map={config.feature_map!r} needs non-negative features"
            raise DataError(f"{rule}; column {j} has the minimum {low[j]!r}; {remedy}")
    return additive_map(config)


def map_warnings(config: FGMConfig, data: Blocks, centred: bool) -> list[str]:
    """Return a warning if features have ranges on which the additive Gaussian map is far from its kernel (docs/theory/fgm.md, "Additive
    maps").
    """
    if config.feature_map != "additive_gaussian":
        return []
    low, high = feature_ranges(data, np.arange(data.n_cols), centred=centred)
    extent = high - low
    wide = np.flatnonzero(config.gamma * extent**2 > expansions.GAUSSIAN_REACH)
    if not len(wide):
        return []
    j = int(wide[np.argmax(extent[wide])])
    worst = float(extent[j])
    error = float(expansions.gaussian_error_bound(config.gamma, np.array(worst)))
    # The gamma shown must suffice: rounding to three digits may add half a percent.
    enough = 0.995 * expansions.GAUSSIAN_REACH / worst**2
    return [
        f"feature_map='additive_gaussian' is inaccurate on {len(wide)} of {data.n_cols} features: gamma * range^2 should be at most "
        f"{expansions.GAUSSIAN_REACH:g} (kernel error 1e-3); feature {feature_namer(data)(j)} has range {worst:.3g} and "
        f"gamma * range^2 = {config.gamma * worst**2:.3g} (error up to {min(error, 1.0):.1g}). Use gamma <= "
        f"{enough:.3g}, or scale the features (ingest --scale unit-column)"
    ]
