"""The pass that converts columns into propositions: thresholds and categories of every column, and their truth on the rows as packed
bits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.rules.bits import MAX_UNPACKED_BYTES, Words, count_ones, pack_bits
from ....kernels.rules.propositions import Propositions, column_propositions
from ...core.resources import Resources, Shared, resolve
from ...passes.blocks import Blocks, Columns, Task, column_tasks, join_lists, load_blocks, task_bytes

DIGEST_BYTES, OUTLINE_BYTES = 16, 200  # of the truth of a proposition; and what a proposition takes on its way
OUTLINE_ROOM = 2 * MAX_UNPACKED_BYTES  # propositions of a column unpacked


@dataclass(frozen=True)
class Packed:
    """Propositions and their truth values on the rows, as packed bits ``(p, words)``. Digests can replace the bits; they suffice to find
    equal propositions.
    """

    propositions: Propositions
    columns: Words
    sizes: np.ndarray  # (p,) rows on which each holds


def dense_column(X: Columns, j: int) -> np.ndarray:
    """Return one column as float64."""
    return (X[:, j] if isinstance(X, np.ndarray) else X[:, [j]].toarray()[:, 0]).astype(np.float64)


def packed_flags(propositions: Propositions, ids: np.ndarray, column: int, values: np.ndarray) -> Words:
    """Return, as packed bits, on which values of a column each proposition of ``ids`` holds. Only a few are unpacked at a time."""
    step = max(MAX_UNPACKED_BYTES // max(len(values), 1), 1)
    parts = [pack_bits(propositions.flags(ids[lo : lo + step], column, values)) for lo in range(0, len(ids), step)]
    return np.concatenate(parts) if parts else np.zeros((0, max(-(-len(values) // 64), 1)), np.uint64)


def propositions_chunk(task: Task, counts: Shared, n_thresholds: int, categorical: frozenset[int], keeps_bits: bool) -> list[Packed]:
    """Return the propositions of the columns of a task, from the rows with non-zero count (on a worker). Values are raw, never scaled."""
    return [_packed(*part, keeps_bits) for part in _parts_of_columns(task, counts, n_thresholds, categorical)]


def _parts_of_columns(
    task: Task, counts: Shared, n_thresholds: int, categorical: frozenset[int]
) -> Iterator[tuple[Propositions, int, np.ndarray]]:
    """Yield for every column of a task that has propositions:

    * the propositions;
    * the number of the column;
    * its raw values on the rows with non-zero count.
    """
    times = resolve(counts)
    mask = times > 0
    weight = times[mask] if times.dtype == np.float64 else None
    for block in load_blocks(task):
        for k in range(block.width):
            column = block.offset + k
            values = dense_column(block.X, k)[mask]
            propositions = column_propositions(column, values, n_thresholds, column in categorical, weight)
            if propositions.size:
                yield propositions, column, values


def _packed(propositions: Propositions, column: int, values: np.ndarray, keeps_bits: bool) -> Packed:
    columns, sizes = [], []
    step = max(MAX_UNPACKED_BYTES // max(len(values), 1), 1)
    for lo in range(0, propositions.size, step):
        words = packed_flags(propositions, np.arange(lo, min(lo + step, propositions.size)), column, values)
        columns.append(words if keeps_bits else _digests(words))
        sizes.append(count_ones(words))
    return Packed(propositions, np.concatenate(columns), np.concatenate(sizes))


def _digests(words: Words) -> Words:
    digests = [hashlib.blake2b(row.tobytes(), digest_size=DIGEST_BYTES).digest() for row in words]
    return np.frombuffer(b"".join(digests), np.uint64).reshape(len(words), -1)


def propositions_pass(tasks: Sequence[Task], n: int, n_thresholds: int, keeps_bits: bool, *broadcast: object) -> Plan[list[Packed]]:
    """Return the pass that computes the propositions of all columns on n rows, with or without their bits."""
    # Two propositions a cut or a category. Names may be as many as rows, but then few of them are in a column each, or each is packed for a
    # few of them only.
    most = 2 * (n_thresholds + 1)
    result = _most_columns(tasks) * (most * (n // 8 + 64) if keeps_bits else most * OUTLINE_BYTES + n)
    memory = _Memory(result + 32 * n if keeps_bits else OUTLINE_ROOM + 64 * n)
    program = BlockProgram("propositions", propositions_chunk, join_lists, memory, result, combine_bytes=2 * result)
    return plan(program, tasks, *broadcast)


def _most_columns(tasks: Sequence[Task]) -> int:
    return max(sum(ref.cols[1] - ref.cols[0] for ref in task) for task in tasks)


def packed_propositions(
    data: Blocks, resources: Resources, counts: np.ndarray, n_thresholds: int, categorical: Sequence[int], *, keeps_bits: bool = True
) -> Packed:
    """Return the propositions of all columns from the rows with non-zero count, without constant propositions and duplicates.

    ``counts`` ``(n_samples,)`` are the counts of the rows as float64, or a mask of single bytes. A numeric column has ``n_thresholds``
    thresholds; the values of ``categorical`` columns are categories. Without ``keeps_bits``, the bits of the propositions stay with the
    tasks and are computed again where the rows are.
    """
    tasks, n = column_tasks(data), int(np.count_nonzero(counts))
    shared = resources.share("rule-rows", counts, len(tasks)), n_thresholds, frozenset(int(j) for j in categorical), keeps_bits
    parts = resources.run_pass(propositions_pass(tasks, n, n_thresholds, keeps_bits, *shared))
    if not parts:
        return Packed(Propositions.none(), np.zeros((0, max(-(-n // 64), 1)), np.uint64), np.zeros(0, np.int64))
    propositions = Propositions.joined_all([part.propositions for part in parts])
    columns, sizes = (np.concatenate([getattr(part, name) for part in parts]) for name in ("columns", "sizes"))
    first: dict[bytes, int] = {}
    for j in np.flatnonzero((sizes > 0) & (sizes < n)).tolist():
        first.setdefault(columns[j].tobytes(), j)
    distinct = np.array(sorted(first.values()), np.int64)
    # The categories of every column stay: what training knew does not depend on which proposition was dropped.
    return Packed(propositions.take(distinct), columns[distinct], sizes[distinct])


@dataclass(frozen=True)
class _Memory:
    """Memory of a task: its largest stripe, one column of the stripe in float64 with its propositions, and the packed columns."""

    more: int

    def __call__(self, task: Task) -> int:
        return task_bytes(task) + self.more
