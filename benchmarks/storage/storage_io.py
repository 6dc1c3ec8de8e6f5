"""Write and read column stripes: gramplane against Zarr's default codec, in one process, alternating.

Run with ``python -m benchmarks.storage.storage_io [--megabytes 256] [--folder FOLDER]``. Rates are of the payload (row numbers and
values). Ours counts the check sums of what it writes and reads first; both read what they wrote just before, out of the system's cache.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr

from gramplane.storage import BlockMeta, BlockStore, BlockWriter, StripeLayout, plan_stripes

N_ROWS = 1_000_000


class Workload:
    """Random column stripes of a given payload in bytes."""

    def __init__(self, payload: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        nnz = payload // 8
        self.counts = rng.multinomial(nnz, np.full(max(1, nnz // 1000), 1.0 / max(1, nnz // 1000))).astype(np.uint32)
        self.rows = np.concatenate([np.sort(rng.choice(N_ROWS, c, replace=False)) for c in self.counts]).astype(np.int32)
        self.values = rng.standard_normal(nnz).astype(np.float32)
        self.ends = np.concatenate([[0], np.cumsum(self.counts, dtype=np.int64)])
        self.layout: StripeLayout = plan_stripes(self.counts, 4)
        self.payload = nnz * 8

    def stripes(self):
        """Yield (index, columns, entries) of every stripe."""
        for s in range(self.layout.n_stripes):
            columns = slice(int(self.layout.edges[s]), int(self.layout.edges[s + 1]))
            yield s, columns, slice(int(self.ends[columns.start]), int(self.ends[columns.stop]))


def write_ours(work: Workload, place: Path) -> None:
    writer = BlockWriter.create(place, BlockMeta(N_ROWS, len(work.counts), "sparse", "float32"), work.layout)
    for s, columns, entries in work.stripes():
        writer.write_stripe(s, work.counts[columns], work.rows[entries], work.values[entries])
    writer.write_table("counts", work.counts, of="columns")
    writer.commit()


def write_zarr(work: Workload, place: Path) -> None:
    group = zarr.create_group(place)
    chunk = work.layout.chunk
    length = (work.layout.n_chunks * chunk,)
    arrays = [group.create_array(name, shape=length, chunks=(chunk,), dtype=dtype) for name, dtype in (("rows", "i4"), ("values", "f4"))]
    for s, _, entries in work.stripes():
        start = int(work.layout.offsets[s]) * chunk
        for array, data in zip(arrays, (work.rows, work.values), strict=True):
            array[start : start + entries.stop - entries.start] = data[entries]


def read_ours(store: BlockStore) -> float:
    return float(sum(block.data[0] for block in map(store.load, store.column_blocks())))


def read_zarr(work: Workload, place: Path) -> float:
    group = zarr.open_group(place, mode="r")
    total, chunk = 0.0, work.layout.chunk
    for s, _, entries in work.stripes():
        start = int(work.layout.offsets[s]) * chunk
        parts = [np.asarray(group[name][start : start + entries.stop - entries.start]) for name in ("rows", "values")]
        total += float(parts[1][0])
    return total


def fresh(action: Callable[[Path], object], place: Path) -> Callable[[], object]:
    """Return the action on a folder that is not there."""

    def run() -> object:
        shutil.rmtree(place, ignore_errors=True)
        return action(place)

    return run


def measured(work: Workload, ours: Path, theirs: Path, reps: int) -> dict[str, bench.Timing]:
    """Return the times of every operation."""
    found = bench.alternate(
        {
            "write, ours": fresh(lambda place: write_ours(work, place), ours),
            "write, Zarr's default": fresh(lambda place: write_zarr(work, place), theirs),
        },
        reps,
    )
    store = BlockStore.open(ours)
    reads: dict[str, Callable[[], object]] = {
        "first read with checks, ours": lambda: read_ours(BlockStore.open(ours)),
        "read, Zarr's default": lambda: read_zarr(work, theirs),
        "later read, ours": lambda: read_ours(store),
        "verify, ours": store.verify,
    }
    return found | bench.alternate(reads, reps)


def main() -> None:
    """Print the table."""
    options = bench.arguments(__doc__ or "", megabytes=256, folder=None).parse_args()
    if options.tiny:
        options.megabytes, options.reps = 4, 1
    work = Workload(options.megabytes << 20)
    report = bench.Report(f"column stripes of {options.megabytes} MiB, {work.layout.n_stripes} stripes", options)
    with bench.scratch(options.folder) as base:
        times = measured(work, base / "ours", base / "zarr", options.reps)
    for name, timing in times.items():
        report.time(name, timing)
        report.value(f"{name}: rate", work.payload / 1e6 / timing.median, unit=" MB/s")
    write, zarr_write, first, zarr_read, *_ = times.values()
    report.value("write, ours : Zarr's default, rate", zarr_write.median / write.median, ">= 2", unit="x")
    report.value("first read with checks, ours : Zarr's default, rate", zarr_read.median / first.median, ">= 2", unit="x")
    report.show()


if __name__ == "__main__":
    main()
