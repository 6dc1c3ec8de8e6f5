"""SVMlight text to a block store: the parser against scikit-learn's loader, the whole ingest, its memory.

Run with ``python -m benchmarks.storage.ingest_svmlight --nnz 1e8 --cols 1e7 --folder FOLDER`` (5 GB of disk). The text is drawn once.
Parser and loader alternate, each in a process of its own; the loader may be given the head of the file only. Every ingest runs in a fresh
process, so that its peak of resident memory is its own; kernels are loaded by a tiny ingest before. "From binary" is the ingest without its
first phase, the parsing of the text into rows on scratch.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
from pathlib import Path
from typing import Any

import numba
import numpy as np

JUDGED_FROM = 10_000_000
"""Entries below which fixed costs hide the rates."""


# -- the text ----------------------------------------------------------------------------------------------------------


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
    """Rows with columns of falling popularity and values 0.dddd; bytes and entries written."""
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


def generate(path: Path, nnz: int, n_cols: int, per_row: int = 100, decimals: int = 4, seed: int = 0) -> int:
    """Write about ``nnz`` entries of text; how many they became."""
    rng, step = np.random.default_rng(seed), 10_000
    buffer = np.empty(step * (3 + per_row * (len(str(n_cols)) + 4 + decimals)), np.uint8)
    total, rows = 0, max(1, nnz // per_row)
    with open(path, "wb") as file:
        for lo in range(0, rows, step):
            used, written = _write_rows(rng, min(step, rows - lo), per_row, n_cols, decimals, buffer)
            file.write(buffer[:used].data)
            total += written
    return total


def head_of(path: Path, nbytes: int) -> Path:
    """Write whole lines of the first ``nbytes`` bytes to a file of their own."""
    head = path.with_suffix(".head")
    with open(path, "rb") as file:
        text = file.read(nbytes)
    head.write_bytes(text[: text.rfind(b"\n") + 1])
    return head


# -- served ------------------------------------------------------------------------------------------------------------


def parse(path: str, budget: int) -> dict[str, Any]:
    """Parse and throw away."""
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
    """scikit-learn's loader."""
    from sklearn.datasets import load_svmlight_file

    clock, (X, _) = bench.clocked(lambda: load_svmlight_file(path, zero_based=False))
    return {**clock, "nnz": int(X.nnz), "bytes": os.path.getsize(path)}


def ingest(path: str, store: str, budget: int, jobs: int) -> dict[str, Any]:
    """Text to finished stripes; ``read`` is when the first phase ended, seconds."""
    from gramplane.storage.ingest import ingest as make

    ends: dict[str, float] = {}
    watch = bench.stopwatch()

    def progress(done: int, total: int, phase: str) -> None:
        ends[phase] = watch()

    clock, made = bench.clocked(lambda: make(path, store, budget=budget, jobs=jobs, overwrite=True, progress=progress))
    nnz = int(made.column_table("counts").sum(dtype=np.int64))
    seconds = watch()
    return {"cpu": clock["cpu"], "seconds": seconds, "nnz": nnz, "bytes": os.path.getsize(path), "ends": ends, "columns": made.meta.n_cols}


# -- the table ---------------------------------------------------------------------------------------------------------


def race(report: bench.Report, path: Path, options: Any) -> None:
    """Parser and loader in turn."""
    head = head_of(path, int(options.peer_bytes))
    with bench.Child(__file__) as ours, bench.Child(__file__) as theirs:
        ours("parse", path=str(head), budget=options.budget)
        calls = {"parse": lambda: ours("parse", path=str(head), budget=options.budget), "load": lambda: theirs("load", path=str(head))}
        found = {name: bench.timing_of(rows) for name, rows in _in_turn(calls, options.reps).items()}
        whole = ours("parse", path=str(path), budget=options.budget)
    head.unlink()
    size = found["parse"].result["bytes"] / 1e6
    report.value("parser", whole["bytes"] / 1e6 / whole["seconds"], ">= 150", unit=" MB/s", form=".0f")
    report.value("parser, processor time", whole["bytes"] / 1e6 / whole["cpu"], unit=" MB/s", form=".0f")
    report.value("load_svmlight_file", size / found["load"].median, unit=" MB/s", form=".0f")
    ratios = (found["load"].median / found["parse"].median, found["load"].cpu_median / found["parse"].cpu_median)
    report.value("parser against load_svmlight_file", ratios[0], ">= 5", unit="x", form=".1f")
    report.value("the same in processor time", ratios[1], ">= 5", unit="x", form=".1f")


def _in_turn(calls: dict[str, Any], reps: int) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in calls}
    for _ in range(reps):
        for name, call in calls.items():
            rows[name].append(call())
    return rows


def whole_ingest(report: bench.Report, path: Path, small: Path, options: Any, jobs: int) -> None:
    """One ingest in a fresh process."""
    store = path.parent / "store"
    with bench.Child(__file__) as child:
        before = child("ingest", path=str(small), store=str(store), budget=options.budget, jobs=1)["peak"]
        found = child("ingest", path=str(path), store=str(store), budget=options.budget, jobs=jobs)
    millions, read = found["nnz"] / 1e6, found["ends"]["read"]
    name = f"jobs={jobs}"
    report.value(f"text to finished stripes, {name}", millions / found["seconds"], ">= 6", unit=" M nnz/s", form=".2f")
    report.value(f"from binary, {name}", millions / (found["seconds"] - read), ">= 10", unit=" M nnz/s", form=".2f")
    report.value(f"peak memory, {name}", found["peak"] / bench.MIB, "<= 512", unit=" MiB", form=".0f")
    report.value(f"of that libraries, {name}", before / bench.MIB, unit=" MiB", form=".0f")
    phases = ", ".join(f"{phase} {end:.1f} s" for phase, end in found["ends"].items())
    report.note(f"{name}: phases ended at {phases}; all at {found['seconds']:.1f} s, processor {found['cpu']:.1f} s")


def main() -> None:
    """Print the table."""
    options = bench.arguments(
        __doc__ or "", nnz=3e5, cols=1e5, per_row=100, budget=256 << 20, jobs="1,2", peer_bytes=6.4e7, folder=None
    ).parse_args()
    options.nnz = min(options.nnz, 3e4) if options.tiny else options.nnz
    options.tiny |= options.nnz < JUDGED_FROM
    report = bench.Report("SVMlight text to a block store", options)
    with bench.scratch(options.folder) as folder:
        nnz = generate(folder / "data.svm", int(options.nnz), int(options.cols), options.per_row)
        generate(folder / "small.svm", 1000, 100)
        report.note(f"{nnz} entries, {os.path.getsize(folder / 'data.svm') / 1e6:.0f} MB of text, {int(options.cols)} columns")
        race(report, folder / "data.svm", options)
        for jobs in map(int, options.jobs.split(",")):
            whole_ingest(report, folder / "data.svm", folder / "small.svm", options, jobs)
    report.show()


if __name__ == "__main__":
    bench.serve(parse, load, ingest)
    main()
