"""Passes over block pairs: the task functions, and the plans that state number of tasks and memory, for runs and dry runs alike."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ...cluster import BlockProgram, Plan, plan
from ...kernels.bank.products import TileSums, add_product, combine_kernels, product_sums, tile_sums
from ...kernels.bank.task_sums import TaskSums, block_task_sums, combine_block_tasks
from ...kernels.grams.blocks import gram_block
from ...kernels.grams.normalization import BlockSums, block_sums
from ...kernels.grams.spec import KernelSpec
from ...storage import GramTask, open_gram
from ..core.resources import Resources, Shared, resolve
from ..passes.blocks import Spans, add_spans, join_lists
from .settings import BATCH_BYTES
from .sources import PairRef, group_pairs, load_normalised, loaded, pair_bytes
from .weighted_sum import Norms

Chunk = Callable[..., list[Any]]

# Block pairs of one task of a pass, together at least where there are as many: some 50 ms of work where kernels are computed.
PASS_BYTES = 16 << 20


# -- what a task makes of block pairs --------------------------------------------------------------------------------------------


class Filled(NamedTuple):
    """A block pair sent to the driver."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    block: np.ndarray


def block_chunk(ref: PairRef) -> list[Filled]:
    return [Filled(ref.rows, ref.cols, ref.load())]


def sums_chunk(ref: PairRef, counts: Shared | None) -> list[BlockSums]:
    return [block_sums(loaded(ref), ref.rows, ref.cols, None if counts is None else resolve(counts))]


class Diagonal(NamedTuple):
    """Part of the diagonals of all kernels, sent to the driver."""

    rows: tuple[int, int]
    values: np.ndarray  # (k, rows)


def diagonals_chunk(ref: PairRef) -> list[Diagonal]:
    """Return the raw diagonals of one diagonal block, bit-identical to the entries of the block."""
    return [Diagonal(ref.rows, np.diagonal(ref.load(), axis1=1, axis2=2).astype(np.float64))]


def forms_chunk(ref: PairRef, vectors: Shared, norms: Norms, kernels: np.ndarray | None) -> list[TileSums]:
    """Return the contributions of one block pair to the quadratic forms."""
    return [tile_sums(_some(load_normalised(ref, norms), kernels), ref.rows, ref.cols, resolve(vectors))]


def products_chunk(
    group: tuple[PairRef, ...], vectors: Shared, norms: Norms, kernels: np.ndarray | None, wanted: Shared, units: np.ndarray
) -> Spans:
    """Return the contributions of some block pairs to the products."""
    columns, rows, out = resolve(vectors), resolve(wanted), Spans()
    for ref in group:
        block = _some(load_normalised(ref, norms), kernels)
        out = add_spans([out, product_sums(block, ref.rows, ref.cols, columns, rows, units)])
    return out


def _some(block: np.ndarray, kernels: np.ndarray | None) -> np.ndarray:
    return block if kernels is None else block[kernels]


class Entries(NamedTuple):
    """Selected entries of one block pair, sent to the driver."""

    places: np.ndarray
    values: np.ndarray


def entries_chunk(ref: PairRef, wanted: Shared, norms: Norms) -> list[Entries]:
    """Return the ``wanted`` entries that lie in one block pair. ``wanted`` holds rows and columns ``(2, m)`` in the upper triangle."""
    rows, columns = resolve(wanted)
    inside = (rows >= ref.rows[0]) & (rows < ref.rows[1]) & (columns >= ref.cols[0]) & (columns < ref.cols[1])
    places = np.flatnonzero(inside)
    if not len(places):
        return []
    return [Entries(places, load_normalised(ref, norms)[:, rows[places] - ref.rows[0], columns[places] - ref.cols[0]])]


def combine_chunk(ref: PairRef, theta: np.ndarray, norms: Norms) -> list[Filled]:
    """Return one block pair of the weighted sum."""
    return [Filled(ref.rows, ref.cols, combine_kernels(load_normalised(ref, norms), theta))]


