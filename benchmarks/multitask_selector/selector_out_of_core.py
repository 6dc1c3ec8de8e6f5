"""Feature selection over many tasks out of core: the batch optimum on two workers, and rounds from blocks of rows.

Run with ``python -m benchmarks.multitask_selector.selector_out_of_core --folder FOLDER`` (5 GB of disk). Every fit runs in a process of its
own. Two sizes: one whose rows would take 68 bytes an entry in the driver, fitted within ``--driver-memory``; and one that fits both ways,
by which they are compared: all rows in memory against a working set with passes, and rounds over all rows against rounds over blocks.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import shutil
from pathlib import Path
from typing import Any

import numpy as np

STEP_ROWS = 20_000  # rows that are drawn at a time


# -- served ----------------------------------------------------------------------------------------------------------------


def make(folder: str, name: str, n: int, d: int, n_tasks: int, relevant: int, seed: int) -> dict[str, Any]:
    """Draw dense float32 rows of some tasks that share most of their features, and make a store of them by columns and by rows."""
    from gramplane.storage.ingest import ingest

    rng, path = np.random.default_rng(seed), Path(folder)
    codes, weights = rng.integers(0, n_tasks, n), np.zeros((n_tasks, d))
    weights[:, rng.choice(d, relevant, replace=False)] = rng.normal(size=(n_tasks, relevant))
    rows = np.memmap(path / f"{name}.bin", np.float32, "w+", shape=(n, d))
    score = np.empty(n)
    for lo in range(0, n, STEP_ROWS):
        part = rng.standard_normal((min(STEP_ROWS, n - lo), d), dtype=np.float32)
        rows[lo : lo + len(part)] = part
        score[lo : lo + len(part)] = np.einsum("ij,ij->i", part, weights[codes[lo : lo + len(part)]])
    score += 0.5 * score.std() * rng.standard_normal(n)
    options = {"task": "regression", "layout": "both", "dtype": "float32", "overwrite": True}
    clock, _ = bench.clocked(lambda: ingest((rows, score), path / name, task_column=codes, **options))
    (path / f"{name}.bin").unlink()
    return clock


def fit(folder: str, name: str, params: dict[str, Any], cluster: str, driver_memory: str, worker_memory: str) -> dict[str, Any]:
    """One whole run; peaks of the driver (this process) above its start, and of every worker."""
    from gramplane import run_method

    path, events = Path(folder), []
    shutil.rmtree(path / "run", ignore_errors=True)
    where: dict[str, Any] = {"driver_memory": driver_memory, "data": str(path / name), "run": str(path / "run")}
    where |= {} if cluster == "sync" else {"cluster": cluster, "worker_memory": worker_memory}
    plan = run_method("multitask-selector", params, dry_run=True, **where).plan or {}
    with bench.PeakWatch() as watch:
        clock, outcome = bench.clocked(lambda: run_method("multitask-selector", params, on_event=events.append, **where))
    summary = outcome.summary
    relative = float("nan") if summary["gap"] is None else summary["gap"] / summary["objective"]
    passes = sum(event["event"] == "plan" and event["program"] == "task-norms" for event in events)
    figures = {"objective": summary["objective"], "relative gap": relative, "selected": summary["n_selected"], "passes": passes}
    peaks = {"driver": bench.peak_memory(), "workers": watch.worst(), "planned": plan["driver_bytes"], "engine": plan["engine"]}
    return {**clock, **figures, **peaks}


# -- report ----------------------------------------------------------------------------------------------------------------


def repeated(options: Any, folder: str, name: str, params: dict[str, Any], cluster: str, driver_memory: str) -> list[dict[str, Any]]:
    """Run a fit again and again, each in a process of its own."""
    rows, given = [], {"folder": folder, "name": name, "params": params, "worker_memory": options.worker_memory}
    for _ in range(options.reps):
        with bench.Child(__file__) as child:
            rows.append(child("fit", cluster=cluster, driver_memory=driver_memory, **given))
    return rows


def tell(report: bench.Report, name: str, rows: list[dict[str, Any]], limit: str | None = None) -> bench.Timing:
    """Add what a fit took; with a ``limit`` its driver's peak is judged, less what the libraries take."""
    timing, last = bench.timing_of(rows), rows[-1]
    report.time(f"{name} ({last['engine']})", timing)
    for key in ("relative gap", "selected", "passes"):
        if last[key] and last[key] == last[key]:
            report.value(f"{name}: {key}", last[key])
    report.value(f"{name}: planned bytes of the driver", last["planned"] / 2**20, unit=" MiB")
    target = "" if limit is None else f"<= {bench.parse_size(limit) / 2**20 + 400:.4g}"
    report.value(f"{name}: peak of the driver's process", max(row["driver"] for row in rows) / 2**20, target, unit=" MiB")
    if last["workers"]:
        report.value(f"{name}: greatest peak of a worker", max(row["workers"] for row in rows) / 2**20, unit=" MiB")
    return timing


