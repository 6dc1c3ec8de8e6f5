"""Embeddings: labels of neighbours on the map beside tables 3.8 and 3.9 of Zhuang's thesis, and times beside a semidefinite program.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.embeddings.embeddings  # accuracy on all sets at hand, times of ours
    GRAMPLANE_DATA=FOLDER PEERS_SDP=/path/to/python python -m benchmarks.embeddings.embeddings --parts times --sets wine --n 60

Accuracy, the protocol of table 3.8: 100 rows drawn from the two largest classes, columns standardised (spiral: as they are), a map in two
dimensions of all of them, 60 : 20 : 20 to vote, to validate and to test; the number of voters (1, 3, ... 15), and of our methods the
setting out of the grids below, by the validation rows alone, as a user would; mean and deviation over ``--repeats`` draws. The thesis
gives neither its scaling nor its graph nor its grids. Spiral: two arms, angle 3 pi sqrt(u), noise .1. Breast is scikit-learn's, which may
not be its set.

Times: one map of ``--n`` of those rows at defaults, beside the same problem handed to cvxpy with SCS (eps 1e-4) in the environment whose
python PEERS_SDP names, by processor time: the peer's is that of its solver alone, without setting up. Of minimum volume embedding the peer
solves the first convex problem; the ratio counts that time once for every problem of our sequence, as a sequence by SCS would take. Of
structure preserving embedding it gets all triples (``--triples 0`` leaves it out).
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
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.neighbors import KNeighborsClassifier

from gramplane.cluster import open_executor
from gramplane.kernels.spectral.embeddings import Neighbourhood, structure_problem, violation_unit
from gramplane.pipeline.methods.embeddings.config import MVEConfig
from gramplane.pipeline.methods.embeddings.estimator import ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding
from gramplane.pipeline.methods.embeddings.loop import build_graph
from gramplane.pipeline.records.context import RunContext
from gramplane.storage import MemoryBlocks

PUBLISHED = {
    "wine": (90.5, 91.9, 90.9, 75.2, 87.1),
    "ionosphere": (79.8, 86.3, 84.2, 80.4, 83.6),
    "heart": (65.6, 62.4, 62.9, 54.9, 62.2),
    "sonar": (58.2, 59.2, 59.8, 57.4, 59.4),
    "glass": (70.7, 73.5, 74.5, 61.7, 69.4),
    "spiral": (98.7, 69.1, 98.8, 76.7, 82.9),
    "australian": (63.2, 61.3, 63.8, 60.1, 59.5),
    "breast": (91.9, 92.9, 92.4, 93.4, 94.4),
}
"""Accuracy in per cent: kernel PCA, MVE and MVE + NPKL, SPE and SPE + NPKL."""

GRAPHS = ("mutual", "union")
MULTIPLES = (10.0, 100.0)
"""Caps of minimum volume embedding, over that of the centred Gram matrix; that of structure preserving embedding only sizes the map."""
VOTERS = range(1, 16, 2)
LEAST = 10.0
"""How many times faster than the semidefinite program ours should be."""


def data_set(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """All rows and labels of a set."""
    if name == "spiral":
        rng = np.random.default_rng(seed)
        angle = 3 * np.pi * np.sqrt(np.linspace(0.02, 1, 50))
        arm = np.column_stack([angle * np.cos(angle), angle * np.sin(angle)])
        return np.concatenate([arm, -arm]) + 0.1 * rng.normal(size=(100, 2)), np.repeat([0, 1], 50)
    if name in ("wine", "breast"):
        found: Any = load_wine(return_X_y=True) if name == "wine" else load_breast_cancer(return_X_y=True)
        return found
    with np.load(Path(os.environ["GRAMPLANE_DATA"]) / f"uci_{name}.npz") as held:
        return held["X"].astype(float), held["y"]


def drawn(name: str, seed: int, n: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """``n`` rows of the two largest classes, standardised."""
    X, y = data_set(name, seed)
    classes, counts = np.unique(y, return_counts=True)
    rows = np.flatnonzero(np.isin(y, classes[np.argsort(-counts, kind="stable")[:2]]))
    rows = np.random.default_rng(seed).permutation(rows)[:n]
    X, y = X[rows], y[rows]
    if name == "spiral":
        return X, y
    spread = X.std(axis=0)
    return (X[:, spread > 0] - X[:, spread > 0].mean(axis=0)) / spread[spread > 0], y


def judged(points: np.ndarray, y: np.ndarray, seed: int) -> tuple[float, float]:
    """Accuracy on the rows to validate, with the best number of voters, and on those to test."""
    rows = np.random.default_rng(1000 + seed).permutation(len(y))
    vote, check, test = np.split(rows, [int(0.6 * len(y)), int(0.8 * len(y))])
    scored = []
    for k in VOTERS:
        machine = KNeighborsClassifier(k).fit(points[vote], y[vote])
        scored.append((machine.score(points[check], y[check]), -k, machine))
    best = max(scored, key=lambda item: item[:2])
    return best[0], float(best[2].score(points[test], y[test]))


def principal(X: np.ndarray) -> np.ndarray:
    """Two principal components."""
    left, values, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    return left[:, :2] * values[:2]


def graph_of(X: np.ndarray, graph: str) -> Neighbourhood:
    """The graph that a fit on some rows makes."""
    with open_executor(None) as executor:
        return build_graph(MVEConfig(graph=graph), RunContext(executor, MemoryBlocks(X)))  # pyright: ignore[reportArgumentType]


def maps(X: np.ndarray) -> dict[str, list[np.ndarray]]:
    """The maps of every method under its settings."""
    energy = {graph: graph_of(X, graph).energy for graph in GRAPHS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        volume = [
            MinimumVolumeEmbedding(graph=graph, B=times * energy[graph], tol=1e-3).fit_transform(X)
            for graph in GRAPHS
            for times in MULTIPLES
        ]
        structure = [StructurePreservingEmbedding(graph=graph).fit_transform(X) for graph in GRAPHS]
    # The second of them is at defaults but for its tolerance.
    return {"PCA": [principal(X)], "MVE": volume, "MVE at defaults": volume[1:2], "SPE": structure}


def accuracies(report: bench.Report, name: str, repeats: int) -> None:
    """Mean and deviation over draws, beside the printed figures."""
    found: dict[str, list[float]] = {}
    for seed in range(repeats):
        X, y = drawn(name, seed)
        for method, points in maps(X).items():
            best = max((judged(each, y, seed) for each in points), key=lambda item: item[0])
            found.setdefault(method, []).append(100 * best[1])
    printed = dict(zip(("PCA", "MVE", "SPE"), (PUBLISHED[name][0], PUBLISHED[name][2], PUBLISHED[name][4]), strict=True))
    for method, scores in found.items():
        beside = (
            f" +- {np.std(scores, ddof=1):.1f} (printed {printed[method]})" if method in printed else f" +- {np.std(scores, ddof=1):.1f}"
        )
        report.value(f"{name}, {method}", float(np.mean(scores)), unit=beside, form=".1f")


PEER = r"""
import json, sys, time
import cvxpy as cp
import numpy as np
z = np.load(sys.argv[1])
n, B, C, kind = int(z["n"]), float(z["B"]), float(z["C"]), str(z["kind"])
K, cons = cp.Variable((n, n), PSD=True), []
i, j = z["rows"], z["cols"]
if kind == "spe":
    xi = cp.Variable(nonneg=True)
    a, b, c = z["triples"].T
    d = cp.diag(K)
    far, near = d[a] + d[b] - 2 * K[a, b], d[a] + d[c] - 2 * K[a, c]
    cons.append(far >= near - xi)
    loss = C * xi
