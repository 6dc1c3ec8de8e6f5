"""Machines of many tasks in one pass: a step takes a batch of tasks, forms or reads their kernels, solves, and returns their figures.

Batches follow from sizes alone, never from the number of workers. Where the kernels are in memory the same steps run one after another in
this process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.bank.block_sums import combined, tile_sums, total_forms
from ....kernels.grams.normalization import BlockSums, KernelSums, Normalization, block_sums, kernel_sums, normalizations
from ....kernels.jit import one_thread
from ....kernels.svm.dual import DualProblem, Scratch
from ....kernels.svm.task_machine import Accuracy, solve_machine
from ....storage import DataError, GramStore, GramTask, open_gram
from ....storage.grams.layout import GramLayout
from ...grams.contents import confirm_contents
from ...grams.pairs import StoredPair
from ...grams.settings import GramSettings
from ...grams.sources import FREED_BYTES
from ...passes.blocks import listed
from ...records.context import RunContext
from .task_blocks_pass import BATCH_BYTES, ComputedPair, HeldPair, TaskPair, loaded, task_pairs

HELD_BYTES = 256 << 20
"""Blocks of one task kept between its sum and its forms; beyond that they are loaded twice."""

Norms = tuple[Normalization, ...] | None


@dataclass(frozen=True)
class TaskPart:
    """One task: its number, its rows in the order of tasks, and its block pairs."""

    number: int
    rows: tuple[int, int]
    pairs: tuple[TaskPair, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all its blocks."""
        return sum(pair.nbytes for pair in self.pairs)


@dataclass(frozen=True)
class Orders:
    """What a batch is asked for: problems of its rows, where they start, and weights of its tasks.

    Attributes
    ----------
    problem
        Losses of the rows of the batch.
    beta
        Coefficients to start from.
    weights
        ``(k, tasks)`` of the kernels as they are loaded.
    accuracy
        When a machine is solved.
    beside
        Coefficients whose forms are wanted together with those of the solution, or ``None``.
    norms
        Cosine normalisation over the rows of the batch, or ``None``.
    """

    problem: DualProblem
    beta: np.ndarray
    weights: np.ndarray
    accuracy: Accuracy
    beside: np.ndarray | None = None
    norms: Norms = None


@dataclass(frozen=True)
class TaskBatch:
    """Consecutive tasks that one step takes, and its orders."""

    parts: tuple[TaskPart, ...]
    orders: Orders | None = field(default=None, compare=False, repr=False)

    @property
    def rows(self) -> tuple[int, int]:
        """Range of their rows."""
        return self.parts[0].rows[0], self.parts[-1].rows[1]

    @property
    def nbytes(self) -> int:
        """Bytes of all their blocks."""
        return sum(part.nbytes for part in self.parts)


class Solved(NamedTuple):
    """Machines of a batch.

    Attributes
    ----------
    first
        Its first row.
    beta, decision
        Coefficients, and values without bias.
    forms
        ``(tasks, k, 2)`` quadratic forms of the kernels as they are loaded: of the coefficients, and of their sum with ``beside``.
    indefinite
        Tasks where a matrix was found not to be positive semi-definite.
    """

    first: int
    beta: np.ndarray
    decision: np.ndarray
    forms: np.ndarray
    indefinite: tuple[int, ...]


# -- steps -----------------------------------------------------------------------------------------------------------------------


def solve_chunk(batch: TaskBatch) -> list[Solved]:
    """Return the machines of a batch."""
    orders = batch.orders
    assert orders is not None
    begin, end = batch.rows
    beta, decision = np.zeros(end - begin), np.zeros(end - begin)
    forms, wrong, scratch = np.zeros((len(batch.parts), len(orders.weights), 2)), [], Scratch()
    with one_thread():
        for place, part in enumerate(batch.parts):
            own = slice(part.rows[0] - begin, part.rows[1] - begin)
            blocks = _Blocks(part, orders.norms, begin)
            matrix = blocks.combine(np.ascontiguousarray(orders.weights[:, place]))
            found = solve_machine(matrix, orders.problem.part(own), orders.beta[own], orders.accuracy, scratch)
            beta[own], decision[own] = found.beta, found.decision
            forms[place] = blocks.forms(found.beta, None if orders.beside is None else orders.beside[own])
            wrong += [part.number] if found.indefinite else []
    return [Solved(begin, beta, decision, forms, tuple(wrong))]