def main() -> None:
    parser = bench.arguments(__doc__, n=200_000, d=2000, n_small=20_000, d_small=1000, tasks=8, relevant=20, lam=0.5, gamma=3000.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", default="local:2")
    parser.add_argument("--driver-memory", default="512MiB")
    parser.add_argument("--worker-memory", default="1GiB")
    parser.add_argument("--folder", help="where rows and stores go; a folder that holds them already is used again and kept")
    options = parser.parse_args()
    small = "256MiB"
    if options.tiny:
        options.n, options.d, options.n_small, options.d_small, options.reps, small = 4000, 60, 1000, 40, 1, "1500KiB"
        options.driver_memory = "8MiB"
    shape, place = f"{options.n} x {options.d} float32", f"{options.cluster}, driver {options.driver_memory}"
    report = bench.Report(f"Feature selection over {options.tasks} tasks, {shape}, {place}", options)
    batch = {"algorithm": "fista", "lam": options.lam, "tol": 1e-4, "fit_intercept": False}
    rounds = {"algorithm": "da", "lam": options.lam, "gamma": options.gamma, "fit_intercept": False}
    with bench.kept_or_scratch(options.folder) as folder:
        for name, n, d in (("large", options.n, options.d), ("small", options.n_small, options.d_small)):
            if not (folder / name).exists():
                with bench.Child(__file__) as child:
                    more = {"n_tasks": options.tasks, "relevant": options.relevant, "seed": options.seed}
                    made = child("make", folder=str(folder), name=name, n=n, d=d, **more)
                report.value(f"ingest of {n} x {d}", made["seconds"], unit=" s")
        place, limit = str(folder), options.driver_memory
        entries = options.n * options.d / 2**30
        report.note(f"the rows in memory would take {68 * entries:.1f} GiB, as stored they take {4 * entries:.2f} GiB")
        tell(report, "batch, out of core", repeated(options, place, "large", batch, options.cluster, limit), limit)
        tell(report, "rounds, out of core, one epoch", repeated(options, place, "large", rounds, "sync", limit), limit)
        shape = f"{options.n_small} x {options.d_small}"
        here = tell(report, f"batch, {shape}, in memory", repeated(options, place, "small", batch, "sync", "8GiB"))
        there = tell(report, f"batch, {shape}, out of core, one process", repeated(options, place, "small", batch, "sync", small))
        report.ratio("batch: out of core : in memory", there, here, None)
        here = tell(report, f"rounds, {shape}, in memory", repeated(options, place, "small", rounds, "sync", "8GiB"))
        there = tell(report, f"rounds, {shape}, from blocks", repeated(options, place, "small", rounds, "sync", small))
        report.ratio("rounds: from blocks : in memory", there, here, None)
    report.show()


if __name__ == "__main__":
    bench.serve(make, fit)
    main()
