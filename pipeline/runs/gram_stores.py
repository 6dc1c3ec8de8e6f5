"""Gram stores of a block store: build missing blocks, plan a build, repair damaged blocks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...cluster import ClusterConfig, MemoryBoundExceeded, TLSFiles, driver_bytes, tee
from ...kernels.grams.spec import KernelSpec, as_specs, kernel_grid
from ...storage import BlockStore, GramStore, GramTask, StorageError
from ...storage.data import opened
from ...storage.grams.layout import OBJECT_BYTES, GramLayout
from ...storage.grams.store import begin_replacement, end_replacement
from ...storage.places import check_place
from ...storage.urls import holds_store
from ..core.memory import Memory, process_bytes, refuse_step, tight_worker_notes
from ..core.resources import Emit, RunContext, Tally, ignore
from ..grams.grams import Grams, build_blocks
from ..grams.settings import GramSettings
from ..grams.sources import RowPair, block_rows, pair_bytes, pairs, row_pairs
from ..inputs.kernels import check_rows, closed_kernels
from ..inputs.scaling import as_its_grams, as_scaled
from ..records.compute import ComputeOptions
from ..records.config import MethodConfig, Scale, make_config
from .run import ConfigMismatch, executing

__all__ = ["GramOutcome", "KernelSpec", "as_specs", "build_grams", "kernel_grid", "repair_grams"]


@dataclass(frozen=True)
class GramOutcome:
    """Result of building or repairing a Gram store.

    ``status``: ``done``, ``already-done`` or ``planned``. ``figures``: small JSON object with the numbers of kernels, blocks, bytes and
    seconds; after a dry run, the numbers of tasks and bytes, and the memory needed.
    """

    status: str
    figures: dict[str, Any]


class _Kernels(MethodConfig):
    """The parameters that determine how columns are scaled for kernels."""

    kernels: list[str]
    scale: Scale = "auto"


def build_grams(
    data: str,
    kernels: Any,
    out: str,
    *,
    cluster: str = "sync",
    worker_memory: str | int | None = None,
    driver_memory: str | int | None = None,
    allow_plaintext: bool = False,
    tls: TLSFiles | None = None,
    stall_timeout: float | None = None,
    on_event: Emit | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
    scale: str | None = "auto",
) -> GramOutcome:
    """Compute the Gram matrices of kernels over a block store into a Gram store. Existing blocks are reused.

    Parameters
    ----------
    data, kernels
        Block store (of sequences for string kernels), and kernels as in fits. Matrices are stored neither normalised nor centred.
    out, overwrite
        The Gram store. Kernels are added to an existing store of the same data. ``overwrite`` replaces a store of other data; readers see
        the old store until the new one is complete.
    scale
        Scaling of the columns, as in estimators; ``None``: unscaled. A fit can only read matrices that were computed with its own scaling.
    cluster, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout, on_event, dry_run
        As in :func:`gramplane.pipeline.run_method`.

    Returns
    -------
    GramOutcome
        Counts of kernels and blocks (computed, reused), bytes, seconds and MB/s.

    Raises
    ------
    ValueError
        A kernel cannot be parsed, or (as :class:`ConfigMismatch`) the Gram store has other data.
    gramplane.storage.RunLocked
        Another process is building this store.
    """
    options = ComputeOptions(cluster, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout)
    out = check_place(out, "new-store", "out")
    store = opened(data, "gram")
    texts = [str(kernel) for kernel in as_specs(kernels, store.n_cols or None)]
    store = as_scaled(make_config(_Kernels, {"scale": scale, "kernels": texts}), store)
    specs = closed_kernels(kernels, store)
    check_rows(specs, store)
    config = options.config()
    replacement = begin_replacement(out, store.digest, "float32") if overwrite else None
    there = _existing(replacement or out, store)
    sizes = _Sizes.of(specs, store, there)
    step = sizes.step(store, specs)
    refuse_step("gram", Memory((), step), driver_bytes(driver_memory), config.kind)
    _refuse_workers(config, step)
    if dry_run:
        said = {"data": store.url, "grams": out, "cluster": options.cluster, "process_bytes_at_most": process_bytes(config, step)}
        return GramOutcome("planned", {**said, **sizes.figures(), "task_bytes": step})
    if replacement is None and there is not None and sizes.tasks == 0:
        return GramOutcome("already-done", {"data": store.url, "grams": out, **_built(sizes, 0.0)})
    began = time.perf_counter()
    emit, tally = on_event or ignore, Tally()
    with executing(options, store, tee((emit, tally.listen)), "grams.pair_passes") as executor:
        ctx = RunContext(executor, data=store, driver_memory=driver_bytes(driver_memory), emit=emit, tally=tally)
        Grams(ctx.data, specs, GramSettings.of(ctx.data, ctx, specs, "store", replacement or out), ctx)
        ctx.confirm()
    if replacement is not None:
        end_replacement(out, replacement)
    return GramOutcome("done", {"data": store.url, "grams": out, **_built(sizes, time.perf_counter() - began)})


def _refuse_workers(config: ClusterConfig, step: int) -> None:
    """Check that workers have enough memory for the single pass of a build. Raises MemoryBoundExceeded with the memory needed."""
    for note in tight_worker_notes(config, step):
        raise MemoryBoundExceeded(f"gram: {note}", step, config.memory_per_worker or 0)


def _existing(out: str, data: BlockStore) -> GramStore | None:
    if not holds_store(out):
        return None
    there = GramStore.open(out)
    if there.meta.data != data.digest:
        raise ConfigMismatch(f"{out} holds kernels of other data ({there.meta.data}, not {data.digest} of {data.url}); choose another path")
    if there.meta.dtype != "float32":
        raise ConfigMismatch(
            f"{out} holds precomputed kernels in {there.meta.dtype}, but kernels are computed in float32; choose another path"
        )
    return there


@dataclass(frozen=True)
class _Sizes:
    """Number and size of the blocks of a Gram store that have to be computed."""

    kernels: int
    block: int
    blocks: int
    tasks: int
    nbytes: int
    width: int

    @classmethod
    def of(cls, specs: Sequence[KernelSpec], data: BlockStore, there: GramStore | None) -> _Sizes:
        raw = list(dict.fromkeys(spec.digest() for spec in specs))
        if there is None:
            layout, budget = GramLayout(data.n_rows, min(block_rows(data.n_rows, len(specs)), data.n_rows)), OBJECT_BYTES
        else:
            layout, budget = there.meta.layout, there.meta.budget
        known = [digest for digest in raw if there is not None and digest in there.places]
        missing = there.missing(known) if there is not None and known else []
        bundles = there.bundles_of(known) if there is not None and known else []
        fresh = layout.bundle_sizes(len(raw) - len(known), 4, budget) if len(raw) > len(known) else []
        per_kernel = sum(4 * (b - a) * (d - c) for (a, b), (c, d) in pairs(data.n_rows, layout.block))
        return cls(
            len(raw),
            layout.block,
            layout.n_pairs * (len(bundles) + len(fresh)),
            len(missing) + layout.n_pairs * len(fresh),
            sum(task.nbytes for task in missing) + per_kernel * sum(fresh),
            max([*fresh, *(len(task.digests) for task in missing)], default=0),
        )

    def step(self, data: BlockStore, specs: Sequence[KernelSpec]) -> int:
        """Return an upper bound on the bytes of a task."""
        end = min(self.block, data.n_rows)
        pair = RowPair(data.url, data.digest, (0, end), (0, end), tuple(specs[:1]) * self.width, data.n_cols)
        return pair_bytes(pair)

    def figures(self) -> dict[str, int]:
        """Return the figures of the plan."""
        done = self.blocks - self.tasks
        return {"kernels": self.kernels, "block_rows": self.block, "tasks": self.tasks, "blocks_reused": done, "bytes": self.nbytes}


def _built(sizes: _Sizes, seconds: float) -> dict[str, Any]:
    rate = sizes.nbytes / seconds / 1e6 if seconds else None
    computed = {"kernels": sizes.kernels, "blocks_computed": sizes.tasks, "blocks_reused": sizes.blocks - sizes.tasks}
    return {**computed, "bytes": sizes.nbytes, "seconds": seconds, "mb_per_second": rate}


def repair_grams(
    store: str,
    data: str,
    *,
    cluster: str = "sync",
    worker_memory: str | int | None = None,
    driver_memory: str | int | None = None,
    allow_plaintext: bool = False,
    tls: TLSFiles | None = None,
    stall_timeout: float | None = None,
    on_event: Emit | None = None,
) -> GramOutcome:
    """Recompute the damaged blocks of a Gram store, with bit-identical results. All other blocks are left unchanged.

    ``store``, ``data``: the Gram store, and the block store that it was built from. Other arguments are as in :func:`build_grams`. Raises
    ConfigMismatch if the Gram store was built from other data, StorageError if a damaged kernel was added as a precomputed matrix,
    and DigestMismatch if the manifest or a description is damaged.
    """
    options = ComputeOptions(cluster, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout)
    store = check_place(store, "new-store", "store")
    blocks = as_its_grams(BlockStore.open(data), store)
    _existing(store, blocks)
    grams, emit, began = GramStore.open(store), on_event or ignore, time.perf_counter()
    with grams.lock():
        report = grams.verify()
        tasks = grams.damaged(report)
        specs = _recomputable(grams, tasks)
        if tasks:
            with executing(options, blocks, emit, "grams.pair_passes") as executor:
                ctx = RunContext(executor, data=blocks, driver_memory=driver_bytes(driver_memory), emit=emit)
                grams.commit(build_blocks(ctx, tasks, specs, row_pairs(ctx.data, list(specs.values()), grams.meta.block)))
    figures = {"damaged": len(report.damaged), "blocks_computed": len(tasks), "bytes": sum(task.nbytes for task in tasks)}
    seconds = time.perf_counter() - began
    return GramOutcome("done" if report.damaged else "already-done", {"data": blocks.url, "grams": store, **figures, "seconds": seconds})


def _recomputable(grams: GramStore, tasks: Iterable[GramTask]) -> dict[str, KernelSpec]:
    needed = dict.fromkeys(digest for task in tasks for digest in task.digests)
    described = {digest: grams.describe(digest) for digest in needed}
    for record in described.values():
        if record.get("name") == "precomputed":
            raise StorageError(
                f"{grams.url}: blocks of the kernel {record.get('label')!r}, which was computed elsewhere, are damaged; "
                "remove the store and run `gramplane gram --precomputed` again"
            )
    return {digest: KernelSpec.from_json(record) for digest, record in described.items()}
