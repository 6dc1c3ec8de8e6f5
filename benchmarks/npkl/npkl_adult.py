"""Non-parametric kernels on Adult: one eigendecomposition of many rows, the squared hinge, and small problems beside a general solver.

    GRAMPLANE_DATA=FOLDER PEERS_SDP=/path/to/python python -m benchmarks.npkl.npkl_adult
    GRAMPLANE_DATA=FOLDER python -m benchmarks.npkl.npkl_adult --parts linear,hinge,all --cost 1

Rows of Adult (123 binary features), mutual graph of 50 nearest neighbours, random pairs of rows that must or must not belong together by
their true label, as many as leave 0.7 N components of the graph of pairs that must; p = 2, B = N. A = C T - L.

``linear``: 6,414 rows drawn at random, ||A_+||_F^2 to 1e-8, one thread, beside ``numpy.linalg.eigh`` of the dense matrix (one run; it
takes minutes); and the whole fit, features to kernel, beside the same with brute-force neighbours and ``eigh``. ``hinge``: the squared
hinge on the same rows, from features to a relative duality gap of 1e-4. ``all``: all 32,560 rows, from features to the kernel, by all
cores; ``--cost`` says for which C. ``small``: two normal classes, mutual graph of 5 neighbours, N pairs, beside cvxpy with SCS at eps 1e-5
in the environment whose python PEERS_SDP names; the peer's time is without its first call, and of building and solving, since its users
pay both.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import json
import os
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

from gramplane import SimpleNPKL
from gramplane.kernels.eigen.column_block import usable_cores
from gramplane.kernels.eigen.operator import SymmetricOperator
from gramplane.kernels.eigen.positive_part import kernel_spectrum, normalized_laplacian, positive_part
from gramplane.kernels.spectral.neighbors import nearest_rows, neighbour_graph

NEIGHBORS = 50
COMPONENTS = 0.7

PEER = """
import json, sys, time
import cvxpy as cp, numpy as np
data = np.load(sys.argv[1]); out = []
for name in data.files:
    A, rows = data[name], []
    for rep in range(1 + int(sys.argv[2])):
        s, c = time.perf_counter(), time.process_time()
        K = cp.Variable(A.shape, PSD=True)
        problem = cp.Problem(cp.Maximize(cp.sum(cp.multiply(A, K))), [cp.norm(K, "fro") <= np.sqrt(len(A))])
        problem.solve(solver=cp.SCS, eps=1e-5)
        rows.append([time.perf_counter() - s, time.process_time() - c])
    out.append({"times": rows[1:], "value": float(problem.value), "solve": float(problem.solver_stats.solve_time)})
print(json.dumps(out))
"""


def adult(folder: str, n: int | None, seed: int = 5) -> tuple[sp.csr_array, np.ndarray]:
    """Return rows of Adult, all or some drawn at random, and their labels."""
    with np.load(Path(folder) / "adult_a1a_a9a.npz", allow_pickle=False) as arrays:
        parts = (arrays["a9a_data"], arrays["a9a_indices"], arrays["a9a_indptr"])
        X, y = sp.csr_array(parts, shape=tuple(arrays["a9a_shape"]), dtype=np.float64), np.asarray(arrays["a9a_y"])
    chosen = np.arange(len(y)) if n is None else np.sort(np.random.default_rng(seed).permutation(len(y))[:n])
    return X[chosen], y[chosen]


def random_pairs(y: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return triples (i, j, +1 or -1) of random pairs until those that must be together leave 0.7 N components."""
    n, rng = len(y), np.random.default_rng(seed)
    parent, left, found = np.arange(n), n, {}

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    while left > COMPONENTS * n:
        i, j = sorted(int(k) for k in rng.integers(n, size=2))
        if i == j or (i, j) in found:
            continue
        found[i, j] = 1 if y[i] == y[j] else -1
        one, other = root(i), root(j)
        if y[i] == y[j] and one != other:
            parent[one] = other
            left -= 1
    return np.array([(i, j, sign) for (i, j), sign in found.items()])


