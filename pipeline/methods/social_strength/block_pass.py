"""Views of many users, without any array of size n^2: tasks compute blocks and return small results.

A view t is ``(d_u + d_v) / 2 * K^t_uv + delta * [u = v]`` (:mod:`gramplane.kernels.ranking.user_kernels`). The raw similarities are
computed from features of the users, or are sparse and stored side by side in the columns of the data: column ``t n + u`` belongs to user u
in view t. Products with a linear or sparse view are sums over stripes of columns; no block of such a view is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.alignment.target_alignment import MatrixSums
from ....kernels.grams.normalization import KernelSums, Normalization, make_normalizations, needs_diagonal_only
from ....kernels.grams.spec import KernelSpec
from ....kernels.jit import one_thread
from ....kernels.ranking.user_kernels import LANCZOS_STEPS, least_eigenvalues, scaled_block
from ....storage import DataError
from ...core.resources import Resources, Shared, resolve
from ...grams.given import SYMMETRIC
from ...grams.pair_passes import load_programs as load_programs
from ...grams.sources import FREED_BYTES
from ...passes.blocks import Spans, Task, add_parts, add_spans, column_tasks, join_lists, load_block, merge_spans, source_of, task_bytes
from ...passes.scaling import scaled
from ...records.scale import FeatureScale
from .tile_pass import TALL_BLOCKS, ViewBlock, ViewTile, is_given_kernel, tile_bytes, view_tiles
from .view_pass import block_extremes, block_shares

EQUAL_FACTORS = 1e-4
"""Views whose row factors differ by at most this relative range are treated as positive semi-definite if their kernel is. With ``d = c +
e``, the smallest eigenvalue of ``(D K + K D) / 2`` is at least ``-||E K E|| / (4 c)``. For factors in this range, the size of this bound is
below the rounding of entries in single precision.
"""


@dataclass(frozen=True)
class Normal:
    """Normalisation of raw blocks. For every kernel: row means and inverse square roots of the diagonal, together ``(k, 2, n)``; scale and
    mean.
    """

    tables: Shared | None = None  # none: entries are taken as they are
    scalars: tuple[tuple[float, float], ...] = ()

    @classmethod
    def of(cls, norms: Sequence[Normalization]) -> tuple[Normal, np.ndarray]:
        """Return the normalisation, and the part of the scale ``(k,)`` that the row factors include. For kernels that are only scaled, this
        is the whole scale.
        """
        if all(norm.only_scales for norm in norms):
            return cls(), np.array([norm.scale for norm in norms])
        n = max(len(table) for norm in norms for table in (norm.row_mean, norm.diag_root) if table is not None)
        means = [np.zeros(n) if norm.row_mean is None else norm.row_mean for norm in norms]
        roots = [np.ones(n) if norm.diag_root is None else _inverse(norm.diag_root) for norm in norms]
        return cls(np.stack([means, roots], axis=1), tuple((norm.scale, norm.mean) for norm in norms)), np.ones(len(norms))

    def of_block(self, block: ViewBlock) -> np.ndarray:
        """Return the normalised kernels of a block, float32 ``(k, rows, columns)``."""
        return self.apply(block.raw, np.arange(*block.rows), np.arange(*block.cols))

    def apply(self, block: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return normalised kernels from raw kernels between the given users."""
        if self.tables is None:
            return block
        tables, out = resolve(self.tables), np.empty(block.shape, np.float32)
        for q, (scale, mean) in enumerate(self.scalars):
            values, (means, roots) = block[q].astype(np.float64), tables[q]
            if mean or means.any():
                # Both means are added first, so that a symmetric block stays exactly symmetric.
                values -= (means[rows][:, None] + means[cols]) - mean
            values *= roots[rows][:, None] * roots[cols]
            out[q] = values * scale
        return out


LANCZOS_SHARE = 0.25  # share of the driver's memory that vectors of Lanczos steps may take


@dataclass(frozen=True)
class PlacedTile:
    """A tile, and for each of its blocks the requested positions that lie in the block, as a range of the sorted positions of the pass."""

    tile: ViewTile
    bounds: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        return self.tile.nbytes


