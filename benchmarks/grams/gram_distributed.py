"""Gram matrices beyond one machine's memory: five Gaussian kernels of 30,000 rows on workers of 1 GiB, built into a store and used from it.

Run with ``python -m benchmarks.grams.gram_distributed --folder FOLDER`` (30 GB of disk for both programs). The peer is what one writes
around ``sklearn.metrics.pairwise.rbf_kernel``: blocks of rows with ``dask.array``, float64 distances rounded to float32 (float32 input is
slower there), one ``to_zarr`` per width with the default codec, on a cluster of the same size. Both times include starting their cluster.
Then, from the store: one pass of quadratic forms, and a support vector machine on the sum of the kernels, of which the driver holds a part
only. Every program runs in a process of its own.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import hashlib
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

GAMMA = 1.0
"""Gamma of the narrowest kernel, times the number of columns; each further one has half of it."""


# -- served: ours ----------------------------------------------------------------------------------------------------------


def make(folder: str, n: int, d: int, noise: float, seed: int) -> dict[str, Any]:
    """Draw points and labels of a smooth rule with some flipped, and ingest them."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    z = np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + X[:, 3]
    y = np.where((z > 0) ^ (rng.random(n) < noise), 1, -1)
    np.save(Path(folder) / "X.npy", X)
    ingest((X, y), Path(folder) / "data", overwrite=True)
    return {}


def kernels(d: int, count: int) -> list[str]:
    """Return Gaussian kernels of widths that double."""
    return [f"rbf(gamma={GAMMA / d * 2.0**-q!r})" for q in range(count)]


def worker_processes() -> list[psutil.Process]:
    """Return the worker processes below this one."""
    return [child for child in psutil.Process().children(recursive=True) if "spawn_main" in " ".join(child.cmdline())]


def killing(program: str, after: float, events: list[dict[str, Any]]) -> Callable[[Any], None]:
    """Return a sink that keeps events and kills a worker process ``after`` seconds of a program, if that is positive."""

    def kill() -> None:
        victim = worker_processes()[-1]
        events.append({"event": "killed", "pid": victim.pid})
        victim.kill()

    def sink(event: Any) -> None:
        events.append(dict(event))
        if after > 0 and event["event"] == "start" and event["program"] == program:
            threading.Timer(after, kill).start()

    return sink


def memory(events: list[dict[str, Any]], watch: bench.PeakWatch) -> dict[str, Any]:
    """Return what was planned for a worker process and what the greatest one took."""
    planned = [event.get("planned_peak", 0) for event in events if event["event"] == "plan"]
    told = [event.get("peak_memory") or 0 for event in events if event["event"] == "finish"]
    return {"planned": max(planned, default=0), "measured": max(watch.worst(), *told), "driver": bench.peak_memory()}


def build(folder: str, out: str, d: int, count: int, cluster: str, worker_memory: str, kill: float) -> dict[str, Any]:
    """Build the store from nothing."""
    from gramplane.pipeline.runs.gram_stores import build_grams

    path, events = Path(folder), []
    shutil.rmtree(path / out, ignore_errors=True)
    where = {"cluster": cluster, "worker_memory": worker_memory, "on_event": killing("gram-build", kill, events)}
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: build_grams(str(path / "data"), kernels(d, count), str(path / out), scale=None, **where))
    killed = any(event["event"] == "killed" for event in events)
    started = sum(event["seconds"] for event in events if event.get("phase") == "cluster" and "seconds" in event)
    return {**clock, "bytes": done.figures["bytes"], "starting": started, "killed": killed, **memory(events, watch)}


def content(folder: str, out: str) -> dict[str, Any]:
    """Return a digest of every byte of a store."""
    found = hashlib.sha256()
    for path in sorted((Path(folder) / out).rglob("*")):
        if path.is_file() and path.name != "lock":
            found.update(str(path.relative_to(Path(folder) / out)).encode() + path.read_bytes())
    return {"digest": found.hexdigest()}


