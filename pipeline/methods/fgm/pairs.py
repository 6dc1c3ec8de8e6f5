"""Degree-2 pairs as atoms: the search for the best products of two features, without forming all products.

A sparse search starts with the most frequent features, on the driver. One pass over all stripes then bounds the score of every feature's
products, on the workers. The products of the features that remain are computed on the driver if they fit in a triangle, otherwise by
ranges of columns on the workers. Dense data are searched by tiles of columns. Sums have the same fixed order everywhere, so all of these
give bit-identical results (see :mod:`gramplane.kernels.features.pairs`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from ....cluster import plan
from ....kernels.features import pairs as kp
from ....kernels.features.pairs_dense import dense_tiles
from ....kernels.features.pairs_sparse import expected_products, head_pairs
from ....storage import MemoryBlocks
from ...core.memory import refuse
from ...core.resources import Resources
from ...passes.blocks import Blocks, column_tasks, scale_of, table_of
from ...passes.columns import Columns, columns_bytes, entry_count
from ...passes.scaling import scaled_columns
from .pairs_pass import Screened, Shared, Tile, column_ranges, key_at, range_program, row_max_program, screen_program, tile_program
from .score_pass import Query

TILE_BYTES = 256 << 20  # columns of a dense tile that a task holds
MAX_CACHED_COLUMNS = 8192  # columns of frequent features the driver keeps between rounds
RANGE_BYTES, SURVIVOR_BYTES = 24, 96  # of a value of the columns that survive the screening, in a task and in the driver with its task


class PairColumns:
    """Builds the columns of products; workers need only this part of the atoms."""

    def __init__(self, pair_map: kp.PairMap, *, centred: bool = True) -> None:
        self.map, self.centred = pair_map, centred

    @property
    def signature(self) -> str:
        """Name and parameters of the feature map."""
        return repr(self.map)

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the sorted distinct features of the coordinates."""
        features = np.unique(ids)
        return features[features >= 0]

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates unchanged; their factors are part of the columns."""
        return ids, np.ones(len(ids))

    def build(self, data: Blocks, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the product columns."""
        return kp.pair_columns(raw, features, ids, self.map)


