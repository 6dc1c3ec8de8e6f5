"""Plans of fits on Gram matrices: where models on weighted sums are solved, which tasks run on workers, and their memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...kernels.grams.normalization import needs_diagonal_only
from ..core.resources import Resources
from .fill import fill_bytes, fills_here, is_given_bank
from .pair_passes import (
    Build,
    batches_bytes,
    block_bytes,
    build_pass,
    diagonal_bytes,
    entries_bytes,
    forms_bytes,
    joined_bytes,
    matrix_bytes,
    on_diagonal,
    pass_groups,
    products_pass,
    sums_bytes,
    task_forms_pass,
)
from .settings import GramSettings
from .sources import PairRef, RowPair, row_pairs
from .weighted_sum import fits_driver, solver_bytes

BLOCKS_WORK, FORMS_WORK = "Gram blocks", "quadratic forms of the kernels"
SUM_WORK = ("weighted sums of kernels, written into the run", "products and entries of these sums, for the solver")


@dataclass(frozen=True)
class GramPasses:
    """The memory in bytes of the largest step of each pass that the :class:`Grams` of a fit may run; 0 if the entries are in this process.

    ``data`` is the data set of the kernels. The executor of ``resources`` must be of the kind that will run the passes.
    """

    data: Any
    specs: Sequence[Any]
    settings: GramSettings
    resources: Resources

    @cached_property
    def refs(self) -> Sequence[PairRef]:
        """Block pairs of all kernels."""
        return row_pairs(self.data, self.specs, self.settings.block)

    @property
    def tasks(self) -> int:
        """Number of tasks of a pass over all block pairs."""
        return len(pass_groups(self.refs))

    @property
    def n(self) -> int:
        return self.data.n_rows

    @property
    def k(self) -> int:
        return len(self.specs)

    @property
    def holds_sum(self) -> bool:
        """Whether one weighted sum is a matrix in this process."""
        return fits_driver(self.n, self.resources.driver_memory)

    @property
    def is_here(self) -> bool:
        """Whether the entries are in this process."""
        return self.settings.policy == "memory"

    def load(self) -> int:
        """Return the memory in bytes of a step that computes the entries. If entries are not stored, the step computes sums and diagonals
        instead.
        """
        if self.settings.policy == "store":
            return build_pass([Build(None, ref) for ref in self.refs]).memory_bound
        if self.is_here:
            if is_given_bank(self.data, self.specs):
                return 0
            is_filled = fills_here(self.data, self.resources, self.specs)
            return fill_bytes(self.data, self.specs) if is_filled else batches_bytes(self.refs, block_bytes)
        if all(isinstance(ref, RowPair) for ref in self.refs) and all(map(needs_diagonal_only, self.specs)):
            return joined_bytes(on_diagonal(self.refs), diagonal_bytes(self.k, self.settings.block))
        return joined_bytes(self.refs, sums_bytes(self.k, self.settings.block))

    def forms(self, m: int) -> int:
        return 0 if self.is_here else joined_bytes(self.refs, forms_bytes(self.k, m, self.settings.block))

    def products(self, m: int) -> int:
        return 0 if self.is_here else products_pass(self.refs, 8 * self.k * m * self.n).memory_bound

    def entries(self, m: int) -> int:
        """Return the memory in bytes of a step that reads m selected entries."""
        return 0 if self.is_here else joined_bytes(self.refs, entries_bytes(self.k, m, self.settings.block))

    def task_forms(self, m: int, n_tasks: int) -> int:
        """Return the memory in bytes of a step that computes the quadratic forms of m vectors for all pairs of tasks."""
        if self.is_here:
            return 0
        sizes = 8 * m * self.k * n_tasks**2, 8 * self.n * (m + 1)
        return task_forms_pass(self.refs, *sizes).memory_bound

    def sum(self) -> int:
        """Return the memory in bytes of a step that computes a weighted sum as a matrix. If the matrix is too large, the step writes the
        sum to disk, or reads entries from this file.
        """
        if not self.holds_sum:
            return self.solver()
        return 0 if self.is_here else batches_bytes(self.refs, matrix_bytes)

    def solver(self, repeats: int = 1) -> int:
        """Return the memory in bytes of a step that writes a weighted sum, or reads from it for a solver.

        ``repeats``: how often the solver may request the same row.
        """
        return solver_bytes(self.refs, self.n, self.settings.block, self.resources.driver_memory, repeats)


def sum_work(settings: GramSettings, n: int, driver_memory: int) -> tuple[str, ...]:
    """Return descriptions of the tasks on workers, for models on weighted sums that need the quadratic forms of all kernels after each
    solve.
    """
    sums = () if fits_driver(n, driver_memory) else SUM_WORK
    return (BLOCKS_WORK, *sums, *(() if settings.policy == "memory" else (FORMS_WORK,)))


def sum_plan(passes: GramPasses, *others: int) -> dict[str, Any]:
    """Return the plan of models on kernel sums: where they are solved, tasks per pass, and a bound on the memory of a task.

    ``others``: bytes of further passes of the fit.
    """
    place = "a matrix in this process" if passes.holds_sum else "a file of the run, by passes"
    return {"tasks_per_pass": passes.tasks, "task_bytes": max(passes.load(), passes.sum(), *others), "machines_solved_on": place}
