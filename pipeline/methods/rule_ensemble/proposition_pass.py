"""The pass that turns columns into propositions: cuts and categories of every column, and their truth on the rows as packed bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, plan
from ....kernels.rules.bits import Words, counts, pack
from ....kernels.rules.propositions import Propositions, column_propositions
from ...passes.blocks import Task, column_tasks, listed, load_blocks, task_bytes
from ...records.context import RunContext, received


@dataclass(frozen=True)
class Packed:
    """Propositions with their packed columns (p, words)."""

    propositions: Propositions
    columns: Words


def dense_column(X: Any, j: int) -> np.ndarray:
    """Return one column as float64."""
    return (X[:, [j]].toarray()[:, 0] if sp.issparse(X) else X[:, j]).astype(np.float64)


def pack_chunk(task: Task, rows: Any, n_thresholds: int, categorical: frozenset[int]) -> list[Packed]:
    """Return the propositions of the columns of a task, on the rows given as a mask (on a worker). Values are raw, never scaled."""
    mask = received(rows).astype(bool)
    found = []
    for block in load_blocks(task):
        for k in range(block.width):
            column = block.offset + k
            values = dense_column(block.X, k)[mask]
            made = column_propositions(column, values, n_thresholds, column in categorical)
            if made.size:
                found.append(Packed(made, pack(made.flags(np.arange(made.size), column, values))))
    return found


def packed_propositions(ctx: RunContext, rows: np.ndarray, n_thresholds: int, categorical: Sequence[int]) -> Packed:
    """Return the propositions of all columns from the rows of a mask: without constant ones, each different one once.

    Parameters
    ----------
    ctx
        Executor and data.
    rows
        ``(n_samples,)`` mask of training rows.
    n_thresholds, categorical
        Cuts of a numeric column; columns whose values are names.
    """
    tasks = column_tasks(ctx.data)
    n = int(rows.sum())
    # Two propositions a cut or a category; names may be as many as rows, but then each is packed for a few of them only.
    width = max((sum(ref.cols[1] - ref.cols[0] for ref in task) for task in tasks), default=1)
    result = width * 2 * (n_thresholds + 1) * (n // 8 + 64)
    program = BlockProgram("propositions", pack_chunk, listed, _Memory(result + 32 * n), result, combine_bytes=2 * result)
    shared = ctx.share("rule-rows", rows.astype(np.uint8), len(tasks))
    parts = ctx.run_pass(plan(program, tasks, shared, n_thresholds, frozenset(int(j) for j in categorical)))
    if not parts:
        return Packed(Propositions.none(), np.zeros((0, max(-(-n // 64), 1)), np.uint64))
    every = reduce(Propositions.joined, (part.propositions for part in parts))
    return _distinct(every, np.concatenate([part.columns for part in parts]), n)


@dataclass(frozen=True)
class _Memory:
    """Task memory: its largest stripe, one column of it in float64 with what is found, and the packed columns."""

    more: int

    def __call__(self, task: Task) -> int:
        return task_bytes(task) + self.more


def _distinct(propositions: Propositions, columns: Words, n: int) -> Packed:
    sizes = counts(columns)
    telling = np.flatnonzero((sizes > 0) & (sizes < n))
    names = np.ascontiguousarray(columns[telling]).view(np.uint8).reshape(len(telling), -1)
    seen: dict[bytes, int] = {}
    for place, row in zip(telling.tolist(), names, strict=True):
        seen.setdefault(row.tobytes(), place)
    kept = np.array(sorted(seen.values()), np.int64)
    # The categories of every column stay: what training knew does not depend on which proposition was dropped.
    taken = propositions.take(kept)
    return Packed(taken, columns[kept])
