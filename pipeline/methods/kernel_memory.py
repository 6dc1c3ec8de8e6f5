"""What the driver holds while kernel machines are learnt; what is computed by passes beyond its share is counted as that share."""

from __future__ import annotations

from collections.abc import Sequence

from ..passes.combined import MATRIX_SHARE
from ..passes.grams import GramSettings
from ..records.holdings import Holding, refuse_beyond

VECTORS = 64
"""Bytes of a row and machine: label, cost, coefficient, decision value, and the solver's copies of them."""


def vectors_held(n: int, machines: int) -> Holding:
    """Return what the vectors over the rows take."""
    return Holding("labels, costs, coefficients and decision values of the machines", f"{VECTORS} n T", VECTORS * n * machines)


def machines_held(settings: GramSettings, n: int, k: int, machines: int, driver_memory: int) -> tuple[Holding, ...]:
    """Return what the driver holds of T machines on weighted sums of k matrices of n rows."""
    return (*settings.held(n, k, driver_memory), vectors_held(n, machines))


def refuse_pooled(n: int, driver_memory: int, method: str, remedy: str) -> None:
    """Refuse a method that works on the matrix of all pooled rows where a sum may not take as much of the driver as that.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        Need and limit are named.
    """
    share = round(1 / MATRIX_SHARE)
    pooled = Holding(f"matrix of {n} pooled rows, 1/{share} of driver_memory at most", f"{share} x 4 n^2", int(4 * n * n / MATRIX_SHARE))
    refuse_beyond([pooled], driver_memory, method, remedy)


def fewer_kernels(settings: GramSettings) -> str:
    """Return what helps where kernels take too much."""
    return "choose fewer kernels, or another policy (grams='auto')" if settings.policy == "memory" else "choose fewer kernels or rows"


def refuse_machines(settings: GramSettings, held: Sequence[Holding], n: int, k: int, limit: int, method: str) -> None:
    """Refuse kernel machines whose driver would hold more than it may, or whose tasks would.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        Need and limit are named.
    """
    remedy = fewer_kernels(settings)
    # Whatever the policy, a task computes one block pair of all kernels, in this process where there are no workers.
    block = Holding("one block of rows of every kernel", "4 k b^2", 4 * k * min(settings.block, n) ** 2)
    refuse_beyond([block] if settings.policy != "memory" else [], limit, method, remedy)
    refuse_beyond(held, limit, method, remedy)
