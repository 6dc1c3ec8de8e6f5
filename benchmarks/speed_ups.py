"""What two workers gain: the same fits in this process and on ``local:2``, from stores, and what two processes can gain on this machine.

    python -m benchmarks.speed_ups [--only NAMES] [--reps 3]

A fit counts from its begin to its end, without staging and the start of the cluster, which stand beside it. s is the share of the fit in
this process that no pass takes. r is what two processes gain over one on a plain NumPy loop over the same arrays, each over its half. A
speed-up of 1 / (s + (1 - s) / r) would lose nothing; nine tenths of it are the target.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import json
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import benchmarks.scale as scale
from benchmarks._harness import HELD

ROWS_AT_ONCE = 1000


class Row(NamedTuple):
    """A fit: its method and parameters, and sizes that data are made of."""

    method: str
    params: dict[str, Any]
    make: Callable[..., Any]
    sizes: dict[str, int]
    tiny: dict[str, int]
    loop: str = "correlations"
    extra: dict[str, Any] | None = None


# -- data ------------------------------------------------------------------------------------------------------------------


def written(folder: str, X: np.ndarray, y: np.ndarray, **options: Any) -> None:
    """Make a store of rows, and keep them as the plain loops read them."""
    from gramplane import ingest

    np.save(Path(folder) / "X.npy", X)
    ingest((X, y), Path(folder) / "store", **options)


def drawn(n: int, d: int) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    return rng, X, X[:, :5].sum(axis=1) + 0.5 * rng.standard_normal(n)


def classes(folder: str, n: int, d: int) -> None:
    """Two classes that differ in five features and in the product of two."""
    _, X, score = drawn(n, d)
    written(folder, X, score + 2 * X[:, 5] * X[:, 6] > 0)


def numbers(folder: str, n: int, d: int) -> None:
    _, X, score = drawn(n, d)
    written(folder, X, score, task="regression")


def tasks_of_classes(folder: str, n: int, d: int, tasks: int) -> None:
    _, X, score = drawn(n, d)
    written(folder, X, score + 2 * X[:, 5] * X[:, 6] > 0, task_column=np.arange(n) % tasks)


def tasks_of_numbers(folder: str, n: int, d: int, tasks: int) -> None:
    _, X, score = drawn(n, d)
    written(folder, X, score, task="regression", task_column=np.arange(n) % tasks)


def moons(folder: str, n: int, d: int) -> None:
    """Two clusters of rows, which constraints between pairs of rows name."""
    rng, X, _ = drawn(n, d)
    side = np.arange(n) % 2
    X[:, :2] += 3.0 * side[:, None]
    left, right = rng.integers(0, n, (2, 200))
    kinds = np.where(side[left] == side[right], 1, -1)
    triples = [[int(a), int(b), int(kind)] for a, b, kind in zip(left, right, kinds, strict=True) if a != b]
    (Path(folder) / "pairs.json").write_text(json.dumps(triples))
    written(folder, X, side)


def sparse_rows(folder: str, n: int, d: int, per_row: int) -> None:
    scale.fgm_make(folder, n=n, n_test=0, d=d, per_row=per_row, relevant=min(300, d // 20))


# -- fits and loops, in processes of their own -----------------------------------------------------------------------------------


def fit(method: str, params: dict[str, Any], data: str, run: str, extra: dict[str, Any] | None, cluster: str) -> dict[str, Any]:
    """Run a method from nothing; the seconds of the fit and of its passes, and of what comes before."""
    from gramplane import run_method

    shutil.rmtree(run, ignore_errors=True)
    events: list[tuple[float, dict[str, Any]]] = []
    began = time.perf_counter()
    where = {} if cluster == "sync" else {"cluster": cluster, "worker_memory": "4GiB"}
    run_method(method, params, data=data, run=run, extra=extra, on_event=lambda e: events.append((time.perf_counter(), dict(e))), **where)
    whole = time.perf_counter() - began
    start = next(at for at, event in events if event["event"] == "begin")
    end = next(at for at, event in events if event["event"] == "done")
    passes = sum(event["seconds"] for _, event in events if event["event"] == "finish")
    count = sum(event["event"] == "finish" for _, event in events)
    # Matrices within tasks and their machines are no passes while they are in memory: what would be on workers is what they take.
    steps = [(at, event) for at, event in events if event["event"] == "iteration"]
    machines = sum(event.get("seconds_machines", 0.0) for _, event in steps)
    if not passes and machines:
        grams = next(at for at, event in events if event["event"] == "grams")
        passes = machines + steps[0][0] - steps[0][1]["seconds"] - grams
    found = {"seconds": end - start, "passes": passes, "count": count, "whole": whole}
    return found | {"starting": sum(event.get("seconds", 0.0) for _, event in events if event.get("phase") == "cluster")}


def load(folder: str, part: int, parts: int) -> dict[str, Any]:
    """Hold a part of the arrays of a row: columns of dense rows, or rows of sparse ones."""
    path = Path(folder)
    if (path / "X.npy").exists():
        X = np.load(path / "X.npy", mmap_mode="r")
        cut = slice(part * X.shape[1] // parts, (part + 1) * X.shape[1] // parts)
        HELD["columns"], HELD["rows"], HELD["part"] = np.asfortranarray(X[:, cut]), np.asarray(X), (part, parts)
    else:
        indptr = np.fromfile(path / "indptr.bin", np.int64)
        n, d = len(indptr) - 1, int(np.fromfile(path / "indices.bin", np.int32).max()) + 1
        HELD["columns"] = scale.rows_of(path, part * n // parts, (part + 1) * n // parts, d)[0].T
    return {}


def correlations() -> None:
    """One look at every entry: the products of columns with a vector."""
    u = np.ones(HELD["columns"].shape[1 if hasattr(HELD["columns"], "indptr") else 0], HELD["columns"].dtype)
    for _ in range(3):
        HELD["columns"] @ u if hasattr(HELD["columns"], "indptr") else u @ HELD["columns"]


def kernels() -> None:
    """Gaussian kernels of a part of the rows with all rows."""
    rows, (part, parts) = HELD["rows"], HELD["part"]
    squares = np.einsum("ij,ij->i", rows, rows)
    for lo in range(part * ROWS_AT_ONCE, len(rows), parts * ROWS_AT_ONCE):
        some = slice(lo, lo + ROWS_AT_ONCE)
        np.exp(-0.1 * (squares[some, None] + squares[None] - 2.0 * rows[some] @ rows.T))


def gain(folder: str, loop: str, reps: int) -> float:
    """Return r: the time of a plain loop over the whole, over that of two processes with a half each, which run together."""
    alone, together = [], []
    with bench.Child(__file__) as whole, bench.Child(__file__) as one, bench.Child(__file__) as two:
        whole("load", folder=folder, part=0, parts=1)
        for part, half in enumerate((one, two)):
            half("load", folder=folder, part=part, parts=2)
        for _ in range(reps + 1):
            alone.append(whole(loop)["seconds"])
            threads = [threading.Thread(target=half, args=(loop,)) for half in (one, two)]
            clock = bench.stopwatch()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            together.append(clock())
    return statistics.median(alone[1:]) / statistics.median(together[1:])


# -- rows ------------------------------------------------------------------------------------------------------------------

WIDTHS = [f"rbf(gamma={2.0**k:g})" for k in range(-8, 2)]
SINGLE = [f"rbf(gamma={gamma:g})[{k}]" for k in range(20) for gamma in (0.25, 1.0)]
MANY = [f"rbf(gamma={gamma:g})[{k}]" for k in range(50) for gamma in (0.1, 0.3, 1.0, 3.0)]

TABLE = {
    "multitask-selector": Row(
        "multitask-selector",
        {"algorithm": "fista", "lam": 0.5, "tol": 1e-4},
        tasks_of_numbers,
        {"n": 200_000, "d": 2000, "tasks": 8},
        {"n": 2000, "d": 40, "tasks": 4},
    ),
    "multitask-mkl": Row(
        "multitask-mkl",
        {"kernels": [*WIDTHS, *SINGLE], "max_iter": 30},
        tasks_of_classes,
        {"n": 20_000, "d": 20, "tasks": 40},
        {"n": 400, "d": 20, "tasks": 4},
        "kernels",
    ),
    "fgm": Row(
        "fgm",
        {"B": 20, "C": 100.0, "max_rounds": 10, "fit_intercept": False, "scale": None},
        sparse_rows,
        {"n": 1_000_000, "d": 10_000_000, "per_row": 114},
        {"n": 3000, "d": 20_000, "per_row": 20},
    ),
    "mkl": Row("mkl", {"kernels": MANY, "max_iter": 10}, classes, {"n": 8000, "d": 50}, {"n": 300, "d": 50}, "kernels"),
    "latent-task": Row(
        "latent-task-mkl",
        {"kernels": WIDTHS},
        tasks_of_classes,
        {"n": 12_000, "d": 20, "tasks": 6},
        {"n": 300, "d": 20, "tasks": 3},
        "kernels",
    ),
    "rules": Row("rule-ensemble", {"C": 0.1}, classes, {"n": 100_000, "d": 100}, {"n": 600, "d": 10}),
    "unsupervised": Row("unsupervised-mkl", {"kernels": WIDTHS}, classes, {"n": 10_000, "d": 50}, {"n": 300, "d": 10}, "kernels"),
    "kta-path": Row("kta-path", {}, classes, {"n": 10_000, "d": 2000}, {"n": 200, "d": 20}, "kernels"),
    "group-lasso": Row("group-lasso", {"algorithm": "fista"}, numbers, {"n": 1_000_000, "d": 500}, {"n": 2000, "d": 40}),
    "npkl": Row("npkl", {}, moons, {"n": 8000, "d": 50}, {"n": 200, "d": 10}, "kernels"),
}


def given(row: Row, folder: Path) -> dict[str, Any]:
    pairs = folder / "pairs.json"
    extra = {"constraints": json.loads(pairs.read_text())} if pairs.exists() else None
    return {"method": row.method, "params": row.params, "data": str(folder / "store"), "run": str(folder / "run"), "extra": extra}


@bench.program(only=",".join(TABLE), folder="", reps=(3, 1))
def speed_ups(report: bench.Report, options: Any) -> None:
    """Speed-up of fits on two workers, beside what the serial share and the machine allow."""
    report.title = "whole fits on two workers beside this process"
    for name in bench.chosen(options.only, tuple(TABLE)):
        row = TABLE[name]
        with bench.kept_or_scratch(str(Path(options.folder) / name) if options.folder else "") as folder:
            sizes = row.tiny if options.tiny else row.sizes
            small, made = folder / "small", {folder: sizes, folder / "small": row.tiny}
            for place, parts in made.items():
                if not (place / "store").exists():
                    place.mkdir(exist_ok=True, parents=True)
                    staging = bench.once(__file__, row.make.__name__, folder=str(place), **parts)["seconds"]
                    if place == folder:
                        report.value(f"{name}: rows drawn and ingested", staging, unit=" s")
            found: dict[str, list[dict[str, Any]]] = {"sync": [], "local:2": []}
            for place in found:  # compiles
                bench.once(__file__, "fit", cluster=place, **given(row, small))
            for _ in range(options.reps):
                for place, rows in found.items():
                    rows.append(bench.once(__file__, "fit", cluster=place, **given(row, folder)))
            here, there = (statistics.median(one["seconds"] for one in rows) for rows in found.values())
            s = statistics.median(1 - one["passes"] / one["seconds"] for one in found["sync"])
            r = gain(str(folder), row.loop, options.reps)
            shape = " x ".join(f"{size:,}" for size in sizes.values())
            starting = statistics.median(one["starting"] for one in found["local:2"])
            words = f"{bench.seconds_text(here)} : {bench.seconds_text(there)} = {here / there:.2f}; s {s:.2f}, r {r:.2f}"
            words += f", cluster {starting:.2g} s, {found['local:2'][-1]['count']} passes"
            report.figures[name] = {"rows": found, "s": s, "r": r}
            report.line(f"{name}, {shape}", words, here / there, f">= {0.9 / (s + (1 - s) / r):.2f}")
            print(report.lines[-1], flush=True)


if __name__ == "__main__":
    bench.run()