class Survey(NamedTuple):
    """Largest entries of some blocks, and their entries at requested positions.

    * ``extremes``: by range of users, the largest entry and the largest absolute entry of each user's row, ``(2, k, users)``.
    * ``entries``: arrays ``(k, m)`` of the entries at m consecutive positions, each with the index of its first position.
    """

    extremes: Spans
    entries: list[tuple[int, np.ndarray]]


class Sums(NamedTuple):
    """Sums over some blocks.

    * ``products``: inner products ``(k, k)``.
    * ``rows``, ``diagonal``: row sums and diagonals ``(k, users)``, by range of users.
    """

    products: np.ndarray
    rows: Spans
    diagonal: Spans


def survey_chunk(placed: PlacedTile, normal: Normal, places: Shared) -> Survey:
    """Return the largest entries of rows within the blocks of a tile, and the entries at the positions ``places`` ``(2, m)``."""
    rows, cols = resolve(places)
    extremes: Spans = {}
    entries = []
    for part, (lo, hi) in zip(placed.tile.blocks(), placed.bounds, strict=True):
        block = normal.of_block(part)
        to_rows, to_cols = block_extremes(block)
        extremes = merge_spans([extremes, {part.rows: to_rows}, {part.cols: to_cols}], np.maximum)
        if hi > lo:
            entries.append((lo, block[:, rows[lo:hi] - part.rows[0], cols[lo:hi] - part.cols[0]].astype(np.float64)))
    return Survey(extremes, entries)


def join_surveys(parts: Sequence[Survey]) -> Survey:
    """Combine results of :func:`survey_chunk`."""
    return Survey(merge_spans([part.extremes for part in parts], np.maximum), join_lists([part.entries for part in parts]))


def sums_chunk(tile: ViewTile, normal: Normal, factors: Shared, mask: Shared) -> Sums:
    """Return the contributions of the blocks of a tile to the sums of the views, over the users in the mask."""
    scale, members = resolve(factors), resolve(mask)
    products = np.zeros((len(scale), len(scale)))
    rows: Spans = {}
    diagonal: Spans = {}
    for part in tile.blocks() if members[slice(*tile.rows)].any() and members[slice(*tile.cols)].any() else ():
        views = scaled_block(normal.of_block(part), scale[:, slice(*part.rows)], scale[:, slice(*part.cols)])
        share = block_shares(views, part.rows, part.cols, members)
        products += share.products
        if share.diagonal is not None:
            rows = merge_spans([rows, {part.rows: share.to_rows}], np.add)
            diagonal[part.rows] = share.diagonal
        else:
            rows = merge_spans([rows, {part.rows: share.to_rows}, {part.cols: share.to_cols}], np.add)
    return Sums(products, rows, diagonal)


def join_sums(parts: Sequence[Sums]) -> Sums:
    """Combine results of :func:`sums_chunk`; contributions are added in order."""
    rows, diagonal = (merge_spans([getattr(part, name) for part in parts], np.add) for name in ("rows", "diagonal"))
    return Sums(add_parts([part.products for part in parts]), rows, diagonal)


def diagonal_chunk(tile: ViewTile) -> list[Spans]:
    """Return the raw diagonals of the diagonal blocks."""
    return [{part.rows: np.diagonal(part.raw, axis1=1, axis2=2).astype(np.float64)} for part in tile.blocks()]


def block_product_chunk(tile: ViewTile, which: tuple[int, ...], vectors: Shared) -> Spans:
    """Return the contributions of the blocks of a tile to the products of raw views with vectors ``(a, c, n)``: one array ``(a, c, users)``
    for each range of users.
    """
    v = resolve(vectors)
    out: Spans = {}
    for part in tile.blocks():
        block = part.raw[list(which)].astype(np.float64)
        with one_thread():
            shares = [{part.rows: np.matmul(v[:, :, slice(*part.cols)], block.transpose(0, 2, 1))}]
            if part.rows != part.cols:
                shares.append({part.cols: np.matmul(v[:, :, slice(*part.rows)], block)})
        out = merge_spans([out, *shares], np.add)
    return out


