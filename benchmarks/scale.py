"""Fits beyond the memory of one process: time beside a peer where there is one, and peaks of every process against the plan.

Every fit runs in a process of its own, from a store that is made before.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import hashlib
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import scipy.sparse as sp

from benchmarks._harness import HELD

Event = dict[str, Any]
MIB, GIB = bench.MIB, 1 << 30
WORKERS = {"workers": 2, "worker_memory": "1GiB", "folder": "", "reps": 1}
BLOCKS = {"cluster": ("local:2", "sync"), "worker_memory": ("1GiB", None)}
"""Options of programs that run on workers, and of those that are tiny in this process."""


# -- what all programs share -------------------------------------------------------------------------------------------------


def fit(method: str, params: dict[str, Any], data: str, run: str, extra: dict[str, Any] | None = None, **where: Any) -> dict[str, Any]:
    """Run a method from nothing: plan, seconds, what its passes took, and peaks of the driver (this process) and of every worker."""
    from gramplane import run_method

    shutil.rmtree(run, ignore_errors=True)
    given, events = {"data": data, "run": run, "extra": extra, **where}, []
    plan = run_method(method, params, dry_run=True, **given).plan or {}
    own, resident = bench.peak_memory(), psutil.Process().memory_info().rss
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: run_method(method, params, on_event=lambda event: events.append(dict(event)), **given))
    spent, counts = Counter(), Counter()
    for event in (event for event in events if event["event"] == "finish"):
        spent[event["program"]] += event.get("seconds") or 0.0
        counts[event["program"]] += 1
    planned = [event for event in events if event["event"] == "plan"]
    return {
        **clock,
        "plan": plan,
        "summary": done.summary,
        "own": own,
        "resident": resident,
        **peaks_of(events, watch),
        "bound": max((event.get("memory_bound") or 0 for event in planned), default=0),
        "spent": dict(spent),
        "counts": dict(counts),
        "planned_passes": dict(Counter(event["program"] for event in planned)),
        "tasks": sum(event["n_tasks"] for event in planned),
        "steps": [event for event in events if event["event"] == "iteration"],
        "starting": sum(event.get("seconds") or 0.0 for event in events if event["event"] == "phase" and event.get("phase") == "cluster"),
    }


def peaks_of(events: list[Event], watch: bench.PeakWatch) -> dict[str, int]:
    """Return what was planned for a worker process, what the greatest one took, and the driver."""
    planned = [event.get("planned_peak") or 0 for event in events if event["event"] == "plan"]
    told = [event.get("peak_memory") or 0 for event in events if event["event"] == "finish"]
    return {"planned": max(planned, default=0), "worker": max(watch.worst(), *told, 0), "driver": bench.peak_memory()}


def place_of(options: Any) -> dict[str, Any]:
    cluster = options.cluster if hasattr(options, "cluster") else f"local:{options.workers}"
    return {"cluster": cluster, "worker_memory": options.worker_memory, "driver_memory": options.driver_memory}


def digest_of(*arrays: Any) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def planned_peaks(report: bench.Report, name: str, rows: list[dict[str, Any]]) -> None:
    worst = max(rows, key=lambda row: row["worker"] / max(row["planned"], 1))
    report.value(f"{name}: planned peak of a worker process", worst["planned"] / MIB, unit=" MiB")
    report.value(f"{name}: measured peak of a worker process", worst["worker"] / MIB, unit=" MiB")
    report.value(f"{name}: measured : planned", worst["worker"] / max(worst["planned"], 1), "<= 1")
    report.value(f"{name}: peak of the driver process", max(row["driver"] for row in rows) / MIB, unit=" MiB")


def tell_peaks(report: bench.Report, found: dict[str, Any]) -> None:
    sizes = {"driver, peak": found["driver"], "driver, peak before the run": found["own"], "worker, peak": found["worker"]}
    sizes |= {"driver, planned beside programs": found["plan"]["process_bytes"], "task, planned": found["plan"]["task_bytes"]}
    report.values({name: size / MIB for name, size in sizes.items()}, unit=" MiB")


# -- fgm_out_of_core -----------------------------------------------------------------------------------------------------

PARTS = {"data": np.float32, "indices": np.int32, "indptr": np.int64}


def fgm_make(folder: str, n: int, n_test: int, d: int, per_row: int, relevant: int) -> Event:
    """Draw the rows into files, then ingest the training rows; the seconds of the ingest."""
    from gramplane.storage.ingest import ingest

    path = Path(folder)
    fgm_draw(path, n + n_test, d, per_row, relevant)
    X, y = rows_of(path, 0, n, d, mapped=True)
    given = {"n_features": d, "dtype": "float32", "budget": 256 << 20, "overwrite": True}
    clock, store = bench.clocked(lambda: ingest((X, y), path / "store", **given))
    return {**clock, "nnz": int(store.column_table("counts").sum(dtype=np.int64))}


def fgm_draw(folder: Path, n: int, d: int, per_row: int, relevant: int, step: int = 20_000) -> None:
    """Write CSR arrays of unit-norm rows with column popularity ``(rank + 500)^-1`` and labels of a noisy linear rule."""
    rng = np.random.default_rng(0)
    edges = np.cumsum(1.0 / (np.arange(d) + 500.0))
    names = rng.permutation(d).astype(np.int32)
    chosen = rng.choice(min(d, 20 * relevant), relevant, replace=False)
    w = np.zeros(d, np.float32)
    w[names[chosen]] = rng.standard_normal(relevant)
    ends, z = [np.zeros(1, np.int64)], []
    with open(folder / "data.bin", "wb") as data, open(folder / "indices.bin", "wb") as indices:
        for lo in range(0, n, step):
            block = unit_rows(rng, min(step, n - lo), names, edges, per_row)
            data.write(block.data.astype(PARTS["data"], copy=False))
            indices.write(block.indices.astype(PARTS["indices"], copy=False))
            ends.append(ends[-1][-1] + block.indptr[1:])
            z.append(block @ w)
    margin = np.concatenate(z)
    margin += 0.1 * margin.std() * rng.standard_normal(n)
    np.concatenate(ends).tofile(folder / "indptr.bin")
    np.where(margin > np.median(margin), 1, -1).astype(np.int8).tofile(folder / "y.bin")
    np.save(folder / "relevant.npy", np.sort(names[chosen]))


def unit_rows(rng: np.random.Generator, rows: int, names: np.ndarray, edges: np.ndarray, per_row: int) -> sp.csr_array:
    d = len(names)
    columns = names[np.minimum(np.searchsorted(edges, rng.random(rows * per_row) * edges[-1]), d - 1)]
    key = np.unique(np.repeat(np.arange(rows, dtype=np.int64), per_row) * d + columns)
    counts = np.bincount(key // d, minlength=rows)
    values = np.repeat(1.0 / np.sqrt(counts), counts).astype(np.float32)
    indptr = np.concatenate(([0], np.cumsum(counts)))
    return sp.csr_array((values, (key % d).astype(np.int32), indptr), shape=(rows, d))


def rows_of(folder: Path, lo: int, hi: int, d: int, mapped: bool = False) -> tuple[sp.csr_array, np.ndarray]:
    """Return rows ``lo:hi`` of the files, read or mapped, and their labels."""
    indptr = np.fromfile(folder / "indptr.bin", PARTS["indptr"])
    a, b = int(indptr[lo]), int(indptr[hi])
    arrays = [np.memmap(folder / f"{name}.bin", PARTS[name], "r")[a:b] for name in ("data", "indices")]
    arrays = arrays if mapped else [np.array(array) for array in arrays]
    # SciPy would copy arrays whose index types differ.
    arrays.append((indptr[lo : hi + 1] - a).astype(np.int32))
    return sp.csr_array(tuple(arrays), shape=(hi - lo, d)), np.fromfile(folder / "y.bin", np.int8)[lo:hi].astype(np.int64)


def sgd_load(folder: str, n: int, n_test: int, d: int) -> dict[str, Any]:
    HELD.update(train=rows_of(Path(folder), 0, n, d), test=rows_of(Path(folder), n, n + n_test, d))
    return {"nnz": HELD["train"][0].nnz}


def sgd() -> dict[str, Any]:
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(penalty="l1", alpha=1e-6, max_iter=1, tol=None, random_state=0)
    clock, _ = bench.clocked(lambda: model.fit(*HELD["train"]))
    return {**clock, "accuracy": model.score(*HELD["test"]), "features": int(np.count_nonzero(model.coef_))}


def fgm_run(options: Any, folder: Path, name: str, cluster: str, worker_memory: str) -> dict[str, Any]:
    from gramplane import load_model

    params = {"B": options.B, "C": 100.0, "max_rounds": options.rounds, "fit_intercept": False, "scale": None}
    where = {} if cluster == "sync" else {"cluster": cluster, "worker_memory": worker_memory}
    row = bench.once(__file__, "fit", method="fgm", params=params, data=str(folder / "store"), run=str(folder / name), **where)
    rounds = row["steps"]
    row |= {f"in {phase}": sum(one[f"seconds_{phase}"] for one in rounds) for phase in ("columns", "solve", "score")}
    row |= {"rounds alone": sum(one["seconds"] for one in rounds), "in starting the cluster": row["starting"]}
    model = load_model(folder / name)
    row |= {"features": row["summary"]["n_selected"], "true": len(np.intersect1d(model.selected_, np.load(folder / "relevant.npy")))}
    if options.n_test:
        row["accuracy"] = model.score(*rows_of(folder, options.n, options.n + options.n_test, options.d))
    return row


def fgm_data(report: bench.Report, options: Any, folder: Path) -> None:
    """Draw and ingest, where the folder has no store yet."""
    if not (folder / "store").exists():
        given = {name: getattr(options, name) for name in ("n", "n_test", "d", "per_row", "relevant")}
        made = bench.once(__file__, "fgm_make", folder=str(folder), **given)
        report.value("non-zeros", made["nnz"])
        report.value("ingest of the rows", made["seconds"], unit=" s")
        report.value("ingest, non-zeros per second", made["nnz"] / made["seconds"])


@bench.program(
    n=(1_000_000, 3000),
    n_test=(50_000, 500),
    d=(10_000_000, 20_000),
    per_row=(114, 20),
    relevant=(300, 20),
    B=(20, 3),
    rounds=10,
    cluster="local:2",
    worker_memory="1GiB",
    folder="",
    reps=(5, 1),
)
def fgm_out_of_core(report: bench.Report, options: Any) -> None:
    """Sparse data from the store, 10^6 x 10^7 with 10^8 non-zeros, workers of 1 GiB: FGM against one epoch of SGD in memory.

    With ``--folder FOLDER`` (4 GB of disk) rows and store are kept, and used again. The peer is one call of
    ``SGDClassifier(penalty="l1", max_iter=1).fit`` on rows already in memory, whose reading is not timed. FGM's time is the whole run:
    starting the cluster, reading, checkpoints, saving.
    """
    report.title = f"FGM from a store of {options.n} x {options.d}, B={options.B}, T={options.rounds}, {options.cluster}"
    with bench.kept_or_scratch(options.folder) as folder, bench.Child(__file__) as peer:
        fgm_data(report, options, folder)
        peer("sgd_load", folder=str(folder), n=options.n, n_test=options.n_test, d=options.d)
        us, them = [], []
        for rep in range(options.reps):
            us.append(fgm_run(options, folder, f"run{rep}", options.cluster, options.worker_memory))
            them.append(peer("sgd"))
    report.time("FGM, whole run", bench.timing_of(us))
    report.time("SGD l1, one epoch in memory", bench.timing_of(them))
    report.ratio("FGM : SGD", bench.timing_of(us), bench.timing_of(them), 4, cpu=False)
    for key in ("rounds alone", "in starting the cluster", "in columns", "in solve", "in score", "features", "true", "accuracy"):
        report.value(f"FGM: {key}", float(np.median([row[key] for row in us])))
    for key in ("features", "accuracy"):
        report.value(f"SGD: {key}", float(np.median([row[key] for row in them])))
    report.value("SGD: peak memory of its process", max(row["peak"] for row in them) / GIB, unit=" GiB")
    limit = bench.parse_size(options.worker_memory) / GIB
    report.value("greatest peak of a worker process", max(row["worker"] for row in us) / GIB, f"<= {limit:.4g}", unit=" GiB")
    report.value("greatest peak of the driver process", max(row["driver"] for row in us) / GIB, "<= 2", unit=" GiB")
    report.value("planned bytes of a step", max(row["bound"] for row in us) / MIB, unit=" MiB")
    plan = us[0]["plan"]
    read = plan["bytes_read_per_pass"] * plan["passes_at_most"]
    report.value("bytes of all passes", read / 1e9, unit=" GB")
    alone = float(np.median([row["rounds alone"] for row in us]))
    report.value("rounds : reading all passes at memory bandwidth", alone / (read / bench.read_bandwidth()), unit="x")
    report.note(f"plan: {plan}")


# -- selector_out_of_core ----------------------------------------------------------------------------------------------------

STEP_ROWS = 20_000  # rows that are drawn at a time


def selector_make(folder: str, name: str, n: int, d: int, n_tasks: int = 8, relevant: int = 20) -> dict[str, Any]:
    """Draw dense float32 rows of some tasks that share most of their features, and make a store of them by columns and by rows."""
    from gramplane.storage.ingest import ingest

    rng, path = np.random.default_rng(0), Path(folder)
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


@bench.program(
    n=(200_000, 4000),
    d=(2000, 60),
    n_small=(20_000, 1000),
    d_small=(1000, 40),
    cluster="local:2",
    driver_memory=("512MiB", "8MiB"),
    small_driver_memory=("256MiB", "1500KiB"),
    worker_memory="1GiB",
    folder="",
    reps=(5, 1),
)
def selector_out_of_core(report: bench.Report, options: Any) -> None:
    """Feature selection over many tasks out of core: the batch optimum on two workers, and rounds from blocks of rows.

    ``--folder FOLDER`` takes 5 GB of disk, and is used again. Two sizes: one whose rows would take 68 bytes an entry in the driver, fitted
    within ``--driver-memory``; and one that fits both ways, by which they are compared: all rows in memory against a working set with
    passes, and rounds over all rows against rounds over blocks.
    """
    limit = options.driver_memory
    title = f"Feature selection over 8 tasks, {options.n} x {options.d} float32, {options.cluster}, driver {limit}"
    report.title = title
    shared = {"lam": 0.5, "fit_intercept": False}
    batch, rounds = {"algorithm": "fista", "tol": 1e-4, **shared}, {"algorithm": "da", "gamma": 3000.0, **shared}

    def tell(name: str, data: str, params: dict[str, Any], cluster: str, driver_memory: str, *, judged: bool = False) -> bench.Timing:
        """Fit again and again and add what it took; the driver's peak is judged less what the libraries take."""
        where = {"driver_memory": driver_memory}
        where |= {} if cluster == "sync" else {"cluster": cluster, "worker_memory": options.worker_memory}
        given = {"params": params, "data": str(folder / data), "run": str(folder / "run"), **where}
        rows = [bench.once(__file__, "fit", method="multitask-selector", **given) for _ in range(options.reps)]
        timing, last, summary = bench.timing_of(rows), rows[-1], rows[-1]["summary"]
        report.time(f"{name} ({last['plan']['engine']})", timing)
        if summary["gap"] is not None:
            report.value(f"{name}: relative gap", summary["gap"] / summary["objective"])
        for key, value in (("selected", summary["n_selected"]), ("passes", last["planned_passes"].get("task-norms"))):
            if value:
                report.value(f"{name}: {key}", value)
        report.value(f"{name}: planned bytes of the driver", last["plan"]["driver_bytes"] / MIB, unit=" MiB")
        target = f"<= {bench.parse_size(limit) / MIB + 400:.4g}" if judged else ""
        report.value(f"{name}: peak of the driver's process", max(row["driver"] for row in rows) / MIB, target, unit=" MiB")
        if last["worker"]:
            report.value(f"{name}: greatest peak of a worker", max(row["worker"] for row in rows) / MIB, unit=" MiB")
        return timing

    with bench.kept_or_scratch(options.folder) as folder:
        for name, n, d in (("large", options.n, options.d), ("small", options.n_small, options.d_small)):
            if not (folder / name).exists():
                made = bench.once(__file__, "selector_make", folder=str(folder), name=name, n=n, d=d)
                report.value(f"ingest of {n} x {d}", made["seconds"], unit=" s")
        entries = options.n * options.d / GIB
        report.note(f"the rows in memory would take {68 * entries:.1f} GiB, as stored they take {4 * entries:.2f} GiB")
        tell("batch, out of core", "large", batch, options.cluster, limit, judged=True)
        tell("rounds, out of core, one epoch", "large", rounds, "sync", limit, judged=True)
        shape, less = f"{options.n_small} x {options.d_small}", options.small_driver_memory
        here = tell(f"batch, {shape}, in memory", "small", batch, "sync", "8GiB")
        there = tell(f"batch, {shape}, out of core, one process", "small", batch, "sync", less)
        report.ratio("batch: out of core : in memory", there, here, None)
        here = tell(f"rounds, {shape}, in memory", "small", rounds, "sync", "8GiB")
        there = tell(f"rounds, {shape}, from blocks", "small", rounds, "sync", less)
        report.ratio("rounds: from blocks : in memory", there, here, None)


