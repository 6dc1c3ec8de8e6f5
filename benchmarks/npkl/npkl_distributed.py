"""A non-parametric kernel of rows whose eigenvectors one process of little memory does not hold: its block of columns on workers.

    python -m benchmarks.npkl.npkl_distributed
    python -m benchmarks.npkl.npkl_distributed --rows 12000 --cost 0.6

Four normal classes in six columns, mutual graph of 8 neighbours, half as many random pairs as rows with the sign of their labels, linear
loss: one eigendecomposition. The same fit in one process that holds the block (``here``), on workers, and in one process whose memory is
``--driver-memory``: the block lies in tiles there and every pass runs in the process. Seconds are of the whole run, the cluster's start
beside. All three must have the same bits. Peaks: of the driver beyond what it takes before the run, and of the worker processes, beside
the plan.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import psutil

# -- served ----------------------------------------------------------------------------------------------------------------


def make(folder: str, n: int, seed: int) -> dict[str, Any]:
    """Draw rows and labels, and ingest them."""
    from gramplane.storage.ingest import ingest

    X, _, _ = problem(n, seed)
    ingest(X, Path(folder) / "data", overwrite=True)
    return {}


def problem(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, list[list[int]]]:
    """Return rows, labels, and pairs with their sign."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = rng.normal(size=(n, 6)) + 2 * np.eye(6)[y]
    drawn = {(min(i, j), max(i, j)) for i, j in rng.integers(0, n, (n // 2, 2)).tolist() if i != j}
    return X, y, [[i, j, 1 if y[i] == y[j] else -1] for i, j in sorted(drawn)]


def fit(folder: str, name: str, n: int, seed: int, cost: float, where: dict[str, Any]) -> dict[str, Any]:
    """Fit, and return seconds, peaks, figures, and a digest of the kernel."""
    from gramplane.pipeline import run_method

    events: list[Any] = []
    pairs = problem(n, seed)[2]
    given = {
        "data": str(Path(folder) / "data"),
        "extra": {"constraints": pairs},
        "run": str(Path(folder) / name),
    }
    params = {"C": cost, "n_neighbors": 8, "graph": "mutual"}
    before = psutil.Process().memory_info().rss
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: run_method("npkl", params, on_event=events.append, **given, **where))
    started = sum(event.get("seconds") or 0.0 for event in events if event["event"] == "phase" and event.get("phase") == "cluster")
    planned = max((event.get("planned_peak") or 0 for event in events if event["event"] == "plan"), default=0)
    told = [event.get("peak_memory") or 0 for event in events if event["event"] == "finish"]
    passes: dict[str, float] = {}
    for event in events:
        if event["event"] == "finish":
            passes[event["program"]] = passes.get(event["program"], 0.0) + (event.get("seconds") or 0.0)
    chunks = sorted((Path(folder) / name / "model").rglob("c/*"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in chunks if file.is_file())).hexdigest()
    peaks = {"driver": bench.peak_memory() - before, "worker": max(watch.worst(), *told, 0), "planned": planned}
    figures = {key: done.summary[key] for key in ("objective", "gap", "rank")}
    return {**clock, **figures, **peaks, "started": started, "passes": passes, "digest": digest}


# -- report ----------------------------------------------------------------------------------------------------------------


def once(function: str, **given: Any) -> dict[str, Any]:
    """Call a served function in a process of its own."""
    with bench.Child(__file__) as child:
        return child(function, **given)


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", rows=16_000, cost=0.7, workers=2)
    parser.add_argument("--worker-memory", default="2GiB", help="memory of a worker")
    parser.add_argument("--driver-memory", default="640MiB", help="memory of the process that may not hold the block")
    parser.add_argument("--skip-little", action="store_true", help="leave the fit in one process of little memory out")
    options = parser.parse_args()
    n = 1500 if options.tiny else options.rows
    report = bench.Report(f"A non-parametric kernel of {n} rows, C={options.cost:g}", options)
    places = {
        "here": {},
        "on workers": {
            "cluster": f"local:{options.workers}",
            "worker_memory": options.worker_memory,
            "driver_memory": options.driver_memory,
        },
        "in tiles": {"driver_memory": options.driver_memory},
    }
    if options.skip_little:
        del places["in tiles"]
    with bench.scratch() as folder:
        once("make", folder=str(folder), n=n, seed=0)
        found = {
            name: once("fit", folder=str(folder), name=name.replace(" ", "-"), n=n, seed=0, cost=options.cost, where=where)
            for name, where in places.items()
        }
    for name, row in found.items():
        report.value(f"{name}: whole run", row["seconds"], unit=" s")
        if row["started"]:
            report.value(f"{name}: of it the cluster's start", row["started"], unit=" s")
        report.value(f"{name}: peak of the driver beyond the process itself", row["driver"] / bench.MIB, unit=" MiB")
        if row["worker"]:
            report.value(f"{name}: measured peak of a worker process", row["worker"] / bench.MIB, unit=" MiB")
            report.value(f"{name}: measured : planned", row["worker"] / max(row["planned"], 1), "<= 1")
        if row["passes"]:
            spent = sorted(row["passes"].items(), key=lambda item: -item[1])[:6]
            report.note(f"{name}: seconds in passes: " + ", ".join(f"{program} {seconds:.1f}" for program, seconds in spent))
    here = found["here"]
    report.value("rank of the kernel", here["rank"])
    report.value("certified gap, relative", here["gap"] / abs(here["objective"]), "<= 1e-4", form=".2e")
    report.value("the same bits in all places", float(len({row["digest"] for row in found.values()}) == 1), ">= 1")
    report.show()


if __name__ == "__main__":
    bench.serve(make, fit)
    main()
