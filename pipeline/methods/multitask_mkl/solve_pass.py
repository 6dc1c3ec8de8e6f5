"""The SVMs of many tasks in one pass. A step computes or reads the kernels of a batch of tasks, solves their SVMs, and returns the results.

Batches depend on sizes alone, never on the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.bank.products import combine_kernels, tile_sums, total_forms
from ....kernels.grams.normalization import BlockSums, Normalization, block_sums
from ....kernels.jit import one_thread
from ....kernels.svm.dual import DualProblem, Scratch
from ....kernels.svm.smo import Accuracy, solve_machine
from ....storage import block_cache
from ....storage.grams.layout import GramLayout
from ...core.resources import Shared, resolve
from ...grams.pair_passes import Build, build_pass
from ...grams.pair_passes import load_programs as load_gram_programs
from ...grams.settings import Policy
from ...grams.sources import FREED_BYTES, apply_norms
from ...passes.blocks import join_lists
from .task_blocks_pass import BATCH_BYTES, ComputedPair, TaskPair

CACHE_BYTES = 256 << 20  # blocks of one task that stay in memory between its sum and its forms; of a larger one they are loaded twice

Norms = tuple[Normalization, ...] | None


@dataclass(frozen=True)
class TaskPart:
    """One task: its number, its range of rows when all rows are sorted by task, and its block pairs."""

    number: int
    rows: tuple[int, int]
    pairs: tuple[TaskPair, ...]

    @property
    def nbytes(self) -> int:
        """Memory in bytes of all blocks of the task."""
        return sum(pair.nbytes for pair in self.pairs)


@dataclass(frozen=True)
class BatchProblem:
    """Dual problems of a batch of tasks, and the accuracy of their solution."""

    problem: DualProblem  # losses of the rows of the batch
    beta: np.ndarray  # coefficients to start from
    weights: np.ndarray  # (k, tasks) of the kernels as they are loaded
    accuracy: Accuracy  # when a machine is solved
    partner: np.ndarray | None = None  # coefficients whose sum with the solution has its forms computed as well
    norms: Norms = None  # cosine normalisation over the rows of the batch


@dataclass(frozen=True)
class TaskBatch:
    """Consecutive tasks that one step solves, and their problem."""

    parts: tuple[TaskPart, ...]
    problem: BatchProblem | None = field(default=None, compare=False, repr=False)

    @property
    def rows(self) -> tuple[int, int]:
        """Range of the rows of the tasks."""
        return self.parts[0].rows[0], self.parts[-1].rows[1]

    @property
    def nbytes(self) -> int:
        """Memory in bytes of all blocks of the tasks."""
        return sum(part.nbytes for part in self.parts)


BatchChunk = Callable[..., list[Any]]


class BatchSolution(NamedTuple):
    """SVM solutions of a batch: per row, the coefficient and the decision value without intercept."""

    first: int  # first row of the batch
    beta: np.ndarray
    decision: np.ndarray
    forms: np.ndarray  # (tasks, k, 2) of kernels as they are loaded: of the coefficients, and of their sum with the partner
    indefinite: tuple[int, ...]  # tasks with a matrix that turned out not to be positive semi-definite


def split_batches(pairs: Sequence[TaskPair], layout: GramLayout) -> list[TaskBatch]:
    """Return consecutive tasks in batches of a fixed number of bytes; a larger task forms its own batch."""
    edges = np.concatenate([[0], np.cumsum(layout.groups)])
    batches: list[TaskBatch] = []
    parts: list[TaskPart] = []
    for number, members in groupby(pairs, key=lambda pair: int(np.searchsorted(edges, pair.rows[0], side="right")) - 1):
        part = TaskPart(number, (int(edges[number]), int(edges[number + 1])), tuple(members))
        if parts and sum(other.nbytes for other in parts) + part.nbytes > BATCH_BYTES:
            batches.append(TaskBatch(tuple(parts)))
            parts = []
        parts.append(part)
    return [*batches, TaskBatch(tuple(parts))]


def solve_chunk(batch: TaskBatch) -> list[BatchSolution]:
    """Return the SVM solutions of a batch."""
    todo = batch.problem
    assert todo is not None
    begin, end = batch.rows
    beta, decision = np.zeros(end - begin), np.zeros(end - begin)
    forms, indefinite, scratch = np.zeros((len(batch.parts), len(todo.weights), 2)), [], Scratch()
    with one_thread():
        for i, part in enumerate(batch.parts):
            rows = slice(part.rows[0] - begin, part.rows[1] - begin)
            kernels = _TaskKernels(part, todo.norms, begin)
            matrix = kernels.combine(np.ascontiguousarray(todo.weights[:, i]))
            machine = solve_machine(matrix, todo.problem.part(rows), todo.beta[rows], todo.accuracy, scratch)
            beta[rows], decision[rows] = machine.beta, machine.decision
            forms[i] = kernels.forms(machine.beta, None if todo.partner is None else todo.partner[rows])
            if machine.indefinite:
                indefinite.append(part.number)
    return [BatchSolution(begin, beta, decision, forms, tuple(indefinite))]


def loaded(pair: TaskPair) -> np.ndarray:
    """Return the raw kernels of a block pair. What is computed from the rows of a store stays in the cache of the process."""
    return block_cache().load(pair) if isinstance(pair, ComputedPair) else pair.load()


def normalized_block(pair: TaskPair, norms: Norms, begin: int) -> np.ndarray:
    """Return the normalised kernels of a block pair, ``(k, rows, columns)``. The vectors of ``norms`` begin at row ``begin``."""
    return apply_norms(loaded(pair), norms, *(slice(lo - begin, hi - begin) for lo, hi in (pair.rows, pair.cols)))


class _TaskKernels:
    """The kernels of one task; its blocks are kept in memory if they are small."""

    def __init__(self, part: TaskPart, norms: Norms, begin: int) -> None:
        self._part, self._norms, self._begin = part, norms, begin
        self._cached = [normalized_block(pair, norms, begin) for pair in part.pairs] if part.nbytes <= CACHE_BYTES else None

    def _blocks(self) -> Iterator[tuple[np.ndarray, tuple[int, int], tuple[int, int]]]:
        """Yield every block with its rows and columns, counted from the first row of the task."""
        start = self._part.rows[0]
        for i, pair in enumerate(self._part.pairs):
            block = normalized_block(pair, self._norms, self._begin) if self._cached is None else self._cached[i]
            (a, b), (c, d) = pair.rows, pair.cols
            yield block, (a - start, b - start), (c - start, d - start)

    def combine(self, weights: np.ndarray) -> np.ndarray:
        """Return the weighted sum of the kernels, ``(m, m)``, in the data type of the kernels."""
        m, matrix = self._part.rows[1] - self._part.rows[0], np.empty(0)
        for block, rows, cols in self._blocks():
            total = combine_kernels(block, weights)
            matrix = matrix if matrix.size else np.empty((m, m), total.dtype)
            matrix[slice(*rows), slice(*cols)] = total
            if rows != cols:
                matrix[slice(*cols), slice(*rows)] = total.T
        return matrix

    def forms(self, beta: np.ndarray, partner: np.ndarray | None) -> np.ndarray:
        """Return for every kernel the quadratic forms of ``beta`` and of ``beta + partner``, ``(k, 2)``; without partner, both of
        ``beta``.
        """
        vectors = beta[None] if partner is None else np.stack([beta, beta + partner])
        forms = total_forms([tile_sums(block, rows, cols, vectors) for block, rows, cols in self._blocks()])
        return np.maximum(np.broadcast_to(forms, (len(forms), 2)), 0.0)


def sums_chunk(batch: TaskBatch, counts: Shared | None) -> list[BlockSums]:
    """Return the sums over the entries of the raw blocks of a batch; ``counts`` are the row weights, ``(n,)``, sorted by task."""
    times = None if counts is None else resolve(counts)
    return [block_sums(loaded(pair), pair.rows, pair.cols, times) for part in batch.parts for pair in part.pairs]


def batch_bytes(batch: TaskBatch) -> int:
    """Bound the memory of a step in bytes. It holds the blocks of one task and a normalised copy, the task's matrix in double precision,
    the rows that are read, and memory of freed blocks that the allocator has not given back.
    """
    needed = []
    for part in batch.parts:
        m, largest = part.rows[1] - part.rows[0], max(pair.nbytes for pair in part.pairs)
        rows = max(pair.row_bytes for pair in part.pairs)
        needed.append(min(part.nbytes, CACHE_BYTES) + 4 * largest + 28 * m * m + rows + FREED_BYTES)
    return max(needed)


def solves_pass(chunk: BatchChunk, batches: Sequence[TaskBatch], k: int) -> Plan[list[Any]]:
    """Return the pass that solves the SVMs of all tasks on k kernels."""
    rows, tasks = max(batch.rows[1] - batch.rows[0] for batch in batches), max(len(batch.parts) for batch in batches)
    return _batches_pass("task-solves", chunk, 16 * rows + 16 * k * tasks + 512, batches)


def sums_pass(chunk: BatchChunk, batches: Sequence[TaskBatch], k: int, counts: Shared | None = None) -> Plan[list[Any]]:
    """Return the pass that computes the sums over the entries of k kernels within tasks; ``counts`` are the row weights."""
    rows = max(sum(pair.rows[1] - pair.rows[0] for part in batch.parts for pair in part.pairs) for batch in batches)
    return _batches_pass("task-sums", chunk, 24 * k * rows, batches, counts)


def _batches_pass(name: str, chunk: BatchChunk, result: int, batches: Sequence[TaskBatch], *broadcast: object) -> Plan[list[Any]]:
    return plan(BlockProgram(name, chunk, join_lists, batch_bytes, result, combine_bytes=2 * result * len(batches)), batches, *broadcast)


def largest_step(batches: Sequence[TaskBatch], k: int, policy: Policy) -> int:
    """Return the memory in bytes of the largest step on k kernels; ``policy`` says where the entries are kept. With ``"memory"``, the step
    is the work on one batch; otherwise it is a step of a pass.
    """
    solves = solves_pass(solve_chunk, batches, k).memory_bound
    if policy == "memory":
        return max(map(batch_bytes, batches))
    if policy == "recompute":
        return max(solves, sums_pass(sums_chunk, batches, k).memory_bound)
    pairs = [pair for batch in batches for part in batch.parts for pair in part.pairs]
    return max(solves, build_pass([Build(None, pair) for pair in pairs]).memory_bound)


def load_programs() -> None:
    """Load the compiled loops of the passes into this process."""
    load_gram_programs()
    problem = DualProblem(np.array([1.0, -1.0]), np.array([0.0, -1.0]), np.array([1.0, 0.0]))
    solve_machine(np.eye(2, dtype=np.float32), problem, np.zeros(2), Accuracy(1e-2, 1.0), Scratch())
