"""Write and read column stripes: gramplane against Zarr's default codec, in one process, alternated, best of several.

Run: ``python -m benchmarks.storage.storage_io [--megabytes 64] [--repeat 3]``. Figures are MB/s of payload (row numbers + values).
"""

import argparse
import shutil
import tempfile
import time
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


def best(action: Callable[[], object], repeat: int) -> float:
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def fresh(action: Callable[[Path], object], place: Path) -> Callable[[], object]:
    def run() -> object:
        shutil.rmtree(place, ignore_errors=True)
        return action(place)

    return run


def measure(payload: int, repeat: int = 3, folder: str | None = None) -> dict[str, float]:
    """MB/s of every operation (see `main` for the table)."""
    with tempfile.TemporaryDirectory(dir=folder) as base:
        return _measure(Workload(payload), Path(base, "ours"), Path(base, "zarr"), repeat)


def _measure(work: Workload, ours: Path, theirs: Path, repeat: int) -> dict[str, float]:
    seconds = {
        "write ours": best(fresh(lambda place: write_ours(work, place), ours), repeat),
        "write zarr": best(fresh(lambda place: write_zarr(work, place), theirs), repeat),
        "first read ours (crc32c)": best(lambda: read_ours(BlockStore.open(ours)), repeat),
        "read zarr": best(lambda: read_zarr(work, theirs), repeat),
    }
    store = BlockStore.open(ours)
    read_ours(store)
    seconds["later read ours"] = best(lambda: read_ours(store), repeat)
    seconds["verify ours"] = best(store.verify, repeat)
    return {name: work.payload / 1e6 / value for name, value in seconds.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where to write (default: the temporary folder)")
    options = parser.parse_args()
    speed = measure(options.megabytes << 20, options.repeat, options.folder)
    for name, value in speed.items():
        print(f"{name:28s} {value:9.0f} MB/s")
    print(f"{'write, ours : zarr':28s} {speed['write ours'] / speed['write zarr']:9.1f} x")
    print(f"{'first read, ours : zarr':28s} {speed['first read ours (crc32c)'] / speed['read zarr']:9.1f} x")


if __name__ == "__main__":
    main()
