"""Elastic-net multiple kernel learning against a strong loop around SVC and against EasyMKL.

    python -m benchmarks.mkl.mkl_elastic --peer-python PEERS/bin/python                # n = 2,000, 200 kernels
    python -m benchmarks.mkl.mkl_elastic --size 1000 --kernels 105

All get the same kernels: packed triangles of float32 on our side, one float32 (k, n, n) array on the loop's, float64 matrices in a process
of its own for EasyMKL (`_easymkl_peer.py`; one quadratic program, another objective: only its time is compared). Making kernels is timed
nowhere. The loop (`_mkl_peer.py`): SVC(kernel="precomputed") at its default tol 1e-3 on one vector-matrix product over all kernels,
quadratic forms by one matrix-vector product per kernel, then the level method with our own lower-bound program and projection. Ours is the
estimator's default: second-order steps, a working set of kernels, and the same lower-bound program. Both stop at a relative gap of 1e-3
between the primal value and a lower bound over all kernels. The accuracy of the machines is no question here.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._mkl_peer import strong_loop
from gramplane.cluster import open_executor
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.kernels.svm.dual import svc_problem
from gramplane.pipeline.grams.given import GivenGrams, GivenKernel
from gramplane.pipeline.loops.run import run_loop
from gramplane.pipeline.methods.mkl.config import MKLConfig
from gramplane.pipeline.methods.mkl.loop import MKLLoop
from gramplane.pipeline.records.context import RunContext

TOL, TAU, V, C = 1e-3, 0.3, 0.5, 1.0
EASY = Path(__file__).with_name("_easymkl_peer.py")


def rows(n: int, d: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """Return normal features and a noisy function of five of them as classes."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    z = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] - 0.5 * X[:, 4] ** 2 + 0.5
    return X, np.where(z + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)


def bank(X: np.ndarray, k: int) -> np.ndarray:
    """Return k Gaussian kernels per feature and on all features, of unit variance in feature space, float32."""
    n, d = X.shape
    widths = np.geomspace(0.05, 10.0, -(-k // (d + 1)))
    specs = [
        KernelSpec("rbf", (("gamma", float(g) / (d if s is None else 1)),), s) for s in [None, *((j,) for j in range(d))] for g in widths
    ]
    found = np.empty((k, n, n), np.float32)
    for q, spec in enumerate(specs[:k]):
        gram = gram_block([spec], X, dtype=np.float32)[0]
        found[q] = gram / (np.trace(gram, dtype=np.float64) / n - gram.mean(dtype=np.float64))
    return found


def ours(ctx: RunContext, loop: MKLLoop) -> Any:
    """Run the whole search for weights on the bank that is there; the machine's state and where the seconds went."""
    outcome = run_loop(loop, ctx, keep=False)
    parts = {name: sum(row[f"seconds_{name}"] for row in outcome.history) for name in ("machine", "forms", "weights")}
    return outcome.state.machines[0], parts


def easy(report: bench.Report, python: str, n: int, k: int, reps: int) -> bench.Timing:
    """Return the times of EasyMKL in its own environment."""
    with bench.Child(str(EASY), python) as peer:
        by = peer("prepare", n=n, k=k)["by"]
        report.note(f"EasyMKL by {by}" + ("" if by == "MKLpy" else ", the same steps as MKLpy's class"))
        peer("fit")
        return bench.timing_of([peer("fit") for _ in range(reps)])


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", size=2000, kernels=200)
    parser.add_argument("--peer-python", help="interpreter of the peers' environment (benchmarks/peers.sh), for EasyMKL")
    options = parser.parse_args()
    n, k = (200, 40) if options.tiny else (options.size, options.kernels)
    X, y = rows(n)
    grams = bank(X, k)
    report = bench.Report(f"elastic-net MKL, n={n}, {k} kernels, v={V}, C={C}, gap {TOL}", options)
    config = MKLConfig(kernels="precomputed", v=V, C=C, tau=TAU, tol=TOL, normalize="none")
    data = GivenGrams.__new__(GivenGrams)
    # The look at eigenvalues is no part of the comparison.
    data.source, data.k, data.n_rows, data.n_cols, data.digest = grams, k, n, n, ""
    with open_executor(None) as executor:
        ctx = RunContext(executor, data, driver_memory=64 << 30)  # pyright: ignore[reportArgumentType]
        loop = MKLLoop(config, [GivenKernel(q) for q in range(k)], [svc_problem(y, C)])
        loop.grams(ctx)
        times = bench.alternate(
            {"ours": lambda: ours(ctx, loop), "strong loop around SVC": lambda: strong_loop(grams, y, C, V, TOL, TAU)}, options.reps
        )
    mine, loops = times["ours"], times["strong loop around SVC"]
    (found, parts), other = mine.result, loops.result
    for name, timing in times.items():
        report.time(name, timing)
    report.ratio("ours : strong loop around SVC", mine, loops, 1 / 4)
    if options.peer_python:
        peer = easy(report, options.peer_python, n, k, options.reps)
        report.time("EasyMKL", peer)
        report.ratio("ours : EasyMKL", mine, peer, 1 / 2)
    else:
        report.note("no --peer-python: EasyMKL was not run (see benchmarks/peers.sh)")
    for name, seconds in parts.items():
        report.value(f"ours, seconds in {name}", seconds, unit=" s")
    report.value("ours, relative gap", (found.upper - found.lower) / found.upper, f"<= {TOL}")
    report.value("strong loop, relative gap", (other.upper - other.lower) / other.upper)
    report.value("ours, weight vectors tried", len(found.cut_values))
    report.value("strong loop, weight vectors tried", other.iterations)
    report.value("ours, kernels looked at in every step at last", int(found.active.sum()))
    report.value("upper bounds, relative difference", abs(found.upper - other.upper) / other.upper, f"<= {2 * TOL}")
    report.show()


if __name__ == "__main__":
    main()