def combine_tasks_chunk(ref: PairRef, norms: Norms, weights: Shared, codes: Shared) -> list[Filled]:
    """Return one block pair of the weighted sum whose weights depend on the pair of tasks."""
    block = combine_block_tasks(load_normalised(ref, norms), ref.rows, ref.cols, resolve(weights), resolve(codes))
    return [Filled(ref.rows, ref.cols, block)]


def task_sums_chunk(group: tuple[PairRef, ...], norms: Norms, vectors: Shared, codes: Shared, units: Shared) -> TaskSums:
    """Return the contributions of some block pairs to the forms of all pairs of tasks, ``(m k, T, T)`` for vectors ``(m, n)``."""
    columns, wholes = resolve(vectors), resolve(units)
    tasks = [resolve(codes)] * len(columns) if np.ndim(resolve(codes)) == 1 else list(resolve(codes))
    total = TaskSums(*(np.zeros((len(wholes) * wholes.shape[1], *wholes.shape[2:])) for _ in range(2)))
    for ref in group:
        block = load_normalised(ref, norms)
        parts = [block_task_sums(block, ref.rows, ref.cols, *of_vector) for of_vector in zip(columns, tasks, wholes, strict=True)]
        total += TaskSums(*(np.concatenate(shares) for shares in zip(*parts, strict=True)))
    return total


def add_task_sums(parts: Sequence[TaskSums]) -> TaskSums:
    """Add the contributions of several tasks. The sums are exact, so the order of the tasks does not change the bits."""
    return functools.reduce(operator.add, parts)


class Build(NamedTuple):
    """A block pair to compute, and the Gram store to write it to."""

    task: GramTask | None  # none where it is only planned
    pair: Any  # what computes it


def build_chunk(build: Build) -> list[Any]:
    """Compute one block pair and write it to its Gram store. Returns the entry for the store's list of objects."""
    assert build.task is not None
    store = open_gram(build.task.url, [build.task.bundle])
    return [store.write(build.task, build.pair.load())]


def place_pair(matrix: np.ndarray, part: Filled) -> None:
    """Write a block pair to both triangles of a matrix ``(n, n)``."""
    rows, cols = slice(*part.rows), slice(*part.cols)
    matrix[rows, cols] = part.block
    if part.rows != part.cols:
        matrix[cols, rows] = part.block.T


# -- passes ----------------------------------------------------------------------------------------------------------------------


def group_chunk(group: tuple[PairRef, ...], chunk: Chunk, *broadcast: Any) -> list[Any]:
    """Apply a step to several block pairs in order, and return the results."""
    return [part for ref in group for part in chunk(ref, *broadcast)]


def pass_groups(refs: Sequence[PairRef]) -> list[tuple[PairRef, ...]]:
    return group_pairs(refs, PASS_BYTES)


def joined_pass(name: str, chunk: Chunk, refs: Sequence[PairRef], result: int, *broadcast: Any) -> Plan[list[Any]]:
    """Return a pass that concatenates the results of its tasks. ``result``: largest number of bytes of the result of a block pair."""
    groups = pass_groups(refs)
    largest = result * max(map(len, groups))

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + largest

    program = BlockProgram(name, group_chunk, join_lists, task_bytes, largest, combine_bytes=2 * result * len(refs))
    return plan(program, groups, chunk, *broadcast)


def joined_bytes(refs: Sequence[PairRef], result: int) -> int:
    return joined_pass("planned", list, refs, result).memory_bound


def pair_batches(refs: Sequence[PairRef]) -> Iterator[list[PairRef]]:
    """Yield batches of block pairs, one batch per pass. Intended for passes whose results are as large as the blocks themselves."""
    batch: list[PairRef] = []
    size = 0
    for ref in refs:
        if batch and size + ref.nbytes > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(ref)
        size += ref.nbytes
    yield batch


def batches_bytes(refs: Sequence[PairRef], result: Callable[[PairRef], int]) -> int:
    return max(joined_bytes(batch, max(map(result, batch))) for batch in pair_batches(refs))


