"""One machine of the rows of all tasks beyond the driver's memory: shared subspace, latent groups, kernels from a graph.

Run with ``python -m benchmarks.grams.pooled_machines --folder FOLDER`` (10 GB of disk). The pooled sum of the kernels is a file of the run,
answered by passes; nothing of order n^2 is on the driver. Every fit runs in a process of its own with workers of its own; ``--methods``
takes some of them. There is no peer: what is measured is that they go through, in which time, and within which memory.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import shutil
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = ["rbf(gamma=0.02)", "rbf(gamma=0.1)", "linear"]
GRAPH = "subsets(gaussian[0:4]; depth=2)"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "shared-subspace": ("shared-subspace-mkl", {"kernels": KERNELS}),
    "latent-task": ("latent-task-mkl", {"kernels": KERNELS, "a": 2.0}),
    "hierarchical": ("hierarchical-kernels", {"dag": GRAPH, "max_nodes": 12}),
    "hierarchical-no-tasks": ("hierarchical-kernels", {"dag": GRAPH, "max_nodes": 12}),
}


def make(folder: str, n: int, d: int, tasks: int, noise: float, seed: int) -> dict[str, Any]:
    """Draw rows of tasks in two families with labels of smooth rules, some flipped, and ingest them with and without their tasks."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    X, task = rng.standard_normal((n, d), dtype=np.float32), rng.integers(0, tasks, n)
    z = np.where(task % 2 == 0, X[:, 0] + X[:, 0] * X[:, 1], X[:, 2] - X[:, 3]) + 0.3 * np.sin(2 * X[:, 1]) + 0.05 * (task - tasks / 2)
    y = np.where((z > 0) ^ (rng.random(n) < noise), 1, -1)
    ingest((X, y), Path(folder) / "tasks", task_column=task, overwrite=True)
    ingest((X, y), Path(folder) / "plain", overwrite=True)
    return {}


def fit(folder: str, name: str, params: dict[str, Any], workers: int, worker_memory: str, driver_memory: str) -> dict[str, Any]:
    """Fit one method, and tell what it took."""
    from gramplane.pipeline import run_method

    method, own = METHODS[name]
    path, events = Path(folder), []
    data = str(path / ("plain" if name.endswith("no-tasks") else "tasks"))
    where = {"cluster": f"local:{workers}", "worker_memory": worker_memory, "driver_memory": driver_memory}
    shutil.rmtree(path / name, ignore_errors=True)
    plan = run_method(method, {**own, **params}, data=data, run=str(path / name), dry_run=True, **where).plan
    own_memory = bench.peak_memory()
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(
            lambda: run_method(
                method, {**own, **params}, data=data, run=str(path / name), on_event=lambda e: events.append(dict(e)), **where
            )
        )
    shutil.rmtree(path / name)
    passes = [event for event in events if event["event"] == "finish"]
    names = sorted({event["program"] for event in passes})
    planned = [event.get("planned_peak", 0) for event in events if event["event"] == "plan"]
    told = [event.get("peak_memory") or 0 for event in passes]
    return {
        **clock,
        "plan": {key: plan[key] for key in ("driver_bytes", "task_bytes", "tasks_per_pass", "machines_solved_on", "distributed")},
        "spent": {name: round(sum(event["seconds"] for event in passes if event["program"] == name), 1) for name in names},
        "counts": {name: sum(event["program"] == name for event in passes) for name in names},
        "summary": {
            key: done.summary.get(key) for key in ("objective", "relative_gap", "stop", "iterations", "n_support", "train_accuracy")
        },
        "driver": bench.peak_memory() - own_memory,
        "worker": max(watch.worst(), *told),
        "planned_worker": max(planned, default=0),
    }


def show(report: bench.Report, name: str, found: dict[str, Any], driver_memory: str, worker_memory: str) -> None:
    """Report one fit."""
    summary = found["summary"]
    report.value(f"{name}: seconds of the run, cluster included", found["seconds"], unit=" s")
    for program, seconds in found["spent"].items():
        report.value(f"{name}: of it in {found['counts'][program]} passes {program}", seconds, unit=" s")
    report.value(f"{name}: steps", summary["iterations"])
    report.value(f"{name}: certified gap, relative", summary["relative_gap"], "<= 0.01", form=".2e")
    report.value(f"{name}: rows with a coefficient", summary["n_support"])
    report.value(f"{name}: driver, peak beyond the process itself", found["driver"] / bench.MIB, unit=" MiB")
    report.value(f"{name}: driver, peak : {driver_memory}", found["driver"] / bench.parse_size(driver_memory), "<= 1")
    report.value(f"{name}: worker process, greatest peak", found["worker"] / bench.MIB, unit=" MiB")
    report.value(f"{name}: worker process, peak : {worker_memory}", found["worker"] / bench.parse_size(worker_memory), "<= 1")


def main() -> None:
    place = {"workers": 2, "worker_memory": "2GiB", "driver_memory": "2GiB"}
    parser = bench.arguments(__doc__, rows=40_000, features=8, tasks=6, noise=0.02, cost=1.0, tol=1e-2, seed=0, **place)
    parser.set_defaults(reps=1)
    parser.add_argument("--methods", default=",".join(METHODS), help="some of them, by commas")
    parser.add_argument("--folder", help="where everything goes; by default a scratch folder")
    options = parser.parse_args()
    if options.tiny:
        options.rows, options.driver_memory, options.tol = 800, "4MiB", 0.05
    size = f"{options.tasks} tasks, {options.rows} rows, {options.workers} workers of {options.worker_memory}"
    report = bench.Report(f"{options.methods.replace(',', ', ')}: {size}", options)
    with bench.kept_or_scratch(options.folder) as folder:
        with bench.Child(__file__) as child:
            child(
                "make", folder=str(folder), n=options.rows, d=options.features, tasks=options.tasks, noise=options.noise, seed=options.seed
            )
        place = {"workers": options.workers, "worker_memory": options.worker_memory, "driver_memory": options.driver_memory}
        for name in options.methods.split(","):
            with bench.Child(__file__) as child:
                found = child("fit", folder=str(folder), name=name, params={"C": options.cost, "tol": options.tol, "scale": None}, **place)
            print(name, found, flush=True)
            show(report, name, found, options.driver_memory, options.worker_memory)
    report.show()


if __name__ == "__main__":
    bench.serve(make, fit)
    main()
