"""Ties between very many users: views computed from their features block by block, on workers of 1 GiB, no matrix of all users anywhere.

Run with ``python -m benchmarks.social_strength.many_users --folder FOLDER``. A made-up community: users belong to some of eight circles,
tags, groups and places are drawn from what their circles like or at random, looks are normal around a mean of the circles, ties are more
likely within circles. Four views (three of counts, one Gaussian), four pairs for every user. One fit from the store, in a process of its
own.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

CIRCLES = 8
COUNTS = ((100, 20, 1.0), (60, 8, 0.8), (40, 4, 0.4))
"""Of tags, groups and places: how many there are, how many a user has, and how much more often they are of a circle than at random."""
LOOKS = 8
KERNELS = ["linear[0:100]", "linear[100:160]", "linear[160:200]", "rbf(gamma=0.05)[200:208]"]


def make(folder: str, n: int, pairs_per_user: int, seed: int) -> dict[str, Any]:
    """Draw the community and ingest it; pairs with and without a tie, as many of each."""
    from gramplane.storage.ingest import ingest

    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(CIRCLES, 0.2), n)
    parts: list[Any] = [counts(rng, share, *view) for view in COUNTS]
    looks = share @ rng.normal(size=(CIRCLES, LOOKS)) + rng.normal(size=(n, LOOKS))
    ingest(
        sp.csr_array(sp.hstack([*parts, sp.csr_array(looks.astype(np.float32).astype(np.float64))])), Path(folder) / "users", overwrite=True
    )
    wanted = pairs_per_user * n // 2
    ends = rng.integers(0, n, (8 * wanted, 2))
    ends = np.unique(ends[ends[:, 0] != ends[:, 1]], axis=0)
    rng.shuffle(ends)
    tied = rng.random(len(ends)) < np.einsum("ij,ij->i", share[ends[:, 0]], share[ends[:, 1]])
    table = np.concatenate([np.c_[ends[tied][:wanted], np.ones(wanted)], np.c_[ends[~tied][:wanted], np.zeros(wanted)]]).astype(np.int64)
    np.save(Path(folder) / "pairs.npy", table)
    return {"entries": sum(part.nnz for part in parts) + n * LOOKS, "pairs": len(table)}


def counts(rng: np.random.Generator, share: np.ndarray, size: int, mean: float, ratio: float) -> sp.csr_array:
    """Return how often every user has each of some items."""
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


def fit(folder: str, cluster: str, worker_memory: str, driver_memory: str) -> dict[str, Any]:
    """One fit from the store; seconds of its parts, and what the driver and the largest worker took."""
    from gramplane.pipeline import run_method

    path, events = Path(folder), []
    shutil.rmtree(path / "run", ignore_errors=True)
    where = {"cluster": cluster, "worker_memory": worker_memory, "driver_memory": driver_memory}
    given = {"data": str(path / "users"), "run": str(path / "run"), "extra": {"pairs": np.load(path / "pairs.npy")}}
    method, params = "social-strength", {"kernels": KERNELS, "C": 0.001}
    plan = run_method(method, params, **given, **where, dry_run=True).plan or {}
    with bench.PeakWatch() as watch:
        clock, done = bench.clocked(lambda: run_method(method, params, **given, **where, on_event=lambda event: events.append(dict(event))))
    passes = [event for event in events if event["event"] == "finish"]
    spent: dict[str, float] = {}
    for event in passes:
        spent[event["program"]] = spent.get(event["program"], 0.0) + event["seconds"]
    count = sum(event["program"] == "view-products" for event in passes)
    planned = {name: plan[name] for name in ("scores_on", "tasks_per_pass", "task_bytes", "driver_bytes", "gram_block_rows")}
    quality = {name: done.summary[name] for name in ("auc", "alignment", "uniform_alignment", "stop", "gap", "objective")}
    return {**clock, "spent": spent, "products": count, "worker": watch.worst(), "driver": bench.peak_memory(), **planned, **quality}


def main() -> None:
    options = bench.arguments(
        __doc__, folder=None, users=100_000, cluster="local:2", worker_memory="1GiB", driver_memory="2GiB"
    ).parse_args()
    if options.tiny:
        options.users, options.driver_memory = 3000, "60MiB"
    report = bench.Report(f"Ties between {options.users} users, {options.cluster}, workers of {options.worker_memory}", options)
    with bench.kept_or_scratch(options.folder) as folder, bench.Child(__file__) as child:
        made = child("make", folder=str(folder), n=options.users, pairs_per_user=4, seed=0)
        where = {"cluster": options.cluster, "worker_memory": options.worker_memory, "driver_memory": options.driver_memory}
        found = child("fit", folder=str(folder), **where)
    report.value("whole fit", found["seconds"], unit=" s", form=".0f")
    for name, text in (
        ("view-survey", "largest entries of all rows, and entries at the pairs"),
        ("view-products", f"least eigenvalues, {found['products']} products"),
        ("view-block-sums", "inner products of the views"),
        ("tops", "ten best candidates of every user, twice"),
    ):
        report.value(text, found["spent"].get(name, 0.0), unit=" s", form=".0f")
    report.value("largest worker process", found["worker"] / bench.MIB, "<= 1024", unit=" MiB", form=".0f")
    report.value("driver process", found["driver"] / bench.MIB, unit=" MiB", form=".0f")
    report.value("one matrix of all users would be", 4 * options.users**2 / bench.MIB, unit=" MiB", form=".0f")
    report.value("area under the curve, training pairs", found["auc"], form=".3f")
    report.value("alignment, learnt weights", found["alignment"], form=".3f")
    report.value("alignment, equal weights", found["uniform_alignment"], form=".3f")
    size = found["task_bytes"] / bench.MIB
    report.note(f"{made['entries']} entries, {made['pairs']} pairs; {found['tasks_per_pass']} tasks of {size:.0f} MiB a pass")
    report.note(f"driver planned {found['driver_bytes'] / bench.MIB:.0f} MiB; stop {found['stop']}, gap {found['gap']:.1e}")
    report.show()


if __name__ == "__main__":
    bench.serve(make, fit)
    main()