class _Blocks:
    """The blocks of one task, kept while they are few."""

    def __init__(self, part: TaskPart, norms: Norms, begin: int) -> None:
        self._part, self._norms, self._begin = part, norms, begin
        keep = part.nbytes <= HELD_BYTES
        self._held = [self._load(pair) for pair in part.pairs] if keep else None

    def _load(self, pair: TaskPair) -> np.ndarray:
        block = pair.load()
        if self._norms is None:
            return block
        rows, cols = (slice(lo - self._begin, hi - self._begin) for lo, hi in (pair.rows, pair.cols))
        return np.stack([norm.apply_block(one, rows, cols) for norm, one in zip(self._norms, block, strict=True)])

    def _each(self) -> Any:
        start = self._part.rows[0]
        for place, pair in enumerate(self._part.pairs):
            block = self._load(pair) if self._held is None else self._held[place]
            (a, b), (c, d) = pair.rows, pair.cols
            yield block, (a - start, b - start), (c - start, d - start)

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the kernels, ``(m, m)`` float32."""
        m = self._part.rows[1] - self._part.rows[0]
        matrix = np.empty((m, m), np.float32)
        for block, rows, cols in self._each():
            matrix[slice(*rows), slice(*cols)] = added = combined(block, weights)
            if rows != cols:
                matrix[slice(*cols), slice(*rows)] = added.T
        return matrix

    def forms(self, beta: np.ndarray, beside: np.ndarray | None) -> np.ndarray:
        """Return ``beta' K_q beta`` of the coefficients and of their sum with others, ``(k, 2)``."""
        vectors = np.stack([beta, beta if beside is None else beta + beside])
        wanted = vectors if beside is not None else vectors[:1]
        found = total_forms([tile_sums(block, rows, cols, wanted) for block, rows, cols in self._each()])
        return np.maximum(np.broadcast_to(found, (len(found), 2)), 0.0)


def sums_chunk(batch: TaskBatch) -> list[BlockSums]:
    """Return the sums of the raw blocks of a batch."""
    return [block_sums(pair.load(), pair.rows, pair.cols) for part in batch.parts for pair in part.pairs]


class Build(NamedTuple):
    """A block pair to be computed into its store."""

    task: GramTask
    pair: ComputedPair


def build_chunk(build: Build) -> list[Any]:
    """Compute one block pair into its Gram store; returns what lists the stored object."""
    store = open_gram(build.task.url, [build.task.bundle])
    return [store.write(build.task, build.pair.load())]


def batch_bytes(batch: TaskBatch) -> int:
    """Bound the memory of a step: the blocks of one task and a normalised copy, its matrix in double precision, rows, freed blocks."""
    return max(_part_bytes(part) for part in batch.parts)


def _part_bytes(part: TaskPart) -> int:
    m, largest = part.rows[1] - part.rows[0], max(part.pairs, key=lambda pair: pair.nbytes)
    held = min(part.nbytes, HELD_BYTES) + 4 * largest.nbytes
    return held + 28 * m * m + max(pair.row_bytes for pair in part.pairs) + FREED_BYTES


def _build_bytes(build: Build) -> int:
    return 4 * build.pair.nbytes + build.pair.row_bytes + FREED_BYTES


def load_programs() -> None:
    """Load the compiled loops of the passes into this process."""
    from ...grams.grams import load_programs as load_grams

    load_grams()
    problem = DualProblem(np.array([1.0, -1.0]), np.array([0.0, -1.0]), np.array([1.0, 0.0]))
    solve_machine(np.eye(2, dtype=np.float32), problem, np.zeros(2), Accuracy(1e-2, 1.0), Scratch())


# -- access ------------------------------------------------------------------------------------------------------------------------


class Machines(NamedTuple):
    """Machines of all tasks: ``(n,)`` coefficients and values in the order of tasks.

    ``forms`` are ``(k, T)`` those of the normalised kernels, ``joint`` the forms of the sum with other coefficients.
    """

    beta: np.ndarray
    decision: np.ndarray
    forms: np.ndarray
    joint: np.ndarray


