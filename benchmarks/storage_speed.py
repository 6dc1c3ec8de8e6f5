"""Speed of stores: column stripes, and SVMlight text on its way into a store."""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import zarr

from gramplane.storage import BlockMeta, BlockStore, BlockWriter, StripeLayout, plan_stripes

N_ROWS = 1_000_000


def fresh(action: Callable[[Path], object], place: Path) -> Callable[[], object]:
    """Return the action on a folder that is not there."""

    def run() -> object:
        shutil.rmtree(place, ignore_errors=True)
        return action(place)

    return run


# -- storage_io --------------------------------------------------------------------------------------------------------------


class Stripes:
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


def write_ours(work: Stripes, place: Path) -> None:
    writer = BlockWriter.create(place, BlockMeta(N_ROWS, len(work.counts), "sparse", "float32"), work.layout)
    for s, columns, entries in work.stripes():
        writer.write_stripe(s, work.counts[columns], work.rows[entries], work.values[entries])
    writer.write_table("counts", work.counts, of="columns")
    writer.commit()


def write_zarr(work: Stripes, place: Path) -> None:
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


def read_zarr(work: Stripes, place: Path) -> float:
    group = zarr.open_group(place, mode="r")
    total, chunk = 0.0, work.layout.chunk
    for s, _, entries in work.stripes():
        start = int(work.layout.offsets[s]) * chunk
        parts = [np.asarray(group[name][start : start + entries.stop - entries.start]) for name in ("rows", "values")]
        total += float(parts[1][0])
    return total


def stripe_times(work: Stripes, ours: Path, theirs: Path, reps: int) -> dict[str, bench.Timing]:
    writes = {
        "write, ours": fresh(lambda place: write_ours(work, place), ours),
        "write, Zarr's default": fresh(lambda place: write_zarr(work, place), theirs),
    }
    found, store = bench.alternate(writes, reps), BlockStore.open(ours)
    reads: dict[str, Callable[[], object]] = {
        "first read with checks, ours": lambda: read_ours(BlockStore.open(ours)),
        "read, Zarr's default": lambda: read_zarr(work, theirs),
        "later read, ours": lambda: read_ours(store),
        "verify, ours": store.verify,
    }
    return found | bench.alternate(reads, reps)


@bench.program(megabytes=(256, 4), folder=None, reps=(5, 1))
def storage_io(report: bench.Report, options: Any) -> None:
    """Write and read column stripes: gramplane against Zarr's default codec, in one process, alternating.

    Rates are of the payload (row numbers and values). Ours counts the check sums of what it writes and reads first; both read what they
    wrote just before, out of the system's cache.
    """
    work = Stripes(options.megabytes << 20)
    report.title = f"column stripes of {options.megabytes} MiB, {work.layout.n_stripes} stripes"
    with bench.scratch(options.folder) as base:
        times = stripe_times(work, base / "ours", base / "zarr", options.reps)
    for name, timing in times.items():
        report.time(name, timing)
        report.value(f"{name}: rate", work.payload / 1e6 / timing.median, unit=" MB/s")
    write, zarr_write, first, zarr_read, *_ = times.values()
    report.value("write, ours : Zarr's default, rate", zarr_write.median / write.median, ">= 2", unit="x")
    report.value("first read with checks, ours : Zarr's default, rate", zarr_read.median / first.median, ">= 2", unit="x")


# -- ingest_svmlight ---------------------------------------------------------------------------------------------------------

JUDGED_FROM = 10_000_000
"""Entries below which fixed costs hide the rates."""


@numba.njit
def _put_int(out: np.ndarray, at: int, value: int) -> int:
    digits, rest = 1, value // 10
    while rest:
        digits, rest = digits + 1, rest // 10
    for k in range(digits - 1, -1, -1):
        out[at + k] = 48 + value % 10
        value //= 10
    return at + digits


@numba.njit
def _write_rows(rng: np.random.Generator, n_rows: int, per_row: int, n_cols: int, decimals: int, out: np.ndarray) -> tuple[int, int]:
    """Write rows with columns of falling popularity and values 0.dddd; return bytes and entries written."""
    at, nnz = 0, 0
    for _ in range(n_rows):
        out[at], out[at + 1] = 43 if rng.random() < 0.5 else 45, 49
        at += 2
        draws = np.empty(per_row, np.int64)
        for k in range(per_row):
            u = rng.random()
            draws[k] = np.int64(n_cols * u * u * u) if k % 2 else np.int64(n_cols * u)
        draws.sort()
        previous = -1
        for col in draws:
            if col == previous:
                continue
            previous = col
            out[at] = 32
            at = _put_int(out, at + 1, col + 1)
            out[at], out[at + 1], out[at + 2] = 58, 48, 46
            value = 1 + np.int64(rng.random() * (10**decimals - 1))
            for k in range(decimals - 1, -1, -1):
                out[at + 3 + k] = 48 + value % 10
                value //= 10
            at += 3 + decimals
            nnz += 1
        out[at] = 10
        at += 1
    return at, nnz


