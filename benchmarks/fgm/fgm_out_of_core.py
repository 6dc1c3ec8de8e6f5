"""Sparse data from the store, 10^6 x 10^7 with 10^8 non-zeros, workers of 1 GiB: FGM against one epoch of SGD in memory.

Run with ``python -m benchmarks.fgm.fgm_out_of_core --folder FOLDER`` (4 GB of disk). The data is drawn once, in row chunks; ``ingest``
makes the store of it. Every program runs in a process of its own; the peer is one call of ``SGDClassifier(penalty="l1", max_iter=1).fit``
on rows already in memory, whose reading is not timed. FGM's time is the whole run: starting the cluster, reading, checkpoints, saving.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

HELD: dict[str, Any] = {}
"""Data of a child process."""
PARTS = {"data": np.float32, "indices": np.int32, "indptr": np.int64}


# -- served: the data ------------------------------------------------------------------------------------------------------


def make(folder: str, n: int, n_test: int, d: int, per_row: int, offset: float, relevant: int, budget: int, seed: int) -> dict[str, Any]:
    """Draw the rows into files, then ingest the training rows; the seconds and peak of the ingest."""
    path = Path(folder)
    draw(path, n + n_test, d, per_row, offset, relevant, seed)
    clock, store = bench.clocked(lambda: ingest_rows(path, n, budget))
    return {**clock, "nnz": int(store.column_table("counts").sum(dtype=np.int64))}


def draw(folder: Path, n: int, d: int, per_row: int, offset: float, relevant: int, seed: int, step: int = 20_000) -> None:
    """Write CSR arrays of unit-norm rows with column popularity ``(rank + offset)^-1`` and labels of a noisy linear rule."""
    rng = np.random.default_rng(seed)
    edges = np.cumsum(1.0 / (np.arange(d) + offset))
    names = rng.permutation(d).astype(np.int32)
    chosen = rng.choice(min(d, 20 * relevant), relevant, replace=False)
    w = np.zeros(d, np.float32)
    w[names[chosen]] = rng.standard_normal(relevant)
    ends, z = [np.zeros(1, np.int64)], []
    with open(folder / "data.bin", "wb") as data, open(folder / "indices.bin", "wb") as indices:
        for lo in range(0, n, step):
            block = draw_rows(rng, min(step, n - lo), names, edges, per_row)
            data.write(block.data.astype(PARTS["data"], copy=False))
            indices.write(block.indices.astype(PARTS["indices"], copy=False))
            ends.append(ends[-1][-1] + block.indptr[1:])
            z.append(block @ w)
    margin = np.concatenate(z)
    margin += 0.1 * margin.std() * rng.standard_normal(n)
    np.concatenate(ends).tofile(folder / "indptr.bin")
    np.where(margin > np.median(margin), 1, -1).astype(np.int8).tofile(folder / "y.bin")
    np.save(folder / "relevant.npy", np.sort(names[chosen]))


def draw_rows(rng: np.random.Generator, rows: int, names: np.ndarray, edges: np.ndarray, per_row: int) -> sp.csr_array:
    """Return rows of distinct columns, sorted, with unit norm."""
    d = len(names)
    columns = names[np.minimum(np.searchsorted(edges, rng.random(rows * per_row) * edges[-1]), d - 1)]
    key = np.unique(np.repeat(np.arange(rows, dtype=np.int64), per_row) * d + columns)
    counts = np.bincount(key // d, minlength=rows)
    values = np.repeat(1.0 / np.sqrt(counts), counts).astype(np.float32)
    indptr = np.concatenate(([0], np.cumsum(counts)))
    return sp.csr_array((values, (key % d).astype(np.int32), indptr), shape=(rows, d))


def rows_of(folder: Path, lo: int, hi: int, d: int, mapped: bool) -> tuple[sp.csr_array, np.ndarray]:
    """Return rows ``lo:hi`` of the files, read or mapped, and their labels."""
    indptr = np.fromfile(folder / "indptr.bin", PARTS["indptr"])
    a, b = int(indptr[lo]), int(indptr[hi])
    arrays = []
    for name in ("data", "indices"):
        whole = np.memmap(folder / f"{name}.bin", PARTS[name], "r")[a:b]
        arrays.append(whole if mapped else np.array(whole))
    # SciPy would copy arrays whose index types differ.
    arrays.append((indptr[lo : hi + 1] - a).astype(np.int32))
    return sp.csr_array(tuple(arrays), shape=(hi - lo, d)), np.fromfile(folder / "y.bin", np.int8)[lo:hi].astype(np.int64)


def ingest_rows(folder: Path, n: int, budget: int) -> Any:
    """Make the store of the first ``n`` rows."""
    from gramplane.storage.ingest import ingest

    d = HELD["d"]
    return ingest(rows_of(folder, 0, n, d, mapped=True), folder / "store", n_features=d, dtype="float32", budget=budget, overwrite=True)


def configure(d: int) -> None:
    """Tell this process the width."""
    HELD["d"] = d


# -- served: the programs --------------------------------------------------------------------------------------------------


def sgd_load(folder: str, n: int, n_test: int) -> dict[str, Any]:
    """Read the rows into memory."""
    HELD["train"] = rows_of(Path(folder), 0, n, HELD["d"], mapped=False)
    HELD["test"] = rows_of(Path(folder), n, n + n_test, HELD["d"], mapped=False)
    return {"nnz": HELD["train"][0].nnz}


def sgd(alpha: float) -> dict[str, Any]:
    """One call of fit, one epoch."""
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(penalty="l1", alpha=alpha, max_iter=1, tol=None, random_state=0)
    clock, _ = bench.clocked(lambda: model.fit(*HELD["train"]))
    return {**clock, "accuracy": model.score(*HELD["test"]), "features": int(np.count_nonzero(model.coef_))}


def ours(folder: str, run: str, params: dict[str, Any], cluster: str, worker_memory: str, n: int, n_test: int) -> dict[str, Any]:
    """One whole run; peaks of the driver (this process) and of every worker."""
    from gramplane import load_model, run_method

    path, events = Path(folder), []
    shutil.rmtree(path / run, ignore_errors=True)
    where: dict[str, Any] = {} if cluster == "sync" else {"cluster": cluster, "worker_memory": worker_memory}
    with bench.PeakWatch() as watch:
        clock, outcome = bench.clocked(
            lambda: run_method("fgm", params, data=str(path / "store"), run=str(path / run), on_event=events.append, **where)
        )
    driver = bench.peak_memory()
    rounds = [event for event in events if event["event"] == "iteration"]
    phases = {f"in {name}": sum(event[f"seconds_{name}"] for event in rounds) for name in ("columns", "solve", "score")}
    started = sum(event["seconds"] for event in events if event["event"] == "phase" and event.get("phase") == "cluster")
    bounds = [event["memory_bound"] for event in events if event["event"] == "plan"]
    found = {"features": outcome.summary["n_selected"], "rounds": len(rounds), **phases, "in starting the cluster": started}
    model = load_model(path / run)
    true = len(np.intersect1d(model.selected_, np.load(path / "relevant.npy")))
    accuracy = model.score(*rows_of(path, n, n + n_test, HELD["d"], mapped=False)) if n_test else float("nan")
    peaks = {"driver": driver, "workers": watch.worst(), "planned": max(bounds, default=0)}
    return {**clock, **found, "rounds alone": sum(event["seconds"] for event in rounds), "true": true, "accuracy": accuracy, **peaks}


def planned(folder: str, params: dict[str, Any]) -> dict[str, Any]:
    """Return what a dry run says."""
    from gramplane import run_method

    return {"plan": run_method("fgm", params, data=str(Path(folder) / "store"), run=str(Path(folder) / "none"), dry_run=True).plan}


# -- report ----------------------------------------------------------------------------------------------------------------


def make_data(report: bench.Report, options, folder: str) -> None:
    """Draw and ingest, in a process of its own."""
    with bench.Child(__file__) as child:
        child("configure", d=options.d)
        given = {name: getattr(options, name) for name in ("n", "n_test", "d", "per_row", "offset", "relevant", "seed")}
        made = child("make", folder=folder, budget=options.budget, **given)
    report.value("non-zeros", made["nnz"])
    report.value("ingest of the rows", made["seconds"], unit=" s")
    report.value("ingest, non-zeros per second", made["nnz"] / made["seconds"])


def run_both(options, folder: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Alternate runs of FGM and calls of SGD; one process each, the peer's keeps its rows between calls."""
    params = {"B": options.B, "C": options.cost, "max_rounds": options.rounds, "fit_intercept": False, "scale": None}
    given = {"params": params, "cluster": options.cluster, "worker_memory": options.worker_memory, "n": options.n, "n_test": options.n_test}
    us, them = [], []
    with bench.Child(__file__) as peer:
        peer("configure", d=options.d)
        peer("sgd_load", folder=folder, n=options.n, n_test=options.n_test)
        for rep in range(options.reps):
            with bench.Child(__file__) as child:
                child("configure", d=options.d)
                us.append(child("ours", folder=folder, run=f"run{rep}", **given))
            them.append(peer("sgd", alpha=options.alpha))
    return us, them