class TaskGrams:
    """k Gram matrices within T tasks, and machines on their weighted sums.

    Normalisation rests on pairs of rows within tasks: centring is by task, which the bias of a task takes up.

    Parameters
    ----------
    ctx
        Executor and data.
    specs
        Kernels.
    layout
        Tasks and how their squares are cut.
    order
        ``(n,)`` rows of the data task by task.
    settings
        Where the entries lie.
    """

    def __init__(self, ctx: RunContext, specs: Sequence[Any], layout: GramLayout, order: np.ndarray, settings: GramSettings) -> None:
        self.ctx, self.specs, self.layout, self.order, self.settings = ctx, tuple(specs), layout, order, settings
        _refuse_centred_cosine(self.specs)
        self._pairs: Sequence[TaskPair] = task_pairs(ctx.data, self.specs, layout, order)
        told = {"grams": settings.policy, "gram_reason": settings.reason, "gram_block_rows": layout.block, "kernels": len(self.specs)}
        ctx.emit({"event": "grams", **told, "tasks": len(layout.groups)})
        confirm_contents(ctx, settings, self.specs)
        self.sums = self._load_sums()
        self.normalizations = [replace(norm, row_mean=None, mean=0.0) for norm in normalizations(self.specs, self.centred_sums())]
        scales_only = all(norm.only_scales for norm in self.normalizations)
        self.scale = np.array([norm.scale if scales_only else 1.0 for norm in self.normalizations])
        self._norms: Norms = None if scales_only else tuple(self.normalizations)
        if settings.policy == "memory" and self._norms is not None:
            self._pairs = [self._normalised(pair) for pair in self._pairs]
            self._norms = None
        self.batches = batches_of(self._pairs, layout)

    @property
    def k(self) -> int:
        """Number of kernels."""
        return len(self.specs)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.layout.n

    def centred_sums(self) -> list[KernelSums]:
        """Return sums whose total stands for centring by task: ``n sum_t total_t / m_t``, so that the trace left is that of all tasks."""
        sizes = np.array(self.layout.groups)
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        own = [np.add.reduceat(found.row_sums, starts) / sizes for found in self.sums]
        return [replace(found, total=float(self.n * part.sum())) for found, part in zip(self.sums, own, strict=True)]

    def solve(
        self, problem: DualProblem, beta: np.ndarray, weights: np.ndarray, accuracy: Accuracy, beside: np.ndarray | None = None
    ) -> Machines:
        """Solve the machines of all tasks; one pass.

        Parameters
        ----------
        problem
            Losses of all rows in the order of tasks.
        beta
            ``(n,)`` coefficients to start from.
        weights
            ``(k, T)`` of the normalised kernels.
        accuracy
            When a machine is solved.
        beside
            ``(n,)`` coefficients for the joint forms.

        Raises
        ------
        gramplane.storage.DataError
            A kernel is not positive semi-definite.
        """
        raw = weights * self.scale[:, None]
        asked = [self._asked(batch, Orders(problem, beta, raw, accuracy, beside, self._norms)) for batch in self.batches]
        if self.settings.policy == "memory":
            found = [part for batch in asked for part in solve_chunk(batch)]
        else:
            result = (
                16 * max(batch.rows[1] - batch.rows[0] for batch in asked) + 16 * self.k * max(len(batch.parts) for batch in asked) + 512
            )
            found = self._pass("task-solves", solve_chunk, result, asked)
        found = sorted(found, key=lambda part: part.first)
        wrong = [task for part in found for task in part.indefinite]
        if wrong:
            raise DataError(f"a kernel is not positive semi-definite on the rows of task number {wrong[0]}")
        beta, decision = (np.concatenate([part[field] for part in found]) for field in (1, 2))
        forms, joint = (np.concatenate([part.forms[:, :, place] for part in found]).T * self.scale[:, None] for place in (0, 1))
        return Machines(beta, decision, forms, joint)

    def _asked(self, batch: TaskBatch, whole: Orders) -> TaskBatch:
        """Return a batch with its share of the orders."""
        rows, norms = slice(*batch.rows), whole.norms
        first, last = batch.parts[0].number, batch.parts[-1].number + 1
        if norms is not None:
            norms = tuple(replace(norm, diag_root=None if norm.diag_root is None else norm.diag_root[rows]) for norm in norms)
        beside = None if whole.beside is None else whole.beside[rows]
        own = whole.problem.part(rows)
        return replace(batch, orders=Orders(own, whole.beta[rows], whole.weights[:, first:last], whole.accuracy, beside, norms))

    # -- making --------------------------------------------------------------------------------------------------------------------

    def _load_sums(self) -> list[KernelSums]:
        if self.settings.policy == "store":
            return self._open_store()
        if self.settings.policy == "memory":
            return self._fill()
        batches = batches_of(self._pairs, self.layout)
        largest = max(sum(pair.rows[1] - pair.rows[0] for part in batch.parts for pair in part.pairs) for batch in batches)
        return kernel_sums(self.n, self._pass("task-sums", sums_chunk, 24 * self.k * largest, batches))

    def _fill(self) -> list[KernelSums]:
        blocks = loaded(self._pairs)
        sums = [block_sums(block, pair.rows, pair.cols) for block, pair in zip(blocks, self._pairs, strict=True)]
        self._pairs = [HeldPair(pair.rows, pair.cols, block) for block, pair in zip(blocks, self._pairs, strict=True)]
        return kernel_sums(self.n, sums)

    def _normalised(self, pair: TaskPair) -> HeldPair:
        parts = zip(self.normalizations, pair.load(), strict=True)
        block = np.stack([norm.apply_block(one, slice(*pair.rows), slice(*pair.cols)) for norm, one in parts])
        return HeldPair(pair.rows, pair.cols, block)

    def _open_store(self) -> list[KernelSums]:
        """Fill what the store lacks, then refer to its blocks."""
        path, raw = str(self.settings.store), {spec.digest(): spec for spec in self.specs}
        kernels = [(digest, spec.raw_json()) for digest, spec in raw.items()]
        layout = self.layout
        store = GramStore.create(
            path,
            data_digest=ordered_digest(self.ctx.data.digest, self.order),
            n=layout.n,
            kernels=kernels,
            block=layout.block,
            groups=layout.groups,
        )
        missing = store.missing(list(raw))
        if missing:
            with store.lock():
                store.commit(self._build(missing, raw))
        self.ctx.emit({"event": "grams", "gram_store": path, "kernels": len(raw), "blocks_computed": len(missing)})
        places = {digest: place for place, digest in enumerate(raw)}
        which = tuple(places[spec.digest()] for spec in self.specs)
        self._pairs, self._held = [StoredPair(ref, which) for ref in store.refs(list(raw))], store  # held: a replaced store stays
        found = {digest: KernelSums(*store.sums(digest)) for digest in raw}
        return [found[spec.digest()] for spec in self.specs]

    def _build(self, tasks: Sequence[GramTask], specs: dict[str, Any]) -> list[Any]:
        known = {(pair.rows, pair.cols): pair for pair in self._pairs if isinstance(pair, ComputedPair)}
        builds = [Build(task, replace(known[task.rows, task.cols], specs=tuple(specs[key] for key in task.digests))) for task in tasks]
        return self.ctx.run_pass(plan(BlockProgram("gram-build", build_chunk, listed, _build_bytes, 256), builds))

    def _pass(self, name: str, chunk: Any, result: int, batches: Sequence[TaskBatch]) -> list[Any]:
        program = BlockProgram(name, chunk, listed, batch_bytes, result, combine_bytes=2 * result * len(batches))
        return self.ctx.run_pass(plan(program, batches))


