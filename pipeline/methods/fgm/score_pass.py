"""The scoring pass: finds the atoms (features, groups, expanded features) that violate the optimality condition of the dual vectors most.

One pass reads every stripe once for all dual vectors. A task keeps the best atoms of its stripes. A merge tree, ordered by
``(-score, id)``, keeps the best of all tasks. No array with an entry per feature is transferred.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.features.groups import CutGroups
from ....kernels.features.groups import merge_partials as merge_cut_groups
from ....kernels.features.scores import TopB, merge_top
from ....storage import ArrayRef
from ...core.resources import Resources, resolve
from ...passes.blocks import Block, Blocks, Task, column_tasks, load_blocks, task_bytes


class Query(NamedTuple):
    """Request of one problem to a scoring pass."""

    size: int  # number of atoms, B
    threshold: float = 0.0  # a valid lower bound of the key at that rank (0: none known); columns that cannot reach it are skipped


class Partial(NamedTuple):
    """Result of a task for one problem: the best complete atoms, and sums of the groups that a stripe border splits."""

    top: TopB
    cut: CutGroups | None = None


class ScoredAtoms(Protocol):
    """Interface of a collection of candidate atoms that the scoring pass uses."""

    @property
    def centred(self) -> bool:
        """True if the columns are centred because there is an intercept, see :func:`~gramplane.pipeline.passes.blocks.scale_of`."""
        ...

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Score the atoms of one stripe for every dual vector."""
        ...

    def for_workers(self, resources: Resources) -> ScoredAtoms:
        """Return the atoms in the form that is sent with tasks."""
        ...

    def complete(self, partial: Partial, query: Query) -> TopB:
        """Return the best atoms, including those that stripe borders split."""
        ...


def merge_partials(parts: Sequence[Partial], size: int) -> Partial:
    top = merge_top([part.top for part in parts], size)
    cuts = [part.cut for part in parts if part.cut is not None]
    return Partial(top, merge_cut_groups(cuts) if cuts else None)


def merge_machines(results: Sequence[Sequence[Partial]], queries: Sequence[Query]) -> list[Partial]:
    return [merge_partials(parts, query.size) for parts, query in zip(zip(*results, strict=True), queries, strict=True)]


def score_chunk(task: Task, atoms: ScoredAtoms, duals: np.ndarray | ArrayRef, queries: tuple[Query, ...]) -> list[Partial]:
    """Score the stripes of one task (on a worker)."""
    vectors = resolve(duals)
    best: list[Partial] = []
    for block in load_blocks(task, centred=atoms.centred):
        results = atoms.score_block(block, vectors, queries)
        best = merge_machines([best, results], queries) if best else results
        # B complete atoms of earlier stripes bound the B-th key of the whole from below, so later stripes may skip more.
        tops = zip(queries, (result.top.keys for result in best), strict=True)
        queries = tuple(Query(q.size, max(q.threshold, float(keys[-1]))) if len(keys) == q.size else q for q, keys in tops)
    return best


def score_program(queries: tuple[Query, ...], n_rows: int, name: str = "feature-scores") -> BlockProgram[list[Partial]]:
    """Return the scoring pass as a block program."""
    result, vectors = sum(24 * query.size for query in queries) + 256, 8 * n_rows * len(queries)
    # A task holds the stripe, a float64 score per column (at most one per stored value or 8 bytes per value held), and the dual vectors.
    return BlockProgram(name, score_chunk, partial(merge_machines, queries=queries), lambda task: 2 * task_bytes(task) + vectors, result)


def score_pass(data: Blocks, queries: tuple[Query, ...], *broadcast: object) -> Plan[list[Partial]]:
    """Return the scoring pass over all stripes."""
    return plan(score_program(queries, data.n_rows), column_tasks(data), *broadcast)


def scaled_duals(data: Blocks, duals: np.ndarray) -> np.ndarray:
    """Return the dual vectors times the row factors: ``(r x)'u = x'(r u)``."""
    row_factor = data.scale.row_factor
    return duals if row_factor is None else duals * row_factor


def select_atoms(data: Blocks, resources: Resources, atoms: ScoredAtoms, duals: np.ndarray, queries: Sequence[Query]) -> list[TopB]:
    """Return the best atoms by ``(-score, id)`` for each of the ``(n_machines, n_samples)`` dual vectors ``u = alpha * y``."""
    queries = tuple(queries)
    work = score_pass(data, queries, atoms.for_workers(resources), resources.share("dual", scaled_duals(data, duals)), queries)
    return [atoms.complete(result, query) for result, query in zip(resources.run_pass(work), queries, strict=True)]
