"""Unsupervised multiple kernel learning beyond one process: 30,000 points, 13 kernels, two workers of 1 GiB, nothing of n^2 in the driver.

Run with ``python -m benchmarks.unsupervised_mkl.umkl_distributed --folder FOLDER`` (4 GB of disk). The points are drawn around eight
centres and standardised; kernels are Gaussians of ten widths and polynomials of degree 1 to 3, parameters the defaults of the method. Whole
matrices would take 36 n^2 bytes in the driver, 30 GiB here. A smaller fit is run on one worker, on two and in this process, whose models
must be the same bytes, and once on whole matrices, whose objective must be the same to 1e-9. Every program runs in a process of its own.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

KERNELS = [*(f"rbf(gamma={0.5 / 4.0**k!r})" for k in range(-3, 7)), "linear", "poly(degree=2)", "poly(degree=3)"]
CENTRES = 8


def make(folder: str, n: int, d: int, seed: int) -> dict[str, Any]:
    """Draw points around a few centres, and ingest them."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(CENTRES, d))[rng.integers(0, CENTRES, n)]
    ingest((X - X.mean(axis=0)) / X.std(axis=0), Path(folder) / "data", overwrite=True)
    return {}


def fit(folder: str, run: str, max_iter: int, cluster: str, worker_memory: str | None, driver_memory: str) -> dict[str, Any]:
    """Fit once; returns seconds, what the passes took, peaks, and a digest of the model."""
    from gramplane import load_model
    from gramplane.pipeline import run_method

    path, events = Path(folder), []
    params = {"kernels": KERNELS, "max_iter": max_iter}
    options = {"data": str(path / "data"), "run": str(path / run), "driver_memory": driver_memory}
    options |= {"cluster": cluster, "worker_memory": worker_memory}
    plan = run_method("unsupervised-mkl", params, dry_run=True, **options).plan
    own = bench.peak_memory()
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: run_method("unsupervised-mkl", params, on_event=lambda e: events.append(dict(e)), **options))
    model, spent = load_model(path / run), Counter()
    for event in events:
        if event["event"] == "finish":
            spent[event["program"]] += event["seconds"]
    arrays = model.kernel_weights_, model.bases_, model.eigenvalues_, model.model_.beta
    return {
        **clock,
        "points": plan["points"],
        "planned_driver": plan["driver_bytes"],
        "planned": max((event.get("planned_peak", 0) for event in events if event["event"] == "plan"), default=0),
        "measured": watch.worst(),
        "driver": bench.peak_memory(),
        "own": own,
        "spent": dict(spent),
        "steps": [event["seconds"] for event in events if event["event"] == "iteration"],
        "changed": [event["changed"] for event in events if event["event"] == "iteration"],
        "objective": done.summary["objective"],
        "iterations": done.summary["iterations"],
        "stop": done.summary["stop"],
        "selected": done.summary["n_selected"],
        "residual": model.model_.figures.get("component_residual", 0.0),
        "digest": hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest(),
    }


def once(function: str, **given: Any) -> dict[str, Any]:
    """Call a served function in a process of its own."""
    with bench.Child(__file__) as child:
        return child(function, **given)


def large(report: bench.Report, options: Any, folder: str) -> None:
    """The fit beyond one process."""
    once("make", folder=folder, n=options.rows, d=options.features, seed=options.seed)
    place = {"cluster": f"local:{options.workers}", "worker_memory": options.worker_memory, "driver_memory": options.driver_memory}
    found = once("fit", folder=folder, run="run", max_iter=options.max_iter, **place)
    report.value("whole fit, cluster and components included", found["seconds"], unit=" s")
    report.value("sweeps", found["iterations"])
    report.value("a sweep, median", float(np.median(found["steps"])), unit=" s")
    for name, seconds in found["spent"].items():
        report.value(f"of it in passes {name}", seconds, unit=" s")
    report.value("kernels with a weight", found["selected"])
    report.value("residual of the components", found["residual"], "<= 1e-8", form=".1e")
    report.value("planned peak of a worker process", found["planned"] / bench.MIB, unit=" MiB")
    report.value("measured peak of a worker process", found["measured"] / bench.MIB, unit=" MiB")
    report.value("worker: measured : memory", found["measured"] / bench.parse_size(options.worker_memory), "<= 1")
    report.value("driver: planned beyond the process itself", found["planned_driver"] / bench.MIB, unit=" MiB")
    report.value("driver: peak beyond the process itself", (found["driver"] - found["own"]) / bench.MIB, unit=" MiB")
    report.value("driver: peak of the process", found["driver"] / bench.MIB, unit=" MiB")
    report.note(f"points {found['points']}; the fit ended by {found['stop']}; points whose bases changed: {found['changed']}")


def same_bits(report: bench.Report, options: Any, folder: str) -> None:
    """The same fit of fewer rows on one worker, two and none, by passes, and on whole matrices."""
    once("make", folder=folder, n=options.check_rows, d=options.features, seed=1)
    given = {"folder": folder, "max_iter": options.max_iter}
    # As little as the passes can do with, so that no whole matrix fits.
    little = once("fit", **given, run="whole", cluster="sync", worker_memory=None, driver_memory=options.driver_memory)
    places = {"one": ("local:1", options.worker_memory), "two": ("local:2", options.worker_memory), "none": ("sync", None)}
    found = {
        name: once("fit", **given, run=name, cluster=cluster, worker_memory=memory, driver_memory=options.check_driver_memory)
        for name, (cluster, memory) in places.items()
    }
    equal = len({one["digest"] for one in found.values()}) == 1
    apart = abs(found["one"]["objective"] - little["objective"]) / abs(little["objective"])
    report.value(f"bit-equal, {options.check_rows} rows by passes: 1, 2 workers and this process", float(equal), ">= 1")
    report.value(f"objective of {options.check_rows} rows, by passes against whole matrices, relative", apart, "<= 1e-9", form=".1e")
    report.note(
        f"{options.check_rows} rows: points {little['points']} in {little['seconds']:.3g} s, by passes in this process in "
        f"{found['none']['seconds']:.3g} s, on two workers in {found['two']['seconds']:.3g} s"
    )


def main() -> None:
    place = {"workers": 2, "worker_memory": "1GiB", "driver_memory": "1GiB", "check_driver_memory": "160MiB"}
    parser = bench.arguments(__doc__, rows=30_000, features=20, check_rows=3000, max_iter=50, seed=0, **place)
    parser.set_defaults(reps=1)
    parser.add_argument("--folder", help="where everything goes, kept; by default a scratch folder")
    options = parser.parse_args()
    if options.tiny:
        options.rows, options.features, options.check_rows, options.max_iter = 600, 5, 300, 3
    report = bench.Report(f"unsupervised kernels of {options.rows} points, {options.workers} workers of {options.worker_memory}", options)
    with bench.kept_or_scratch(options.folder) as folder:
        for part, name in ((large, "large"), (same_bits, "small")):
            (folder / name).mkdir(exist_ok=True)
            part(report, options, str(folder / name))
    report.show()


if __name__ == "__main__":
    bench.serve(make, fit)
    main()
