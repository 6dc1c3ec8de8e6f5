"""Passes over blocks of rows. The truth of conjunctions on a block is computed from its columns, cached in a worker, and never sent.

A block is a fixed range of the data's rows. The bits of the propositions follow from its raw values. From the bits follow the conjunctions
of a hull, and the rows with non-zero multipliers, sorted for a search. All of these are passed as references, and loaded where a task
runs. A task requests them together with the bits of the block, so that they are on the same worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ....kernels.rules.bits import MAX_UNPACKED_BYTES, Bytes, Words, pack_conjunctions, pack_rows, unpack_bits
from ....kernels.rules.lattice import rule_decisions, weighted_counts
from ....kernels.rules.levels import Candidates, Kinds, LevelSearch, Open, candidate_sums, visited_level
from ....kernels.rules.propositions import Propositions
from ....kernels.rules.row_blocks import OF_ZONE, PRODUCT, SIDE_BY_SIDE, HullRequest, answer, merge_rows
from ....kernels.rules.search import COMPATIBLE, SignedRows, ViolatorSearch, kinds_of_pairs, order_signed_rows
from ....storage import block_cache
from ...core.resources import Shared, resolve
from ...passes.blocks import Ref, add_parts, source_of
from .proposition_pass import dense_column, packed_flags

GROUP_BYTES, GROUP_COLUMNS = 16 << 20, 16  # raw values of one block that are read at once; chunks of dense stores have so many columns
INT = np.int64


def block_columns(ref: Ref, rows: tuple[int, int], columns: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the given ascending columns with their values on a range of rows; a few columns are read at a time."""
    width = max(GROUP_BYTES // (8 * (rows[1] - rows[0])) // GROUP_COLUMNS, 1) * GROUP_COLUMNS
    for group in np.split(columns, np.flatnonzero(np.diff(columns // width)) + 1) if len(columns) else ():
        raw = source_of(ref).columns(group, rows)
        for k, column in enumerate(group.tolist()):
            yield column, dense_column(raw, k)


@dataclass(frozen=True)
class TaskTables:
    """Rows of all tasks, one task after the other.

    * ``rows``: index of each row among the rows in use.
    * ``positive``: whether its label is positive; always for real targets.
    * ``can_merge``: whether rows that agree in all conjunctions and in ``positive`` can be one row.
    """

    rows: Shared  # (sum of n_t,) positions among the rows in use, ascending within a task
    positive: Shared  # (sum of n_t,) uint8
    can_merge: bool


@dataclass(frozen=True)
class BitsPart:
    """Reference to the bits of propositions on one range of the data's rows, for the rows in use."""

    ref: Ref  # any block of the data
    token: str  # digest of what decides the bits: data, rows in use, propositions
    rows: tuple[int, int]  # half-open range of the data's rows
    nbytes: int
    first: int = field(compare=False)  # position of the first of them among the rows in use
    n: int = field(compare=False)  # rows in use among them
    spans: tuple[tuple[int, int], ...] = field(compare=False)  # part of each task in the tables of all tasks
    mask: Shared = field(compare=False, repr=False)  # (n_samples,) rows in use
    table: Shared = field(compare=False, repr=False)  # (3, p) column, kind and cut of the propositions
    known: Shared = field(compare=False, repr=False)  # (2, c) columns and values of their categories

    def propositions(self) -> Propositions:
        (column, kind, cut), (known, values) = resolve(self.table), resolve(self.known)
        return Propositions(column.astype(INT), kind.astype(INT), cut, known.astype(INT), values)

    def in_use(self) -> np.ndarray:
        """Return the mask of the rows in use within the range."""
        return resolve(self.mask)[slice(*self.rows)].astype(bool)

    def load(self) -> Words:
        """Return the bits, ``(p, words)``."""
        propositions, mask = self.propositions(), self.in_use()
        out = np.zeros((propositions.size, max(-(-self.n // 64), 1)), np.uint64)
        for column, values in block_columns(self.ref, self.rows, np.unique(propositions.column)):
            start, end = np.searchsorted(propositions.column, (column, column + 1))
            out[start:end] = packed_flags(propositions, np.arange(start, end), column, values[mask])
        return out

    def some(self, ids: np.ndarray) -> Words:
        """Return the bits of the given ascending propositions from the cache; if they are not cached, read these bits alone."""
        held = block_cache().held(self)  # pyright: ignore[reportArgumentType] (bits, no matrix)
        return replace(self, table=resolve(self.table)[:, ids]).load() if held is None else held[ids]

    def task_rows(self, tables: TaskTables) -> list[np.ndarray]:
        """Return the rows of every task in the block."""
        rows = resolve(tables.rows)
        return [rows[lo:hi] - self.first for lo, hi in self.spans]


def load_bits(part: BitsPart) -> Words:
    """Return the bits of a part, from the cache of this process if they are in it."""
    return block_cache().load(part)  # pyright: ignore[reportArgumentType, reportReturnType]


@dataclass(frozen=True)
class HullPart:
    """Reference to the conjunctions of a hull on the rows of a block."""

    bits: BitsPart
    token: str  # digest of the hull
    nbytes: int
    items: tuple[tuple[int, ...], ...] = field(compare=False, repr=False)
    tables: TaskTables = field(compare=False, repr=False)

    def load(self) -> HullBlock:
        """Return the rows of every task, with identical rows merged if that saves time."""
        used = np.array(sorted({e for item in self.items for e in item}), INT)
        place = {int(e): k for k, e in enumerate(used)}
        words = self.bits.some(used) if len(used) else np.zeros((0, max(-(-self.bits.n // 64), 1)), np.uint64)
        packed = pack_rows(
            unpack_bits(pack_conjunctions([[place[e] for e in item] for item in self.items], words, self.bits.n), self.bits.n)
        )
        positive, rows, kinds = resolve(self.tables.positive), [], []
        for (lo, hi), mine in zip(self.bits.spans, self.bits.task_rows(self.tables), strict=True):
            chosen = packed[mine]
            kind = merge_rows(chosen, positive[lo:hi]) if self.tables.can_merge and hi > lo else None
            rows.append(chosen if kind is None else chosen[kind[0]])
            kinds.append(None if kind is None else (kind[0].astype(np.int32), kind[1].astype(np.int32)))
        return HullBlock(rows, kinds, len(self.items))


class HullBlock(NamedTuple):
    """Rows of a block, task by task, with the conjunctions that they satisfy."""

    rows: list[Bytes]  # (m_t, ceil(W / 8))
    kinds: list[tuple[np.ndarray, np.ndarray] | None]  # first row of each kind and kind of each row; None: rows are as they were
    size: int


@dataclass(frozen=True)
class MergedSpans:
    """Position of a block in the merged rows of every task."""

    spans: tuple[tuple[int, int], ...]
    nbytes: int = 0


HullTask = tuple[BitsPart, HullPart, MergedSpans]
Kind = tuple[int, tuple[np.ndarray, np.ndarray] | None]


def merge_chunk(task: tuple[BitsPart, HullPart]) -> list[list[Kind]]:
    """Return, for every task, the number of rows of a block and which of them are identical (on a worker)."""
    bits, part = task
    block: HullBlock = block_cache().load(part)  # pyright: ignore[reportArgumentType, reportAssignmentType]
    return [[(hi - lo, kind) for (lo, hi), kind in zip(bits.spans, block.kinds, strict=True)]]


def rows_chunk(task: tuple[BitsPart, HullPart]) -> list[list[Bytes]]:
    """Return the rows of a block, task by task, with the conjunctions that they satisfy (on a worker)."""
    block: HullBlock = block_cache().load(task[1])  # pyright: ignore[reportArgumentType, reportAssignmentType]
    return [block.rows]


class Asked(NamedTuple):
    """A request about the rows of a hull. Its vector is the part of the shared data that begins at ``offset``."""

    request: HullRequest  # without vectors
    offset: int
    length: int


def hull_chunk(task: HullTask, asked: Sequence[Asked], vectors: Shared, zones: Shared) -> list[np.ndarray]:
    """Return the results of requests for the rows of a block (on a worker)."""
    _, part, merged = task
    block: HullBlock = block_cache().load(part)  # pyright: ignore[reportArgumentType, reportAssignmentType]
    return [answer(block.rows[one.request.task], block.size, _with_vector(one, merged.spans, vectors, zones)) for one in asked]


def _with_vector(one: Asked, spans: Sequence[tuple[int, int]], vectors: Shared, zones: Shared) -> HullRequest:
    request, end = one.request, one.offset + one.length
    if request.kind in OF_ZONE:
        return of_block(request._replace(zone=resolve(zones)[one.offset : end]), spans)
    mine = of_block(request._replace(vector=resolve(vectors)[one.offset : end]), spans)
    # A copy: what tasks share may be read-only, and compiled code has one form for vectors.
    return mine._replace(vector=mine.vector.copy())


def of_block(request: HullRequest, spans: Sequence[tuple[int, int]]) -> HullRequest:
    """Return the request for one block: the vector over all rows is restricted to the rows of the block."""
    part = slice(*spans[request.task])
    if request.kind == PRODUCT:
        return request
    return request._replace(zone=request.zone[part]) if request.kind in OF_ZONE else request._replace(vector=request.vector[part])


@dataclass(frozen=True)
class JoinAnswers:
    """Combines results: decision values and rows are concatenated, sums and counts added in order."""

    kinds: tuple[str, ...]

    def __call__(self, parts: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
        """Return the results of consecutive blocks as one."""
        columns = zip(self.kinds, zip(*parts, strict=True), strict=True)
        return [np.concatenate(column) if kind in SIDE_BY_SIDE else add_parts(column) for kind, column in columns]


@dataclass(frozen=True)
class SignedPart:
    """Reference to the bits of propositions on those rows of a block that have non-zero multipliers, sorted as a search reads the rows."""

    bits: BitsPart
    token: str  # digest of the multipliers
    nbytes: int
    tables: TaskTables = field(compare=False, repr=False)
    alpha: Shared = field(compare=False, repr=False)  # (sum of n_t,)
    unit: float = field(compare=False)
    similarity: np.ndarray = field(compare=False, repr=False)

    def load(self) -> SignedRows:
        bits, positive, alpha = self.bits, resolve(self.tables.positive), resolve(self.alpha)
        y = [np.where(positive[lo:hi] > 0, 1.0, -1.0) for lo, hi in bits.spans]
        values = [alpha[lo:hi] for lo, hi in bits.spans]
        return order_signed_rows(load_bits(bits), bits.n, bits.task_rows(self.tables), y, values, self.similarity, self.unit)


def load_signed(part: SignedPart) -> SignedRows:
    """Return the rows of a part, from the cache of this process if they are in it."""
    return block_cache().load(part)  # pyright: ignore[reportArgumentType, reportReturnType]


def sums_chunk(task: tuple[BitsPart, SignedPart], sets: Shared, owner: Shared, last: Shared) -> np.ndarray:
    """Return, for each candidate and task, the sums of the multipliers over the rows of a block that satisfy the candidate, ``(c, T, 2)``:
    over positive and over negative rows (on a worker).
    """
    return candidate_sums(load_signed(task[1]), Candidates(*(resolve(part).copy() for part in (sets, owner, last))))


def kinds_chunk(part: BitsPart, ids: Shared) -> np.ndarray:
    """Return the combinations of truth values that occur in a block, for each given proposition with each proposition, ``(m, p)`` (on a
    worker).
    """
    bits, firsts = load_bits(part), resolve(ids).copy()
    out = np.empty((len(firsts), len(bits)), np.uint8)
    kinds_of_pairs(bits, firsts, out)
    return out


def join_kinds(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Combine results: a combination occurs if it occurs in any block."""
    return np.bitwise_or.reduce(parts)


def weighted_chunk(part: BitsPart, weight: Shared) -> np.ndarray:
    """Return, for each proposition, the sum of ``weight`` over a block's rows on which it holds, ``(p,)`` (on a worker)."""
    return weighted_counts(load_bits(part), part.n, resolve(weight)[part.first : part.first + part.n])


def decisions_chunk(part: BitsPart, tables: TaskTables, items: Sequence[Sequence[int]], weights: np.ndarray) -> list[np.ndarray]:
    """Return the decision values of rules on a block's rows of every task, without the intercept (on a worker)."""
    used = np.array(sorted({e for item in items for e in item}), INT)
    place = {int(e): k for k, e in enumerate(used)}
    few = [[place[e] for e in item] for item in items]
    return rule_decisions(part.some(used), part.n, part.task_rows(tables), few, weights, rows_at_once(len(items)))


def rows_at_once(rules: int) -> int:
    """Return the number of rows for which the truth of rules is converted to numbers at a time."""
    return max(MAX_UNPACKED_BYTES // (8 * max(rules, 1)), 1)


def join_tasks(parts: Sequence[list[np.ndarray]]) -> list[np.ndarray]:
    """Combine results by concatenating the results of every task."""
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


@dataclass(frozen=True)
class Subtrees:
    """The conjunctions that begin with some single propositions: a range of positions among those that the search extends."""

    roots: tuple[int, int]
    nbytes: int = 0


class SubtreeFinds(NamedTuple):
    """Results of a search below some propositions."""

    search: ViolatorSearch
    visits: list[int]  # at which each violator was seen


@dataclass(frozen=True)
class SubtreeQuery:
    """Shared data of tasks that search below propositions: the rows of all blocks, and the limits of the round."""

    parts: tuple[tuple[BitsPart, SignedPart], ...]
    singles: Shared  # single propositions worth following
    known: tuple[tuple[int, ...], ...]
    a: float
    threshold: float
    skip: bool
    depth: int
    max_visits: int
    max_violators: int


def subtree_chunk(group: Subtrees, query: SubtreeQuery, fan_in: int) -> list[SubtreeFinds]:
    """Search below some propositions, with the rows of all blocks loaded (on a worker)."""
    bits, rows = [load_bits(part) for part, _ in query.parts], [load_signed(part) for _, part in query.parts]
    similarity = query.parts[0][1].similarity

    def sums(candidates: Candidates) -> np.ndarray:
        return tree_sum([candidate_sums(one, candidates) for one in rows], fan_in)

    search = LevelSearch(
        len(bits[0]), sums, _kinds(bits, query.skip), similarity, query.a, query.threshold, frozenset(query.known), group.roots
    )
    search.levels.append(visited_level([Open((), resolve(query.singles))]))
    return [SubtreeFinds(search.everywhere(query.depth, query.max_visits, query.max_violators), search.seen_at)]


def _kinds(bits: Sequence[Words], skip: bool) -> Kinds:
    def kinds(ids: np.ndarray) -> np.ndarray:
        if not skip:
            return np.ones((len(ids), len(bits[0])), bool)
        parts = []
        for block in bits:
            parts.append(np.empty((len(ids), len(block)), np.uint8))
            kinds_of_pairs(block, ids, parts[-1])
        return join_kinds(parts) == COMPATIBLE

    return kinds


def tree_sum(parts: Sequence[np.ndarray], fan_in: int) -> np.ndarray:
    """Add arrays in the order of the summation tree of a pass."""
    level = list(parts)
    while len(level) > 1:
        level = [add_parts(level[lo : lo + fan_in]) for lo in range(0, len(level), fan_in)]
    return level[0]


# -- bytes of steps ----------------------------------------------------------------------------------------------------------------


class StepBytes(NamedTuple):
    """Memory in bytes of the steps of a pass.

    * ``task``: memory of a task, without the memory for computing its bits.
    * ``result``: size of a result.
    * ``merging``: memory for merging results that are not added.
    """

    task: int
    result: int
    merging: int | None = None


def bits_bytes(bits: int, rows: int, used: int, machines: int) -> int:
    """Bound the memory in bytes for computing the bits of a block. It holds the bits, the raw values of some columns (as read, and dense),
    and unpacked propositions.
    """
    return bits + 3 * max(GROUP_BYTES, 8 * GROUP_COLUMNS * rows) + 2 * MAX_UNPACKED_BYTES + machines * 48 * used


def reading_bytes(part: BitsPart) -> int:
    """Bound the memory in bytes for computing the bits of a block."""
    return bits_bytes(part.nbytes, part.rows[1] - part.rows[0], part.n, len(part.spans))


def hull_bytes(size: int, rows: int, machines: int) -> int:
    """Bound the memory in bytes of a hull's conjunctions on a block's rows, summed over all copies: packed, unpacked, per model, merged."""
    return int(size * rows * (3 + machines / 2)) + 40 * rows * machines


def truth_bytes(rows: int, p: int, rules: int, machines: int) -> int:
    """Bound the memory in bytes of the truth values of propositions and rules on the rows of a block, including the values that are read
    and those truth values that are converted to numbers.
    """
    return 3 * max(GROUP_BYTES, 8 * GROUP_COLUMNS * rows) + 6 * MAX_UNPACKED_BYTES + rows * (p // 4 + 3 * rules + 120 * machines + 64)


def signed_bytes(p: int, rows: Sequence[int]) -> int:
    """Bound the memory in bytes of the bits of p propositions on those rows of a block that have non-zero multipliers."""
    words = sum(-(-n // 64) + 4 for n in rows)
    return 8 * (p + 64) * words


def sums_step(p: int, n: int) -> StepBytes:
    """Return the memory in bytes of a step that sums a weight over n rows for p propositions."""
    return StepBytes(8 * n + 2 * MAX_UNPACKED_BYTES, 8 * p)


def numbers_step(truth: int, numbers: int, more: int = 0) -> StepBytes:
    """Return the memory in bytes of a step that computes numbers of all rows from the truth of rules and concatenates them. ``more`` is the
    size of shared data in bytes.
    """
    return StepBytes(truth + more, 8 * numbers, 16 * numbers)


def supports_step(truth: int, rules: int) -> StepBytes:
    """Return the memory in bytes of a step that counts the rows that satisfy each of ``rules`` rules."""
    return StepBytes(truth, 8 * rules + 64)


def merge_step(hull: int, total: int) -> StepBytes:
    """Return the memory in bytes of a step that finds identical rows of all tasks; ``hull`` is the size in bytes of the hull on a block's
    rows.
    """
    return StepBytes(hull, 8 * total + 4096, 32 * total + 8192)


def gathered_step(hull: int, nbytes: int) -> StepBytes:
    """Return the memory in bytes of a step that gathers the rows of a hull, which take ``nbytes`` bytes."""
    return StepBytes(hull, nbytes + 4096, 2 * nbytes + 8192)


def hull_step(hull: int, size: int, joined: int, added: int, shared: int, fan_in: int) -> StepBytes:
    """Return the memory in bytes of a step that computes requests about a hull of ``size`` conjunctions. ``joined``, ``added`` and
    ``shared`` are the bytes of concatenated results, of added results, and of the requests.
    """
    task = hull + added + 16 * (size + 1) ** 2 + joined + 2 * shared
    return StepBytes(task, joined + added, 2 * joined + (fan_in + 1) * added)


def candidates_step(signed: int, candidates: int, sums: int) -> StepBytes:
    """Return the memory in bytes of a step that sums multipliers over the rows of every candidate. ``signed`` is the size of the rows with
    multipliers in bytes.
    """
    return StepBytes(signed + 2 * candidates + sums, sums)


def pairs_step(pairs: int) -> StepBytes:
    """Return the memory in bytes of a step that compares ``pairs`` pairs of propositions."""
    return StepBytes(pairs, pairs)