else:
    d = cp.diag(K)
    loss = C / 2 * cp.sum_squares(z["goal"] - d[i] - d[j] + 2 * K[i, j])
prob = cp.Problem(cp.Minimize(-cp.trace(z["M"] @ K) + loss), cons + [cp.norm(K, "fro") <= np.sqrt(B)])
data, chain, inverse = prob.get_problem_data(cp.SCS)
start = time.process_time()
found = chain.solve_via_data(prob, data, solver_opts={"eps_abs": 1e-4, "eps_rel": 1e-4, "max_iters": 20000})
seconds = time.process_time() - start
prob.unpack_results(found, chain, inverse)
print(json.dumps({"objective": float(prob.value), "status": prob.status, "cpu": seconds}))
"""


def peer(**given: Any) -> dict[str, Any] | None:
    """Solve a semidefinite program in the environment named by PEERS_SDP."""
    python = os.environ.get("PEERS_SDP", "")
    if not python:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.npz"
        np.savez(path, **given)
        done = subprocess.run([python, "-c", PEER, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the environment of PEERS_SDP failed: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def all_triples(near: Any) -> np.ndarray:
    """Every (i, j, k), k a neighbour of i and j not."""
    linked = near.adjacency.toarray() > 0
    found = [
        np.stack(
            np.broadcast_arrays(i, np.flatnonzero(~linked[i] & (np.arange(near.n) != i))[:, None], np.flatnonzero(linked[i])[None]), -1
        )
        for i in range(near.n)
    ]
    return np.concatenate([each.reshape(-1, 3) for each in found])


def times(report: bench.Report, name: str, n: int, reps: int, triples: bool) -> None:
    """Ours at defaults, beside the semidefinite program."""
    X, y = drawn(name, 0, n)
    fits = {
        "CMVU": lambda: ColoredMVU().fit(X, y),
        "MVE": lambda: MinimumVolumeEmbedding().fit(X),
        "SPE": lambda: StructurePreservingEmbedding().fit(X),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bench.alternate(fits, reps)
    near = graph_of(X, "mutual")
    B = 100 * near.energy
    edges = {"n": len(X), "B": B, "rows": near.rows, "cols": near.cols, "goal": near.goal}
    onehot = np.eye(2)[np.unique(y, return_inverse=True)[1]]
    onehot = onehot - onehot.mean(axis=0)
    structure = structure_problem(near, violation_unit(near), B)
    start = 2 * near.directions @ near.directions.T - np.eye(len(X))
    problems: dict[str, dict[str, Any]] = {
        "CMVU": {"kind": "cmvu", "C": 1.0, "M": onehot @ onehot.T},
        "MVE": {"kind": "mve", "C": 1.0, "M": start},
    }
    if triples:
        problems["SPE"] = {"kind": "spe", "C": structure.C, "M": structure.target.dense(), "triples": all_triples(near)}
    for method, timing in found.items():
        report.time(f"{name} {len(X)} rows, {method}", timing)
        fit = timing.result
        report.note(f"{name} {method}: objective {fit.objective_:.6g}, certified gap {fit.dual_gap_:.2g}, {fit.n_iter_} steps")
        other = peer(**edges, **problems[method]) if method in problems else None
        if other is None:
            continue
        problems_solved = fit.n_iter_ if method == "MVE" else 1
        ratio = problems_solved * other["cpu"] / timing.cpu_median
        report.value(f"{name} {len(X)} rows, {method}: times faster than SCS (cpu)", ratio, f">= {LEAST:g}", form=".1f")
        report.note(f"{name} {method}: SCS {other['cpu']:.2f} s cpu ({other['status']}), objective {other['objective']:.6g}")


def main() -> None:
    """Run what was asked for."""
    parser = bench.arguments(__doc__ or "", parts="accuracy,times", sets=",".join(PUBLISHED), repeats=10, n=100, triples=1)
    options = parser.parse_args()
    if options.tiny:
        options.sets, options.repeats, options.n, options.reps, options.triples = "spiral", 2, 30, 1, 0
    report = bench.Report(f"Embeddings beside tables 3.8 and 3.9: {options.parts}, {options.sets}", options)
    names = [name for name in options.sets.split(",") if name in ("wine", "breast", "spiral") or "GRAMPLANE_DATA" in os.environ]
    if "accuracy" in options.parts:
        for name in names:
            accuracies(report, name, options.repeats)
    if "times" in options.parts:
        for name in names:
            times(report, name, options.n, options.reps, bool(options.triples))
    report.show()


if __name__ == "__main__":
    main()