def use(
    folder: str, out: str, d: int, count: int, cost: float, tol: float, cluster: str, worker_memory: str, driver_memory: str, kill: float
) -> dict[str, Any]:
    """One pass of quadratic forms of a random vector, then a machine on the sum of the kernels, both from the store."""
    from gramplane.kernels.grams.spec import as_specs
    from gramplane.kernels.svm.dual import svc_problem
    from gramplane.kernels.svm.smo import solve_smo
    from gramplane.pipeline.grams.grams import Grams
    from gramplane.pipeline.grams.settings import GramSettings
    from gramplane.pipeline.records.compute import ComputeOptions
    from gramplane.pipeline.records.context import RunContext
    from gramplane.pipeline.runs.run import executing
    from gramplane.storage import BlockStore, RunStore

    path, events = Path(folder), []
    data, where = BlockStore.open(path / "data"), ComputeOptions(cluster, worker_memory, driver_memory)
    shutil.rmtree(path / "run", ignore_errors=True)
    run, specs = RunStore.create(path / "run", {"of": out}), as_specs(kernels(d, count), d)
    y = np.where(data.target() > 0, 1.0, -1.0)
    vector = np.random.default_rng(1).standard_normal(data.n_rows)
    with bench.PeakWatch() as watch, executing(where, data, killing("gram-product", kill, events), "grams") as executor:
        ctx = RunContext(executor, data, run, bench.parse_size(driver_memory))
        grams = Grams(ctx, specs, GramSettings.of(ctx, specs, "store", str(path / out)))
        forms_clock, forms = bench.clocked(lambda: grams.forms(vector))
        sum_clock, gram = bench.clocked(lambda: grams.combine(np.full(count, 1.0 / count)))
        before = psutil.Process().memory_info().rss
        clock, found = bench.clocked(lambda: solve_smo(gram, svc_problem(y, cost), tol=tol))
        figures = memory(events, watch)
    shutil.rmtree(path / "run")
    passes = [event for event in events if event["event"] == "finish"]
    spent = {name: sum(event["seconds"] for event in passes if event["program"] == name) for name in ("gram-product", "gram-entries")}
    return {
        **clock,
        "forms_seconds": forms_clock["seconds"],
        "sum_seconds": sum_clock["seconds"],
        "spent": spent,
        "own": before,
        "on_driver": hasattr(gram, "array"),
        "support": int(np.count_nonzero(found.beta)),
        "bounded": int(np.count_nonzero(np.abs(found.beta) == cost)),
        "gap": found.gap / found.upper,
        "converged": found.converged,
        "details": found.details,
        "steps": found.iterations,
        "digest": hashlib.sha256(found.beta.tobytes() + forms.tobytes()).hexdigest(),
        "killed": any(event["event"] == "killed" for event in events),
        **figures,
    }


# -- served: the peer and the disk -----------------------------------------------------------------------------------------


def peer_build(folder: str, d: int, count: int, workers: int, worker_memory: str, rows: int) -> dict[str, Any]:
    """The kernels by blocks with dask.array, into Zarr arrays with their default codec."""
    path = Path(folder)
    shutil.rmtree(path / "peer", ignore_errors=True)
    X = np.load(path / "X.npy").astype(np.float64)

    def whole() -> None:
        import dask
        import dask.array as da
        from distributed import Client, LocalCluster

        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=worker_memory, dashboard_address=None) as cluster,
            Client(cluster),
        ):
            left = da.from_array(X, chunks=(rows, d))
            stored = []
            for q in range(count):
                K = da.blockwise(block, "ij", left, "ik", left, "jk", gamma=GAMMA / d * 2.0**-q, dtype=np.float32, concatenate=True)
                stored.append(K.to_zarr(str(path / "peer" / str(q)), compute=False))
            dask.compute(*stored)

    with bench.PeakWatch() as watch:
        clock, _ = bench.clocked(whole)
    return {**clock, "measured": watch.worst()}


def block(left: np.ndarray, right: np.ndarray, gamma: float) -> np.ndarray:
    """One block of one kernel."""
    from sklearn.metrics.pairwise import rbf_kernel

    return rbf_kernel(left, right, gamma=gamma).astype(np.float32)


