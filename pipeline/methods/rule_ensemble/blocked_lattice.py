"""The lattice of conjunctions over rows in blocks. Every sum over rows is a pass; the driver holds arrays over rows and over nodes."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.graphs.hulls import NodeSet
from ....kernels.rules.bits import Bytes
from ....kernels.rules.lattice import Conjunctions
from ....kernels.rules.levels import BATCH, PAIR_BYTES, Candidates, LevelSearch
from ....kernels.rules.machine import RuleProblem
from ....kernels.rules.newton import MAX_PLANES
from ....kernels.rules.propositions import Propositions
from ....kernels.rules.row_blocks import COUNTS, OF_ZONE, PRODUCT, ROWS, SIDE_BY_SIDE, Ask, BlockedRows, HullRequest, SpreadRows, answer
from ....kernels.rules.row_losses import HINGE, RowLoss
from ....kernels.rules.search import COMPATIBLE, MAX_LENGTH, MAX_VIOLATORS, ViolatorSearch
from ...core.resources import Resources, Shared
from ...passes.blocks import Blocks, add_parts, join_lists, serial
from .row_pass import (
    Asked,
    BitsPart,
    HullPart,
    HullTask,
    JoinAnswers,
    MergedSpans,
    SignedPart,
    StepBytes,
    SubtreeFinds,
    SubtreeQuery,
    Subtrees,
    TaskTables,
    bits_bytes,
    candidates_step,
    decisions_chunk,
    gathered_step,
    hull_bytes,
    hull_chunk,
    hull_step,
    join_kinds,
    join_tasks,
    kinds_chunk,
    merge_chunk,
    merge_step,
    numbers_step,
    of_block,
    pairs_step,
    reading_bytes,
    rows_chunk,
    signed_bytes,
    subtree_chunk,
    sums_chunk,
    sums_step,
    supports_step,
    tree_sum,
    truth_bytes,
    weighted_chunk,
)

ROW_BLOCK = 1 << 16  # rows of a block at most; part of the definition of the result: another value changes the last bits
BLOCK_BYTES = 64 << 20  # bits of a block at most
FAN_IN = 8  # partial sums that are added together at one node of the tree
GATHERED_BYTES = 32 << 20  # conjunctions of a hull on all rows up to which they come to the driver: a pass costs more than the work then
KEPT_PAIR_BYTES = 32 << 20  # answers about which propositions may stand together that are kept from one question to the next
SUBTREE_BYTES = 64 << 20  # bits of all rows up to which a task has them all, and searches below some propositions alone
SUBTREE_VISITS = 1 << 15  # conjunctions of two propositions of one such task, about
ROUND = 16  # such tasks that start with the same limits


def block_rows(p: int, n: int) -> int:
    """Return the number of rows of a block for at most p propositions over n rows. It depends on these two sizes alone."""
    return max(min(ROW_BLOCK, n, BLOCK_BYTES * 8 // max(p, 1) // 64 * 64), 64)


def largest_step(p: int, n: int, machines: int, hull: int, max_visits: int) -> int:
    """Return the memory in bytes of the largest step of all passes over blocks, with at most p propositions and ``hull`` conjunctions."""
    rows, total = block_rows(p, n), n * machines
    blocks, bits = -(-n // rows), 8 * p * max(-(-rows // 64), 1)
    reading, signed = bits_bytes(bits, rows, rows, machines), signed_bytes(p, [rows] * machines)
    on_rows, truth = hull_bytes(hull, rows, machines), truth_bytes(rows, min(p, MAX_LENGTH * hull), hull, machines)
    counts, batch = machines * (4 * MAX_PLANES * (hull + 1) ** 2 + 8 * hull), max(BATCH // machines, 1)
    steps = [
        sums_step(p, n),
        numbers_step(truth, total, 24 * total),
        supports_step(truth, hull),
        merge_step(on_rows, total),
        gathered_step(on_rows, min(GATHERED_BYTES, total * -(-hull // 8))),
        hull_step(on_rows, hull, 8 * total, counts, 9 * total + 8 * hull * machines, FAN_IN),
        candidates_step(signed, (16 + 8 * MAX_LENGTH) * batch, 16 * machines * batch),
        pairs_step(max(PAIR_BYTES, p)),
    ]
    if fits_a_task(p, n):
        steps.append(subtrees_step(blocks * bits, blocks * signed, max_visits, machines))
    merging = max(step.merging or (FAN_IN + 1) * step.result for step in steps)
    return max(reading + max(step.task for step in steps), merging)


def subtrees_step(bits: int, signed: int, max_visits: int, machines: int) -> StepBytes:
    """Return the memory in bytes of the searches below some propositions: the bits of all blocks, the rows with multipliers of all blocks,
    the candidates, and the violators.
    """
    return StepBytes(bits + signed + subtree_bytes(max_visits, machines), 256 * MAX_LENGTH * (MAX_VIOLATORS + 1))


def fits_a_task(p: int, n: int) -> bool:
    """Return whether one task can hold the bits of all rows, for at most p propositions. The answer depends on sizes alone."""
    return p * -(-n // 8) <= SUBTREE_BYTES


@dataclass(frozen=True)
class RowBlocks:
    """The rows in use, in blocks of the data's rows, and the references by which tasks load them."""

    data: Blocks
    resources: Resources
    used: np.ndarray  # (n_samples,) bool
    rows: tuple[np.ndarray, ...]  # of every task, positions among the rows in use, ascending
    y: tuple[np.ndarray, ...]
    cost: tuple[np.ndarray, ...]
    size: int  # rows of a block
    loss: RowLoss = HINGE

    @cached_property
    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of the data's rows, one per block; blocks without a row in use are omitted."""
        n = len(self.used)
        every = [(lo, min(lo + self.size, n)) for lo in range(0, n, self.size)]
        return [span for span in every if self.used[slice(*span)].any()]

    def share(self, name: str, array: np.ndarray) -> Shared:
        """Return an array in the form that the tasks of a pass receive."""
        return self.resources.share(f"rule-{name}", array, len(self.ranges))

    @cached_property
    def tables(self) -> TaskTables:
        """Row numbers and labels of all tasks."""
        signs = self.loss.signs(np.concatenate(self.y))
        rows, positive = self.share("task-rows", np.concatenate(self.rows)), self.share("labels", (signs > 0).astype(np.uint8))
        return TaskTables(rows, positive, self.loss.can_merge)

    def parts(self, propositions: Propositions, name: str) -> list[BitsPart]:
        """Return references to the bits of propositions, block by block; newer bits with the same name replace older ones."""
        table = np.array([propositions.column, propositions.kind, propositions.cut], np.float64)
        known = np.array([propositions.known_column, propositions.known_value], np.float64)
        token = hashlib.sha256(f"{serial(self.data)} {self.size}".encode() + self.used.tobytes() + table.tobytes() + known.tobytes())
        arrays = (("mask", self.used.astype(np.uint8)), (name, table), (f"{name}-categories", known))
        shared = [self.share(each, array) for each, array in arrays]
        ref, digest = self.data.column_blocks()[0], token.hexdigest()
        before = np.concatenate([[0], np.cumsum(self.used)])
        offsets = np.cumsum([0, *(len(rows) for rows in self.rows)])
        parts = []
        for lo, hi in self.ranges:
            first, end = int(before[lo]), int(before[hi])
            inside = [np.searchsorted(rows, (first, end)) + offset for rows, offset in zip(self.rows, offsets, strict=False)]
            spans = tuple((int(a), int(b)) for a, b in inside)
            nbytes = 8 * propositions.size * max(-(-(end - first) // 64), 1)
            parts.append(BitsPart(ref, digest, (lo, hi), nbytes, first, end - first, spans, *shared))
        return parts

    def run(
        self,
        name: str,
        chunk: Callable[..., Any],
        refs: Sequence[Any],
        step: StepBytes,
        combine: Callable[..., Any],
        *shared: Any,
    ) -> Any:
        def memory(ref: object) -> int:
            first = ref[0] if isinstance(ref, tuple) else ref
            return step.task + (reading_bytes(first) if isinstance(first, BitsPart) else 0)

        program = BlockProgram(f"rule-{name}", chunk, combine, memory, step.result, combine_bytes=step.merging)
        return self.resources.run_pass(plan(program, refs, *shared, split_every=FAN_IN))


class BlockedLattice(Conjunctions):
    """Propositions over rows in blocks, and the labels and costs of every task."""

    def __init__(
        self,
        blocks: RowBlocks,
        propositions: Propositions,
        similarity: np.ndarray,
        a: float,
        skip: bool,
        subtrees: bool,
        name: str = "propositions",
    ) -> None:
        self.blocks, self.propositions, self.similarity, self.a, self.skip = blocks, propositions, similarity, a, skip
        self.rows, self.y, self.cost, self.loss, self.n = blocks.rows, blocks.y, blocks.cost, blocks.loss, int(blocks.used.sum())
        self.parts, self.subtrees = blocks.parts(propositions, name), subtrees
        self._pairs: dict[int, np.ndarray] = {}

    @property
    def p(self) -> int:
        """Number of propositions."""
        return self.propositions.size

    def of(self, propositions: Propositions) -> BlockedLattice:
        return BlockedLattice(self.blocks, propositions, self.similarity, self.a, self.skip, self.subtrees, "propositions-of-rules")

    def products(self, weight: np.ndarray) -> np.ndarray:
        """Return, for every proposition, the sum of ``weight`` (n,) over the rows on which the proposition holds, in one pass."""
        step, shared = sums_step(self.p, self.n), self.blocks.share("weights", weight)
        return self.blocks.run("sums", weighted_chunk, self.parts, step, add_parts, shared)

    def decisions(self, items: Sequence[Sequence[int]], weights: np.ndarray) -> list[np.ndarray]:
        """Return ``sum_r w_rt phi_r`` on the rows of every task t, in one pass; weights ``(r, T)`` of conjunctions with indicators
        phi_r.
        """
        if not len(items):
            return [np.zeros(len(rows)) for rows in self.rows]
        largest, total = max(part.n for part in self.parts), sum(map(len, self.rows))
        names = tuple(tuple(item) for item in items)
        truth = truth_bytes(largest, len({e for item in names for e in item}), len(names), len(self.rows))
        shared = self.blocks.tables, names, weights
        return self.blocks.run("decisions", decisions_chunk, self.parts, numbers_step(truth, total), join_tasks, *shared)

    # -- restricted problems -------------------------------------------------------------------------------------------------

    def problem(self, nodes: NodeSet, rho: float) -> RuleProblem:
        """Return the problem on a hull. One pass finds identical rows; further passes compute the sums that the solver needs."""
        items, tables = tuple(tuple(item) for item in self.items(nodes.keys)), self.blocks.tables
        token, width = hashlib.sha256(repr(items).encode()).hexdigest(), -(-len(items) // 8)
        parts = [HullPart(b, token, sum(hi - lo for lo, hi in b.spans) * (width + 8), items, tables) for b in self.parts]
        total, largest = sum(map(len, self.rows)), max(part.n for part in self.parts)
        more = hull_bytes(len(items), largest, len(self.rows))
        pairs = list(zip(self.parts, parts, strict=True))
        found = self.blocks.run("merge", merge_chunk, pairs, merge_step(more, total), join_lists)
        parts_of_tasks = zip(self.y, self.cost, zip(*found, strict=True), strict=True)
        tasks = [SpreadRows.of(y, cost, kinds, self.loss) for y, cost, kinds in parts_of_tasks]
        counts = np.array([[n if kind is None else len(kind[0]) for n, kind in kinds] for kinds in found])
        ends = np.cumsum(np.concatenate([np.zeros((1, len(tasks)), np.int64), counts]), axis=0)
        spans = [tuple((int(lo), int(hi)) for lo, hi in zip(*pair, strict=True)) for pair in itertools.pairwise(ends)]
        ask: Ask
        if (nbytes := width * int(counts.sum())) <= GATHERED_BYTES:
            rows = self.blocks.run("hull-rows", rows_chunk, pairs, gathered_step(more, nbytes), join_lists)
            ask = _GatheredRows(rows, spans, len(items))
        else:
            refs = [(*pair, MergedSpans(span)) for pair, span in zip(pairs, spans, strict=True)]
            ask = _HullPasses(self.blocks, refs, len(items), more)
        return RuleProblem(nodes.hull, tasks, self.root, rho, BlockedRows(tasks, ask), self.loss)

    # -- searches ------------------------------------------------------------------------------------------------------------

    def signed(self, alpha: Sequence[np.ndarray]) -> BlockedSearch:
        """Return a search over the rows whose multipliers ``alpha`` are not zero."""
        return BlockedSearch(self, np.concatenate(alpha))

    def outside(
        self, nodes: NodeSet, alpha: Sequence[np.ndarray], threshold: float, *,
        frontier: bool, depth: int = MAX_LENGTH, visits: int = 1 << 40, most: int = 1 << 40, rows: BlockedSearch | None = None,
    ) -> ViolatorSearch:  # fmt: skip
        """Search for nodes outside the hull whose value in the certificate, M / d^2, exceeds the threshold. The search covers all nodes, or
        with ``frontier`` those next to the hull, for which it combines only the ``most`` propositions with the largest bounds.
        """
        search = rows or self.signed(alpha)
        known = frozenset(tuple(item) for item in self.items(nodes.keys))
        return search.frontier(known, threshold, depth, most) if frontier else search.everywhere(known, threshold, depth, visits)

    def kinds(self, ids: np.ndarray) -> np.ndarray:
        """Return which propositions may occur in one conjunction with the given propositions, ``(m, p)`` bool. A pass computes the entries
        that are not yet known.
        """
        if not self.skip:
            return np.ones((len(ids), self.p), bool)
        known = {e: self._pairs[e] for e in ids.tolist() if e in self._pairs}
        new = np.array([e for e in ids.tolist() if e not in known], np.int64)
        if len(new):
            shared = self.blocks.share("pairs", new)
            rows = self.blocks.run("pairs", kinds_chunk, self.parts, pairs_step(len(new) * self.p), join_kinds, shared) == COMPATIBLE
            known.update(zip(new.tolist(), np.packbits(rows, axis=1), strict=True))
            if (len(self._pairs) + len(new)) * self.p > 8 * KEPT_PAIR_BYTES:
                self._pairs.clear()
            self._pairs.update((e, known[e]) for e in new.tolist())
        return np.unpackbits(np.stack([known[e] for e in ids.tolist()]), axis=1, count=self.p).astype(bool)


@dataclass(frozen=True)
class _GatheredRows:
    """Rows of a hull, gathered in this process if they are small. A request then needs no pass; results are bit-identical to those of
    passes over all blocks.
    """

    rows: Sequence[Sequence[Bytes]]  # of every block and task
    spans: Sequence[Sequence[tuple[int, int]]]
    size: int

    def __call__(self, requests: Sequence[HullRequest]) -> list[np.ndarray]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: HullRequest) -> np.ndarray:
        blocks = zip(self.rows, self.spans, strict=True)
        parts = (answer(rows[request.task], self.size, of_block(request, spans)) for rows, spans in blocks)
        if request.kind == COUNTS:
            # Whole numbers, in any order: of matrices of the hull two are held.
            return reduce(np.add, parts)
        return np.concatenate(list(parts)) if request.kind in SIDE_BY_SIDE else tree_sum(list(parts), FAN_IN)


class _HullPasses:
    """Sends requests about a hull's rows to all blocks at once."""

    def __init__(self, blocks: RowBlocks, refs: Sequence[HullTask], size: int, more: int) -> None:
        self._blocks, self._refs, self._size, self._more = blocks, refs, size, more
        self._rows = [end for _, end in refs[-1][2].spans]

    def __call__(self, requests: Sequence[HullRequest]) -> list[np.ndarray]:
        asked, joined, added = [], 0, 0
        vectors: list[np.ndarray] = [np.zeros(0)]
        zones: list[np.ndarray] = [np.zeros(0, np.uint8)]
        for request in requests:
            to, vector = (zones, request.zone) if request.kind in OF_ZONE else (vectors, request.vector)
            asked.append(Asked(request._replace(vector=np.zeros(0), zone=np.zeros(0, np.uint8)), sum(map(len, to)), len(vector)))
            to.append(vector)
            if request.kind == PRODUCT:
                joined += 8 * self._rows[request.task]
            elif request.kind == ROWS:
                joined += int(np.count_nonzero(request.zone)) * (self._size // 8 + 1)
            else:
                added += 4 * len(request.planes) * (len(request.keep) + 1) ** 2 if request.kind == COUNTS else 8 * self._size
        shared = self._blocks.share("vectors", np.concatenate(vectors)), self._blocks.share("zones", np.concatenate(zones))
        nbytes = sum(array.nbytes for array in (*vectors, *zones))
        step = hull_step(self._more, self._size, joined, added, nbytes, FAN_IN)
        combine = JoinAnswers(tuple(request.kind for request in requests))
        return self._blocks.run("hull", hull_chunk, self._refs, step, combine, tuple(asked), *shared)


class BlockedSearch:
    """Searches outside the hull with the multipliers of all rows."""

    def __init__(self, lattice: BlockedLattice, alpha: np.ndarray) -> None:
        self._lattice, self._blocks = lattice, lattice.blocks
        token, shared, tables = hashlib.sha256(alpha.tobytes()).hexdigest(), self._blocks.share("alpha", alpha), self._blocks.tables
        unit, similarity = lattice.unit, np.ascontiguousarray(lattice.similarity, np.float64)
        self._refs = [
            (b, SignedPart(b, token, signed_bytes(lattice.p, [hi - lo for lo, hi in b.spans]), tables, shared, unit, similarity))
            for b in lattice.parts
        ]
        self._levels: tuple[Any, LevelSearch] | None = None

    def _sums(self, candidates: Candidates) -> np.ndarray:
        shared = [self._blocks.share(name, part) for name, part in zip(Candidates._fields, candidates, strict=True)]
        signed, nbytes = max(signed.nbytes for _, signed in self._refs), sum(part.nbytes for part in candidates)
        step = candidates_step(signed, nbytes, 16 * len(self._lattice.rows) * len(candidates.owner))
        return self._blocks.run("candidates", sums_chunk, self._refs, step, add_parts, *shared)

    def _search(self, known: frozenset[tuple[int, ...]], threshold: float) -> LevelSearch:
        """Return the search with this hull and threshold. A search to a greater length continues where a shorter one ended."""
        if self._levels is None or self._levels[0] != (known, threshold):
            lattice = self._lattice
            search = LevelSearch(lattice.p, self._sums, lattice.kinds, lattice.similarity, lattice.a, threshold, known)
            self._levels = (known, threshold), search
        return self._levels[1]

    def frontier(self, known: frozenset[tuple[int, ...]], threshold: float, depth: int, most: int) -> ViolatorSearch:
        """Visit the children of the hull, one pass per batch."""
        return self._search(known, threshold).frontier(depth, most)

    def everywhere(self, known: frozenset[tuple[int, ...]], threshold: float, depth: int, visits: int) -> ViolatorSearch:
        """Visit all conjunctions of at most ``depth`` propositions, either by a pass per batch of conjunctions of equal length, or by tasks
        that each search a subtree.
        """
        search = self._search(known, threshold)
        first = search.everywhere(1, visits)
        if not self._lattice.subtrees or depth == 1 or not first.finished:
            return search.everywhere(depth, visits)
        opened = search.levels[0].open
        return self._below(search, first, opened[0].candidates if opened else np.zeros(0, np.int64), depth, visits)

    def _below(self, search: LevelSearch, first: ViolatorSearch, singles: np.ndarray, depth: int, max_visits: int) -> ViolatorSearch:
        """Search subtrees below single propositions by rounds of tasks. A round may use what earlier rounds have left of the limits."""
        items, values, visits, whole = [first.items], [first.values], first.visits, True
        shared = self._blocks.share("singles", singles)
        query = SubtreeQuery(
            tuple(self._refs), shared, tuple(sorted(search.known)), search.a, search.threshold, self._lattice.skip, depth, 0, 0
        )
        groups = list(_groups(len(singles)))
        for lo in range(0, len(groups), ROUND):
            n_found = sum(map(len, items))
            limits = replace(query, max_visits=max_visits - visits, max_violators=MAX_VIOLATORS - n_found)
            for finds in self._run_round(groups[lo : lo + ROUND], limits):
                room, n_room = max_visits - visits, MAX_VIOLATORS - sum(map(len, items))
                within = sum(at < room for at in finds.visits)
                is_cut = not finds.search.finished or finds.search.visits > room or len(finds.visits) > n_room
                n = min(within, n_room) if is_cut else len(finds.visits)
                items.append(finds.search.items[:n])
                values.append(finds.search.values[:n])
                if is_cut:
                    by_violators = finds.visits[n_room] + 1 if within > n_room else min(finds.search.visits, room)
                    visits += by_violators if within >= n_room else room
                    return ViolatorSearch(np.concatenate(items), np.concatenate(values), visits, depth, False, False)
                visits, whole = visits + finds.search.visits, whole and finds.search.whole
        return ViolatorSearch(np.concatenate(items), np.concatenate(values), visits, depth, True, whole)

    def _run_round(self, groups: Sequence[Subtrees], query: SubtreeQuery) -> list[SubtreeFinds]:
        signed = sum(part.nbytes for _, part in self._refs)
        bits = max(reading_bytes(part) for part, _ in self._refs) + sum(part.nbytes for part, _ in self._refs)
        step = subtrees_step(bits, signed, query.max_visits, len(self._lattice.rows))
        program = BlockProgram("rule-subtrees", subtree_chunk, join_lists, lambda group: step.task, step.result)
        return self._blocks.resources.run_pass(plan(program, groups, query, FAN_IN, split_every=FAN_IN))


def subtree_bytes(max_visits: int, tasks: int) -> int:
    """Bound the memory in bytes of a search within limits: candidates of all lengths, and a batch with its sums."""
    return 24 * max_visits + (48 + 32 * tasks) * (1 << 17)


def _groups(n: int) -> Iterator[Subtrees]:
    """Divide n propositions into groups of similar cost. The cost of a group is its number of pairs of a proposition with a later one."""
    lo, size = 0, 0
    for k in range(n):
        size += n - 1 - k
        if size >= SUBTREE_VISITS or k == n - 1:
            yield Subtrees((lo, k + 1))
            lo, size = k + 1, 0
