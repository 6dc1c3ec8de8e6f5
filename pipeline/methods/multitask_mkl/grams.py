"""Gram matrices within tasks, wherever their entries are kept, and SVMs on weighted sums of them.

If the kernels are in memory, the steps of a pass run one after another in this process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ....kernels.grams.normalization import KernelSums, block_sums, kernel_sums, make_normalizations
from ....kernels.svm.dual import DualProblem
from ....kernels.svm.smo import Accuracy
from ....storage import DataError
from ....storage.grams.layout import GramLayout
from ...core.resources import Resources
from ...grams.grams import filled_store
from ...grams.settings import GramSettings, confirm_contents
from ...passes.blocks import Blocks
from .solve_pass import BatchProblem, Norms, TaskBatch, normalized_block, solve_chunk, solves_pass, split_batches, sums_chunk, sums_pass
from .task_blocks_pass import LoadedPair, TaskPair, load_pairs, task_pairs


class TaskMachines(NamedTuple):
    """SVMs of all tasks, with rows sorted by task."""

    beta: np.ndarray  # (n,)
    decision: np.ndarray  # (n,)
    forms: np.ndarray  # (k, T) of the normalised kernels
    joint: np.ndarray  # (k, T) forms of the sum with other coefficients


class TaskGrams:
    """k Gram matrices within T tasks, and SVMs on their weighted sums; ``order`` lists the rows of the data task by task.

    Normalisation uses pairs of rows within tasks. Centring is by task, and the intercept of the task absorbs it.
    """

    def __init__(
        self, data: Blocks, specs: Sequence[Any], layout: GramLayout, order: np.ndarray, settings: GramSettings, resources: Resources
    ) -> None:
        self.data, self.specs, self.layout, self.order = data, tuple(specs), layout, order
        self.settings, self.resources = settings, resources
        for spec in specs:
            if spec.centre and spec.normalize == "cosine":
                raise ValueError(
                    f"kernel {spec}: cosine of centred rows needs pairs of rows from different tasks; set either cosine or centre"
                )
        self._pairs: Sequence[TaskPair] = task_pairs(data, self.specs, layout, order, settings.dtype)
        event = {"grams": settings.policy, "gram_reason": settings.reason, "gram_block_rows": layout.block, "kernels": len(self.specs)}
        resources.emit({"event": "grams", **event, "tasks": len(layout.groups)})
        confirm_contents(data, settings, self.specs, resources.scratch)
        self.sums = self._load_sums()
        self.normalizations = [replace(norm, row_mean=None, mean=0.0) for norm in make_normalizations(self.specs, self.centred_sums())]
        scales_only = all(norm.only_scales for norm in self.normalizations)
        self.scale = np.array([norm.scale if scales_only else 1.0 for norm in self.normalizations])
        self._norms: Norms = None if scales_only else tuple(self.normalizations)
        if settings.policy == "memory" and self._norms is not None:
            self._pairs = [LoadedPair(pair.rows, pair.cols, normalized_block(pair, self._norms, 0)) for pair in self._pairs]
            self._norms = None
        self.batches = split_batches(self._pairs, layout)

    @property
    def k(self) -> int:
        """Number of kernels."""
        return len(self.specs)

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.layout.n

    def centred_sums(self) -> list[KernelSums]:
        """Return kernel sums whose centring is equivalent to centring by task. Their total is ``n * sum_t total_t / m_t``, where task t has
        ``m_t`` rows and its kernel entries sum to ``total_t``. The trace that remains is the trace over all tasks.
        """
        counts, starts = self.settings.counts, np.concatenate([[0], np.cumsum(self.layout.groups)[:-1]])
        sizes = np.array(self.layout.groups) if counts is None else np.add.reduceat(counts, starts)
        rows = [sums.row_sums if counts is None else sums.row_sums * counts for sums in self.sums]
        means = [np.add.reduceat(row, starts) / sizes for row in rows]
        return [replace(sums, total=float(sums.n * part.sum())) for sums, part in zip(self.sums, means, strict=True)]

    def solve(
        self, problem: DualProblem, beta: np.ndarray, weights: np.ndarray, accuracy: Accuracy, partner: np.ndarray | None = None
    ) -> TaskMachines:
        """Solve the SVMs of all tasks from coefficients ``beta`` at weights ``(k, T)`` of the normalised kernels, in one pass.

        ``partner`` are ``(n,)`` coefficients; the joint forms are the quadratic forms of the sum of the solution and ``partner``.

        Raises DataError if a kernel is not positive semi-definite.
        """
        whole = BatchProblem(problem, beta, weights * self.scale[:, None], accuracy, partner, self._norms)
        batches = [_with_problem(batch, whole) for batch in self.batches]
        if self.settings.policy == "memory":
            solutions = [solution for batch in batches for solution in solve_chunk(batch)]
        else:
            solutions = self.resources.run_pass(solves_pass(solve_chunk, batches, self.k))
        solutions = sorted(solutions, key=lambda solution: solution.first)
        indefinite = [task for solution in solutions for task in solution.indefinite]
        if indefinite:
            raise DataError(f"a kernel is not positive semi-definite on the rows of task number {indefinite[0]}")
        forms = np.concatenate([solution.forms for solution in solutions])
        plain, joint = (np.ascontiguousarray(forms[:, :, i]).T * self.scale[:, None] for i in (0, 1))
        beta, decision = (np.concatenate([getattr(solution, name) for solution in solutions]) for name in ("beta", "decision"))
        return TaskMachines(beta, decision, plain, joint)

    def _load_sums(self) -> list[KernelSums]:
        if self.settings.policy == "store":
            layout, digest = self.layout, ordered_digest(self.data.digest, self.order)
            cut = {"data_digest": digest, "n": layout.n, "dtype": self.settings.dtype, "block": layout.block, "groups": layout.groups}
            # Its files stay readable while the store is open, should it be replaced.
            self._store, self._pairs, sums = filled_store(self.resources, str(self.settings.store), self.specs, self._pairs, **cut)
            if self.settings.counts is None:
                return sums
        counts = self.settings.counts
        if self.settings.policy == "memory":
            blocks = load_pairs(self._pairs)
            sums = [block_sums(block, pair.rows, pair.cols, counts) for block, pair in zip(blocks, self._pairs, strict=True)]
            self._pairs = [LoadedPair(pair.rows, pair.cols, block) for block, pair in zip(blocks, self._pairs, strict=True)]
            return kernel_sums(self.n, sums, counts)
        batches = split_batches(self._pairs, self.layout)
        shared = None if counts is None else self.resources.share("counts", counts, len(batches))
        return kernel_sums(self.n, self.resources.run_pass(sums_pass(sums_chunk, batches, self.k, shared)), counts)


def _with_problem(batch: TaskBatch, whole: BatchProblem) -> TaskBatch:
    """Return a batch with its part of the problem of all tasks."""
    rows, norms = slice(*batch.rows), whole.norms
    first, last = batch.parts[0].number, batch.parts[-1].number + 1
    if norms is not None:
        norms = tuple(replace(norm, diag_root=None if norm.diag_root is None else norm.diag_root[rows]) for norm in norms)
    partner = None if whole.partner is None else whole.partner[rows]
    part = BatchProblem(whole.problem.part(rows), whole.beta[rows], whole.weights[:, first:last], whole.accuracy, partner, norms)
    return replace(batch, problem=part)


def ordered_digest(digest: str, order: np.ndarray) -> str:
    """Return the digest of rows in the given order; if the order is that of the data, the digest of the data."""
    if np.array_equal(order, np.arange(len(order))):
        return digest
    return hashlib.sha256(digest.encode() + np.ascontiguousarray(order, "<i8").tobytes()).hexdigest()
