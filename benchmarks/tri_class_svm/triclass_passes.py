"""Tri-class machines beyond the driver's memory: 30,000 labelled and 30,000 unlabelled rows on two workers of 1 GiB.

    python -m benchmarks.tri_class_svm.triclass_passes [--kernel rbf|linear] [--algorithm mm|dc|cccp]

Two normal classes in 50 features and irrelevant rows between them, a Gaussian kernel of width "scale"; or sparse rows of 100 of 50,000
features, two classes that differ in 200 of them, a linear kernel. The driver may hold 512 MiB; the matrix of all rows takes 13.4 GiB in
float32. Data are written before the clock starts, by a process of its own; a fit of 300 rows loads and compiles. Peaks are those the kernel
notes: of the driver, which imports NumPy and Dask, and of every worker.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramplane import ingest, load_model, run_method

FEATURES, WIDE, FILLED, TELLING = 50, 50_000, 100, 200


def draw(rng: np.random.Generator, n: int, kernel: str, shares: tuple[float, float]) -> tuple[Any, np.ndarray]:
    """Rows and what they are, -1, 0 or +1; ``shares`` of those of neither class, and of features that tell."""
    side = np.where(rng.random(n) < shares[0], 0, np.where(np.arange(n) % 2 == 0, 1, -1))
    if kernel == "rbf":
        centre = np.where(np.arange(FEATURES) < 10, 0.5, 0.0)
        return (rng.normal(size=(n, FEATURES)) + side[:, None] * centre).astype(np.float32), side
    columns = rng.integers(TELLING, WIDE, (n, FILLED))
    chosen = rng.random((n, FILLED)) < shares[1]
    half = TELLING // 2
    own = rng.integers(0, half, (n, FILLED)) + np.where(side[:, None] < 0, half, 0)
    either = rng.integers(0, TELLING, (n, FILLED))
    columns = np.where(chosen, np.where(side[:, None] == 0, either, own), columns)
    rows = sp.csr_array((np.ones(n * FILLED, np.float32), (np.repeat(np.arange(n), FILLED), columns.ravel())), shape=(n, WIDE))
    rows.data[:] = 1.0 / np.sqrt(FILLED)
    return rows, side


# -- served ----------------------------------------------------------------------------------------------------------------


def write(folder: str, labelled: int, unlabelled: int, kernel: str) -> None:
    """Write both stores, and what the unlabelled rows are."""
    path, rng = Path(folder), np.random.default_rng(0)
    X, y = draw(rng, labelled, kernel, (0.2, 0.1))
    U, hidden = draw(rng, unlabelled, kernel, (0.3, 0.1))
    ingest((X, y), path / "labelled", overwrite=True)
    ingest(U, path / "unlabelled", like=str(path / "labelled"), overwrite=True)
    np.save(path / "hidden.npy", hidden)


def fit(folder: str, params: dict[str, Any], driver_memory: str, cluster: str, worker_memory: str | None) -> dict[str, Any]:
    """Run the method on both stores."""
    path, events = Path(folder), []
    place: dict[str, Any] = {"data": str(path / "labelled"), "extra": {"unlabelled": str(path / "unlabelled")}}
    place |= {"driver_memory": driver_memory, "cluster": cluster, "worker_memory": worker_memory}
    plan = run_method("tri-class-svm", params, run=str(path / "dry"), dry_run=True, **place).plan or {}
    before = bench.peak_memory()
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: run_method("tri-class-svm", params, run=str(path / "run"), on_event=events.append, **place))
    passes, finished = ([event for event in events if event["event"] == kind] for kind in ("plan", "finish"))
    steps = [event["seconds"] for event in events if event["event"] == "iteration"]
    found = {"longest": max(steps), "passes": len(passes), "tasks": sum(event["n_tasks"] for event in passes)}
    found |= {"before": before, "driver": bench.peak_memory(), "plan": plan, "summary": done.summary}
    found |= {"worker": max(watch.worst(), *(event.get("peak_memory") or 0 for event in finished))}
    found |= {"right": float(np.mean(load_model(path / "run").assignment_ == np.load(path / "hidden.npy")))}
    return {**clock, **found}


# -- report ----------------------------------------------------------------------------------------------------------------


def main() -> None:
    """Run the benchmark."""
    place = {"driver_memory": "512MiB", "worker_memory": "1GiB", "cluster": "local:2"}
    machine = {"kernel": "rbf", "algorithm": "mm", "start": "svm3", "C": 1.0}
    options = bench.arguments(__doc__ or "", labelled=30_000, unlabelled=30_000, **machine, **place).parse_args()
    n, u = (options.labelled, options.unlabelled) if not options.tiny else (300, 300)
    if options.tiny:
        options.driver_memory, options.cluster, options.worker_memory = "4MiB", "sync", None
    params = {"scale": None, "kernel": options.kernel, "algorithm": options.algorithm, "start": options.start, "C": options.C}
    params["C_unlabelled"] = 0.1 * options.C
    place = {"driver_memory": options.driver_memory, "cluster": options.cluster, "worker_memory": options.worker_memory}
    report = bench.Report(f"3C-SVM by passes: {options.kernel}, {options.algorithm}, {n:,} + {u:,} rows", options)
    with bench.scratch() as folder:
        small = folder / "small"
        with bench.Child(__file__) as child:
            child("write", folder=str(small), labelled=150, unlabelled=150, kernel=options.kernel)
            child("write", folder=str(folder), labelled=n, unlabelled=u, kernel=options.kernel)
        with bench.Child(__file__) as child:
            child("fit", folder=str(small), params=params, driver_memory="200MiB", cluster="sync", worker_memory=None)
            found = child("fit", folder=str(folder), params=params, **place)
    plan, summary = found["plan"], found["summary"]
    report.value("seconds", found["seconds"], unit=" s")
    report.value("seconds of the longest step", found["longest"], unit=" s")
    report.value("passes", found["passes"])
    report.value("tasks", found["tasks"])
    for name, key in (("driver, peak", "driver"), ("driver, peak before the run", "before"), ("worker, peak", "worker")):
        report.value(name, found[key] / bench.MIB, unit=" MiB")
    report.value("driver, planned beside programs", plan["process_bytes"] / bench.MIB, unit=" MiB")
    report.value("task, planned", plan["task_bytes"] / bench.MIB, unit=" MiB")
    report.value("objective", summary["objective"], form=".8g")
    report.value("gap, relative", summary["gap"] / (1 + summary["objective"]))
    report.value("unlabelled rows assigned as they are", found["right"])
    report.note(f"solver reads {plan['solver_reads']}; steps {summary['iterations']}, stop {summary['stop']}; {plan['gram_reason']}")
    report.show()


if __name__ == "__main__":
    bench.serve(write, fit)
    main()
