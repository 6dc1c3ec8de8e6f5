"""Scores of users with all users, block by block: lists of the best users and groups, and products with the graph of strengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.blocks import gram_block
from ....kernels.ranking.tags import TopLists
from ....kernels.ranking.user_kernels import scaled_block
from ....storage.errors import SparseMatrix
from ...core.resources import Resources, Shared, resolve
from ...grams.sources import rows_at, rows_of
from ...passes.blocks import Blocks, Spans, add_spans, join_lists, merge_spans
from ...records.data_set import DataSet
from .block_pass import Normal
from .tile_pass import ViewBlock, ViewTile, is_given_kernel, similar_columns, tile_bytes, view_tiles

BLOCK_ENTRIES = 1 << 22  # entries of a block of scores that are computed at a time outside a pass


@dataclass(frozen=True)
class Scorer:
    """``f(u, v) = offset + sum_t w_t K'^t(u, v)`` for one or several rows of weights ``(s, k)``, with the factors that convert raw entries
    into views.
    """

    normal: Normal
    factors: Shared  # (k, n), scales of kernels in them
    shifts: np.ndarray  # (k,)
    weights: np.ndarray  # (s, k)
    offsets: np.ndarray  # (s,)

    def block(self, raw: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return the scores ``(s, rows, columns)`` of raw entries ``(k, rows, columns)`` between the given users."""
        factors, normalised = resolve(self.factors), self.normal.apply(raw, rows, cols)
        out = np.zeros((len(self.weights), *raw.shape[1:]))
        for q, part in enumerate(normalised):
            view = scaled_block(part, factors[q, rows], factors[q, cols])
            for total, weight in zip(out, self.weights[:, q], strict=True):
                if weight:
                    total += weight * view
        out += self.offsets[:, None, None]
        same = rows[:, None] == cols
        if same.any():
            out[:, same] += (self.weights @ self.shifts)[:, None]
        return out

    def of_block(self, block: ViewBlock) -> np.ndarray:
        """Return the scores of a block, ``(s, rows, columns)``."""
        return self.block(block.raw, np.arange(*block.rows), np.arange(*block.cols))

    def of_views(self, specs: Sequence[Any]) -> tuple[list[Any], Scorer]:
        """Return the views with non-zero weight (at least one), and a scorer for blocks of these alone."""
        used = np.flatnonzero(self.weights.any(axis=0)) if self.weights.any() else np.arange(1)
        normal, factors = self.normal, resolve(self.factors)
        if normal.tables is not None:
            normal = Normal(resolve(normal.tables)[used], tuple(normal.scalars[q] for q in used.tolist()))
        return [specs[q] for q in used.tolist()], Scorer(normal, factors[used], self.shifts[used], self.weights[:, used], self.offsets)

    def shared(self, resources: Resources, tasks: int) -> Scorer:
        """Return the scorer in the form that tasks receive."""
        tables = self.normal.tables
        normal = self.normal if tables is None else Normal(resources.share("norms", resolve(tables), tasks), self.normal.scalars)
        return Scorer(normal, resources.share("factors", resolve(self.factors), tasks), self.shifts, self.weights, self.offsets)


def top_chunk(tile: ViewTile, scorer: Scorer, first: int) -> list[list[TopLists]]:
    """Return the top candidates of the users of a tile, one list per row of weights."""
    lo, hi = tile.rows
    lists = [TopLists.empty(hi - lo, first) for _ in scorer.weights]
    for part in tile.blocks():
        users = np.arange(*part.rows)
        for mine, scores in zip(lists, scorer.of_block(part), strict=True):
            mine.part(part.rows[0] - lo, part.rows[1] - lo).offer(scores, part.cols[0], users)
    return [lists]


def top_plan(
    data: DataSet, specs: Sequence[Any], scorer: Scorer, first: int, resources: Resources | None = None
) -> Plan[list[list[TopLists]]]:
    """Return the pass that finds the top candidates of every user."""
    tiles, s = view_tiles(data, specs, "all"), len(scorer.weights)
    size = 16 * s * first * (tiles[0].rows[1] - tiles[0].rows[0]) + 512 * s

    def step_bytes(tile: ViewTile) -> int:
        return tile_bytes(tile) + 16 * s * tile.layout.edge**2 + size

    program = BlockProgram("tops", top_chunk, join_lists, step_bytes, size, combine_bytes=2 * size * len(tiles))
    return plan(program, tiles, scorer if resources is None else scorer.shared(resources, len(tiles)), first)


def top_lists(data: DataSet, resources: Resources, specs: Sequence[Any], scorer: Scorer, first: int) -> list[TopLists]:
    """Return, for every user, the top candidates other than the user, in one pass; one list per row of weights."""
    parts = resources.run_pass(top_plan(data, *scorer.of_views(specs), first, resources))
    return [TopLists(*(np.concatenate(arrays) for arrays in zip(*lists, strict=True))) for lists in zip(*parts, strict=True)]


