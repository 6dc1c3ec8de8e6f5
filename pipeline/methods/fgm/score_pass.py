"""The scoring pass: which atoms (features, groups, expanded features) violate the current dual vectors most.

One pass reads every stripe once for all dual vectors; a task keeps the best of its stripes, a tree of merges by ``(-score, id)``
keeps the best of all. Nothing of size d travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.features.groups import CutGroups
from ....kernels.features.groups import merge_partials as merge_cut_groups
from ....kernels.features.scores import TopB, merge_top
from ...passes.blocks import Block, Task, column_tasks, load_blocks, task_bytes
from ...records.context import RunContext, received


class Query(NamedTuple):
    """What one machine asks of a pass.

    ``size``: number of atoms, B; ``threshold``: a valid lower bound of the key at that rank (0: none known); columns that cannot reach it
    are skipped.
    """

    size: int
    threshold: float = 0.0


class Partial(NamedTuple):
    """What a task finds for one machine: the best complete atoms, and sums of the groups that a stripe border cuts."""

    top: TopB
    cut: CutGroups | None = None


class ScoredAtoms(Protocol):
    """A collection of candidates as far as the scoring pass needs it."""

    @property
    def centred(self) -> bool:
        """Whether an intercept centres the columns, see :func:`~gramplane.pipeline.passes.blocks.scale_of`."""
        ...

    def score_block(self, block: Block, duals: np.ndarray, queries: Sequence[Query]) -> list[Partial]:
        """Score the atoms of one stripe for every dual vector."""
        ...

    def for_workers(self, ctx: RunContext) -> ScoredAtoms:
        """Return the form that travels with tasks."""
        ...

    def complete(self, partial: Partial, query: Query) -> TopB:
        """Return the best atoms, those that stripe borders cut among them."""
        ...


def merge_partials(parts: Sequence[Partial], size: int) -> Partial:
    """Merge the results of several tasks for one machine."""
    top = merge_top([part.top for part in parts], size)
    cuts = [part.cut for part in parts if part.cut is not None]
    return Partial(top, merge_cut_groups(cuts) if cuts else None)


def _merge_machines(results: Sequence[Sequence[Partial]], queries: Sequence[Query]) -> list[Partial]:
    return [merge_partials(parts, query.size) for parts, query in zip(zip(*results, strict=True), queries, strict=True)]


def score_chunk(task: Task, atoms: ScoredAtoms, duals: Any, queries: tuple[Query, ...]) -> list[Partial]:
    """Score the stripes of one task (on a worker)."""
    vectors = received(duals)
    best: list[Partial] = []
    for block in load_blocks(task, centred=atoms.centred):
        partials = atoms.score_block(block, vectors, queries)
        best = _merge_machines([best, partials], queries) if best else partials
        queries = tuple(_raise_threshold(query, partial) for query, partial in zip(queries, best, strict=True))
    return best


def _raise_threshold(query: Query, partial: Partial) -> Query:
    # B complete atoms of earlier stripes bound the B-th key of the whole from below, so later stripes may skip more.
    keys = partial.top.keys
    return Query(query.size, max(query.threshold, float(keys[-1]))) if len(keys) == query.size else query


@dataclass(frozen=True)
class _Merge:
    """Combine step of the pass; a class because it carries the sizes."""

    queries: tuple[Query, ...]

    def __call__(self, results: Sequence[list[Partial]]) -> list[Partial]:
        return _merge_machines(results, self.queries)


def score_program(queries: tuple[Query, ...], n_rows: int, name: str = "feature-scores") -> BlockProgram[list[Partial]]:
    """Return the scoring pass as data."""
    result = sum(24 * query.size for query in queries) + 256
    vectors = 8 * n_rows * len(queries)
    return BlockProgram(name=name, chunk=score_chunk, combine=_Merge(queries), task_bytes=_TaskBytes(vectors), result_bytes=result)


@dataclass(frozen=True)
class _TaskBytes:
    vectors: int

    def __call__(self, task: Task) -> int:
        # The stripe, a float64 score per column (at most one per stored value or 8 bytes per value held), and the dual vectors.
        return 2 * task_bytes(task) + self.vectors


def scaled_duals(ctx: RunContext, duals: np.ndarray) -> np.ndarray:
    """Return the dual vectors times the row factors: ``(r x)'u = x'(r u)``."""
    row_factor = ctx.data.scale.row_factor
    return duals if row_factor is None else duals * row_factor


def select_atoms(ctx: RunContext, atoms: ScoredAtoms, duals: np.ndarray, queries: Sequence[Query]) -> list[TopB]:
    """Return the best atoms by ``(-score, id)`` for each of the ``(n_machines, n_samples)`` dual vectors ``u = alpha * y``."""
    queries = tuple(queries)
    program = score_program(queries, ctx.data.n_rows)
    work = plan(program, column_tasks(ctx.data), atoms.for_workers(ctx), ctx.share("dual", scaled_duals(ctx, duals)), queries)
    partials = ctx.run_pass(work)
    return [atoms.complete(partial, query) for partial, query in zip(partials, queries, strict=True)]