def batches_of(pairs: Sequence[TaskPair], layout: GramLayout) -> list[TaskBatch]:
    """Return consecutive tasks in batches of a fixed number of bytes; a larger task is one of its own."""
    edges = np.concatenate([[0], np.cumsum(layout.groups)])
    found: list[TaskBatch] = []
    held: list[TaskPart] = []
    for number, own in groupby(pairs, key=lambda pair: int(np.searchsorted(edges, pair.rows[0], side="right")) - 1):
        part = TaskPart(number, (int(edges[number]), int(edges[number + 1])), tuple(own))
        if held and sum(other.nbytes for other in held) + part.nbytes > BATCH_BYTES:
            found.append(TaskBatch(tuple(held)))
            held = []
        held.append(part)
    return [*found, TaskBatch(tuple(held))]


def ordered_digest(digest: str, order: np.ndarray) -> str:
    """Return the digest of rows in another order; that of the data where the order is theirs."""
    if np.array_equal(order, np.arange(len(order))):
        return digest
    return hashlib.sha256(digest.encode() + np.ascontiguousarray(order, "<i8").tobytes()).hexdigest()


def _refuse_centred_cosine(specs: Sequence[Any]) -> None:
    for spec in specs:
        if spec.centre and spec.normalize == "cosine":
            raise ValueError(f"kernel {spec}: a cosine of centred rows needs all pairs of rows; within tasks give cosine or centre alone")