def task_forms_pass(refs: Sequence[PairRef], forms: int, vectors: int, *broadcast: Any) -> Plan[TaskSums]:
    """Return the pass that computes the quadratic forms of all pairs of tasks. ``forms``: bytes of all forms. ``vectors``: bytes of the
    vectors and task codes.
    """
    result = 2 * forms

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + 4 * result + vectors

    return plan(BlockProgram("task-forms", task_sums_chunk, add_task_sums, task_bytes, result), pass_groups(refs), *broadcast)


def products_pass(refs: Sequence[PairRef], products: int, *broadcast: Any) -> Plan[Spans]:
    """Return the pass that computes products with vectors. ``products``: bytes of all products."""
    result = products + 512 * len(on_diagonal(refs))

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + 3 * result

    return plan(BlockProgram("gram-products", products_chunk, add_spans, task_bytes, result), pass_groups(refs), *broadcast)


def build_pass(builds: Sequence[Build]) -> Plan[list[Any]]:
    """Return the pass that computes block pairs and writes them to a Gram store."""
    return plan(BlockProgram("gram-build", build_chunk, join_lists, lambda build: pair_bytes(build.pair), 256), builds)


def task_sums_pass(
    resources: Resources, refs: Sequence[PairRef], norms: Norms, vectors: np.ndarray, codes: np.ndarray, units: np.ndarray
) -> np.ndarray:
    """Return the unscaled quadratic forms of all pairs of tasks, ``(m, k, T, T)``, exactly symmetric, for vectors ``(m, n)``. One pass.

    ``codes``: ``(n,)`` tasks of the rows, or ``(m, n)`` with other tasks for every vector. ``units``: ``(m, k, T, T)`` rounding units of
    the contributions. Contributions are added as they are computed, so only one sum is in memory.
    """
    work = task_forms_pass(refs, units.nbytes, vectors.nbytes + codes.nbytes)
    arrays = (("vectors", vectors), ("form-tasks", codes), ("units", units))
    shared = [resources.share(name, array, work.n_tasks) for name, array in arrays]
    return resources.run_pass(replace(work, broadcast=(norms, *shared))).total().reshape(units.shape)


def load_programs() -> None:
    """Load the compiled loops of the passes into this process by running each on a tiny input."""
    block = gram_block([KernelSpec.parse("rbf(gamma=1.0)")], np.eye(2, dtype=np.float32), None, dtype=np.float32)
    tile_sums(block, (0, 2), (0, 2), np.ones((1, 2)))
    add_product(combine_kernels(block, np.ones(1)), (0, 2), (2, 4), np.ones(4), np.zeros(4))
    combine_block_tasks(block, (0, 2), (0, 2), np.ones((1, 1, 1)), np.zeros(2, np.int64))
    block_task_sums(block, (0, 2), (0, 2), np.ones(2), np.zeros(2, np.int64), np.ones((1, 1, 1)))


# -- results of one block pair -----------------------------------------------------------------------------------------------------


def block_bytes(ref: PairRef) -> int:
    """Return the size in bytes of a raw block pair, as a task sends it to the driver."""
    return ref.nbytes + 256


def matrix_bytes(ref: PairRef, itemsize: int = 4) -> int:
    """Return the memory in bytes of one matrix computed from all kernels of a block pair."""
    return itemsize * (ref.rows[1] - ref.rows[0]) * (ref.cols[1] - ref.cols[0]) + 256


def sums_bytes(k: int, block: int) -> int:
    return 24 * k * block


def diagonal_bytes(k: int, block: int) -> int:
    return 8 * k * block + 256


def forms_bytes(k: int, m: int, block: int) -> int:
    """Return the memory in bytes of the contributions of a block's tiles to the quadratic forms of k kernels and m vectors."""
    return 8 * k * m * (block // 128 + 1) ** 2


def entries_bytes(k: int, m: int, block: int) -> int:
    """Return the largest possible size in bytes of selected entries in one block pair, for m entries of k kernels."""
    return 4 * k * min(m, block**2) + 8 * m


def on_diagonal(refs: Sequence[PairRef]) -> list[PairRef]:
    return [ref for ref in refs if ref.rows == ref.cols]