def report_memory(report: bench.Report, options, us: list[dict[str, Any]], folder: str) -> None:
    with bench.Child(__file__) as child:
        plan = child(
            "planned",
            folder=folder,
            params={"B": options.B, "C": options.cost, "max_rounds": options.rounds, "fit_intercept": False, "scale": None},
        )["plan"]
    limit = bench.parse_size(options.worker_memory)
    report.value("greatest peak of a worker process", max(row["workers"] for row in us) / 2**30, f"<= {limit / 2**30:.4g}", unit=" GiB")
    report.value("greatest peak of the driver process", max(row["driver"] for row in us) / 2**30, "<= 2", unit=" GiB")
    report.value("planned bytes of a step", max(row["planned"] for row in us) / 2**20, unit=" MiB")
    read = plan["bytes_read_per_pass"] * plan["passes_at_most"]
    report.value("bytes of all passes", read / 1e9, unit=" GB")
    report.value(
        "rounds : reading all passes at memory bandwidth",
        float(np.median([row["rounds alone"] for row in us])) / (read / bench.read_bandwidth()),
        unit="x",
    )
    report.note(f"plan: {plan}")


def main() -> None:
    parser = bench.arguments(
        __doc__, n=1_000_000, n_test=50_000, d=10_000_000, per_row=114, offset=500.0, relevant=300, B=20, rounds=10, cost=100.0, alpha=1e-6
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=256 << 20)
    parser.add_argument("--cluster", default="local:2")
    parser.add_argument("--worker-memory", default="1GiB")
    parser.add_argument("--folder", help="where rows and store go; a folder that holds them already is used again and kept")
    options = parser.parse_args()
    if options.tiny:
        options.n, options.n_test, options.d, options.per_row, options.relevant, options.B, options.reps = 3000, 500, 20_000, 20, 20, 3, 1
    report = bench.Report(f"FGM from a store of {options.n} x {options.d}, B={options.B}, T={options.rounds}, {options.cluster}", options)
    with bench.kept_or_scratch(options.folder) as folder:
        if not (folder / "store").exists():
            make_data(report, options, str(folder))
        us, them = run_both(options, str(folder))
        fgm, peer = bench.timing_of(us), bench.timing_of(them)
        report.time("FGM, whole run", fgm)
        report.time("SGD l1, one epoch in memory", peer)
        report.ratio("FGM : SGD", fgm, peer, 4, cpu=False)
        for key in ("rounds alone", "in starting the cluster", "in columns", "in solve", "in score", "features", "true", "accuracy"):
            report.value(f"FGM: {key}", float(np.median([row[key] for row in us])))
        for key in ("features", "accuracy"):
            report.value(f"SGD: {key}", float(np.median([row[key] for row in them])))
        report.value("SGD: peak memory of its process", max(row["peak"] for row in them) / 2**30, unit=" GiB")
        report_memory(report, options, us, str(folder))
    report.show()


if __name__ == "__main__":
    bench.serve(configure, make, sgd_load, sgd, ours, planned)
    main()
