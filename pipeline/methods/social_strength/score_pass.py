"""Scores of users with all users, block by block: lists of the best, of groups, and products with the graph of strengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.blocks import gram_block
from ....kernels.ranking.top_lists import TopLists
from ....kernels.ranking.user_kernels import scaled_block
from ...grams.given import GivenKernel

from ...grams.sources import block_rows, group_pairs, pairs, rows_at, rows_of
from ...passes.blocks import join_lists
from ...records.context import RunContext, Shared, resolve
from .block_pass import Normal, Spans, ViewPair, add_spans, merge_spans, similarity_block, view_pair, view_pair_bytes

BLOCK_ENTRIES = 1 << 22  # entries of a block of scores that are computed at a time outside a pass


@dataclass(frozen=True)
class Scorer:
    """``f(u, v) = offset + sum_t w_t K'^t(u, v)`` of one or several rows of weights ``(s, k)``, with what makes views of raw entries."""

    normal: Normal
    factors: Shared  # (k, n), scales of kernels in them
    shifts: np.ndarray  # (k,)
    weights: np.ndarray  # (s, k)
    offsets: np.ndarray  # (s,)

    def block(self, raw: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return the scores ``(s, rows, columns)`` of raw entries ``(k, rows, columns)`` between some users."""
        factors = resolve(self.factors)
        views = scaled_block(self.normal.apply(raw, rows, cols), factors[:, rows], factors[:, cols])
        out = np.zeros((len(self.weights), *raw.shape[1:]))
        for total, weights, offset in zip(out, self.weights, self.offsets, strict=True):
            for weight, view in zip(weights, views, strict=True):
                total += weight * view
            total += offset
        same = rows[:, None] == cols
        if same.any():
            out[:, same] += (self.weights @ self.shifts)[:, None]
        return out

    def of_pair(self, ref: ViewPair) -> np.ndarray:
        """Return the scores of a block pair."""
        return self.block(ref.load(), np.arange(*ref.rows), np.arange(*ref.cols))

    def shared(self, ctx: RunContext, tasks: int) -> Scorer:
        """Return it as tasks take it."""
        tables = self.normal.tables
        normal = self.normal if tables is None else Normal(ctx.broadcast("norms", resolve(tables), tasks), self.normal.scalars)
        return Scorer(normal, ctx.broadcast("factors", resolve(self.factors), tasks), self.shifts, self.weights, self.offsets)


RowTask = tuple[ViewPair, ...]  # some users, with all users block by block


def row_tasks(data: Any, specs: Sequence[Any]) -> list[RowTask]:
    """Return the tasks of a pass over the scores of all users."""
    n, block = data.n_rows, block_rows(data.n_rows, len(specs))
    spans = [(lo, min(lo + block, n)) for lo in range(0, n, block)]
    return [tuple(view_pair(data, specs, rows, cols) for cols in spans) for rows in spans]


def top_chunk(task: RowTask, scorer: Scorer, first: int) -> list[list[TopLists]]:
    """Return for some users the lists of the first candidates by every row of weights."""
    users = np.arange(*task[0].rows)
    lists = [TopLists.empty(len(users), first) for _ in scorer.weights]
    for ref in task:
        for mine, scores in zip(lists, scorer.of_pair(ref), strict=True):
            mine.offer(scores, ref.cols[0], users)
    return [lists]


def top_plan(data: Any, specs: Sequence[Any], scorer: Scorer, first: int, ctx: RunContext | None = None) -> Plan[Any]:
    """Return the pass that finds the first candidates of every user."""
    tasks, s = row_tasks(data, specs), len(scorer.weights)
    size = 16 * s * first * (tasks[0][0].rows[1] - tasks[0][0].rows[0]) + 512 * s

    def step_bytes(task: RowTask) -> int:
        return max(map(view_pair_bytes, task)) + s * 2 * max(ref.nbytes // len(specs) * 2 for ref in task) + size

    program = BlockProgram("tops", top_chunk, join_lists, step_bytes, size, combine_bytes=2 * size * len(tasks))
    return plan(program, tasks, scorer if ctx is None else scorer.shared(ctx, len(tasks)), first)


def top_lists(ctx: RunContext, specs: Sequence[Any], scorer: Scorer, first: int) -> list[TopLists]:
    """Return the lists of the first candidates of all users, by every row of weights; a user is none of his own. One pass."""
    parts = ctx.run_pass(top_plan(ctx.data, specs, scorer, first, ctx))
    return [TopLists(*(np.concatenate(arrays) for arrays in zip(*lists, strict=True))) for lists in zip(*parts, strict=True)]


def logistic(values: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-f))``."""
    return np.exp(-np.logaddexp(0.0, -values))


@dataclass(frozen=True)
class Members:
    """Groups that users are in, CSR ``(n, groups)``: its arrays, and the number of groups."""

    indices: Shared
    indptr: Shared
    width: int

    def matrix(self) -> Any:
        """Return the binary incidence."""
        indices, indptr = resolve(self.indices), resolve(self.indptr)
        return sp.csr_array((np.ones(len(indices)), indices, indptr), shape=(len(indptr) - 1, self.width))


def group_chunk(task: RowTask, scorer: Scorer, members: Members, first: int, strengths: bool) -> list[TopLists]:  # noqa: FBT001 (of a task)
    """Return for some users the first groups by the sum of their members' scores; those joined already are left out."""
    users, incidence = np.arange(*task[0].rows), members.matrix()
    totals = np.zeros((len(users), members.width))
    for ref in task:
        scores = scorer.of_pair(ref)[0]
        totals += (logistic(scores) if strengths else scores) @ incidence[slice(*ref.cols)]
    return [best_groups(totals, incidence[users], first)]


def best_groups(totals: np.ndarray, joined: Any, first: int) -> TopLists:
    """Return the first groups by ``totals`` ``(users, groups)`` that are not ``joined`` (CSR), equal ones in order of their number."""
    lists = TopLists.empty(len(totals), first)
    for i, row in enumerate(totals):
        order = np.argsort(-row, kind="stable")
        order = order[~np.isin(order, joined.indices[slice(*joined.indptr[i : i + 2])])][:first]
        lists.ids[i, : len(order)], lists.scores[i, : len(order)] = order, row[order]
    return lists


def group_lists(ctx: RunContext, specs: Sequence[Any], scorer: Scorer, candidates: Any, first: int, *, strengths: bool) -> TopLists:
    """Return the first groups of all users, of ``candidates`` (CSR ``(n, groups)``, a column each), in one pass."""
    tasks = row_tasks(ctx.data, specs)
    rows, width = tasks[0][0].rows[1] - tasks[0][0].rows[0], candidates.shape[1]
    size = 16 * first * rows + 512
    arrays = [ctx.broadcast(name, array, len(tasks)) for name, array in (("groups", candidates.indices), ("group-starts", candidates.indptr))]
    members = Members(*arrays, width)

    def step_bytes(task: RowTask) -> int:
        return max(map(view_pair_bytes, task)) + 24 * rows * width + 40 * candidates.nnz + size

    program = BlockProgram("group-tops", group_chunk, join_lists, step_bytes, size, combine_bytes=2 * size * len(tasks))
    parts = ctx.run_pass(plan(program, tasks, scorer.shared(ctx, len(tasks)), members, first, strengths))
    return TopLists(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def strength_chunk(group: tuple[ViewPair, ...], scorer: Scorer, vectors: Shared) -> Spans:
    """Return what some block pairs add to the products of the strengths between users with vectors ``(c, n)``, by range of users."""
    v, parts = resolve(vectors), []
    for ref in group:
        strengths = logistic(scorer.of_pair(ref)[0])
        if ref.rows == ref.cols:
            np.fill_diagonal(strengths, 0.0)
        else:
            parts.append({ref.cols: v[:, slice(*ref.rows)] @ strengths})
        parts.append({ref.rows: v[:, slice(*ref.cols)] @ strengths.T})
    return merge_spans(parts, np.add)


def strength_products(ctx: RunContext, specs: Sequence[Any], scorer: Scorer, vectors: np.ndarray) -> np.ndarray:
    """Return the products of the strengths of ties, without their diagonal, with vectors ``(c, n)``; one pass."""
    n, block = ctx.data.n_rows, block_rows(ctx.data.n_rows, len(specs))
    groups = group_pairs([view_pair(ctx.data, specs, *span) for span in pairs(n, block)])
    bound = vectors.nbytes + 512 * (-(-n // block))

    def step_bytes(group: Sequence[ViewPair]) -> int:
        return max(view_pair_bytes(ref) + 4 * ref.nbytes // len(specs) * 2 for ref in group) + 2 * vectors.nbytes

    program = BlockProgram("strength-products", strength_chunk, add_spans, step_bytes, bound)
    shared = scorer.shared(ctx, len(groups)), ctx.broadcast("vectors", vectors, len(groups))
    out = np.zeros(vectors.shape)
    for span, values in ctx.run_pass(plan(program, groups, *shared)).items():
        out[:, slice(*span)] = values
    return out


def raw_between(data: Any, specs: Sequence[Any], users: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return raw similarities of any users with others, float32 ``(k, users, others)``."""
    if isinstance(specs[0], GivenKernel):
        lo, hi = (int(others.min()), int(others.max()) + 1) if len(others) else (0, 0)
        return similarity_block(data, data.n_rows, users, (lo, hi))[:, :, others - lo]
    left, right = (rows_at(data, ids) if data.n_cols else rows_of(data, 0, data.n_rows)[ids] for ids in (users, others))
    return gram_block(specs, left, right, dtype=np.float32)
