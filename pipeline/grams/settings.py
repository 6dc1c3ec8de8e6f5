"""Settings of a run's Gram matrices, decided once from sizes: where entries are stored, in which blocks, and the driver's memory.

Also checks, when a run resumes, that the Gram stores it reads have not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ...cluster import bytes_text
from ...kernels.bank.bank import PackedBank
from ...kernels.grams.spec import KernelSpec
from ...storage import GramStore, RunStore
from ...storage.urls import holds_store
from ..core.memory import Item, check_memory, refuse
from ..core.resources import BANK_SHARE, Resources
from ..records.began import confirm_grams
from ..records.data_set import DataSet
from .fill import bank_bytes
from .given import GivenGrams
from .sources import block_rows
from .sources import pairs as block_pairs
from .weighted_sum import MATRIX_SHARE, sum_item

Policy = Literal["memory", "store", "recompute"]

# What the log says of a policy.
PLACES: dict[Policy, str] = {
    "memory": "kept in memory",
    "store": "kept in the Gram store",
    "recompute": "computed in every pass and cached where there is room",
}

VECTOR_BYTES = 64  # bytes of a row and machine: label, cost, coefficient, decision value, and the solver's copies of them
BATCH_BYTES = 64 << 20  # blocks brought to the driver at a time while a bank is filled


@dataclass(frozen=True)
class GramSettings:
    """Settings of a run's Gram matrices."""

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
        """Return the settings for ``policy``; ``"auto"`` decides from sizes. Raises ValueError if a store is requested without a path."""
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
        """Return the driver's memory items for k matrices of n rows: a bank in memory, and a weighted sum or the solver's part of it."""
        if self.policy == "memory":
            packed = "kernels as packed triangles", PackedBank.bytes_for(k, n, np.float32)
            matrices = ("kernels where they were handed over", 0) if self.in_place else packed
        else:
            batch = min(max(4 * min(self.block, n) ** 2, BATCH_BYTES // k), 4 * n * n, int(MATRIX_SHARE * driver_memory))
            matrices = "blocks of a sum on their way", batch
        return matrices, sum_item(n, driver_memory)

    def describe(self, n: int, k: int) -> dict[str, Any]:
        """Return the settings for a plan: policy and sizes."""
        pairs = block_pairs(n, self.block) if self.policy == "store" else ()
        whole = sum(4 * k * (b - a) * (d - c) for (a, b), (c, d) in pairs) or PackedBank.bytes_for(k, n, np.float32)
        plan = {"grams": self.policy, "gram_reason": self.reason, "gram_block_rows": self.block}
        return {**plan, "kernels": k, "gram_bytes": whole, "gram_store": self.store}


def tables_item(n: int, k: int) -> Item:
    """Return the memory item for the sums and diagonals of k kernels whose matrices are not in memory."""
    return "diagonals and row sums of the kernels", 32 * k * n


def task_forms_item(k: int, n_tasks: int) -> Item:
    """Return the memory item of quadratic forms between all pairs of tasks."""
    return "forms of pairs of tasks, and weights between them", 96 * k * n_tasks**2


def task_forms_items(n: int, k: int, n_tasks: int, policy: str) -> tuple[Item, ...]:
    """Return the memory items of the quadratic forms for all pairs of tasks. If matrices are not in memory, an item for the sums and
    diagonals of the kernels is added.
    """
    forms = task_forms_item(k, n_tasks)
    return (forms,) if policy == "memory" else (tables_item(n, k), forms)


def vectors_item(n: int, machines: int) -> Item:
    """Return the memory item of the labels, costs, coefficients and decision values of ``machines`` models."""
    return "labels, costs, coefficients and decision values of the models", VECTOR_BYTES * n * machines


def machines_items(settings: GramSettings, n: int, k: int, machines: int, driver_memory: int) -> tuple[Item, ...]:
    """Return the driver's memory items for ``machines`` models on weighted sums of k matrices of n rows."""
    return (*settings.items(n, k, driver_memory), vectors_item(n, machines))


def fewer_kernels(settings: GramSettings) -> str:
    """Return the remedy if kernels need too much memory."""
    return "choose fewer kernels, or another policy (grams='auto')" if settings.policy == "memory" else "choose fewer kernels or rows"


def check_machines(settings: GramSettings, items: Sequence[Item], n: int, k: int, resources: Resources, method: str) -> None:
    """Check the memory of kernel models on the driver and in tasks, and warn if it is large.

    Raises MemoryBoundExceeded with the need and the limit.
    """
    remedy = fewer_kernels(settings)
    # Whatever the policy, a task computes one block pair of all kernels, in this process where there are no workers.
    block = "one block of rows of every kernel", 4 * k * min(settings.block, n) ** 2
    refuse(method, [block] if settings.policy != "memory" else [], resources.fit_limit, remedy)
    check_memory(method, items, resources, remedy)


def confirm_contents(data: DataSet, settings: GramSettings, specs: Sequence[Any], run: RunStore | None) -> None:
    """Check that the Gram store of a run has not changed since the run began. The first call records the store's contents.

    * ``data``: the data set of the kernels.
    * ``settings``: where entries are stored, and the rows of a block.
    * ``specs``: the kernels. Leave empty if the run adds kernels later; then only data and block rows are compared.

    Raises DigestMismatch if the contents that the run uses have changed.
    """
    source = data.source if isinstance(data, GivenGrams) else None
    if run is None:
        return
    if isinstance(source, GramStore):
        confirm_grams(run, source.url, _given(source))
    elif settings.policy == "store":
        digests = list(dict.fromkeys(spec.digest() for spec in specs))
        holds = {"data": data.digest, "rows of a block": settings.block, **({"kernels": digests} if digests else {})}
        confirm_grams(run, str(settings.store), holds)


def confirm_read_whole(run: RunStore, configs: Iterable[Any]) -> None:
    """Check that the Gram stores of a grid's fits have not changed since the first fit, so that all fits use the same kernels.

    ``run`` is the run of the grid, ``configs`` the parameters of its points. Raises DigestMismatch if one of the stores has changed.
    """
    whole = {config.gram_store for config in configs if getattr(config, "kernels", None) == "precomputed" and config.gram_store}
    for url in sorted(whole):
        confirm_grams(run, url, _given(GramStore.open(url)), f"grams {url}")


def _given(source: GramStore) -> Mapping[str, Any]:
    # Digests of kernels that were computed elsewhere are those of their entries.
    meta = source.meta
    return {"data": meta.data, "rows of a block": meta.block, "type": meta.dtype, "kernels": list(source.kernels)}
