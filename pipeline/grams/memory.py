"""What the driver holds of Gram matrices and of weighted sums of them, as it is declared, and what refuses more."""

from __future__ import annotations

from ..core.memory import Item
from ..records.context import BANK_SHARE
from ..records.holdings import Held
from .weighted_sum import MATRIX_SHARE, fits_driver

PACKED = Held("kernels as packed triangles", "2 k n^2", f"where that is within {BANK_SHARE:g} L, or with `grams: memory`")
IN_PLACE = Held("kernels where they were handed over", "0", "float32 matrices in C order, given to an estimator")
BLOCKS = Held(
    "blocks of a sum on their way", "4 b^2", "where kernels lie elsewhere, or nowhere; b the rows of a block, or of a batch of blocks"
)
SUM = Held("weighted sum of the kernels, and the solver's copy of it", "8 n^2", f"where one is within {MATRIX_SHARE:g} L")
WORKING_SET = Held("a solver's working set of the weighted sum", f"{MATRIX_SHARE:g} L", "where the sum is larger")

TABLES = Held("diagonals and row sums of the kernels", "32 k n", "where kernels do not lie in memory")
TASK_FORMS = Held("forms of pairs of tasks, and weights between them", "96 k T^2", "T tasks")

HELD = (PACKED, IN_PLACE, BLOCKS, SUM, WORKING_SET)  # what the driver may hold of kernels


def sum_held(n: int, driver_memory: int) -> Item:
    """Return what a weighted sum takes with a solver's copy of its active rows: both whole, or a share of the budget."""
    return SUM.of(n=n) if fits_driver(n, driver_memory) else WORKING_SET.of(L=driver_memory)


def task_forms_held(n: int, k: int, n_tasks: int, policy: str) -> tuple[Item, ...]:
    """Return what forms of pairs of tasks take, with the tables of kernels that do not lie in memory."""
    forms = TASK_FORMS.of(k=k, T=n_tasks)
    return (forms,) if policy == "memory" else (TABLES.of(k=k, n=n), forms)
