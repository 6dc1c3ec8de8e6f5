"""What the driver holds while kernel machines are learnt; a matrix beyond its share is computed by passes, and counts as that share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..core.memory import Item, check_memory, refuse
from ..grams.memory import HELD as GRAMS_HELD
from ..grams.settings import GramSettings
from ..grams.weighted_sum import MATRIX_SHARE
from ..records.context import RunContext
from ..records.holdings import Held

VECTOR_BYTES = 64  # bytes of a row and machine: label, cost, coefficient, decision value, and the solver's copies of them

MACHINES = Held("labels, costs, coefficients and decision values of the machines", f"{VECTOR_BYTES} n T")
POOLED = Held(f"matrix of all pooled rows, 1/{round(1 / MATRIX_SHARE)} of driver_memory at most", f"{4 / MATRIX_SHARE:g} n^2")
BLOCK = Held("one block of rows of every kernel", "4 k b^2")

HELD = (*GRAMS_HELD, MACHINES)  # what the driver may hold of machines on sums of kernels


def vectors_held(n: int, machines: int) -> Item:
    """Return the bytes of the vectors over the rows."""
    return MACHINES.of(n=n, T=machines)


def machines_held(settings: GramSettings, n: int, k: int, machines: int, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds of T machines on weighted sums of k matrices of n rows."""
    return (*settings.held(n, k, driver_memory), vectors_held(n, machines))


def refuse_pooled(n: int, driver_memory: int, method: str, remedy: str) -> None:
    """Refuse a method that works on the matrix of all pooled rows, where that is more than a sum of kernels may take on the driver.

    Raises MemoryBoundExceeded: need and limit are named.
    """
    matrix = replace(POOLED, what=POOLED.what.replace("all pooled", f"{n} pooled"))
    refuse(method, [matrix.of(n=n)], driver_memory, remedy)


def fewer_kernels(settings: GramSettings) -> str:
    """Return the remedy where kernels take too much memory."""
    return "choose fewer kernels, or another policy (grams='auto')" if settings.policy == "memory" else "choose fewer kernels or rows"


def check_machines(settings: GramSettings, holdings: Sequence[Item], n: int, k: int, ctx: RunContext, method: str) -> None:
    """Refuse kernel machines whose driver, or whose tasks, would hold more than they may, and tell where it is much.

    Raises MemoryBoundExceeded: need and limit are named.
    """
    remedy = fewer_kernels(settings)
    # Whatever the policy, a task computes one block pair of all kernels, in this process where there are no workers.
    block = BLOCK.of(k=k, b=min(settings.block, n))
    refuse(method, [block] if settings.policy != "memory" else [], ctx.fit_limit, remedy)
    check_memory(method, holdings, ctx, remedy)
