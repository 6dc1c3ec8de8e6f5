"""Degree-2 pair search on Zipf-popular sparse data: seconds, products a second, extra memory.

Run with ``python -m benchmarks.fgm.fgm_pairs --sets small,i,ii,dense``. One thread. Set i: n = 1e5, d = 2e4, 54 non-zeros a row; set ii:
n = 1e6, d = 4.6e6, 30 a row (about 1 GB); dense: n = 12,000, d = 784, 60 % of u non-zero, beside the general matrix product that any
search by a Gram matrix of columns needs. There is no peer for the sparse sets; what a later round takes is what a round of a fit takes.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramplane.cluster import Executor, MemorySink
from gramplane.kernels.features.pairs import PairLimits, PairMap, TopPairs, most_frequent, pair_bounds, row_max_abs, row_weight
from gramplane.kernels.features.pairs_sparse import expected_products, head_pairs
from gramplane.kernels.jit import one_thread
from gramplane.pipeline.methods.fgm.pairs import PairAtoms
from gramplane.pipeline.methods.fgm.score_pass import Query
from gramplane.pipeline.records.context import RunContext
from gramplane.storage import MEMORY_STRIPE_BYTES, MemoryBlocks

SETS = {"small": (20_000, 5_000, 40, 8.0), "i": (100_000, 20_000, 58, 10.0), "ii": (1_000_000, 4_600_000, 35, 5.0)}


def zipf(n: int, d: int, per_row: int, shift: float, seed: int = 0) -> sp.csc_array:
    """Draw rows whose features have popularity (rank + shift)^-1; values are half normal."""
    rng = np.random.default_rng(seed)
    steps = np.cumsum(1.0 / (np.arange(d) + shift))
    names = rng.permutation(d)
    keys = []
    for begin in range(0, n, 100_000):
        rows = np.repeat(np.arange(begin, min(begin + 100_000, n)), per_row)
        columns = names[np.minimum(np.searchsorted(steps, rng.random(rows.size) * steps[-1]), d - 1)]
        keys.append(np.unique(columns * n + rows))
    key = np.concatenate(keys)
    key.sort()
    columns, rows = key // n, (key % n).astype(np.int32)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(columns, minlength=d)))).astype(np.int32)
    return sp.csc_array((np.abs(rng.normal(size=rows.size)).astype(np.float32), rows, indptr), shape=(n, d))


def duals(X: sp.csc_array, seed: int = 1) -> dict[str, np.ndarray]:
    """Return labels of a planted linear rule, and a residual-like vector with 73 % non-zeros."""
    rng = np.random.default_rng(seed)
    w = np.zeros(X.shape[1])
    w[most_frequent(np.diff(X.indptr), 300)] = rng.normal(size=min(300, np.count_nonzero(np.diff(X.indptr))))
    z = X @ w
    y = np.where(z > np.median(z), 1.0, -1.0)
    uneven = y * np.abs(rng.normal(size=y.size)) * (rng.random(y.size) < 0.73)
    return {"labels": y, "uneven": uneven}


def extra_memory(call) -> float:
    """Return by how many MB the resident size rises while a call runs."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def watch() -> None:
        while not done.wait(0.002):
            sizes.append(resident())

    # Hand memory freed earlier back, or its reuse would hide what the call needs.
    ctypes.CDLL(None).malloc_trim(0)
    done, sizes = threading.Event(), [resident()]
    watcher = threading.Thread(target=watch)
    watcher.start()
    call()
    done.set()
    watcher.join()
    return (max(sizes) - sizes[0]) / 2**20


class Search:
    """The product's search over data in memory; like a fit it keeps statistics and frequent columns between rounds."""

    def __init__(self, X, limits: PairLimits | None = None) -> None:
        self.events = MemorySink()
        self.ctx = RunContext(Executor(), MemoryBlocks(X, stripe_bytes=MEMORY_STRIPE_BYTES), emit=self.events)
        self.atoms = PairAtoms(1.0, 1.0, limits)

    def __call__(self, u: np.ndarray) -> TopPairs:
        """Return the best 100 coordinates for a dual vector."""
        return self.atoms.select(self.ctx, u[None, :], [Query(100)])[0]

    def survivors(self) -> int:
        """Return how many features the last screening left."""
        return self.events.named("pairs")[-1]["survivors"]


def report_sparse(report: bench.Report, name: str, reps: int) -> None:
    """Add the times of a whole round and of its parts on one of the sparse sets."""
    X, m = zipf(*SETS[name]), PairMap()
    counts = np.diff(X.indptr)
    report.note(
        f"{name}: {X.shape[0]} x {X.shape[1]}, {X.nnz} non-zeros, the most frequent column in {counts.max() / X.shape[0]:.0%} of rows"
    )
    row_max, head = row_max_abs(X), most_frequent(counts, 512)
    for label, u in duals(X).items():
        search = Search(X)
        report.value(f"{name}, {label}: extra memory of a first round", extra_memory(lambda u=u, search=search: search(u)), unit=" MiB")
        calls: dict[str, Callable[[], Any]] = {
            "first round": lambda u=u: Search(X)(u),
            "later round": lambda u=u, search=search: search(u),
        }
        survivors = search.survivors()
        known = Search(X, PairLimits(head_start=min(survivors, PairLimits().max_head)))
        known(u)
        calls |= {
            "later round, size of the head known": lambda u=u, known=known: known(u),
            "bounds alone": lambda u=u: pair_bounds(X, u, row_weight(u, row_max)),
            "head of 512 alone": lambda u=u: head_pairs(X, u, head, m, 100, columns=head),
        }
        times = bench.alternate(calls, reps, warm=0)
        for what, timing in times.items():
            report.time(f"{name}, {label}: {what}", timing)
        one, two = (times[what].result for what in ("later round", "later round, size of the head known"))
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        rate = expected_products(X, u, columns=head) / times["head of 512 alone"].cpu_median / 1e6
        report.value(f"{name}, {label}: products of the head", rate, unit=" M/s (processor time)")
        report.value(f"{name}, {label}: survivors of the screening", survivors)


def report_dense(report: bench.Report, reps: int, n: int) -> None:
    """Add the time of the dense search beside that of a general matrix product."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 784)) * (rng.random((n, 784)) < 0.5)
    u = np.where(rng.random(n) < 0.6, rng.normal(size=n), 0.0)
    for dtype in (np.float64, np.float32):
        Z = X.astype(dtype)
        search = Search(Z)
        calls: dict[str, Callable[[], Any]] = {
            "search": lambda search=search: search(u),
            "product": lambda Z=Z: (Z * u.astype(Z.dtype)[:, None]).T @ Z,
        }
        with one_thread():
            times = bench.alternate(calls, reps)
        name = f"dense {np.dtype(dtype).name}"
        report.time(f"{name}: a whole round of the search", times["search"])
        report.time(f"{name}: the matrix product alone", times["product"])
        report.ratio(f"{name}: round of the search : matrix product alone", times["search"], times["product"], None)


def main() -> None:
    """Run the sets that are asked for."""
    options = bench.arguments(__doc__ or "", sets="small,i,dense").parse_args()
    if options.tiny:
        options.sets, options.reps = "small,dense", 1
    for name in options.sets.split(","):
        report = bench.Report(f"pairs of features, search of the best 100: {name}", options)
        report_dense(report, options.reps, 500 if options.tiny else 12_000) if name == "dense" else report_sparse(
            report, name, options.reps
        )
        report.show()


if __name__ == "__main__":
    main()