def logistic(values: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-f))``."""
    return np.exp(-np.logaddexp(0.0, -values))


@dataclass(frozen=True)
class Members:
    """Groups of the users, CSR ``(n, groups)``: its arrays, and the number of groups."""

    indices: Shared
    indptr: Shared
    width: int

    def matrix(self) -> SparseMatrix:
        """Return the binary matrix of members."""
        indices, indptr = resolve(self.indices), resolve(self.indptr)
        return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(indptr) - 1, self.width))


def group_chunk(tile: ViewTile, scorer: Scorer, members: Members, first: int, strengths: bool) -> list[TopLists]:
    """Return, for the users of a tile, the groups with the largest sum of members' scores; groups that the user has joined are excluded."""
    (lo, hi), incidence = tile.rows, members.matrix()
    totals = np.zeros((hi - lo, members.width))
    for part in tile.blocks():
        scores = scorer.of_block(part)[0]
        totals[part.rows[0] - lo : part.rows[1] - lo] += (logistic(scores) if strengths else scores) @ incidence[slice(*part.cols)]
    return [best_groups(totals, incidence[lo:hi], first)]


def best_groups(totals: np.ndarray, joined: SparseMatrix, first: int) -> TopLists:
    """Return the top groups by ``totals`` ``(users, groups)`` that are not ``joined`` (CSR); ties are ordered by number."""
    lists = TopLists.empty(len(totals), first)
    for i, row in enumerate(totals):
        order = np.argsort(-row, kind="stable")
        order = order[~np.isin(order, joined.indices[slice(*joined.indptr[i : i + 2])])][:first]
        lists.ids[i, : len(order)], lists.scores[i, : len(order)] = order, row[order]
    return lists


def group_lists(
    data: DataSet, resources: Resources, specs: Sequence[Any], scorer: Scorer, candidates: SparseMatrix, first: int, *, strengths: bool
) -> TopLists:
    """Return the top groups of all users among ``candidates`` (CSR ``(n, groups)``, one column each), in one pass."""
    specs, scorer = scorer.of_views(specs)
    tiles = view_tiles(data, specs, "all")
    rows, width = tiles[0].rows[1] - tiles[0].rows[0], candidates.shape[1]
    size = 16 * first * rows + 512
    indices, indptr = (resources.share(name, getattr(candidates, name), len(tiles)) for name in ("indices", "indptr"))

    def step_bytes(tile: ViewTile) -> int:
        return tile_bytes(tile) + 8 * rows * width + 16 * tile.layout.edge * (width + tile.layout.edge) + 40 * candidates.nnz + size

    program = BlockProgram("group-tops", group_chunk, join_lists, step_bytes, size, combine_bytes=2 * size * len(tiles))
    parts = resources.run_pass(
        plan(program, tiles, scorer.shared(resources, len(tiles)), Members(indices, indptr, width), first, strengths)
    )
    return TopLists(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def strength_chunk(tile: ViewTile, scorer: Scorer, vectors: Shared) -> Spans:
    """Return the contributions of the blocks of a tile to the products of the strengths of ties with vectors ``(c, n)``, as one array for
    each range of users.
    """
    v = resolve(vectors)
    out: Spans = {}
    for part in tile.blocks():
        strengths = logistic(scorer.of_block(part)[0])
        if part.rows == part.cols:
            np.fill_diagonal(strengths, 0.0)
        else:
            out = merge_spans([out, {part.cols: v[:, slice(*part.rows)] @ strengths}], np.add)
        out = merge_spans([out, {part.rows: v[:, slice(*part.cols)] @ strengths.T}], np.add)
    return out


def strength_products(data: DataSet, resources: Resources, specs: Sequence[Any], scorer: Scorer, vectors: np.ndarray) -> np.ndarray:
    """Return the products of the strengths of ties, without their diagonal, with vectors ``(c, n)``, in one pass."""
    specs, scorer = scorer.of_views(specs)
    tiles = view_tiles(data, specs)
    bound = vectors.nbytes + 512 * (-(-data.n_rows // tiles[0].layout.edge))

    def step_bytes(tile: ViewTile) -> int:
        return tile_bytes(tile) + 32 * tile.layout.edge**2 + 2 * bound

    program = BlockProgram("strength-products", strength_chunk, add_spans, step_bytes, bound)
    shared = scorer.shared(resources, len(tiles)), resources.share("vectors", vectors, len(tiles))
    out = np.zeros(vectors.shape)
    for span, values in resources.run_pass(plan(program, tiles, *shared)).items():
        out[:, slice(*span)] = values
    return out


def raw_between(data: Blocks, specs: Sequence[Any], users: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return raw similarities between ``users`` and ``others``, float32 ``(k, users, others)``."""
    if is_given_kernel(specs):
        columns: SparseMatrix = sp.csr_array(data.columns(similar_columns(specs, data.n_rows, users)))
        part = columns[others].toarray().reshape(len(others), len(specs), len(users))
        return np.ascontiguousarray(part.astype(np.float32).transpose(1, 2, 0))
    left, right = (rows_at(data, ids) if data.n_cols else rows_of(data, 0, data.n_rows)[ids] for ids in (users, others))
    return gram_block(specs, left, right, dtype=np.float32)