# -- gram_distributed --------------------------------------------------------------------------------------------------------

GAMMA = 1.0
"""Gamma of the narrowest kernel, times the number of columns; each further one has half of it."""


def gram_make(folder: str, n: int, d: int, seed: int) -> None:
    """Draw points and labels of a smooth rule with some flipped, and ingest them."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    z = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + X[:, 3]
    np.save(Path(folder) / "X.npy", X)
    ingest((X, np.where((z > 0) ^ (rng.random(n) < 0.1), 1, -1)), Path(folder) / "data", overwrite=True)


def kernels(d: int, count: int) -> list[str]:
    return [f"rbf(gamma={GAMMA / d * 2.0**-q!r})" for q in range(count)]


def killing(program: str, after: float, events: list[Event]) -> Callable[[Any], None]:
    """Return a sink that keeps events and kills a worker process ``after`` seconds of a program, if that is positive."""

    def kill() -> None:
        below = psutil.Process().children(recursive=True)
        victim = [child for child in below if "spawn_main" in " ".join(child.cmdline())][-1]
        events.append({"event": "killed", "pid": victim.pid})
        victim.kill()

    def sink(event: Any) -> None:
        events.append(dict(event))
        if after > 0 and event["event"] == "start" and event["program"] == program:
            threading.Timer(after, kill).start()

    return sink


def gram_build(folder: str, d: int, count: int, cluster: str, worker_memory: str, kill: float) -> dict[str, Any]:
    """Build the store from nothing."""
    from gramplane.pipeline.runs.gram_stores import build_grams

    path, events = Path(folder), []
    shutil.rmtree(path / "grams", ignore_errors=True)
    where = {"cluster": cluster, "worker_memory": worker_memory, "on_event": killing("gram-build", kill, events)}
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: build_grams(str(path / "data"), kernels(d, count), str(path / "grams"), scale=None, **where))
    killed = any(event["event"] == "killed" for event in events)
    started = sum(event["seconds"] for event in events if event.get("phase") == "cluster" and "seconds" in event)
    return {**clock, "bytes": done.figures["bytes"], "starting": started, "killed": killed, **peaks_of(events, watch)}


def gram_content(folder: str) -> str:
    found, store = hashlib.sha256(), Path(folder) / "grams"
    for path in sorted(store.rglob("*")):
        if path.is_file() and path.name != "lock":
            found.update(str(path.relative_to(store)).encode() + path.read_bytes())
    return found.hexdigest()


def gram_use(
    folder: str, d: int, count: int, cost: float, tol: float, cluster: str, worker_memory: str, driver_memory: str, kill: float
) -> dict[str, Any]:
    """One pass of quadratic forms of a random vector, then a machine on the sum of the kernels, both from the store."""
    from gramplane.kernels.grams.spec import as_specs
    from gramplane.kernels.svm.dual import svc_problem
    from gramplane.kernels.svm.smo import solve_smo
    from gramplane.pipeline.core.resources import Resources
    from gramplane.pipeline.grams.grams import Grams
    from gramplane.pipeline.grams.settings import GramSettings
    from gramplane.pipeline.records.compute import ComputeOptions
    from gramplane.pipeline.runs.run import executing
    from gramplane.storage import BlockStore, RunStore

    path, events = Path(folder), []
    data, where = BlockStore.open(path / "data"), ComputeOptions(cluster, worker_memory, driver_memory)
    shutil.rmtree(path / "run", ignore_errors=True)
    run, specs = RunStore.create(path / "run", {"of": "grams"}), as_specs(kernels(d, count), d)
    y = np.where(data.target() > 0, 1.0, -1.0)
    vector = np.random.default_rng(1).standard_normal(data.n_rows)
    with bench.PeakWatch() as watch, executing(where, data, killing("gram-product", kill, events), "grams") as executor:
        resources = Resources(executor, scratch=run, driver_memory=bench.parse_size(driver_memory))
        grams = Grams(data, specs, GramSettings.of(data, resources, specs, "store", str(path / "grams")), resources)
        forms_clock, forms = bench.clocked(lambda: grams.forms(vector))
        sum_clock, gram = bench.clocked(lambda: grams.combine(np.full(count, 1.0 / count)))
        resident = psutil.Process().memory_info().rss
        clock, found = bench.clocked(lambda: solve_smo(gram, svc_problem(y, cost), tol=tol))
        peaks = peaks_of(events, watch)
    shutil.rmtree(path / "run")
    passes = [event for event in events if event["event"] == "finish"]
    spent = {name: sum(event["seconds"] for event in passes if event["program"] == name) for name in ("gram-product", "gram-entries")}
    return {
        **clock,
        "forms_seconds": forms_clock["seconds"],
        "sum_seconds": sum_clock["seconds"],
        "spent": spent,
        "resident": resident,
        "on_driver": hasattr(gram, "array"),
        "support": int(np.count_nonzero(found.beta)),
        "bounded": int(np.count_nonzero(np.abs(found.beta) == cost)),
        "gap": found.gap / found.upper,
        "details": found.details,
        "steps": found.iterations,
        "digest": digest_of(found.beta, forms),
        "killed": any(event["event"] == "killed" for event in events),
        **peaks,
    }


def peer_build(folder: str, d: int, count: int, workers: int, worker_memory: str, rows: int = 2500) -> dict[str, Any]:
    """The kernels by blocks with dask.array, into Zarr arrays with their default codec."""
    path = Path(folder)
    shutil.rmtree(path / "peer", ignore_errors=True)
    X = np.load(path / "X.npy").astype(np.float64)

    def whole() -> None:
        import dask
        import dask.array as da
        from distributed import Client, LocalCluster

        given = {"n_workers": workers, "threads_per_worker": 1, "memory_limit": worker_memory, "dashboard_address": None}
        with LocalCluster(**given) as cluster, Client(cluster):
            left = da.from_array(X, chunks=(rows, d))
            stored = []
            for q in range(count):
                K = da.blockwise(peer_block, "ij", left, "ik", left, "jk", gamma=GAMMA / d * 2.0**-q, dtype=np.float32, concatenate=True)
                stored.append(K.to_zarr(str(path / "peer" / str(q)), compute=False))
            dask.compute(*stored)

    with bench.PeakWatch() as watch:
        clock, _ = bench.clocked(whole)
    return {**clock, "worker": watch.worst()}


def peer_block(left: np.ndarray, right: np.ndarray, gamma: float) -> np.ndarray:
    from sklearn.metrics.pairwise import rbf_kernel

    return rbf_kernel(left, right, gamma=gamma).astype(np.float32)


def gram_builds(report: bench.Report, options: Any, folder: str) -> None:
    given = {"folder": folder, "d": options.features, "count": options.kernels, "worker_memory": options.worker_memory}
    us, them = [], []
    for _ in range(options.reps):
        us.append(bench.once(__file__, "gram_build", cluster=f"local:{options.workers}", kill=0.0, **given))
        if not options.no_peer:
            them.append(bench.once(__file__, "peer_build", workers=options.workers, **given))
    ours = bench.timing_of(us)
    report.time("build into the store, cluster included", ours)
    if them:
        peer = bench.timing_of(them)
        report.time("rbf_kernel by blocks with dask.array, to_zarr", peer)
        report.ratio("build : peer", ours, peer, 1 / 3, cpu=False)
        report.value("peer: greatest peak of a worker process", max(row["worker"] for row in them) / MIB, unit=" MiB")
        shutil.rmtree(Path(folder) / "peer")
    speed = us[-1]["bytes"] / (ours.median - us[-1]["starting"]) / 1e6
    report.value("store written", us[-1]["bytes"] / 1e9, unit=" GB")
    report.value("written at, without starting the cluster", speed, unit=" MB/s")
    planned_peaks(report, "build", us)


def gram_used(options: Any, folder: str, **given: Any) -> dict[str, Any]:
    shared = {name: getattr(options, name) for name in ("cost", "tol", "worker_memory", "driver_memory")}
    return bench.once(__file__, "gram_use", **{"folder": folder, "d": options.features, "count": options.kernels, **shared, **given})


def gram_uses(report: bench.Report, options: Any, folder: str) -> None:
    found = gram_used(options, folder, cluster=f"local:{options.workers}", kill=0.0)
    report.value("quadratic forms of all kernels, first pass, every byte checked", found["forms_seconds"], unit=" s")
    report.value("weighted sum of the kernels written", found["sum_seconds"], unit=" s")
    report.value(f"support vector machine, C={options.cost:g}, tol={options.tol:g}", found["seconds"], unit=" s")
    report.values({f"of it in passes {name}": seconds for name, seconds in found["spent"].items()}, unit=" s")
    for name in ("working", "rounds", "products", "rows_fetched"):
        if name in found["details"]:
            report.value(f"machine: {name}", found["details"][name])
    report.values({f"machine: {name}": found[name] for name in ("support", "bounded", "steps")})
    report.value("machine: certified gap, relative", found["gap"], "<= 0.001", form=".2e")
    planned_peaks(report, "machine", [found])
    limit = bench.parse_size(options.driver_memory)
    report.value("driver: peak beyond the process itself : budget", (found["driver"] - found["resident"]) / limit, "<= 1")
    if found["on_driver"]:
        report.note("the sum fits the driver's budget here: the machine was solved in its memory")


def gram_same_bits(report: bench.Report, options: Any, folder: str) -> None:
    """Build and solve with one worker, two, and two of which one is killed, on fewer rows."""
    bench.once(__file__, "gram_make", folder=folder, n=options.check_rows, d=options.features, seed=1)
    given = {"folder": folder, "d": options.features, "count": options.kernels, "worker_memory": options.worker_memory}
    digests, killed = [], []
    for cluster, kill in (("local:1", 0.0), ("local:2", 0.0), ("local:2", options.kill_after)):
        made = bench.once(__file__, "gram_build", cluster=cluster, kill=kill, **given)
        found = gram_used(options, folder, cluster=cluster, kill=kill, driver_memory="64MiB")
        digests.append((gram_content(folder), found["digest"]))
        killed.append(made["killed"] and found["killed"])
    report.value(f"bit-equal, {options.check_rows} rows: 1 and 2 workers", float(digests[0] == digests[1]), ">= 1")
    report.value(f"bit-equal, {options.check_rows} rows: a worker killed in build and machine", float(digests[1] == digests[2]), ">= 1")
    report.value("workers were killed", float(killed[2]), ">= 1")


@bench.program(
    rows=(30_000, 600),
    features=(20, 5),
    kernels=(5, 2),
    cost=1.0,
    tol=1e-3,
    check_rows=(6000, 300),
    kill_after=(0.2, 0.0),
    driver_memory=("2GiB", "1GiB"),
    no_peer=False,
    no_check=False,
    **WORKERS,
)
def gram_distributed(report: bench.Report, options: Any) -> None:
    """Gram matrices beyond one machine's memory: five Gaussian kernels of 30,000 rows on workers of 1 GiB, built into a store and used.

    30 GB of disk for both programs, kept in ``--folder FOLDER``. The peer is what one writes around
    ``sklearn.metrics.pairwise.rbf_kernel``: blocks of rows with ``dask.array``, float64 distances rounded to float32 (float32 input is
    slower there), one ``to_zarr`` per width with the default codec, on a cluster of the same size. Both times include starting their
    cluster. Then, from the store: one pass of quadratic forms, and a support vector machine on the sum of the kernels, of which the driver
    holds a part only.
    """
    size = f"{options.kernels} Gram matrices of {options.rows} rows"
    report.title = f"{size}, {options.workers} workers of {options.worker_memory}"
    with bench.kept_or_scratch(options.folder) as folder:
        bench.once(__file__, "gram_make", folder=str(folder), n=options.rows, d=options.features, seed=0)
        gram_builds(report, options, str(folder))
        gram_uses(report, options, str(folder))
        if not (options.no_check or options.tiny):
            (folder / "small").mkdir(exist_ok=True)
            gram_same_bits(report, options, str(folder / "small"))


# -- pooled_machines ---------------------------------------------------------------------------------------------------------

POOLED_KERNELS = ["rbf(gamma=0.02)", "rbf(gamma=0.1)", "linear"]
GRAPH = {"dag": "subsets(gaussian[0:4]; depth=2)", "max_nodes": 12}
POOLED: dict[str, tuple[str, dict[str, Any]]] = {
    "shared-subspace": ("shared-subspace-mkl", {"kernels": POOLED_KERNELS}),
    "latent-task": ("latent-task-mkl", {"kernels": POOLED_KERNELS, "a": 2.0}),
    "hierarchical": ("hierarchical-kernels", GRAPH),
    "hierarchical-no-tasks": ("hierarchical-kernels", GRAPH),
}


def pooled_make(folder: str, n: int, d: int = 8, tasks: int = 6) -> None:
    """Draw rows of tasks in two families with labels of smooth rules, some flipped, and ingest them with and without their tasks."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(0)
    X, task = rng.standard_normal((n, d), dtype=np.float32), rng.integers(0, tasks, n)
    z = np.where(task % 2 == 0, X[:, 0] + X[:, 0] * X[:, 1], X[:, 2] - X[:, 3]) + 0.3 * np.sin(2 * X[:, 1]) + 0.05 * (task - tasks / 2)
    y = np.where((z > 0) ^ (rng.random(n) < 0.02), 1, -1)
    ingest((X, y), Path(folder) / "tasks", task_column=task, overwrite=True)
    ingest((X, y), Path(folder) / "plain", overwrite=True)


