"""What a run decides about its Gram matrices, once, from sizes: where the entries lie and in which blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...cluster import bytes_text
from ...kernels.bank.bank import PackedBank
from ...kernels.grams.spec import KernelSpec
from ...storage import GramStore
from ...storage.urls import holds_store
from ..core.memory import Item
from ..core.resources import BANK_SHARE, Resources
from .fill import bank_bytes
from .sources import block_rows
from .sources import pairs as block_pairs
from .weighted_sum import MATRIX_SHARE, sum_item

Policy = Literal["memory", "store", "recompute"]

# What the log says of a policy.
PLACES: dict[Policy, str] = {"memory": "kept in memory", "store": "kept in the Gram store", "recompute": "computed again in every pass"}

BATCH_BYTES = 64 << 20  # blocks brought to the driver at a time while a bank is filled


@dataclass(frozen=True)
class GramSettings:
    """What a run decides about its Gram matrices."""

    policy: Policy  # where the entries lie
    block: int  # rows of a block
    store: str | None = None  # path of the Gram store, if there is one
    reason: str = ""  # why this policy, for the log
    dtype: str = "float32"  # type of the entries
    in_place: bool = False  # whether a bank in memory is the matrices that were handed over, read where they lie: the driver adds nothing
    counts: np.ndarray | None = field(default=None, repr=False, compare=False)  # `(n,)` how often rows count where kernels are normalised

    @classmethod
    def of(
        cls, data: Any, resources: Resources, specs: Sequence[KernelSpec], policy: str = "auto", store: str | None = None
    ) -> GramSettings:
        """Decide from sizes, or obey ``policy``. Raises ValueError if a store is asked for without a path."""
        n, k = data.n_rows, len(specs)
        if policy == "store" and store is None:
            raise ValueError("grams='store' needs a path for the Gram store")
        whole, budget = bank_bytes(data, specs), int(BANK_SHARE * resources.driver_memory)
        auto: Policy = "memory" if whole <= budget else "recompute" if store is None else "store"
        chosen: Any = auto if policy == "auto" else policy
        known = chosen == "store" and holds_store(str(store))
        block = GramStore.open(str(store)).meta.block if known else block_rows(n, k)
        if chosen == "memory" and not whole:
            return cls(chosen, block, store, f"read where they lie: {k} Gram matrices of {n} rows that were handed over", in_place=True)
        sizes = f"{k} Gram matrices of {n} rows take {bytes_text(whole)}, the driver may give them {bytes_text(budget)}"
        return cls(chosen, block, store, f"{PLACES[chosen]}{'' if policy == 'auto' else ', as asked for'}: {sizes}")

    def items(self, n: int, k: int, driver_memory: int) -> tuple[Item, ...]:
        """Return what the driver holds of k matrices of n rows: a bank in memory, and a weighted sum or a solver's part of it."""
        if self.policy == "memory":
            packed = "kernels as packed triangles", PackedBank.bytes_for(k, n, np.float32)
            matrices = ("kernels where they were handed over", 0) if self.in_place else packed
        else:
            batch = min(max(4 * min(self.block, n) ** 2, BATCH_BYTES // k), 4 * n * n, int(MATRIX_SHARE * driver_memory))
            matrices = "blocks of a sum on their way", batch
        return matrices, sum_item(n, driver_memory)

    def describe(self, n: int, k: int) -> dict[str, Any]:
        """Return what a plan shows: policy and sizes."""
        pairs = block_pairs(n, self.block) if self.policy == "store" else ()
        whole = sum(4 * k * (b - a) * (d - c) for (a, b), (c, d) in pairs) or PackedBank.bytes_for(k, n, np.float32)
        plan = {"grams": self.policy, "gram_reason": self.reason, "gram_block_rows": self.block}
        return {**plan, "kernels": k, "gram_bytes": whole, "gram_store": self.store}


def tables_item(n: int, k: int) -> Item:
    """Return what is known of k kernels that do not lie in memory."""
    return "diagonals and row sums of the kernels", 32 * k * n


def task_forms_item(k: int, n_tasks: int) -> Item:
    """Return what quadratic forms between all pairs of tasks take."""
    return "forms of pairs of tasks, and weights between them", 96 * k * n_tasks**2


def task_forms_items(n: int, k: int, n_tasks: int, policy: str) -> tuple[Item, ...]:
    """Return what forms of pairs of tasks take, with the tables of kernels that do not lie in memory."""
    forms = task_forms_item(k, n_tasks)
    return (forms,) if policy == "memory" else (tables_item(n, k), forms)
