"""What the driver holds of Gram matrices and of weighted sums of them, as it is declared, and what refuses more."""

from __future__ import annotations

from ...cluster import bytes_text
from ..records.context import BANK_SHARE
from ..records.holdings import Held, Holding
from .weighted_sum import MATRIX_SHARE

PACKED = Held("kernels as packed triangles", "2 k n^2", f"where that is within {BANK_SHARE:g} L, or with `grams: memory`")
IN_PLACE = Held("kernels where they were handed over", "0", "float32 matrices in C order, given to an estimator")
BLOCKS = Held(
    "blocks of a sum on their way", "4 b^2", "where kernels lie elsewhere, or nowhere; b the rows of a block, or of a batch of blocks"
)
SUM = Held("weighted sum of the kernels, and the solver's copy of it", "8 n^2", f"where one is within {MATRIX_SHARE:g} L")
WORKING_SET = Held("a solver's working set of the weighted sum", f"{MATRIX_SHARE:g} L", "where the sum is larger")

HELD = (PACKED, IN_PLACE, BLOCKS, SUM, WORKING_SET)  # what the driver may hold of kernels


def sum_held(n: int, driver_memory: int) -> Holding:
    """Return what a weighted sum takes with a solver's copy of its active rows: both whole, or a share of the budget."""
    fits = 4 * n * n <= MATRIX_SHARE * driver_memory
    return SUM.of(n=n) if fits else WORKING_SET.of(L=driver_memory)


def pooled_refusal(n: int, driver_memory: int) -> str:
    """Return what a method says that needs the matrix of all rows on the driver and cannot have it."""
    needed = int(4 * n**2 / MATRIX_SHARE)
    return f"driver_memory={bytes_text(driver_memory)}: the matrix of {n} pooled rows needs {bytes_text(needed)} at least"