def peer_forms(folder: str, count: int, workers: int, worker_memory: str) -> dict[str, Any]:
    """The quadratic forms from the peer's arrays."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    path = Path(folder)
    n = len(np.load(path / "X.npy", mmap_mode="r"))
    v = np.random.default_rng(1).standard_normal(n)
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, memory_limit=worker_memory, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        arrays = [da.from_zarr(str(path / "peer" / str(q))) for q in range(count)]
        forms = [w @ (K @ w) for K in arrays for w in [da.from_array(v, chunks=K.chunks[0])]]
        clock, _ = bench.clocked(lambda: dask.compute(*forms))
    return clock


def disk(folder: str, nbytes: int) -> dict[str, Any]:
    """Write a plain file in pieces of 16 MiB until it is on the disk, and read it back from there."""
    path, piece = Path(folder) / "plain", np.random.default_rng(0).bytes(16 << 20)
    count = max(1, nbytes // len(piece))

    def write() -> None:
        with path.open("wb", buffering=0) as file:
            for _ in range(count):
                file.write(piece)
            os.fsync(file.fileno())

    def read() -> None:
        buffer = bytearray(len(piece))
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    written, _ = bench.clocked(write)
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cold, _ = bench.clocked(read)
    warm, _ = bench.clocked(read)
    path.unlink()
    rates = {"write": written, "read": cold, "read_again": warm}
    return {name: count * len(piece) / clock["seconds"] / 1e6 for name, clock in rates.items()}


# -- report ----------------------------------------------------------------------------------------------------------------


def once(function: str, **given: Any) -> dict[str, Any]:
    """Call a served function in a process of its own."""
    with bench.Child(__file__) as child:
        return child(function, **given)


def builds(report: bench.Report, options: Any, folder: str) -> None:
    """Alternate builds of both programs."""
    given = {"folder": folder, "d": options.features, "count": options.kernels, "worker_memory": options.worker_memory}
    us, them = [], []
    for _ in range(options.reps):
        us.append(once("build", out="grams", cluster=f"local:{options.workers}", kill=0.0, **given))
        if not options.no_peer:
            them.append(once("peer_build", workers=options.workers, rows=options.peer_rows, **given))
    rates = once("disk", folder=folder, nbytes=options.disk_bytes)
    ours = bench.timing_of(us)
    report.time("build into the store, cluster included", ours)
    if them:
        peer = bench.timing_of(them)
        report.time("rbf_kernel by blocks with dask.array, to_zarr", peer)
        report.ratio("build : peer", ours, peer, 1 / 3, cpu=False)
        report.value("peer: greatest peak of a worker process", max(row["measured"] for row in them) / bench.MIB, unit=" MiB")
        forms = once("peer_forms", folder=folder, count=options.kernels, workers=options.workers, worker_memory=options.worker_memory)
        report.figures["peer forms"] = forms["seconds"]
        report.value("peer: quadratic forms from its arrays", forms["seconds"], unit=" s")
        shutil.rmtree(Path(folder) / "peer")
    busy = ours.median - us[-1]["starting"]
    speed = us[-1]["bytes"] / busy / 1e6
    report.value("store written", us[-1]["bytes"] / 1e9, unit=" GB")
    report.value("written at, without starting the cluster", speed, unit=" MB/s")
    report.value("disk: a plain file written and synced", rates["write"], unit=" MB/s")
    report.value("disk: read from the disk", rates["read"], unit=" MB/s")
    report.value("disk: read from the system's memory", rates["read_again"], unit=" MB/s")
    report.value("written : disk", speed / rates["write"])
    planned(report, "build", us)


def planned(report: bench.Report, name: str, rows: list[dict[str, Any]]) -> None:
    """Report planned and measured peaks of worker processes."""
    worst = max(rows, key=lambda row: row["measured"] / max(row["planned"], 1))
    report.value(f"{name}: planned peak of a worker process", worst["planned"] / bench.MIB, unit=" MiB")
    report.value(f"{name}: measured peak of a worker process", worst["measured"] / bench.MIB, unit=" MiB")
    report.value(f"{name}: measured : planned", worst["measured"] / max(worst["planned"], 1), "<= 1")
    report.value(f"{name}: peak of the driver process", max(row["driver"] for row in rows) / bench.MIB, unit=" MiB")


def uses(report: bench.Report, options: Any, folder: str) -> None:
    """The pass of forms and the machine."""
    found = once("use", folder=folder, out="grams", cluster=f"local:{options.workers}", kill=0.0, **used(options))
    report.value("quadratic forms of all kernels, first pass, every byte checked", found["forms_seconds"], unit=" s")
    if "peer forms" in report.figures:
        report.value("quadratic forms : peer's", found["forms_seconds"] / report.figures["peer forms"])
    report.value("weighted sum of the kernels written", found["sum_seconds"], unit=" s")
    report.value(f"support vector machine, C={options.cost:g}, tol={options.tol:g}", found["seconds"], unit=" s")
    for name, seconds in found["spent"].items():
        report.value(f"of it in passes {name}", seconds, unit=" s")
    for name in ("working", "rounds", "products", "rows_fetched"):
        if name in found["details"]:
            report.value(f"machine: {name}", found["details"][name])
    for name in ("support", "bounded", "steps"):
        report.value(f"machine: {name}", found[name])
    report.value("machine: certified gap, relative", found["gap"], "<= 0.001", form=".2e")
    planned(report, "machine", [found])
    limit = bench.parse_size(options.driver_memory)
    report.value("driver: peak beyond the process itself : budget", (found["driver"] - found["own"]) / limit, "<= 1")
    if found["on_driver"]:
        report.note("the sum fits the driver's budget here: the machine was solved in its memory")


def used(options: Any) -> dict[str, Any]:
    """Return the arguments of ``use`` that stand on the command line."""
    names = {"d": "features", "count": "kernels"}
    given = ("d", "count", "cost", "tol", "worker_memory", "driver_memory")
    return {name: getattr(options, names.get(name, name)) for name in given}


def same_bits(report: bench.Report, options: Any, folder: str) -> None:
    """Build and solve with one worker, two, and two of which one is killed, on fewer rows."""
    small = Path(folder) / "small"
    small.mkdir(exist_ok=True)
    once("make", folder=str(small), n=options.check_rows, d=options.features, noise=options.noise, seed=1)
    given = {"folder": str(small), "d": options.features, "count": options.kernels, "worker_memory": options.worker_memory}
    digests, killed = [], []
    for cluster, kill in (("local:1", 0.0), ("local:2", 0.0), ("local:2", options.kill_after)):
        made = once("build", out="grams", cluster=cluster, kill=kill, **given)
        found = once("use", folder=str(small), out="grams", cluster=cluster, kill=kill, **{**used(options), "driver_memory": "64MiB"})
        digests.append((once("content", folder=str(small), out="grams")["digest"], found["digest"]))
        killed.append(made["killed"] and found["killed"])
    report.value(f"bit-equal, {options.check_rows} rows: 1 and 2 workers", float(digests[0] == digests[1]), ">= 1")
    report.value(f"bit-equal, {options.check_rows} rows: a worker killed in build and machine", float(digests[1] == digests[2]), ">= 1")
    report.value("workers were killed", float(killed[2]), ">= 1")


def main() -> None:
    parser = bench.arguments(__doc__, rows=30_000, features=20, kernels=5, cost=1.0, tol=1e-3, noise=0.1, check_rows=6000, workers=2)
    parser.set_defaults(reps=1)
    parser.add_argument("--kill-after", type=float, default=0.2, help="seconds of a pass after which a worker is killed")
    parser.add_argument("--peer-rows", type=int, default=2500, help="rows of a chunk of the peer's arrays")
    parser.add_argument("--disk-bytes", type=int, default=4 << 30)
    parser.add_argument("--worker-memory", default="1GiB")
    parser.add_argument("--driver-memory", default="2GiB")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-peer", action="store_true", help="leave the peer out")
    parser.add_argument("--no-check", action="store_true", help="leave the comparison of bits out")
    parser.add_argument("--folder", help="where everything goes, kept; by default a scratch folder")
    options = parser.parse_args()
    if options.tiny:
        options.rows, options.features, options.kernels, options.check_rows = 600, 5, 2, 300
        options.driver_memory, options.disk_bytes, options.kill_after = "1GiB", 16 << 20, 0.0
    report = bench.Report(
        f"{options.kernels} Gram matrices of {options.rows} rows, {options.workers} workers of {options.worker_memory}", options
    )
    with bench.kept_or_scratch(options.folder) as folder:
        once("make", folder=str(folder), n=options.rows, d=options.features, noise=options.noise, seed=options.seed)
        builds(report, options, str(folder))
        uses(report, options, str(folder))
        if not (options.no_check or options.tiny):
            same_bits(report, options, str(folder))
    report.show()


if __name__ == "__main__":
    bench.serve(make, build, content, use, peer_build, peer_forms, disk)
    main()
