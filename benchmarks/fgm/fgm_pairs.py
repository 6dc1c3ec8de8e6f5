"""Degree-2 pair search on Zipf-popular sparse data: seconds, products a second, extra memory.

Run with ``python -m benchmarks.fgm.fgm_pairs [small|i|ii|dense] [--reps N]``. One thread. Set i: n = 1e5, d = 2e4, 54 non-zeros a row; set
ii: n = 1e6, d = 4.6e6, 30 a row (about 1 GB); dense: n = 12,000, d = 784, 60 % of u non-zero.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import threading
import time
from pathlib import Path

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


def timed(call, reps: int) -> tuple[float, object]:
    """Return the best of some runs and the result."""
    best, out = float("inf"), None
    for _ in range(reps):
        start = time.perf_counter()
        out = call()
        best = min(best, time.perf_counter() - start)
    return best, out


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


def report_sparse(name: str, reps: int) -> None:
    """Time a whole round and its parts on one of the sparse sets."""
    X, m = zipf(*SETS[name]), PairMap()
    counts = np.diff(X.indptr)
    print(f"{name}: n={X.shape[0]} d={X.shape[1]} nnz={X.nnz}, top column in {counts.max() / X.shape[0]:.0%} of rows")
    row_max = row_max_abs(X)
    for label, u in duals(X).items():
        search = Search(X)
        extra = extra_memory(lambda u=u, search=search: search(u))
        first, _ = timed(lambda u=u: Search(X)(u), 1)
        seconds, top = timed(lambda u=u, search=search: search(u), reps)
        survivors = search.survivors()
        print(f"  {label}: first round {first:.3f} s, later {seconds:.3f} s, extra memory {extra:.0f} MB, {survivors} survivors")
        known = Search(X, PairLimits(head_start=min(survivors, PairLimits().max_head)))
        known(u)
        hinted, again = timed(lambda u=u, known=known: known(u), reps)
        assert all(np.array_equal(a, b) for a, b in zip(top, again, strict=True))
        bounds, _ = timed(lambda u=u: pair_bounds(X, u, row_weight(u, row_max)), reps)
        head = most_frequent(counts, 512)
        alone, _ = timed(lambda u=u, head=head: head_pairs(X, u, head, m, 100, columns=head), reps)
        rate = expected_products(X, u, columns=head) / alone / 1e6
        print(f"    with K known {hinted:.3f} s; bounds {bounds:.3f} s; head of 512 {alone:.3f} s ({rate:.0f} M products/s)")


def report_dense(reps: int) -> None:
    """Time the dense search against a general matrix product."""
    rng = np.random.default_rng(0)
    X = rng.random((12_000, 784)) * (rng.random((12_000, 784)) < 0.5)
    u = np.where(rng.random(12_000) < 0.6, rng.normal(size=12_000), 0.0)
    for dtype in (np.float64, np.float32):
        Z = X.astype(dtype)
        search = Search(Z)
        with one_thread():
            naive, _ = timed(lambda Z=Z: (Z * u.astype(Z.dtype)[:, None]).T @ Z, reps)
            seconds, _ = timed(lambda search=search: search(u), reps)
        print(f"dense {np.dtype(dtype).name}: round {seconds:.3f} s, naive product alone {naive:.3f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("set", nargs="?", default="small", choices=[*SETS, "dense"])
    parser.add_argument("--reps", type=int, default=3)
    chosen = parser.parse_args()
    report_dense(chosen.reps) if chosen.set == "dense" else report_sparse(chosen.set, chosen.reps)
