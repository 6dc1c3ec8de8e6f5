"""What a plan tells of machines on weighted sums of Gram matrices: where they are solved, what workers do, what memory a task takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .grams import pass_groups
from .settings import GramSettings
from .sources import FREED_BYTES, PairRef, pair_bytes
from .weighted_sum import BATCH_BYTES, MATRIX_SHARE, PART_BYTES, fits_driver

BLOCKS_WORK, FORMS_WORK = "Gram blocks", "quadratic forms of the kernels"
SUM_WORK = ("weighted sums of kernels, written into the run", "products and entries of these sums, for the solver")


def sum_work(settings: GramSettings, n: int, driver_memory: int) -> tuple[str, ...]:
    """Return what workers do of a fit whose machines are solved on sums of kernels, with forms of every kernel after a solve."""
    sums = () if fits_driver(n, driver_memory) else SUM_WORK
    return (BLOCKS_WORK, *sums, *(() if settings.policy == "memory" else (FORMS_WORK,)))


def sum_plan(settings: GramSettings, refs: Sequence[PairRef], n: int, forms: int, driver_memory: int) -> dict[str, Any]:
    """Return where machines on sums of the kernels of block pairs are solved, tasks of a pass, and a bound of the memory of a task.

    ``forms``: bytes of the forms that one pass brings.
    """
    here = fits_driver(n, driver_memory)
    largest = max(map(pair_bytes, refs))
    step = largest + 4 * forms + 32 * n
    if not here:
        step = max(step, solver_task_bytes(settings, n, driver_memory), largest + 16 * min(settings.block, n) ** 2)
    place = "a matrix in this process" if here else "a file of the run, by passes"
    return {"tasks_per_pass": len(pass_groups(refs)), "task_bytes": int(step), "machines_solved_on": place}


def solver_task_bytes(settings: GramSettings, n: int, driver_memory: int) -> int:
    """Bound a task of a solver's passes over a written sum: one block pair of it, a vector, entries on their way."""
    block = min(settings.block, n)
    square = int(MATRIX_SHARE * driver_memory)  # entries of the working set
    places = 16 * int((square // 4) ** 0.5) * (n // block + 2) + 512 * (n // block + 1) ** 2
    whole = min(BATCH_BYTES + PART_BYTES + 4 * block**2, square) + places
    part = min(PART_BYTES + 4 * block**2, square) + places
    return 16 * block**2 + FREED_BYTES + max(24 * n, 2 * part + whole)