@bench.program(
    rows=(40_000, 800), tol=(1e-2, 0.05), driver_memory=("2GiB", "4MiB"), methods=",".join(POOLED), **{**WORKERS, "worker_memory": "2GiB"}
)
def pooled_machines(report: bench.Report, options: Any) -> None:
    """One machine of the rows of all tasks beyond the driver's memory: shared subspace, latent groups, kernels from a graph.

    10 GB of disk. The pooled sum of the kernels is a file of the run, answered by passes; nothing of order n^2 is on the driver. There is
    no peer: what is measured is that they go through, in which time, and within which memory.
    """
    size = f"6 tasks, {options.rows} rows, {options.workers} workers of {options.worker_memory}"
    report.title, place = f"{options.methods.replace(',', ', ')}: {size}", place_of(options)
    with bench.kept_or_scratch(options.folder) as folder:
        bench.once(__file__, "pooled_make", folder=str(folder), n=options.rows)
        for name in bench.chosen(options.methods, tuple(POOLED)):
            method, own = POOLED[name]
            params = {**own, "C": 1.0, "tol": options.tol, "scale": None}
            data = str(folder / ("plain" if name.endswith("no-tasks") else "tasks"))
            found = bench.once(__file__, "fit", method=method, params=params, data=data, run=str(folder / name), **place)
            shutil.rmtree(folder / name)
            summary, driver = found["summary"], found["driver"] - found["own"]
            report.value(f"{name}: seconds of the run, cluster included", found["seconds"], unit=" s")
            for program, seconds in sorted(found["spent"].items()):
                report.value(f"{name}: of it in {found['counts'][program]} passes {program}", round(seconds, 1), unit=" s")
            report.value(f"{name}: steps", summary["iterations"])
            report.value(f"{name}: certified gap, relative", summary["relative_gap"], "<= 0.01", form=".2e")
            report.value(f"{name}: rows with a coefficient", summary["n_support"])
            report.value(f"{name}: driver, peak beyond the process itself", driver / MIB, unit=" MiB")
            limits = place["driver_memory"], place["worker_memory"]
            report.value(f"{name}: driver, peak : {limits[0]}", driver / bench.parse_size(limits[0]), "<= 1")
            report.value(f"{name}: worker process, greatest peak", found["worker"] / MIB, unit=" MiB")
            report.value(f"{name}: worker process, peak : {limits[1]}", found["worker"] / bench.parse_size(limits[1]), "<= 1")


