"""What the driver holds while kernel machines are learnt; a matrix beyond its share is computed by passes, and counts as that share."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.memory import Item, check_memory, refuse
from ..core.resources import Resources
from ..grams.settings import GramSettings

VECTOR_BYTES = 64  # bytes of a row and machine: label, cost, coefficient, decision value, and the solver's copies of them


def vectors_item(n: int, machines: int) -> Item:
    """Return the bytes of the vectors over the rows."""
    return "labels, costs, coefficients and decision values of the machines", VECTOR_BYTES * n * machines


def machines_items(settings: GramSettings, n: int, k: int, machines: int, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds of T machines on weighted sums of k matrices of n rows."""
    return (*settings.items(n, k, driver_memory), vectors_item(n, machines))


def fewer_kernels(settings: GramSettings) -> str:
    """Return the remedy where kernels take too much memory."""
    return "choose fewer kernels, or another policy (grams='auto')" if settings.policy == "memory" else "choose fewer kernels or rows"


def check_machines(settings: GramSettings, items: Sequence[Item], n: int, k: int, resources: Resources, method: str) -> None:
    """Refuse kernel machines whose driver, or whose tasks, would hold more than they may, and tell where it is much.

    Raises MemoryBoundExceeded: need and limit are named.
    """
    remedy = fewer_kernels(settings)
    # Whatever the policy, a task computes one block pair of all kernels, in this process where there are no workers.
    block = "one block of rows of every kernel", 4 * k * min(settings.block, n) ** 2
    refuse(method, [block] if settings.policy != "memory" else [], resources.fit_limit, remedy)
    check_memory(method, items, resources, remedy)
