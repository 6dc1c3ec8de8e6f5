"""Degree-2 pairs as atoms: the best products of two features, without materialising them.

One search takes a head start on the most frequent features (driver), one pass of bounds over all stripes (workers), and the products of the
features that survive the screening: on the driver while they fit a triangle, else by ranges of columns on the workers. Dense data goes by
tiles of columns. Sums have one fixed order everywhere, so every route gives the same bits (see :mod:`gramplane.kernels.features.pairs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, plan
from ....kernels.features import pairs as kp
from ....kernels.features.pairs_dense import dense_bounds, dense_pairs, dense_tiles
from ....kernels.features.pairs_sparse import expected_products, fallback_pairs, head_pairs
from ....storage import MemoryBlocks
from ...passes.blocks import Ref, Task, column_tasks, load_blocks, scale_of, source_of, table_of, task_bytes
from ...passes.columns import Columns
from ...passes.scaling import scaled, scaled_columns
from ...records.context import RunContext, received
from ...records.scale import FeatureScale
from .score_pass import Query

RANGE_PRODUCTS = 2_000_000_000
"""Products of one fallback task, some ten seconds."""

TILE_BYTES = 256 << 20
"""Columns of a dense tile that a task holds."""

KEPT_COLUMNS = 8192
"""Columns of frequent features the driver keeps between rounds."""


class Screened(NamedTuple):
    """What a pass of bounds found: the best linear and square coordinates, and the surviving features with their bounds."""

    best: kp.TopPairs
    ids: np.ndarray
    bound: np.ndarray


class _Loaded(NamedTuple):
    X: Columns
    offset: int


def _scaled_blocks(task: Task, centred: bool) -> list[_Loaded]:
    row_factor = source_of(task[0]).scale.row_factor
    blocks = load_blocks(task, centred=centred)
    return [_Loaded(scaled(block.X, FeatureScale(block.factor, block.shift), row_factor), block.offset) for block in blocks]


def row_max_chunk(task: Task, centred: bool) -> np.ndarray:
    """Return the largest ``|x_ij|`` of each row over a task's stripes."""
    return np.maximum.reduce([kp.row_max_abs(block.X) for block in _scaled_blocks(task, centred)])