# -- umkl_distributed --------------------------------------------------------------------------------------------------------

UMKL_KERNELS = [*(f"rbf(gamma={0.5 / 4.0**k!r})" for k in range(-3, 7)), "linear", "poly(degree=2)", "poly(degree=3)"]
CENTRES = 8


def umkl_make(folder: str, n: int, d: int, seed: int) -> None:
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2.0 * rng.normal(size=(CENTRES, d))[rng.integers(0, CENTRES, n)]
    ingest((X - X.mean(axis=0)) / X.std(axis=0), Path(folder) / "data", overwrite=True)


@bench.program(
    rows=(30_000, 600),
    features=(20, 5),
    check_rows=(3000, 300),
    max_iter=(50, 3),
    driver_memory="1GiB",
    check_driver_memory="160MiB",
    **WORKERS,
)
def umkl_distributed(report: bench.Report, options: Any) -> None:
    """Unsupervised multiple kernel learning beyond one process: 30,000 points, 13 kernels, two workers, nothing of n^2 in the driver.

    4 GB of disk. The points are drawn around eight centres and standardised; kernels are Gaussians of ten widths and polynomials of degree
    1 to 3, parameters the defaults of the method. Whole matrices would take 36 n^2 bytes in the driver, 30 GiB here. A smaller fit is run
    on one worker, on two and in this process, whose models must be the same bytes, and once on whole matrices, whose objective must be the
    same to 1e-9.
    """
    from gramplane import load_model

    params = {"kernels": UMKL_KERNELS, "max_iter": options.max_iter}
    report.title = f"unsupervised kernels of {options.rows} points, {options.workers} workers of {options.worker_memory}"

    def run(part: Path, name: str, **place: Any) -> tuple[dict[str, Any], Any]:
        given = {"method": "unsupervised-mkl", "params": params, "data": str(part / "data"), "run": str(part / name)}
        return bench.once(__file__, "fit", **given, **place), load_model(part / name)

    with bench.kept_or_scratch(options.folder) as folder:
        for name, n, seed in (("large", options.rows, 0), ("small", options.check_rows, 1)):
            (folder / name).mkdir(exist_ok=True)
            bench.once(__file__, "umkl_make", folder=str(folder / name), n=n, d=options.features, seed=seed)
        found, model = run(folder / "large", "run", **place_of(options))
        # As little as the passes can do with, so that no whole matrix fits.
        whole, _ = run(folder / "small", "whole", cluster="sync", worker_memory=None, driver_memory=options.driver_memory)
        places = {"one": ("local:1", options.worker_memory), "two": ("local:2", options.worker_memory), "none": ("sync", None)}
        small = {
            name: run(folder / "small", name, cluster=cluster, worker_memory=memory, driver_memory=options.check_driver_memory)
            for name, (cluster, memory) in places.items()
        }
    summary = found["summary"]
    report.value("whole fit, cluster and components included", found["seconds"], unit=" s")
    report.value("sweeps", summary["iterations"])
    report.value("a sweep, median", float(np.median([step["seconds"] for step in found["steps"]])), unit=" s")
    report.values({f"of it in passes {name}": seconds for name, seconds in found["spent"].items()}, unit=" s")
    report.value("kernels with a weight", summary["n_selected"])
    report.value("residual of the components", model.model_.figures.get("component_residual", 0.0), "<= 1e-8", form=".1e")
    report.value("planned peak of a worker process", found["planned"] / MIB, unit=" MiB")
    report.value("measured peak of a worker process", found["worker"] / MIB, unit=" MiB")
    report.value("worker: measured : memory", found["worker"] / bench.parse_size(options.worker_memory), "<= 1")
    report.value("driver: planned beyond the process itself", found["plan"]["driver_bytes"] / MIB, unit=" MiB")
    report.value("driver: peak beyond the process itself", (found["driver"] - found["own"]) / MIB, unit=" MiB")
    report.value("driver: peak of the process", found["driver"] / MIB, unit=" MiB")
    changed = [step["changed"] for step in found["steps"]]
    report.note(f"points {found['plan']['points']}; the fit ended by {summary['stop']}; points whose bases changed: {changed}")
    n = options.check_rows
    digests = {digest_of(one.kernel_weights_, one.bases_, one.eigenvalues_, one.model_.beta) for _, one in small.values()}
    apart = abs(small["one"][0]["summary"]["objective"] / whole["summary"]["objective"] - 1.0)
    report.value(f"bit-equal, {n} rows by passes: 1, 2 workers and this process", float(len(digests) == 1), ">= 1")
    report.value(f"objective of {n} rows, by passes against whole matrices, relative", apart, "<= 1e-9", form=".1e")
    report.note(
        f"{n} rows: points {whole['plan']['points']} in {whole['seconds']:.3g} s, by passes in this process in "
        f"{small['none'][0]['seconds']:.3g} s, on two workers in {small['two'][0]['seconds']:.3g} s"
    )