def write_text(path: Path, nnz: int, n_cols: int, per_row: int = 100, decimals: int = 4) -> int:
    """Write about ``nnz`` entries of text; return how many they became."""
    rng, step = np.random.default_rng(0), 10_000
    buffer = np.empty(step * (3 + per_row * (len(str(n_cols)) + 4 + decimals)), np.uint8)
    total, rows = 0, max(1, nnz // per_row)
    with open(path, "wb") as file:
        for lo in range(0, rows, step):
            used, written = _write_rows(rng, min(step, rows - lo), per_row, n_cols, decimals, buffer)
            file.write(buffer[:used].data)
            total += written
    return total


def parse(path: str, budget: int) -> dict[str, Any]:
    from gramplane.storage.ingest.labels import Target
    from gramplane.storage.ingest.options import Options
    from gramplane.storage.ingest.text.text import SvmlightSource

    parser = SvmlightSource(path).parser(Options(budget=budget), Target())

    def read() -> int:
        with open(path, "rb", buffering=0) as file:
            return sum(len(block["cols"]) for block, _, _ in parser.blocks(file, int))

    clock, nnz = bench.clocked(read)
    return {**clock, "nnz": nnz, "bytes": os.path.getsize(path)}


def load(path: str) -> dict[str, Any]:
    from sklearn.datasets import load_svmlight_file

    clock, (X, _) = bench.clocked(lambda: load_svmlight_file(path, zero_based=False))
    return {**clock, "nnz": int(X.nnz), "bytes": os.path.getsize(path)}


def ingest(path: str, store: str, budget: int, jobs: int) -> dict[str, Any]:
    """Text to finished stripes; ``ends`` are when the phases ended, seconds."""
    from gramplane.storage.ingest import ingest as make

    ends: dict[str, float] = {}
    watch = bench.stopwatch()

    def progress(done: int, total: int, phase: str) -> None:
        ends[phase] = watch()

    clock, made = bench.clocked(lambda: make(path, store, budget=budget, jobs=jobs, overwrite=True, progress=progress))
    return {**clock, "nnz": int(made.column_table("counts").sum(dtype=np.int64)), "ends": ends}


def text_race(report: bench.Report, path: Path, options: Any) -> None:
    """Take turns with parser and loader, on whole lines of the first bytes; then parse all."""
    head = path.with_suffix(".head")
    with open(path, "rb") as file:
        text = file.read(int(options.peer_bytes))
    head.write_bytes(text[: text.rfind(b"\n") + 1])
    rows: dict[str, list[dict[str, Any]]] = {"parse": [], "load": []}
    with bench.Child(__file__) as ours, bench.Child(__file__) as theirs:
        ours("parse", path=str(head), budget=options.budget)
        for _ in range(options.reps):
            rows["parse"].append(ours("parse", path=str(head), budget=options.budget))
            rows["load"].append(theirs("load", path=str(head)))
        whole = ours("parse", path=str(path), budget=options.budget)
    head.unlink()
    parsed, loaded = (bench.timing_of(found) for found in rows.values())
    report.value("parser", whole["bytes"] / 1e6 / whole["seconds"], ">= 150", unit=" MB/s", form=".0f")
    report.value("parser, processor time", whole["bytes"] / 1e6 / whole["cpu"], unit=" MB/s", form=".0f")
    report.value("load_svmlight_file", parsed.result["bytes"] / 1e6 / loaded.median, unit=" MB/s", form=".0f")
    report.value("parser against load_svmlight_file", loaded.median / parsed.median, ">= 5", unit="x", form=".1f")
    report.value("the same in processor time", loaded.cpu_median / parsed.cpu_median, ">= 5", unit="x", form=".1f")


@bench.program(nnz=(3e5, 3e4), cols=1e5, per_row=100, budget=256 << 20, jobs="1,2", peer_bytes=(6.4e7, 1e6), folder=None)
def ingest_svmlight(report: bench.Report, options: Any) -> None:
    """SVMlight text to a block store: the parser against scikit-learn's loader, the whole ingest, its memory.

    ``--nnz 1e8 --cols 1e7`` takes 5 GB of disk. The text is drawn once. Parser and loader alternate, each in a process of its own; the
    loader may be given the head of the file only. Every ingest runs in a fresh process, so that its peak of resident memory is its own;
    kernels are loaded by a tiny ingest before. "From binary" is the ingest without its first phase, the parsing of the text into rows on
    scratch.
    """
    options.tiny |= options.nnz < JUDGED_FROM
    report.title = "SVMlight text to a block store"
    with bench.scratch(options.folder) as folder:
        text, small, store = folder / "data.svm", folder / "small.svm", folder / "store"
        nnz = write_text(text, int(options.nnz), int(options.cols), options.per_row)
        write_text(small, 1000, 100)
        report.note(f"{nnz} entries, {os.path.getsize(text) / 1e6:.0f} MB of text, {int(options.cols)} columns")
        text_race(report, text, options)
        for jobs in map(int, options.jobs.split(",")):
            with bench.Child(__file__) as child:
                before = child("ingest", path=str(small), store=str(store), budget=options.budget, jobs=1)["peak"]
                found = child("ingest", path=str(text), store=str(store), budget=options.budget, jobs=jobs)
            millions, binary, name = found["nnz"] / 1e6, found["seconds"] - found["ends"]["read"], f"jobs={jobs}"
            report.value(f"text to finished stripes, {name}", millions / found["seconds"], ">= 6", unit=" M nnz/s", form=".2f")
            report.value(f"from binary, {name}", millions / binary, ">= 10", unit=" M nnz/s", form=".2f")
            report.value(f"peak memory, {name}", found["peak"] / bench.MIB, "<= 512", unit=" MiB", form=".0f")
            report.value(f"of that libraries, {name}", before / bench.MIB, unit=" MiB", form=".0f")
            phases = ", ".join(f"{phase} {end:.1f} s" for phase, end in found["ends"].items())
            report.note(f"{name}: phases ended at {phases}; all at {found['seconds']:.1f} s, processor {found['cpu']:.1f} s")


if __name__ == "__main__":
    bench.run()