def _maximum(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.maximum.reduce(list(parts))


def screen_chunk(task: Task, centred: bool, dual: Any, weight: Any, pair_map: kp.PairMap, B: int, threshold: float) -> Screened:
    """Return best coordinates and survivors of a task's stripes."""
    u, w = received(dual), received(weight)
    return _merge_screens([_screen_block(block, u, w, pair_map, B, threshold) for block in _scaled_blocks(task, centred)], B)


def _screen_block(block: _Loaded, u: np.ndarray, w: np.ndarray, pair_map: kp.PairMap, B: int, threshold: float) -> Screened:
    dense = isinstance(block.X, np.ndarray)
    bounds = dense_bounds(block.X, u) if isinstance(block.X, np.ndarray) else kp.pair_bounds(block.X, u, w)
    best = kp.coordinate_top(bounds, block.offset, pair_map, B, threshold=threshold)
    alive = np.zeros(0, np.int64) if dense else kp.survivors(bounds.bound, pair_map, max(threshold, _bar(best, B)))
    return Screened(best, alive + block.offset, bounds.bound[alive])


def _merge_screens(parts: Sequence[Screened], B: int) -> Screened:
    best = kp.merge_top_pairs([part.best for part in parts], B)
    return Screened(best, np.concatenate([part.ids for part in parts]), np.concatenate([part.bound for part in parts]))


@dataclass(frozen=True)
class _MergeScreens:
    B: int

    def __call__(self, parts: Sequence[Screened]) -> Screened:
        return _merge_screens(parts, self.B)


@dataclass(frozen=True)
class _MergePairs:
    B: int

    def __call__(self, parts: Sequence[kp.TopPairs]) -> kp.TopPairs:
        return kp.merge_top_pairs(parts, self.B)


@dataclass(frozen=True)
class Tile:
    """A task of the dense search: the products between two ranges of columns."""

    ref: Ref
    spans: tuple[int, int, int, int]
    nbytes: int


def tile_chunk(tile: Tile, centred: bool, dual: Any, pair_map: kp.PairMap, B: int, threshold: float) -> kp.TopPairs:
    """Return the best products of one tile."""
    i0, i1, j0, j1 = tile.spans
    ids = np.arange(i0, i1) if i0 == j0 else np.concatenate((np.arange(j0, j1), np.arange(i0, i1)))
    data = source_of(tile.ref)
    X = np.asarray(scaled(data.columns(ids), scale_of(data, ids, centred=centred), data.scale.row_factor))
    local = (0, i1 - i0, 0, i1 - i0) if i0 == j0 else (j1 - j0, j1 - j0 + i1 - i0, 0, j1 - j0)
    return dense_pairs(X, received(dual), ids, pair_map, B, tiles=[local], threshold=threshold)


@dataclass(frozen=True)
class ColumnRange:
    """A task of the sparse fallback: surviving columns ``[lo, hi)`` against all before them."""

    lo: int
    hi: int
    nbytes: int


def range_chunk(
    part: ColumnRange, survivors: tuple[Any, ...], dual: Any, ids: Any, bound: Any, pair_map: kp.PairMap, B: int, threshold: float
) -> kp.TopPairs:
    """Return the best products of one range of surviving columns."""
    u, names = received(dual), received(ids)
    data, indices, indptr = (received(array) for array in survivors)
    X = sp.csc_array((data, indices, indptr), shape=(len(u), len(names)), copy=False)
    return fallback_pairs(X, u, names, pair_map, B, (part.lo, part.hi), bound=received(bound), threshold=threshold)


def _bar(top: kp.TopPairs, B: int) -> float:
    return float(top.keys[B - 1]) if len(top.keys) >= B else 0.0


def _nbytes(part: Any) -> int:
    return int(part.nbytes)


class PairColumns:
    """Builds product columns; all a worker needs."""

    def __init__(self, pair_map: kp.PairMap, *, centred: bool = True) -> None:
        self.map = pair_map
        self.centred = centred

    @property
    def signature(self) -> str:
        """The map with its parameters."""
        return repr(self.map)

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the sorted distinct features behind coordinates."""
        found = np.unique(ids)
        return found[found >= 0]

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates themselves; their factors are part of the columns."""
        return ids, np.ones(len(ids))

    def build(self, data: Any, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the product columns."""
        return kp.pair_columns(raw, features, ids, self.map)


class PairAtoms(PairColumns):
    """The coordinates ``sqrt(2 gamma r) x_j``, ``gamma x_j^2``, ``sqrt(2) gamma x_i x_j`` of the kernel ``(gamma x'z + r)^2``.

    Parameters
    ----------
    gamma, coef0
        Of the kernel.
    limits
        Widest triangle and budget of products.
    centred
        Whether an intercept centres the columns, see :func:`~gramplane.pipeline.passes.blocks.scale_of`.

    Notes
    -----
    Atom ids are ``(j, -1)`` linear, ``(j, j)`` square, ``(i, j)`` with ``i < j``. Kept between rounds: non-zeros per column, row maxima,
    and the columns of frequent features (a few bytes per non-zero).
    """

    kind = "poly2"
    width = 1

    def __init__(self, gamma: float, coef0: float, limits: kp.PairLimits | None = None, *, centred: bool = True) -> None:
        super().__init__(kp.PairMap(gamma, coef0), centred=centred)
        self.limits = limits or kp.PairLimits()
        self._counts: np.ndarray | None = None
        self._row_max: np.ndarray | None = None
        self._kept = np.zeros(0, np.int64)
        self._columns: Columns | None = None

    # -- what the loop asks of atoms -----------------------------------------------------------------------------------------

    def select(self, ctx: RunContext, duals: np.ndarray, queries: Sequence[Query]) -> list[kp.TopPairs]:
        """Return the best coordinates for every dual vector."""
        search = self._dense if ctx.data.meta.kind == "dense" else self._sparse
        return [search(ctx, u, query.size) for u, query in zip(duals, queries, strict=True)]

    def squares(self, top: kp.TopPairs) -> np.ndarray:
        """Return the scores of found coordinates."""
        return top.values**2

    def shipped(self, ctx: RunContext) -> PairColumns:
        """Return the form that travels with tasks: without what is kept between rounds."""
        return PairColumns(self.map, centred=self.centred)

    # -- dense data: tiles ---------------------------------------------------------------------------------------------------

    def _dense(self, ctx: RunContext, u: np.ndarray, B: int) -> kp.TopPairs:
        dual = ctx.share("dual", u)
        best = self._screen(ctx, dual, np.zeros(0), B, 0.0).best
        program = BlockProgram("dense-pairs", tile_chunk, _MergePairs(B), _nbytes, 40 * B)
        found = ctx.run_pass(plan(program, self._tiles(ctx), self.centred, dual, self.map, B, _bar(best, B)))
        return kp.merge_top_pairs([best, found], B)

    def _tiles(self, ctx: RunContext) -> list[Tile]:
        n, d = ctx.data.n_rows, ctx.data.n_cols
        width = int(np.clip(TILE_BYTES // (16 * max(n, 1)), 1, 1024))
        products, budget = n * d * (d - 1) // 2, kp.DENSE_GAIN * self.limits.budget
        if products > budget:
            raise kp.TooManyProducts(f"{d} dense features form {products:.3g} products over {n} rows; the budget is {budget:.3g}")
        ref = ctx.data.column_blocks()[0]
        return [Tile(ref, spans, 32 * n * width) for spans in dense_tiles(d, width)]

    # -- sparse data: head, screening, fallback ------------------------------------------------------------------------------

    def _sparse(self, ctx: RunContext, u: np.ndarray, B: int) -> kp.TopPairs:
        leading = kp.most_frequent(self._non_zeros(ctx), self.limits.head_start)
        best = self._head(ctx, u, leading, B, 0, 0.0)
        dual, weight = ctx.share("dual", u), ctx.share("weight", kp.row_weight(u, self._maxima(ctx)))
        screen = self._screen(ctx, dual, weight, B, _bar(best, B))
        best = kp.merge_top_pairs([best, screen.best], B)
        screen = self._again(screen._replace(best=best), B, by_frequency=True)
        ctx.emit({"event": "pairs", "survivors": len(screen.ids), "threshold": _bar(best, B)})
        done = int(np.isin(screen.ids, leading).sum())
        head = screen.ids[: max(self.limits.max_head, done)]
        best = kp.merge_top_pairs([best, self._head(ctx, u, head, B, done, _bar(best, B))], B)
        if len(screen.ids) > len(head):
            best = self._fallback(ctx, u, dual, self._again(screen._replace(best=best), B), head, B)
        return best

    def _again(self, screen: Screened, B: int, by_frequency: bool = False) -> Screened:
        """Screen the survivors with the best found since; order them by frequency when they come from a pass."""
        kept = kp.survivors(screen.bound, self.map, _bar(screen.best, B))
        ids, bound = screen.ids[kept], screen.bound[kept]
        if by_frequency:
            assert self._counts is not None
            order = np.searchsorted(ids, kp.by_frequency(ids, self._counts[ids]))
            ids, bound = ids[order], bound[order]
        return Screened(screen.best, ids, bound)

    def _screen(self, ctx: RunContext, dual: Any, weight: Any, B: int, threshold: float) -> Screened:
        program = BlockProgram("pair-bounds", screen_chunk, _MergeScreens(B), _Double(), 16 * min(ctx.data.n_cols, 1 << 20) + 40 * B)
        return ctx.run_pass(plan(program, column_tasks(ctx.data), self.centred, dual, weight, self.map, B, threshold))

    def _head(self, ctx: RunContext, u: np.ndarray, ids: np.ndarray, B: int, done: int, threshold: float) -> kp.TopPairs:
        X, where = self._hold(ctx, ids)
        return head_pairs(X, u, ids, self.map, B, columns=where, done=done, threshold=threshold)

    def _fallback(self, ctx: RunContext, u: np.ndarray, dual: Any, screen: Screened, searched: np.ndarray, B: int) -> kp.TopPairs:
        done, bar = int(np.isin(screen.ids, searched).sum()), _bar(screen.best, B)
        if done == len(screen.ids):
            return screen.best
        order = np.argsort(screen.ids)
        sorted_columns = scaled_columns(ctx, screen.ids[order], centred=self.centred)
        X = sp.csc_array(sorted_columns[:, np.argsort(order)])
        products = expected_products(X, u, done=done)
        if products > self.limits.budget:
            raise kp.TooManyProducts(
                f"{len(screen.ids)} of {ctx.data.n_cols} features survive the screening and form {products:.3g} products; the budget is "
                f"{self.limits.budget:.3g}. Features of equal frequency and size defeat the screening: drop rare features"
            )
        shared = tuple(ctx.share(f"survivors-{name}", array) for name, array in (("x", X.data), ("i", X.indices), ("p", X.indptr)))
        parts = _ranges(done, len(screen.ids), products, 24 * X.nnz)
        program = BlockProgram("pair-fallback", range_chunk, _MergePairs(B), _nbytes, 40 * B)
        extra = (shared, dual, ctx.share("survivors", screen.ids), ctx.share("bounds", screen.bound), self.map, B, bar)
        return kp.merge_top_pairs([screen.best, ctx.run_pass(plan(program, parts, *extra))], B)

    def _hold(self, ctx: RunContext, ids: np.ndarray) -> tuple[sp.csc_array, np.ndarray]:
        """Return columns that include ``ids``, and where each of these stands: those in memory, or kept copies."""
        if isinstance(ctx.data, MemoryBlocks) and _unscaled(ctx.data, ids, self.centred):
            return sp.csc_array(ctx.data.by_columns), ids
        missing = np.setdiff1d(ids, self._kept)
        if len(missing):
            if len(self._kept) + len(missing) > KEPT_COLUMNS:
                self._kept, self._columns, missing = np.zeros(0, np.int64), None, np.sort(ids)
            fetched = scaled_columns(ctx, missing, centred=self.centred)
            parts = [fetched] if self._columns is None else [self._columns, fetched]
            self._columns = parts[0] if len(parts) == 1 else sp.csc_array(sp.hstack(parts, format="csc"))
            self._kept = np.concatenate((self._kept, missing))
        if self._columns is None:
            self._columns = sp.csc_array((ctx.data.n_rows, 0))
        order = np.argsort(self._kept)
        return sp.csc_array(self._columns), order[np.searchsorted(self._kept, ids, sorter=order)]

    # -- statistics of the data ----------------------------------------------------------------------------------------------

    def _non_zeros(self, ctx: RunContext) -> np.ndarray:
        if self._counts is None:
            self._counts = table_of(ctx.data, "counts")
        return self._counts

    def _maxima(self, ctx: RunContext) -> np.ndarray:
        if self._row_max is None:
            program = BlockProgram("row-maxima", row_max_chunk, _maximum, _Double(), 8 * ctx.data.n_rows)
            self._row_max = np.asarray(ctx.run_pass(plan(program, column_tasks(ctx.data), self.centred)))
        return self._row_max


@dataclass(frozen=True)
class _Double:
    """Task memory of a pass that may scale its stripe."""

    def __call__(self, task: Task) -> int:
        return 3 * task_bytes(task)


def _unscaled(data: MemoryBlocks, ids: np.ndarray, centred: bool) -> bool:
    scale = scale_of(data, np.sort(ids), centred=centred)
    return scale.factor is None and scale.shift is None and data.scale.row_factor is None


def _ranges(lo: int, hi: int, products: int, nbytes: int) -> list[ColumnRange]:
    """Split the columns into ranges of about equal products: their number grows with the square of the position."""
    pieces = int(np.clip(products // RANGE_PRODUCTS, 1, max(hi - lo, 1)))
    edges = np.sqrt(np.linspace(lo**2, hi**2, pieces + 1)).round().astype(int)
    edges[0], edges[-1] = lo, hi
    return [ColumnRange(int(a), int(b), nbytes) for a, b in pairwise(edges) if b > a]
