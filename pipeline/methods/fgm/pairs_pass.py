"""Passes of the search for degree-2 pairs: bounds over all stripes, products of dense tiles, products of the remaining columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram
from ....kernels.features import pairs as kp
from ....kernels.features.pairs_dense import dense_bounds, dense_pairs
from ....kernels.features.pairs_sparse import fallback_pairs
from ...core.resources import Shared, resolve
from ...passes.blocks import Ref, Task, load_blocks, scale_of, source_of, task_bytes
from ...passes.columns import Columns
from ...passes.scaling import scaled
from ...records.scale import FeatureScale

RANGE_PRODUCTS = 2_000_000_000  # products of one fallback task, some ten seconds


class Screened(NamedTuple):
    """Result of a pass of bounds: the best linear and square coordinates, and the remaining features with their bounds."""

    best: kp.TopPairs
    ids: np.ndarray
    bound: np.ndarray


def _scaled_blocks(task: Task, centred: bool) -> Iterator[tuple[Columns, int]]:
    """Yield the scaled columns of each stripe of a task, and the index of the stripe's first column."""
    row_factor = source_of(task[0]).scale.row_factor
    for block in load_blocks(task, centred=centred):
        yield scaled(block.X, FeatureScale(block.factor, block.shift), row_factor), block.offset


def row_max_chunk(task: Task, centred: bool) -> np.ndarray:
    """Return the largest ``|x_ij|`` of each row over a task's stripes."""
    return np.maximum.reduce([kp.row_max_abs(X) for X, _ in _scaled_blocks(task, centred)])


def screen_chunk(task: Task, centred: bool, dual: Shared, weight: Shared, pair_map: kp.PairMap, B: int, threshold: float) -> Screened:
    """Return the best coordinates and the remaining features of the stripes of a task."""
    u, w, parts = resolve(dual), resolve(weight), []
    for X, offset in _scaled_blocks(task, centred):
        bounds = dense_bounds(X, u) if isinstance(X, np.ndarray) else kp.pair_bounds(X, u, w)
        best = kp.coordinate_top(bounds, offset, pair_map, B, threshold=threshold)
        is_dense, bar = isinstance(X, np.ndarray), max(threshold, key_at(best, B))
        alive = np.zeros(0, np.int64) if is_dense else kp.survivors(bounds.bound, pair_map, bar)
        parts.append(Screened(best, alive + offset, bounds.bound[alive]))
    return merge_screens(parts, B)


def merge_screens(parts: Sequence[Screened], B: int) -> Screened:
    """Return the best coordinates of all parts, and all remaining features."""
    best = kp.merge_top_pairs([part.best for part in parts], B)
    return Screened(best, np.concatenate([part.ids for part in parts]), np.concatenate([part.bound for part in parts]))


@dataclass(frozen=True)
class Tile:
    """A task of the dense search: the products between two ranges of columns."""

    ref: Ref
    spans: tuple[int, int, int, int]
    nbytes: int


def tile_chunk(tile: Tile, centred: bool, dual: Shared, pair_map: kp.PairMap, B: int, threshold: float) -> kp.TopPairs:
    """Return the best products of one tile (on a worker)."""
    i0, i1, j0, j1 = tile.spans
    ids = np.arange(i0, i1) if i0 == j0 else np.concatenate((np.arange(j0, j1), np.arange(i0, i1)))
    data = source_of(tile.ref)
    X = np.asarray(scaled(data.columns(ids), scale_of(data, ids, centred=centred), data.scale.row_factor))
    local = (0, i1 - i0, 0, i1 - i0) if i0 == j0 else (j1 - j0, j1 - j0 + i1 - i0, 0, j1 - j0)
    return dense_pairs(X, resolve(dual), ids, pair_map, B, tiles=[local], threshold=threshold)


@dataclass(frozen=True)
class ColumnRange:
    """A task of the sparse fallback: products of the remaining columns ``[lo, hi)`` with all columns before them."""

    lo: int
    hi: int
    nbytes: int


def range_chunk(
    part: ColumnRange,
    survivors: tuple[Shared, ...],
    dual: Shared,
    ids: Shared,
    bound: Shared,
    pair_map: kp.PairMap,
    B: int,
    threshold: float,
) -> kp.TopPairs:
    """Return the best products of one range of remaining columns (on a worker)."""
    u, names = resolve(dual), resolve(ids)
    data, indices, indptr = (resolve(array) for array in survivors)
    X = sp.csc_array((data, indices, indptr), shape=(len(u), len(names)), copy=False)
    return fallback_pairs(X, u, names, pair_map, B, (part.lo, part.hi), bound=resolve(bound), threshold=threshold)


def key_at(top: kp.TopPairs, B: int) -> float:
    """Return the key of rank B, or 0 if there are fewer keys. Coordinates with smaller keys cannot be among the best B."""
    return float(top.keys[B - 1]) if len(top.keys) >= B else 0.0


def column_ranges(lo: int, hi: int, products: int, nbytes: int) -> list[ColumnRange]:
    """Split the columns into ranges with about the same number of products. Column j has products with all columns before it, so products
    up to column j grow with j squared.
    """
    pieces = int(np.clip(products // RANGE_PRODUCTS, 1, max(hi - lo, 1)))
    edges = np.sqrt(np.linspace(lo**2, hi**2, pieces + 1)).round().astype(int)
    edges[0], edges[-1] = lo, hi
    return [ColumnRange(int(a), int(b), nbytes) for a, b in pairwise(edges) if b > a]


def _scaled_bytes(task: Task) -> int:
    # A pass may scale its stripe.
    return 3 * task_bytes(task)


def row_max_program(n_rows: int) -> BlockProgram[np.ndarray]:
    """Return the pass that computes the largest absolute value of each row."""
    return BlockProgram("row-maxima", row_max_chunk, np.maximum.reduce, _scaled_bytes, 8 * n_rows)


def screen_program(B: int, n_cols: int) -> BlockProgram[Screened]:
    """Return the pass that bounds the scores of products."""
    return BlockProgram("pair-bounds", screen_chunk, partial(merge_screens, B=B), _scaled_bytes, 16 * min(n_cols, 1 << 20) + 40 * B)


def tile_program(B: int) -> BlockProgram[kp.TopPairs]:
    """Return the pass over dense tiles."""
    return BlockProgram("dense-pairs", tile_chunk, partial(kp.merge_top_pairs, B=B), attrgetter("nbytes"), 40 * B)


def range_program(B: int) -> BlockProgram[kp.TopPairs]:
    """Return the pass over ranges of remaining columns."""
    return BlockProgram("pair-fallback", range_chunk, partial(kp.merge_top_pairs, B=B), attrgetter("nbytes"), 40 * B)
