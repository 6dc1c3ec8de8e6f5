"""Passes over block pairs as data: what runs one and what plans one have its tasks, and the bytes of its steps, from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...cluster import BlockProgram, Plan, plan
from ...storage import GramTask
from ..passes.blocks import join_lists
from ..passes.spans import Spans, add_spans
from .settings import BATCH_BYTES
from .sources import PairRef, group_pairs, pair_bytes

Chunk = Callable[..., list[Any]]

# Block pairs of one task of a pass, together at least where there are as many: some 50 ms of work where kernels are computed.
PASS_BYTES = 16 << 20


def group_chunk(group: tuple[PairRef, ...], chunk: Chunk, *broadcast: Any) -> list[Any]:
    """Return what a step makes of some block pairs, one after the other."""
    return [part for ref in group for part in chunk(ref, *broadcast)]


def pass_groups(refs: Sequence[PairRef]) -> list[tuple[PairRef, ...]]:
    """Return the tasks of a pass."""
    return group_pairs(refs, PASS_BYTES)


def joined_pass(name: str, chunk: Chunk, refs: Sequence[PairRef], result: int, *broadcast: Any) -> Plan[list[Any]]:
    """Return a pass that brings at most ``result`` bytes of every block pair, side by side."""
    groups = pass_groups(refs)
    largest = result * max(map(len, groups))

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + largest

    program = BlockProgram(name, group_chunk, join_lists, task_bytes, largest, combine_bytes=2 * result * len(refs))
    return plan(program, groups, chunk, *broadcast)


def joined_bytes(refs: Sequence[PairRef], result: int) -> int:
    """Return the bytes of the largest step of such a pass."""
    return joined_pass("planned", list, refs, result).memory_bound


def pair_batches(refs: Sequence[PairRef]) -> Iterator[list[PairRef]]:
    """Yield the block pairs of one pass after the other, where what comes of them is of their size."""
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
    """Return the bytes of the largest step of passes over batches."""
    return max(joined_bytes(batch, max(map(result, batch))) for batch in pair_batches(refs))


def task_forms_pass(
    chunk: Callable[..., Any], combine: Callable[..., Any], refs: Sequence[PairRef], forms: int, vectors: int, *broadcast: Any
) -> Plan[Any]:
    """Return the pass over the forms of all pairs of tasks: ``forms`` bytes of them all, ``vectors`` bytes of vectors and tasks of rows."""
    result = 2 * forms

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + 4 * result + vectors

    return plan(BlockProgram("task-forms", chunk, combine, task_bytes, result), pass_groups(refs), *broadcast)


def products_pass(chunk: Callable[..., Spans], refs: Sequence[PairRef], products: int, *broadcast: Any) -> Plan[Spans]:
    """Return the pass over products with vectors, ``products`` bytes of them all."""
    result = products + 512 * len(on_diagonal(refs))

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + 3 * result

    return plan(BlockProgram("gram-products", chunk, add_spans, task_bytes, result), pass_groups(refs), *broadcast)


class Build(NamedTuple):
    """A block pair to be computed into its store."""

    task: GramTask | None  # none where it is only planned
    pair: Any  # what computes it


def build_pass(chunk: Chunk, builds: Sequence[Build]) -> Plan[list[Any]]:
    """Return the pass that computes block pairs into a Gram store."""
    return plan(BlockProgram("gram-build", chunk, join_lists, lambda build: pair_bytes(build.pair), 256), builds)


# -- results of one block pair -----------------------------------------------------------------------------------------------------


def block_bytes(ref: PairRef) -> int:
    """Return the bytes of a raw block pair on its way to the driver."""
    return ref.nbytes + 256


def matrix_bytes(ref: PairRef, itemsize: int = 4) -> int:
    """Return the bytes of one matrix that is made of the kernels of a block pair."""
    return itemsize * (ref.rows[1] - ref.rows[0]) * (ref.cols[1] - ref.cols[0]) + 256


def sums_bytes(k: int, block: int) -> int:
    """Return the bytes of row sums and diagonals of k kernels."""
    return 24 * k * block


def diagonal_bytes(k: int, block: int) -> int:
    """Return the bytes of the diagonals of k kernels."""
    return 8 * k * block + 256


def forms_bytes(k: int, m: int, block: int) -> int:
    """Return the bytes of the shares of all tiles in the forms of m vectors in k kernels."""
    return 8 * k * m * (block // 128 + 1) ** 2


def entries_bytes(k: int, m: int, block: int) -> int:
    """Return the bytes of those of m chosen entries of k kernels that one block pair may have."""
    return 4 * k * min(m, block**2) + 8 * m


def on_diagonal(refs: Sequence[PairRef]) -> list[PairRef]:
    """Return the blocks on the diagonal."""
    return [ref for ref in refs if ref.rows == ref.cols]
