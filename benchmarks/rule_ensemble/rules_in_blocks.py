"""Rules over a million rows: bits, Newton steps, searches and cuts by passes over blocks of rows on two workers of 1 GiB.

    python -m benchmarks.rule_ensemble.rules_in_blocks [--rows 1000000]

The planted set of ``rules``: 20 normal features, two conjunctions, 5 % of the labels turned around, so that no machine is right more often
than 0.95 of the time. The driver may hold 512 MiB; the rows take 160 MB, their bits with what a search in one process keeps more than the
driver may. Data are written before the clock starts, by a process of its own; a fit of 70,000 rows loads and compiles. Peaks are those the
kernel notes: of the driver, which imports NumPy and Dask, and of every worker.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from pathlib import Path
from typing import Any

from benchmarks.rule_ensemble.rules import planted
from gramplane import ingest, run_method, score_store


def write(folder: str, rows: int) -> None:
    """Write the rows to learn from, and 100,000 others."""
    ingest(planted(rows, 0), Path(folder) / "rows", overwrite=True)
    ingest(planted(min(rows, 100_000), 1), Path(folder) / "others", like=str(Path(folder) / "rows"), overwrite=True)


def fit(folder: str, params: dict[str, Any], **place: Any) -> dict[str, Any]:
    """Run the method, and tell what it took."""
    path, events = Path(folder), []
    what = {"data": str(path / "rows"), **place}
    plan = run_method("rule-ensemble", params, run=str(path / "dry"), dry_run=True, **what).plan or {}
    before = bench.peak_memory()
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: run_method("rule-ensemble", params, run=str(path / "run"), on_event=events.append, **what))
    passes, finished = ([event for event in events if event["event"] == kind] for kind in ("plan", "finish"))
    found = {"passes": len(passes), "tasks": sum(event["n_tasks"] for event in passes), "before": before, "driver": bench.peak_memory()}
    found |= {"worker": max([watch.worst(), *(event.get("peak_memory") or 0 for event in finished)]), "plan": plan}
    accuracy = score_store(str(path / "run"), str(path / "others"))["accuracy"]
    return {**clock, **found, "summary": done.summary, "accuracy": accuracy}


def main() -> None:
    """Run the benchmark."""
    place = {"driver_memory": "512MiB", "worker_memory": "1GiB", "cluster": "local:2"}
    parser = bench.arguments(__doc__ or "", rows=1_000_000, C=10.0, rho=1.1, tol=1e-2, **place)
    parser.set_defaults(reps=1)
    options = parser.parse_args()
    place = {"driver_memory": options.driver_memory, "cluster": options.cluster, "worker_memory": options.worker_memory}
    if options.tiny:
        options.rows, place = 2000, {"driver_memory": "512MiB", "cluster": "sync", "worker_memory": None}
    params = {"C": options.C / options.rows * 3000, "rho": options.rho, "tol": options.tol}
    report = bench.Report(f"rule ensembles of {options.rows:,} rows by passes", options)
    with bench.scratch() as folder:
        small = folder / "small"
        with bench.Child(__file__) as child:
            child("write", folder=str(small), rows=min(70_000, options.rows))
            child("write", folder=str(folder), rows=options.rows)
        with bench.Child(__file__) as child:
            child("fit", folder=str(small), params=params, **place)  # compiles
            found = child("fit", folder=str(folder), params=params, **place)
    show(report, found)


def show(report: bench.Report, found: dict[str, Any]) -> None:
    """Report the fit."""
    plan, summary = found["plan"], found["summary"]
    report.value("seconds of the run, cluster included", found["seconds"], unit=" s")
    for name in ("passes", "tasks"):
        report.value(name, found[name])
    for name, key in (("driver, peak", "driver"), ("driver, peak before the run", "before"), ("worker, peak", "worker")):
        report.value(name, found[key] / bench.MIB, unit=" MiB")
    report.value("driver, planned beside programs", plan["process_bytes"] / bench.MIB, unit=" MiB")
    report.value("task, planned", plan["task_bytes"] / bench.MIB, unit=" MiB")
    report.value("accuracy on other rows, at most 0.95", found["accuracy"], form=".4f")
    report.note(f"stop {summary['stop']}; {summary}; distributed: {plan['distributed']}")
    report.show()


if __name__ == "__main__":
    bench.serve(write, fit)
    main()