class PairAtoms(PairColumns):
    """The coordinates ``sqrt(2 gamma r) x_j``, ``gamma x_j^2``, ``sqrt(2) gamma x_i x_j`` of the kernel ``(gamma x'z + r)^2``.

    Atom ids are ``(j, -1)`` for linear terms, ``(j, j)`` for squares, and ``(i, j)`` with ``i < j`` for products. The object caches the
    numbers of non-zeros per column, the row maxima, and the columns of frequent features (a few bytes per non-zero) between rounds.
    """

    kind = "poly2"
    width, n_read = 1, 2

    def __init__(self, gamma: float, coef0: float, limits: kp.PairLimits | None = None, *, centred: bool = True) -> None:
        super().__init__(kp.PairMap(gamma, coef0), centred=centred)
        self.limits = limits or kp.PairLimits()
        self._counts: np.ndarray | None = None
        self._row_max: np.ndarray | None = None
        self._cached_ids = np.zeros(0, np.int64)
        self._cached: Columns | None = None

    def count(self, n_features: int) -> int:
        """Return the number of coordinates: linear terms, squares and products."""
        return (n_features + 1) * (n_features + 2) // 2 - 1

    def search_bytes(self, data: Blocks, sizes: Sequence[int], driver_memory: int) -> int:
        """Return the memory in bytes of the largest step of a search: bounds, and products of tiles or of the largest number of remaining
        columns.
        """
        B, tasks = max(sizes), column_tasks(data)
        steps = [plan(screen_program(B, data.n_cols), tasks).memory_bound]
        if data.meta.kind == "dense":
            return max(*steps, plan(tile_program(B), _tiles(data)).memory_bound)
        heads = columns_bytes(data, data.n_cols)
        survivors = RANGE_BYTES * min(entry_count(data), int(driver_memory) // SURVIVOR_BYTES)
        products = plan(range_program(B), column_ranges(0, max(data.n_cols, 1), self.limits.budget, survivors))
        return max(*steps, heads, plan(row_max_program(data.n_rows), tasks).memory_bound, products.memory_bound)

    def select(self, data: Blocks, resources: Resources, duals: np.ndarray, queries: Sequence[Query]) -> list[kp.TopPairs]:
        """Return the best coordinates for every dual vector."""
        search = self._search_dense if data.meta.kind == "dense" else self._search_sparse
        return [search(data, resources, u, query.size) for u, query in zip(duals, queries, strict=True)]

    def squares(self, top: kp.TopPairs) -> np.ndarray:
        """Return the scores of ranked coordinates."""
        return top.values**2

    def with_weight(self, ids: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return the coordinates with non-zero weight; each is an atom."""
        return coordinates

    def for_workers(self, resources: Resources) -> PairColumns:
        """Return the atoms in the form that is sent with tasks, without the caches."""
        return PairColumns(self.map, centred=self.centred)

    def _search_dense(self, data: Blocks, resources: Resources, u: np.ndarray, B: int) -> kp.TopPairs:
        dual = resources.share("dual", u)
        self._check_dense(data)
        best = self._screen(data, resources, dual, np.zeros(0), B, 0.0).best
        products = resources.run_pass(plan(tile_program(B), _tiles(data), self.centred, dual, self.map, B, key_at(best, B)))
        return kp.merge_top_pairs([best, products], B)

    def _check_dense(self, data: Blocks) -> None:
        n, d = data.n_rows, data.n_cols
        products, budget = n * d * (d - 1) // 2, kp.DENSE_GAIN * self.limits.budget
        if products > budget:
            raise kp.TooManyProducts(
                f"products of {d} dense features over {n} rows take {products:.3g} multiplications; the budget is {budget:.3g}"
            )

    def _search_sparse(self, data: Blocks, resources: Resources, u: np.ndarray, B: int) -> kp.TopPairs:
        if self._counts is None:
            self._counts = table_of(data, "counts")
        leading = kp.most_frequent(self._counts, self.limits.head_start)
        best = self._head(data, resources, u, leading, B, 0, 0.0)
        if self._row_max is None:
            self._row_max = np.asarray(resources.run_pass(plan(row_max_program(data.n_rows), column_tasks(data), self.centred)))
        dual, weight = resources.share("dual", u), resources.share("weight", kp.row_weight(u, self._row_max))
        screen = self._screen(data, resources, dual, weight, B, key_at(best, B))
        best = kp.merge_top_pairs([best, screen.best], B)
        screen = self._screen_again(screen._replace(best=best), B, by_frequency=True)
        resources.emit({"event": "pairs", "survivors": len(screen.ids), "threshold": key_at(best, B)})
        done = int(np.isin(screen.ids, leading).sum())
        head = screen.ids[: max(self.limits.max_head, done)]
        best = kp.merge_top_pairs([best, self._head(data, resources, u, head, B, done, key_at(best, B))], B)
        if len(screen.ids) > len(head):
            best = self._fallback(data, resources, u, dual, self._screen_again(screen._replace(best=best), B), head, B)
        return best

    def _screen_again(self, screen: Screened, B: int, by_frequency: bool = False) -> Screened:
        """Discard features whose bound is too low for the best coordinates; with ``by_frequency``, order the others by frequency."""
        surviving = kp.survivors(screen.bound, self.map, key_at(screen.best, B))
        ids, bound = screen.ids[surviving], screen.bound[surviving]
        if by_frequency:
            assert self._counts is not None
            order = np.searchsorted(ids, kp.by_frequency(ids, self._counts[ids]))
            ids, bound = ids[order], bound[order]
        return Screened(screen.best, ids, bound)

    def _screen(self, data: Blocks, resources: Resources, dual: Shared, weight: Shared, B: int, threshold: float) -> Screened:
        program = screen_program(B, data.n_cols)
        return resources.run_pass(plan(program, column_tasks(data), self.centred, dual, weight, self.map, B, threshold))

    def _head(self, data: Blocks, resources: Resources, u: np.ndarray, ids: np.ndarray, B: int, done: int, threshold: float) -> kp.TopPairs:
        X, columns = self._fetch(data, resources, ids)
        return head_pairs(X, u, ids, self.map, B, columns=columns, done=done, threshold=threshold)

    def _fallback(
        self, data: Blocks, resources: Resources, u: np.ndarray, dual: Shared, screen: Screened, searched: np.ndarray, B: int
    ) -> kp.TopPairs:
        done, bar = int(np.isin(screen.ids, searched).sum()), key_at(screen.best, B)
        if done == len(screen.ids):
            return screen.best
        assert self._counts is not None
        entries = int(self._counts[screen.ids].sum(dtype=np.int64))
        survivors = "columns that survive the screening, their copies, and those of a task", SURVIVOR_BYTES * entries
        refuse("fgm", [survivors], resources.fit_limit, "drop rare features")
        order = np.argsort(screen.ids)
        X = sp.csc_array(scaled_columns(data, resources, screen.ids[order], centred=self.centred)[:, np.argsort(order)])
        products = expected_products(X, u, done=done)
        if products > self.limits.budget:
            survivors = f"{len(screen.ids)} of {data.n_cols} features survive the screening and form {products:.3g} products"
            remedy = "Features of equal frequency and size defeat the screening: drop rare features"
            raise kp.TooManyProducts(f"{survivors}; the budget is {self.limits.budget:.3g}. {remedy}")
        shared = tuple(resources.share(f"survivors-{name}", array) for name, array in (("x", X.data), ("i", X.indices), ("p", X.indptr)))
        parts = column_ranges(done, len(screen.ids), products, RANGE_BYTES * X.nnz)
        extra = (shared, dual, resources.share("survivors", screen.ids), resources.share("bounds", screen.bound), self.map, B, bar)
        return kp.merge_top_pairs([screen.best, resources.run_pass(plan(range_program(B), parts, *extra))], B)

    def _fetch(self, data: Blocks, resources: Resources, ids: np.ndarray) -> tuple[sp.csc_array, np.ndarray]:
        """Return a matrix that contains the columns ``ids``, and their positions in the matrix. Unscaled data in memory are not copied;
        other columns are cached between rounds.
        """
        if isinstance(data, MemoryBlocks) and data.scale.row_factor is None:
            scale = scale_of(data, np.sort(ids), centred=self.centred)
            if scale.factor is None and scale.shift is None:
                return sp.csc_array(data.by_columns), ids
        missing = np.setdiff1d(ids, self._cached_ids)
        if len(missing):
            if len(self._cached_ids) + len(missing) > MAX_CACHED_COLUMNS:
                self._cached_ids, self._cached, missing = np.zeros(0, np.int64), None, np.sort(ids)
            fetched = scaled_columns(data, resources, missing, centred=self.centred)
            parts = [fetched] if self._cached is None else [self._cached, fetched]
            self._cached = parts[0] if len(parts) == 1 else sp.csc_array(sp.hstack(parts, format="csc"))
            self._cached_ids = np.concatenate((self._cached_ids, missing))
        if self._cached is None:
            self._cached = sp.csc_array((data.n_rows, 0))
        order = np.argsort(self._cached_ids)
        return sp.csc_array(self._cached), order[np.searchsorted(self._cached_ids, ids, sorter=order)]


def _tiles(data: Blocks) -> list[Tile]:
    """Return the tasks of the dense search."""
    n, ref = data.n_rows, data.column_blocks()[0]
    width = int(np.clip(TILE_BYTES // (16 * max(n, 1)), 1, 1024))
    return [Tile(ref, spans, 32 * n * width) for spans in dense_tiles(data.n_cols, width)]