def matrix(X: Any, triples: np.ndarray, C: float, neighbours: int = NEIGHBORS) -> SymmetricOperator:
    """Return ``C T - L``."""
    n = X.shape[0]
    L = normalized_laplacian(neighbour_graph(nearest_rows(X, neighbours).ids))
    i, j, sign = triples.T
    T = sp.csr_array((np.tile(sign.astype(np.float64), 2), (np.concatenate([i, j]), np.concatenate([j, i]))), shape=(n, n))
    return SymmetricOperator(sp.csr_array(C * T - L))


def fitted(X: Any, triples: np.ndarray, **params: Any) -> SimpleNPKL:
    """Return a fit, without its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return SimpleNPKL(B=float(X.shape[0]), n_neighbors=NEIGHBORS, graph="mutual", **params).fit(X, triples)


def by_eigh(X: Any, triples: np.ndarray, C: float) -> np.ndarray:
    """Return the coordinates of the same kernel by the libraries alone: exact neighbours, a dense matrix, all its eigenvectors."""
    near = NearestNeighbors(n_neighbors=NEIGHBORS, algorithm="brute").fit(X).kneighbors_graph(mode="connectivity")
    L = normalized_laplacian(sp.csr_array(near.multiply(near.T)))
    i, j, sign = triples.T
    A = -L.toarray()
    A[i, j] += C * sign
    A[j, i] += C * sign
    values, vectors = np.linalg.eigh(A)
    kept = values > 0
    scale = np.sqrt(len(A) / float(values[kept] @ values[kept]))
    return vectors[:, kept] * np.sqrt(scale * values[kept])


def run_linear(report: bench.Report, options: Any) -> None:
    """Add the positive part of 6,414 rows against a full eigendecomposition."""
    X, y = adult(options.data, 900 if options.tiny else options.rows)
    A = matrix(X, random_pairs(y), 1.0)
    ours = bench.alternate({"ours": lambda: positive_part(A, threads=1)}, options.reps)["ours"]
    dense = A.dense()
    values = bench.alternate({"eigh": lambda: np.linalg.eigh(dense)[0]}, 1, warm=0)["eigh"]
    report.time(f"positive part, N={A.n}, C=1, one thread", ours)
    report.time("numpy.linalg.eigh", values)
    report.ratio(f"ours : eigh, N={A.n}", ours, values, 1 / 5)
    exact = values.result[values.result > 0]
    square = float(exact @ exact)
    part = ours.result
    report.value("relative error of ||A_+||_F^2", abs(float(part.values @ part.values) - square) / square, "<= 1e-8")
    triples = random_pairs(y)
    whole = bench.alternate({"ours": lambda: fitted(X, triples, C=1.0), "eigh": lambda: by_eigh(X, triples, 1.0)}, 1, warm=0)
    report.time(f"whole fit, N={A.n}, C=1", whole["ours"])
    report.time("the same by neighbours of scikit-learn and eigh", whole["eigh"])
    report.ratio(f"whole fit : the same by eigh, N={A.n}", whole["ours"], whole["eigh"], 1 / 5)
    report.note(f"{len(exact)} positive eigenvalues, {len(part.values)} found by {part.method}; error as estimated {part.error:.1e}")


def run_hinge(report: bench.Report, options: Any) -> None:
    """Add the squared hinge on 6,414 rows."""
    X, y = adult(options.data, 900 if options.tiny else options.rows)
    triples = random_pairs(y)
    clock, machine = bench.clocked(lambda: fitted(X, triples, loss="squared_hinge", C=1.0))
    report.value(f"squared hinge, N={len(y)}, C=1, B=N, with graph", clock["seconds"], "<= 240", unit=" s")
    report.value("processor time", clock["cpu"], unit=" s")
    report.value("relative duality gap", machine.dual_gap_ / abs(machine.objective_), "<= 1e-4")
    report.note(f"squared hinge: {machine.n_iter_} decompositions, final rank {len(machine.eigenvalues_)}")


def run_all(report: bench.Report, options: Any) -> None:
    """Add all rows, from features to the kernel."""
    X, y = adult(options.data, 1500 if options.tiny else None)
    triples = random_pairs(y)
    for C in (float(text) for text in options.cost.split(",")):
        clock, machine = bench.clocked(lambda C=C: fitted(X, triples, C=C))
        name = f"linear, N={len(y)}, C={C:g}, with graph, {usable_cores()} cores"
        report.value(name, clock["seconds"], "<= 240" if C <= 0.5 else "<= 720", unit=" s")
        report.value(f"processor time, C={C:g}", clock["cpu"], unit=" s")
        report.value(f"peak memory so far, C={C:g}", bench.peak_memory() / 2**30, "<= 8", unit=" GiB")
        report.note(f"C={C:g}: rank {len(machine.eigenvalues_)}")
        del machine


def small_problem(n: int) -> SymmetricOperator:
    """Two normal classes, N pairs, 5 neighbours, C = 0.5."""
    rng = np.random.default_rng(n)
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    X = rng.normal(size=(n, 2)) + y[:, None]
    i, j = np.triu_indices(n, 1)
    chosen = rng.choice(len(i), n, replace=False)
    i, j = i[chosen], j[chosen]
    return matrix(X, np.stack([i, j, np.where(y[i] == y[j], 1, -1)], axis=1), 0.5, 5)


def run_small(report: bench.Report, options: Any) -> None:
    """Add 60 and 100 rows against cvxpy with SCS."""
    problems = {n: small_problem(n) for n in ((20,) if options.tiny else (60, 100))}

    def ours(n: int) -> float:
        return kernel_spectrum(positive_part(problems[n]).values, 2, B=float(n))[1]

    timings = {n: bench.alternate({"ours": lambda n=n: ours(n)}, max(5, options.reps))["ours"] for n in problems}
    found = peer([problem.dense() for problem in problems.values()], options.reps)
    for n, row in zip(problems, found or [None] * len(problems), strict=True):
        report.time(f"closed form, N={n}", timings[n])
        if row is None:
            report.note(f"cvxpy with SCS, N={n}, was not run: PEERS_SDP names no python with cvxpy")
            continue
        report.ratio(f"ours : cvxpy with SCS, N={n}", timings[n], bench.Timing(*map(list, zip(*row["times"], strict=True))), 1 / 200)
        report.value(f"relative difference of optima, N={n}", abs(row["value"] / timings[n].result - 1), "<= 1e-4")
        report.note(f"N={n}: SCS itself {row['solve']:.2f} s of it")


def peer(matrices: list[np.ndarray], reps: int) -> list[dict[str, Any]] | None:
    """Solve the semidefinite programs in the environment named by PEERS_SDP."""
    python = os.environ.get("PEERS_SDP", "")
    if not python:
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problems.npz"
        np.savez(file, *matrices)
        done = subprocess.run([python, "-c", PEER, str(file), str(reps)], capture_output=True, text=True, timeout=1200, check=False)
    if done.returncode:
        raise SystemExit(f"the environment of PEERS_SDP failed: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = bench.arguments(__doc__ or "", parts="small,linear,hinge,all", rows=6414, cost="0.5,1")
    options = parser.parse_args()
    options.data = os.environ.get("GRAMPLANE_DATA", "")
    options.reps = 1 if options.tiny else options.reps
    report = bench.Report("Non-parametric kernels on Adult", options)
    runs = {"small": run_small, "linear": run_linear, "hinge": run_hinge, "all": run_all}
    for name in options.parts.split(","):
        if name != "small" and not options.data:
            report.note(f"part {name} was not run: GRAMPLANE_DATA names no folder with adult_a1a_a9a.npz")
            continue
        runs[name](report, options)
    report.show()


if __name__ == "__main__":
    main()