# -- npkl_distributed --------------------------------------------------------------------------------------------------------


def npkl_problem(n: int, seed: int) -> tuple[np.ndarray, list[list[int]]]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = rng.normal(size=(n, 6)) + 2 * np.eye(6)[y]
    drawn = {(min(i, j), max(i, j)) for i, j in rng.integers(0, n, (n // 2, 2)).tolist() if i != j}
    return X, [[i, j, 1 if y[i] == y[j] else -1] for i, j in sorted(drawn)]


def npkl_make(folder: str, n: int) -> None:
    from gramplane.storage.ingest import ingest

    ingest(npkl_problem(n, 0)[0], Path(folder) / "data", overwrite=True)


@bench.program(rows=(16_000, 1500), cost=0.7, workers=2, worker_memory="2GiB", driver_memory="640MiB")
def npkl_distributed(report: bench.Report, options: Any) -> None:
    """A non-parametric kernel of rows whose eigenvectors one process of little memory does not hold: its block of columns on workers.

    Four normal classes in six columns, mutual graph of 8 neighbours, half as many random pairs as rows with the sign of their labels,
    linear loss: one eigendecomposition. The same fit in one process that holds the block (``here``), on workers, and in one process whose
    memory is ``--driver-memory``: the block lies in tiles there and every pass runs in the process. Seconds are of the whole run, the
    cluster's start beside. All three must have the same bits. Peaks: of the driver beyond what it takes before the run, and of the worker
    processes, beside the plan.
    """
    report.title = f"A non-parametric kernel of {options.rows} rows, C={options.cost:g}"
    places = {"here": {}, "on workers": place_of(options), "in tiles": {"driver_memory": options.driver_memory}}
    params, found, digests = {"C": options.cost, "n_neighbors": 8, "graph": "mutual"}, {}, set()
    with bench.scratch() as folder:
        bench.once(__file__, "npkl_make", folder=str(folder), n=options.rows)
        given = {"method": "npkl", "params": params, "data": str(folder / "data")}
        given["extra"] = {"constraints": npkl_problem(options.rows, 0)[1]}
        for name, where in places.items():
            run = folder / name.replace(" ", "-")
            found[name] = bench.once(__file__, "fit", **given, run=str(run), **where)
            chunks = sorted((run / "model").rglob("c/*"))
            digests.add(hashlib.sha256(b"".join(file.read_bytes() for file in chunks if file.is_file())).hexdigest())
    for name, row in found.items():
        report.value(f"{name}: whole run", row["seconds"], unit=" s")
        if row["starting"]:
            report.value(f"{name}: of it the cluster's start", row["starting"], unit=" s")
        report.value(f"{name}: peak of the driver beyond the process itself", (row["driver"] - row["resident"]) / MIB, unit=" MiB")
        if row["worker"]:
            report.value(f"{name}: measured peak of a worker process", row["worker"] / MIB, unit=" MiB")
            report.value(f"{name}: measured : planned", row["worker"] / max(row["planned"], 1), "<= 1")
        if row["spent"]:
            spent = sorted(row["spent"].items(), key=lambda item: -item[1])[:6]
            report.note(f"{name}: seconds in passes: " + ", ".join(f"{program} {seconds:.1f}" for program, seconds in spent))
    summary = found["here"]["summary"]
    report.value("rank of the kernel", summary["rank"])
    report.value("certified gap, relative", summary["gap"] / abs(summary["objective"]), "<= 1e-4", form=".2e")
    report.value("the same bits in all places", float(len(digests) == 1), ">= 1")


# -- rules_in_blocks ---------------------------------------------------------------------------------------------------------


def rules_write(folder: str, rows: int) -> None:
    from benchmarks.jawanpuria import conjunctions
    from gramplane import ingest

    ingest(conjunctions(rows, 0), Path(folder) / "rows", overwrite=True)
    ingest(conjunctions(min(rows, 100_000), 1), Path(folder) / "others", like=str(Path(folder) / "rows"), overwrite=True)


@bench.program(rows=(1_000_000, 2000), C=10.0, rho=1.1, tol=1e-2, driver_memory="512MiB", **BLOCKS)
def rules_in_blocks(report: bench.Report, options: Any) -> None:
    """Rules over a million rows: bits, Newton steps, searches and cuts by passes over blocks of rows on two workers of 1 GiB.

    The planted set of ``rules``: 20 normal features, two conjunctions, 5 % of the labels turned around, so that no machine is right more
    often than 0.95 of the time. The driver may hold 512 MiB; the rows take 160 MB, their bits with what a search in one process keeps more
    than the driver may. Data are written before the clock starts; a fit of 70,000 rows loads and compiles. Peaks are those the kernel
    notes: of the driver, which imports NumPy and Dask, and of every worker.
    """
    from gramplane import score_store

    params = {"C": options.C / options.rows * 3000, "rho": options.rho, "tol": options.tol}
    report.title = f"rule ensembles of {options.rows:,} rows by passes"
    with bench.scratch() as folder, bench.Child(__file__) as writer, bench.Child(__file__) as child:
        for part, rows in ((folder / "small", min(70_000, options.rows)), (folder, options.rows)):  # the first compiles
            writer("rules_write", folder=str(part), rows=rows)
            given = {"method": "rule-ensemble", "params": params, "data": str(part / "rows"), "run": str(part / "run")}
            found = child("fit", **given, **place_of(options))
        accuracy = score_store(str(folder / "run"), str(folder / "others"))["accuracy"]
    report.value("seconds of the run, cluster included", found["seconds"], unit=" s")
    report.value("passes", sum(found["planned_passes"].values()))
    report.value("tasks", found["tasks"])
    tell_peaks(report, found)
    report.value("accuracy on other rows, at most 0.95", accuracy, form=".4f")
    report.note(f"stop {found['summary']['stop']}; {found['summary']}; distributed: {found['plan']['distributed']}")


# -- triclass_passes ---------------------------------------------------------------------------------------------------------

FEATURES, WIDE, FILLED, TELLING = 50, 50_000, 100, 200


def triclass_draw(rng: np.random.Generator, n: int, kernel: str, shares: tuple[float, float]) -> tuple[Any, np.ndarray]:
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


def triclass_write(folder: str, labelled: int, unlabelled: int, kernel: str) -> None:
    """Write both stores, and what the unlabelled rows are."""
    from gramplane import ingest

    path, rng = Path(folder), np.random.default_rng(0)
    X, y = triclass_draw(rng, labelled, kernel, (0.2, 0.1))
    U, hidden = triclass_draw(rng, unlabelled, kernel, (0.3, 0.1))
    ingest((X, y), path / "labelled", overwrite=True)
    ingest(U, path / "unlabelled", like=str(path / "labelled"), overwrite=True)
    np.save(path / "hidden.npy", hidden)


@bench.program(
    labelled=(30_000, 300),
    unlabelled=(30_000, 300),
    kernel="rbf",
    algorithm="mm",
    start="svm3",
    C=1.0,
    driver_memory=("512MiB", "4MiB"),
    **BLOCKS,
)
def triclass_passes(report: bench.Report, options: Any) -> None:
    """Tri-class machines beyond the driver's memory: 30,000 labelled and 30,000 unlabelled rows on two workers of 1 GiB.

    Two normal classes in 50 features and irrelevant rows between them, a Gaussian kernel of width "scale"; or (``--kernel linear``) sparse
    rows of 100 of 50,000 features, two classes that differ in 200 of them. ``--algorithm mm``, ``dc`` or ``cccp``. The driver may hold 512
    MiB; the matrix of all rows takes 13.4 GiB in float32. Data are written before the clock starts; a fit of 300 rows loads and compiles.
    Peaks are those the kernel notes: of the driver, which imports NumPy and Dask, and of every worker.
    """
    from gramplane import load_model

    sizes = options.labelled, options.unlabelled
    params = {"scale": None, "C_unlabelled": 0.1 * options.C}
    params |= {name: getattr(options, name) for name in ("kernel", "algorithm", "start", "C")}
    report.title = f"3C-SVM by passes: {options.kernel}, {options.algorithm}, {sizes[0]:,} + {sizes[1]:,} rows"
    here = {"driver_memory": "200MiB", "cluster": "sync", "worker_memory": None}
    with bench.scratch() as folder, bench.Child(__file__) as writer, bench.Child(__file__) as child:
        for part, (n, u), place in ((folder / "small", (150, 150), here), (folder, sizes, place_of(options))):
            writer("triclass_write", folder=str(part), labelled=n, unlabelled=u, kernel=options.kernel)
            given = {"method": "tri-class-svm", "params": params, "data": str(part / "labelled"), "run": str(part / "run")}
            found = child("fit", **given, extra={"unlabelled": str(part / "unlabelled")}, **place)
        right = float(np.mean(load_model(folder / "run").assignment_ == np.load(folder / "hidden.npy")))
    plan, summary = found["plan"], found["summary"]
    report.value("seconds", found["seconds"], unit=" s")
    report.value("seconds of the longest step", max(step["seconds"] for step in found["steps"]), unit=" s")
    report.value("passes", sum(found["planned_passes"].values()))
    report.value("tasks", found["tasks"])
    tell_peaks(report, found)
    report.value("objective", summary["objective"], form=".8g")
    report.value("gap, relative", summary["gap"] / (1 + summary["objective"]))
    report.value("unlabelled rows assigned as they are", right)
    report.note(f"solver reads {plan['solver_reads']}; steps {summary['iterations']}, stop {summary['stop']}; {plan['gram_reason']}")


# -- many_users --------------------------------------------------------------------------------------------------------------

CIRCLES = 8
COUNTS = ((100, 20, 1.0), (60, 8, 0.8), (40, 4, 0.4))
"""Of tags, groups and places: how many there are, how many a user has, and how much more often they are of a circle than at random."""
LOOKS = 8
VIEWS = ["linear[0:100]", "linear[100:160]", "linear[160:200]", "rbf(gamma=0.05)[200:208]"]


def users_make(folder: str, n: int, pairs_per_user: int, seed: int) -> dict[str, Any]:
    """Draw the community and ingest it; pairs with and without a tie, as many of each."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(CIRCLES, 0.2), n)
    parts: list[Any] = [item_counts(rng, share, *view) for view in COUNTS]
    looks = share @ rng.normal(size=(CIRCLES, LOOKS)) + rng.normal(size=(n, LOOKS))
    rows = sp.csr_array(sp.hstack([*parts, sp.csr_array(looks.astype(np.float32).astype(np.float64))]))
    ingest(rows, Path(folder) / "users", overwrite=True)
    wanted = pairs_per_user * n // 2
    ends = rng.integers(0, n, (8 * wanted, 2))
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    rng.shuffle(ends)
    tied = rng.random(len(ends)) < np.einsum("ij,ij->i", share[ends[:, 0]], share[ends[:, 1]])
    table = np.concatenate([np.c_[ends[tied][:wanted], np.ones(wanted)], np.c_[ends[~tied][:wanted], np.zeros(wanted)]]).astype(np.int64)
    np.save(Path(folder) / "pairs.npy", table)
    return {"entries": sum(part.nnz for part in parts) + n * LOOKS, "pairs": len(table)}


def item_counts(rng: np.random.Generator, share: np.ndarray, size: int, mean: float, ratio: float) -> sp.csr_array:
    n = len(share)
    likes = np.cumsum(rng.dirichlet(np.full(size, 0.05), CIRCLES), axis=1)
    users = np.repeat(np.arange(n), rng.poisson(mean, n))
    circle = (rng.random(len(users))[:, None] > np.cumsum(share, axis=1)[users]).sum(axis=1).clip(0, CIRCLES - 1)
    items = rng.integers(0, size, len(users))
    own = rng.random(len(users)) < ratio / (1.0 + ratio)
    for c in range(CIRCLES):
        chosen = own & (circle == c)
        items[chosen] = np.searchsorted(likes[c], rng.random(int(chosen.sum()))).clip(0, size - 1)
    return sp.csr_array((np.ones(len(users)), (users, items)), shape=(n, size))


@bench.program(users=(100_000, 3000), cluster="local:2", worker_memory="1GiB", driver_memory=("2GiB", "60MiB"), folder="")
def many_users(report: bench.Report, options: Any) -> None:
    """Ties between very many users: views computed from their features block by block, on workers of 1 GiB, no matrix of all users
    anywhere.

    A made-up community: users belong to some of eight circles, tags, groups and places are drawn from what their circles like or at random,
    looks are normal around a mean of the circles, ties are more likely within circles. Four views (three of counts, one Gaussian), four
    pairs for every user. One fit from the store.
    """
    report.title = f"Ties between {options.users} users, {options.cluster}, workers of {options.worker_memory}"
    with bench.kept_or_scratch(options.folder) as folder:
        made = bench.once(__file__, "users_make", folder=str(folder), n=options.users, pairs_per_user=4, seed=0)
        given = {"method": "social-strength", "params": {"kernels": VIEWS, "C": 0.001}, "data": str(folder / "users")}
        given |= {"run": str(folder / "run"), "extra": {"pairs": np.load(folder / "pairs.npy").tolist()}}
        found = bench.once(__file__, "fit", **given, **place_of(options))
    plan, summary = found["plan"], found["summary"]
    report.value("whole fit", found["seconds"], unit=" s", form=".0f")
    for name, text in (
        ("view-survey", "largest entries of all rows, and entries at the pairs"),
        ("view-products", f"least eigenvalues, {found['counts'].get('view-products', 0)} products"),
        ("view-block-sums", "inner products of the views"),
        ("tops", "ten best candidates of every user, twice"),
    ):
        report.value(text, found["spent"].get(name, 0.0), unit=" s", form=".0f")
    report.value("largest worker process", found["worker"] / MIB, "<= 1024", unit=" MiB", form=".0f")
    report.value("driver process", found["driver"] / MIB, unit=" MiB", form=".0f")
    report.value("one matrix of all users would be", 4 * options.users**2 / MIB, unit=" MiB", form=".0f")
    report.value("area under the curve, training pairs", summary["auc"], form=".3f")
    report.value("alignment, learnt weights", summary["alignment"], form=".3f")
    report.value("alignment, equal weights", summary["uniform_alignment"], form=".3f")
    size = plan["task_bytes"] / MIB
    report.note(f"{made['entries']} entries, {made['pairs']} pairs; {plan['tasks_per_pass']} tasks of {size:.0f} MiB a pass")
    report.note(f"driver planned {plan['driver_bytes'] / MIB:.0f} MiB; stop {summary['stop']}, gap {summary['gap']:.1e}")


if __name__ == "__main__":
    bench.run()