def column_product_chunk(task: Task, columns: tuple[Any, ...], n: int, vectors: Shared) -> np.ndarray:
    """Return the contributions of some stripes to products ``(a, c, n)``.

    An integer in ``columns`` is the first column of a sparse view S, whose product is ``S v``. Any other entry lists the columns Z of a
    linear view (None: all), whose product is ``Z Z' v``.
    """
    v = resolve(vectors)
    out = np.zeros(v.shape)
    for ref in task:
        block = load_block(ref, centred=not isinstance(columns[0], int))
        X: Any = scaled(block.X, FeatureScale(block.factor, block.shift), source_of(ref).scale.row_factor)
        lo, hi = block.offset, block.offset + block.width
        for a, chosen in enumerate(columns):
            if isinstance(chosen, int):
                first, last = max(lo, chosen), min(hi, chosen + n)
                if first < last:
                    out[a] += (X[:, first - lo : last - lo] @ v[a][:, first - chosen : last - chosen].T).T
                continue
            Z = X if chosen is None else X[:, [j - lo for j in chosen if lo <= j < hi]]
            if Z.shape[1]:
                out[a] += (Z @ (Z.T @ v[a].T)).T
    return out


class BlockViews:
    """Views of the users of a data set by passes over block pairs.

    ``specs`` are kernels over features, or those of :func:`similarity_kernels`.
    """

    def __init__(self, data: Any, resources: Resources, specs: Sequence[Any]) -> None:
        self.data, self.resources = data, resources
        self.specs, self.given = tuple(specs), is_given_kernel(specs)
        self.n, self.k = data.n_rows, len(self.specs)
        self.tiles = view_tiles(data, self.specs)
        self.block = self.tiles[0].layout.edge
        resources.emit({"event": "grams", "policy": "blocks", "kernels": self.k, "gram_block_rows": self.block})
        self.normalizations = make_normalizations(self.specs, self._kernel_sums())
        self._normal, self.scale = Normal.of(self.normalizations)

    @property
    def normal(self) -> Normal:
        """The normalisation in the form that tasks receive."""
        tables = self._normal.tables
        if tables is None:
            return self._normal
        return replace(self._normal, tables=self.resources.share("norms", resolve(tables), len(self.tiles)))

    def _kernel_sums(self) -> list[KernelSums]:
        diagonals = self._diagonals()
        if all(map(needs_diagonal_only, self.specs)):
            return KernelSums.of_diagonals(diagonals)
        ones = np.ones((1, self.n))
        rows = [image[0] for image in self._raw_products(list(range(self.k)), [ones] * self.k)]
        return [KernelSums(float(d.sum()), d, row, float(row.sum())) for d, row in zip(diagonals, rows, strict=True)]

    def _diagonals(self) -> np.ndarray:
        out = np.empty((self.k, self.n))
        for part in self.resources.run_pass(diagonals_pass(self.data, self.specs)):
            for span, values in part.items():
                out[:, slice(*span)] = values
        return out

    def survey(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return three results of one pass: the largest entry of every row of every matrix ``(k, n)``, the largest absolute entry ``(k,
        n)``, and the entries ``(k, m)`` at the positions ``places`` ``(2, m)`` of rows and columns.
        """
        upper = np.stack([places.min(axis=0), places.max(axis=0)]) if places.size else np.zeros((2, 0), np.int64)
        blocks = upper // self.block
        codes = blocks[0] * self.n + blocks[1]
        order = np.argsort(codes, kind="stable")
        placed = [PlacedTile(tile, self._bounds(tile, codes[order])) for tile in self.tiles]
        shared = self.resources.share("places", np.ascontiguousarray(upper[:, order]), len(placed))
        work = survey_pass(placed, (self.k, self.n, self.block), upper.shape[1], self.normal, shared)
        found: Survey = self.resources.run_pass(work)
        extremes, entries = np.empty((2, self.k, self.n)), np.empty((self.k, upper.shape[1]))
        for span, values in found.extremes.items():
            extremes[:, :, slice(*span)] = values
        for first, values in found.entries:
            entries[:, order[first : first + values.shape[1]]] = values
        return *(extremes * self.scale[:, None]), entries * self.scale[:, None]

    def _bounds(self, tile: ViewTile, codes: np.ndarray) -> tuple[tuple[int, int], ...]:
        starts = np.array([rows[0] // self.block * self.n + cols[0] // self.block for rows, cols in tile.spans()])
        return tuple(zip(np.searchsorted(codes, starts).tolist(), np.searchsorted(codes, starts + 1).tolist(), strict=True))

    def sums(self, factors: np.ndarray, shifts: np.ndarray, mask: np.ndarray) -> MatrixSums:
        """Return the sums of the views over the users in the mask ``(n,)``, in one pass."""
        shared = self.factors(factors), self.resources.share("mask", mask, len(self.tiles))
        found: Sums = self.resources.run_pass(sums_pass(self.tiles, (self.k, self.n, self.block), self.normal, *shared))
        rows, diagonals = np.zeros((self.k, self.n)), np.zeros((self.k, self.n))
        for whole, part in ((rows, found.rows), (diagonals, found.diagonal)):
            for span, values in part.items():
                whole[:, slice(*span)] = values
        return MatrixSums(found.products, rows, diagonals, int(mask.sum())).shifted(shifts, mask)

    def factors(self, factors: np.ndarray) -> Shared:
        """Return row factors of raw entries ``(k, n)`` in the form that tasks receive."""
        return self.resources.share("factors", factors * self.scale[:, None], len(self.tiles))

    def least_eigenvalues(self, factors: np.ndarray) -> np.ndarray:
        """Return the smallest eigenvalue of every view before its shift, ``(k,)``, or a slightly smaller value. Lanczos steps are taken for
        several views at a time.

        A view that is a multiple of a kernel matrix has no negative eigenvalue apart from rounding.
        """
        out = np.zeros(self.k)
        searched = [q for q in range(self.k) if self.given or np.ptp(factors[q]) > EQUAL_FACTORS * factors[q].max()]
        together = lanczos_views(self.n, self.k, self.resources.driver_memory)
        for lo in range(0, len(searched), together):
            batch = searched[lo : lo + together]
            out[batch] = self._search(batch, factors)
        return out

    def _search(self, batch: list[int], factors: np.ndarray) -> list[float]:
        def products(which: list[int], vectors: list[np.ndarray]) -> list[np.ndarray]:
            views = [batch[a] for a in which]
            stacked = [np.stack([v, factors[q] * v]) for q, v in zip(views, vectors, strict=True)]
            images = self._products(views, stacked)
            return [0.5 * (factors[q] * image[0] + image[1]) for q, image in zip(views, images, strict=True)]

        return least_eigenvalues([self.n] * len(batch), products)

    def largest_row_sum(self) -> np.ndarray:
        """Return the largest absolute row sum of every raw matrix, ``(k,)``. It is at most sqrt(n) times the largest absolute
        eigenvalue.
        """
        images = self._products(list(range(self.k)), [np.ones((1, self.n))] * self.k)
        return np.array([np.abs(image).max() for image in images])

    def _products(self, which: list[int], vectors: list[np.ndarray]) -> list[np.ndarray]:
        """Return the products of normalised matrices with vectors, ``(c, n)`` each."""
        norms = [self.normalizations[q] for q in which]
        roots = [None if norm.diag_root is None else _inverse(norm.diag_root) for norm in norms]
        inner = [v if root is None else v * root for v, root in zip(vectors, roots, strict=True)]
        images = [_centred(raw, norm, v) for raw, norm, v in zip(self._raw_products(which, inner), norms, inner, strict=True)]
        scaled_images = [image * norm.scale for image, norm in zip(images, norms, strict=True)]
        return [image if root is None else image * root for image, root in zip(scaled_images, roots, strict=True)]

    def _raw_products(self, which: list[int], vectors: list[np.ndarray]) -> list[np.ndarray]:
        """Return the products of raw matrices with vectors, ``(c, n)`` each, by a pass over stripes, and one over blocks if needed."""
        by_columns = [a for a, q in enumerate(which) if self.given or is_linear(self.specs[q])]
        by_blocks = [a for a in range(len(which)) if a not in by_columns]
        out: dict[int, np.ndarray] = {}
        for chosen, multiply in ((by_columns, self._column_products), (by_blocks, self._block_products)):
            if chosen:
                out |= dict(zip(chosen, multiply([which[a] for a in chosen], np.stack([vectors[a] for a in chosen])), strict=True))
        return [out[a] for a in range(len(which))]

    def _column_products(self, which: list[int], vectors: np.ndarray) -> np.ndarray:
        tasks = column_tasks(self.data)
        columns = tuple(q * self.n if self.given else self.specs[q].columns for q in which)
        shared = self.resources.share("vectors", vectors, len(tasks))
        return self.resources.run_pass(column_products_pass(tasks, vectors.size, columns, self.n, shared))

    def _block_products(self, which: list[int], vectors: np.ndarray) -> np.ndarray:
        shared = self.resources.share("vectors", vectors, len(self.tiles))
        out = np.zeros(vectors.shape)
        for span, values in self.resources.run_pass(block_products_pass(self.tiles, vectors.size, tuple(which), shared)).items():
            out[:, :, slice(*span)] = values
        return out

    def check_symmetric(self) -> None:
        """Check in one pass that sparse similarities S are symmetric: ``S r`` and ``S' r`` must agree for a random vector r.

        Raises DataError, which names the view.
        """
        data, r = self.data, np.random.default_rng(0).standard_normal(self.n)
        tasks = column_tasks(data)
        found = self.resources.run_pass(symmetry_pass(tasks, self.n, self.k, self.resources.share("vectors", r, len(tasks))))
        for q, (one, other) in enumerate(found):
            if np.abs(one - other).max() > SYMMETRIC * np.sqrt(self.n) * max(float(np.abs(one).max()), float(np.abs(other).max())):
                raise DataError(f"view {q} is not symmetric", "" if data.url == "memory" else data.url)


def symmetry_chunk(task: Task, n: int, k: int, vector: Shared) -> np.ndarray:
    """Return the contributions of some stripes of sparse similarities to ``S r`` and ``S' r``, ``(k, 2, n)``."""
    r, out = resolve(vector), np.zeros((k, 2, n))
    for ref in task:
        block = load_block(ref, centred=False)
        for q in range(k):
            first, last = max(block.offset, q * n), min(block.offset + block.width, (q + 1) * n)
            if first < last:
                part: Any = block.X[:, first - block.offset : last - block.offset]
                own = slice(first - q * n, last - q * n)
                out[q, 0] += part @ r[own]
                out[q, 1, own] += part.T @ r
    return out


def _centred(raw: np.ndarray, norm: Normalization, v: np.ndarray) -> np.ndarray:
    if norm.row_mean is None:
        return raw
    totals = v.sum(axis=1, keepdims=True)
    return raw - norm.row_mean * totals - (v @ norm.row_mean)[:, None] + norm.mean * totals


def _inverse(root: np.ndarray) -> np.ndarray:
    return np.divide(1.0, root, out=np.zeros_like(root), where=root > 0.0)


def lanczos_views(n: int, k: int, driver_memory: int) -> int:
    """Return how many of the k views may have their smallest eigenvalues computed at the same time within the driver's memory."""
    return int(np.clip(LANCZOS_SHARE * driver_memory // (8 * LANCZOS_STEPS * n), 1, k))


# -- passes ------------------------------------------------------------------------------------------------------------------------

Sizes = tuple[int, int, int]  # views, users, users of a block


def diagonals_pass(data: Any, specs: Sequence[Any]) -> Plan[list[Spans]]:
    """Return the pass over the raw diagonals."""
    tiles = view_tiles(data, specs, "diagonal")
    size = 8 * len(specs) * (tiles[0].rows[1] - tiles[0].rows[0]) + 512 * TALL_BLOCKS
    return plan(BlockProgram("view-diagonals", diagonal_chunk, join_lists, tile_bytes, size, combine_bytes=2 * size * len(tiles)), tiles)


def survey_pass(placed: Sequence[PlacedTile], sizes: Sizes, places: int, *broadcast: object) -> Plan[Survey]:
    """Return the pass that computes the extremes of every user's row and the entries at given positions, each in one block."""
    k, n, block = sizes
    blocks = -(-n // block)
    extremes, entries = 16 * k * n + 512 * blocks, 8 * k * places + 256 * min(places, blocks * blocks)

    def step_bytes(item: PlacedTile) -> int:
        inside = sum(hi - lo for lo, hi in item.bounds)
        return tile_bytes(item.tile) + 16 * k * (inside + 2 * n)

    joined, size = 9 * extremes + 2 * entries, extremes + entries
    return plan(BlockProgram("view-survey", survey_chunk, join_surveys, step_bytes, size, combine_bytes=joined), placed, *broadcast)


def sums_pass(tiles: Sequence[ViewTile], sizes: Sizes, *broadcast: object) -> Plan[Sums]:
    """Return the pass that computes inner products of views, and row sums and diagonals for all users."""
    k, n, block = sizes
    size = 8 * k * k + 16 * k * n + 1024 * (-(-n // block))
    return plan(BlockProgram("view-block-sums", sums_chunk, join_sums, lambda tile: tile_bytes(tile) + size, size), tiles, *broadcast)


def column_products_pass(tasks: Sequence[Task], size: int, *broadcast: object) -> Plan[np.ndarray]:
    """Return the pass that multiplies stripes by vectors of ``size`` numbers."""
    program = BlockProgram("view-products", column_product_chunk, add_parts, lambda task: product_bytes(task, size), 8 * size)
    return plan(program, tasks, *broadcast)


def block_products_pass(tiles: Sequence[ViewTile], size: int, *broadcast: object) -> Plan[Spans]:
    """Return the pass that multiplies blocks by vectors of ``size`` numbers."""
    bound = 8 * size + 512 * (-(-tiles[-1].cols[1] // tiles[0].layout.edge))
    program = BlockProgram("view-block-products", block_product_chunk, add_spans, lambda tile: tile_bytes(tile) + 2 * bound, bound)
    return plan(program, tiles, *broadcast)


def symmetry_pass(tasks: Sequence[Task], n: int, k: int, *broadcast: object) -> Plan[np.ndarray]:
    """Return the pass that multiplies k sparse views S by a vector r, as ``S r`` and ``S' r``."""
    program = BlockProgram("view-symmetry", symmetry_chunk, add_parts, lambda task: product_bytes(task, 2 * k * n), 16 * k * n)
    return plan(program, tasks, n, k, *broadcast)


def view_passes(data: Any, specs: Sequence[Any], places: int, driver_memory: int, *, searched: bool) -> Iterator[Plan[Any]]:
    """Yield the passes of a fit over its views without running them. Each pass is planned for the largest number of vectors that it may
    receive. ``searched``: whether the smallest eigenvalues are computed.
    """
    k, n, tiles, given = len(specs), data.n_rows, view_tiles(data, specs), is_given_kernel(specs)
    sizes, stripes = (k, n, tiles[0].layout.edge), column_tasks(data) if data.n_cols else []
    yield diagonals_pass(data, specs)
    yield survey_pass([PlacedTile(tile, ((0, places),)) for tile in tiles], sizes, places)
    yield sums_pass(tiles, sizes)
    # Of Lanczos steps two vectors a view; of row sums one, of all views at once.
    vectors = [2 * n * lanczos_views(n, k, driver_memory)] if searched else []
    vectors += [n * k] if given or not all(map(needs_diagonal_only, specs)) else []
    by_columns = [given or is_linear(spec) for spec in specs]
    for size in vectors:
        if any(by_columns):
            yield column_products_pass(stripes, size)
        if not all(by_columns):
            yield block_products_pass(tiles, size)
    if given:
        yield symmetry_pass(stripes, n, k)


def is_linear(spec: Any) -> bool:
    """Return whether products with a view are sums over stripes of columns."""
    return isinstance(spec, KernelSpec) and spec.name == "linear"


def product_bytes(task: Task, size: int) -> int:
    """Return the memory in bytes of a task that multiplies stripes: one stripe in float64 with a copy, vectors of ``size`` numbers, and
    results.
    """
    return 5 * task_bytes(task) + 32 * size + FREED_BYTES
