"""Write and read Gram matrices: a Gram store against Zarr's default codec and plain files, alternated in one process.

Run with ``python -m benchmarks.storage.gram_io``. The matrices are Gaussian kernels, float32, upper block triangle; figures are for the
bytes of that triangle. Zarr writes the same blocks as chunks of its own with its default codec (zstd, no checksum). Plain files are one
file per block, written and read as they are. The store checks or makes a crc32c of every byte, refuses infinities, and adds up every
matrix.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zarr

from gramplane.storage import GramStore


class Workload:
    """Gaussian kernels of several widths over random points."""

    def __init__(self, n: int, kernels: int) -> None:
        x = np.random.default_rng(0).standard_normal((n, 10)).astype(np.float32)
        norms = (x * x).sum(axis=1)
        distance = np.maximum(norms[:, None] + norms - 2 * (x @ x.T), 0)
        distance = (distance + distance.T) / 2
        self.grams = np.stack([np.exp(-(2.0**-q) * distance) for q in range(1, kernels + 1)])
        self.n, self.kernels = n, [(f"k{q}", {"name": "rbf"}) for q in range(kernels)]

    def store(self, place: Path) -> GramStore:
        """An empty store."""
        return GramStore.create(place, data_digest="d", n=self.n, kernels=self.kernels)

    def blocks(self, place: Path) -> list[tuple[tuple[int, int], np.ndarray]]:
        """Block pairs and their blocks, as tasks would compute them."""
        tasks = self.store(place).missing()
        return [((t.i, t.j), np.ascontiguousarray(self.grams[:, slice(*t.rows), slice(*t.cols)])) for t in tasks]


def write_store(work: Workload, place: Path, blocks: list) -> None:
    store = work.store(place)
    for task, (_, block) in zip(store.missing(), blocks, strict=True):
        store.write(task, block)
    store.commit()


def write_zarr(work: Workload, place: Path, blocks: list) -> None:
    b = blocks[0][1].shape[1]
    array = zarr.create_array(place, shape=work.grams.shape, chunks=(len(work.kernels), b, b), dtype="f4")
    for (i, j), block in blocks:
        array[:, i * b : i * b + block.shape[1], j * b : j * b + block.shape[2]] = block


def write_files(place: Path, blocks: list) -> None:
    place.mkdir(parents=True)
    for (i, j), block in blocks:
        block.tofile(place / f"{i}-{j}")


def read_store(store: GramStore, out: np.ndarray) -> None:
    for ref in store.refs():
        shape = (len(store.kernels), ref.rows[1] - ref.rows[0], ref.cols[1] - ref.cols[0])
        store.block(store.kernels, ref.i, ref.j, out=out[: int(np.prod(shape))].reshape(shape))


def read_zarr(place: Path, blocks: list) -> None:
    array = zarr.open_array(place, mode="r")
    b = blocks[0][1].shape[1]
    for (i, j), block in blocks:
        np.asarray(array[:, i * b : i * b + block.shape[1], j * b : j * b + block.shape[2]])


def read_files(place: Path, blocks: list, out: np.ndarray) -> None:
    for (i, j), block in blocks:
        with (place / f"{i}-{j}").open("rb", buffering=0) as file:
            file.readinto(out[: block.size].view(np.uint8).data)


def fresh(action: Callable[[Path], None], place: Path) -> Callable[[], None]:
    """An action at a place that is emptied before it."""

    def run() -> None:
        shutil.rmtree(place, ignore_errors=True)
        action(place)

    return run


def main() -> None:
    parser = bench.arguments(__doc__, n=3000, kernels=10, folder="")
    options = parser.parse_args()
    if options.tiny:
        options.n, options.kernels, options.reps = 600, 3, 2
    work = Workload(options.n, options.kernels)
    with bench.scratch(options.folder or None) as base:
        blocks = work.blocks(base / "plan")
        payload = sum(block.nbytes for _, block in blocks) / 1e6
        times = measure(work, base, blocks, options.reps)
    report = bench.Report(f"{options.kernels} Gram matrices of {options.n} rows on disk, {len(blocks)} objects, {payload:.0f} MB", options)
    for name, timing in times.items():
        report.value(f"{name}", payload / timing.median, unit=" MB/s")
    speed = {name: 1 / timing.median for name, timing in times.items()}
    report.value("write, store : Zarr's default", speed["write, store"] / speed["write, Zarr"], ">= 2")
    report.value("first read with checks, store : Zarr's default", speed["first read, store"] / speed["read, Zarr"], ">= 2")
    report.value("write, store : plain files", speed["write, store"] / speed["write, plain files"])
    report.value("first read with checks, store : plain files", speed["first read, store"] / speed["read, plain files"])
    report.note("pages stay in the system's memory: the figures are the program's cost, not the disk's")
    report.show()


def measure(work: Workload, base: Path, blocks: list, reps: int) -> dict[str, bench.Timing]:
    """Time everything, alternated."""
    out = np.empty(max(block.size for _, block in blocks), np.float32)
    opened = None
    ours, theirs, plain = base / "store", base / "zarr", base / "plain"

    def later() -> None:
        nonlocal opened
        if opened is None:
            opened = GramStore.open(ours)
            read_store(opened, out)
        read_store(opened, out)

    written = bench.alternate(
        {
            "write, store": fresh(lambda place: write_store(work, place, blocks), ours),
            "write, Zarr": fresh(lambda place: write_zarr(work, place, blocks), theirs),
            "write, plain files": fresh(lambda place: write_files(place, blocks), plain),
        },
        reps,
    )
    os.sync()
    return written | bench.alternate(
        {
            "first read, store": lambda: read_store(GramStore.open(ours), out),
            "read, Zarr": lambda: read_zarr(theirs, blocks),
            "read, plain files": lambda: read_files(plain, blocks, out),
            "later read, store": later,
            "verify, store": lambda: GramStore.open(ours).verify(),
        },
        reps,
    )


if __name__ == "__main__":
    main()
