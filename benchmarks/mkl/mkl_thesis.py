"""The UCI rows of Yang's thesis (2010, Table 6.5): accuracy of learnt kernel weights, and time against a strong loop around SVC.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.mkl.mkl_thesis --sets heart,sonar

20 random halves; features standardised by the training half (constant columns dropped); Gaussian kernels of ten widths and polynomials of
degree 1 to 3 on all features and on each single one; trace n on the training half, which is the thesis' unit trace with its C divided by n.
C of every method comes from 5-fold cross-validation on the first eight training halves (the thesis: on one run, its grid not printed; one
half of 100 rows is too few to tell): 0.1 ... 100, by `tune`, whose fits share their Gram matrices. The thesis' settings: elastic net with
v = 0.5, L1 (v = 1), L2 (v = 0), equal weights; here all end at a relative gap of 1e-3.

The time of a split is that of the four methods together: kernels of the training rows, weights and machine, decision values of the test
rows. The peer gets its kernels from the same function, in single precision like ours, and the same programs for the weights; its loop is
that of `mkl_elastic.py`. The estimator's checks of parameters and data are in our time. The loop takes some ten times as long, so it runs
on the first ``--peer-splits`` splits only, and times are compared on these.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import json
import os
import statistics
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import ShuffleSplit
from sklearn.preprocessing import StandardScaler

from benchmarks._mkl_peer import Machine, strong_loop
from gramplane import MKLClassifier, tune
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec, kernel_grid
from gramplane.storage.ingest import ingest

TOL = 1e-3
COSTS = (0.1, 1.0, 10.0, 100.0)
CHOOSING = 8
"""Training halves on which C is chosen."""

METHODS: dict[str, tuple[float, str]] = {"v=0.5": (0.5, "auto"), "L1": (1.0, "auto"), "L2": (0.0, "auto"), "uniform": (0.5, "uniform")}
"""Name: v, solver."""

PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "heart": {"v=0.5": (83.9, 1.9), "L1": (83.4, 2.6), "L2": (82.8, 2.5), "uniform": (83.9, 1.9)},
    "ionosphere": {"v=0.5": (91.8, 1.7), "L1": (91.5, 2.1), "L2": (92.0, 1.8), "uniform": (89.9, 1.8)},
    "liver": {"v=0.5": (67.6, 1.8), "L1": (64.3, 2.8), "L2": (69.7, 2.2), "uniform": (67.2, 4.6)},
    "pima": {"v=0.5": (76.9, 1.6), "L1": (76.5, 1.9), "L2": (76.0, 1.8), "uniform": (76.2, 1.7)},
    "sonar": {"v=0.5": (80.4, 4.1), "L1": (80.4, 4.2), "L2": (83.8, 3.7), "uniform": (81.5, 4.3)},
    "wdbc": {"v=0.5": (96.0, 1.1), "L1": (95.3, 1.4), "L2": (95.9, 0.7), "uniform": (93.9, 1.0)},
}
"""Accuracy in per cent, mean and standard deviation, of Table 6.5."""


@dataclass(frozen=True)
class Half:
    """Training and test rows of a split, labels -1 and +1."""

    X: np.ndarray
    y: np.ndarray
    Z: np.ndarray
    t: np.ndarray


@dataclass(frozen=True)
class Found:
    """What a side made of a split with one method."""

    seconds: float
    cpu: float
    accuracy: float
    kernels: int
    upper: float


def load(name: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features without constant columns, and labels -1 and +1."""
    if name in ("wdbc", "stand-in"):
        X, y = load_breast_cancer(return_X_y=True)
        X, y = (X[:80, :3], y[:80]) if name == "stand-in" else (X, y)
    else:
        with np.load(Path(folder) / f"uci_{name}.npz") as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
    return X[:, np.ptp(X, axis=0) > 0], np.where(y == np.max(y), 1.0, -1.0)


def halves(X: np.ndarray, y: np.ndarray, splits: int) -> list[Half]:
    """Return random halves, standardised by their training rows."""
    found = []
    for train, test in ShuffleSplit(splits, train_size=len(y) // 2, random_state=0).split(X):
        scaler = StandardScaler().fit(X[train])
        found.append(Half(scaler.transform(X[train]), y[train], scaler.transform(X[test]), y[test]))
    return found


def estimator(specs: list[KernelSpec], method: str, C: float) -> MKLClassifier:
    """Return our estimator of a method."""
    v, solver = METHODS[method]
    return MKLClassifier(specs, v=v, C=C, solver=solver, tol=TOL, scale=None)


def chosen_costs(specs: list[KernelSpec], halves: list[Half], costs: tuple[float, ...]) -> dict[str, float]:
    """Return the C of every method by 5-fold cross-validation on some training halves; of equal ones the smallest."""
    scores: dict[str, list[list[float]]] = {method: [] for method in METHODS}
    kernels = [str(spec) for spec in specs]
    for half in halves:
        with bench.scratch() as folder:
            ingest((half.X, half.y), folder / "half")
            for method, (v, solver) in METHODS.items():
                shared = {"scale": None, "kernels": kernels, "v": v, "solver": solver, "tol": TOL}
                tune("mkl", {"C": list(costs)}, params=shared, data=str(folder / "half"), run=str(folder / method))
                table = json.loads((folder / method / "tune.json").read_text())["rows"]
                scores[method].append([row["accuracy"] for row in sorted(table, key=lambda row: row["C"])])
    return {method: costs[int(np.argmax(np.mean(found, axis=0)))] for method, found in scores.items()}


def ours(specs: list[KernelSpec], half: Half, method: str, C: float) -> Found:
    """Fit and test our estimator."""
    clock, (model, right) = bench.clocked(lambda: _ours(estimator(specs, method, C), half))
    return Found(clock["seconds"], clock["cpu"], right, len(model.support_), model.upper_bound_)


def _ours(model: MKLClassifier, half: Half) -> tuple[MKLClassifier, float]:
    model.fit(half.X, half.y)
    return model, float(np.mean(model.predict(half.Z) == half.t))


def peer(specs: list[KernelSpec], half: Half, method: str, C: float) -> Found:
    """Make the kernels, run the strong loop, and test its machine."""
    clock, (machine, right) = bench.clocked(lambda: _peer(specs, half, method, C))
    return Found(clock["seconds"], clock["cpu"], right, int(np.sum(machine.theta > 1e-4 * machine.theta.max())), machine.upper)


def _peer(specs: list[KernelSpec], half: Half, method: str, C: float) -> tuple[Machine, float]:
    v, solver = METHODS[method]
    grams = gram_block(specs, half.X, dtype=np.float32)
    scales = len(half.y) / np.trace(grams, axis1=1, axis2=2, dtype=np.float64)
    grams *= scales.astype(np.float32)[:, None, None]
    machine = strong_loop(grams, half.y, C, v, TOL, uniform=solver == "uniform")
    used = np.flatnonzero(machine.theta > 0)
    blocks = gram_block([specs[q] for q in used], half.Z, half.X[machine.support], dtype=np.float32)
    blocks *= scales[used].astype(np.float32)[:, None, None]
    return machine, float(np.mean(np.where(machine.decide(blocks, used) > 0, 1.0, -1.0) == half.t))


def run_set(name: str, options: Any, report: bench.Report) -> None:
    """Run all splits of a data set and add its figures."""
    X, y = load(name, options.data)
    specs, parts = kernel_grid(X.shape[1]), halves(X, y, options.splits)
    costs = chosen_costs(specs, parts[: 1 if options.tiny else CHOOSING], COSTS)
    rows: dict[str, dict[str, list[Found]]] = {"ours": {m: [] for m in METHODS}, "peer": {m: [] for m in METHODS}}
    for place, half in enumerate(parts):
        # The side that goes first takes turns, so that outside load meets both alike.
        for side, call in (("ours", ours), ("peer", peer))[:: 1 if place % 2 else -1]:
            if side == "peer" and place >= options.peer_splits:
                continue
            for method in METHODS:
                rows[side][method].append(call(specs, half, method, costs[method]))
    add_figures(name, rows, report)
    report.note(
        f"{name}: {len(y)} rows, {X.shape[1]} features, {len(specs)} kernels; C " + ", ".join(f"{m}: {C:g}" for m, C in costs.items())
    )


def add_figures(name: str, rows: Mapping[str, Mapping[str, list[Found]]], report: bench.Report) -> None:
    """Add accuracies with their targets, and the time of all methods together."""
    for method, found in rows["ours"].items():
        accuracy = 100 * np.array([one.accuracy for one in found])
        published = PUBLISHED.get(name, {}).get(method)
        target = "" if published is None else f">= {published[0] - published[1]:.1f}"
        report.value(f"{name}, {method}: accuracy, per cent", round(float(accuracy.mean()), 2), target, form=".2f")
        other = 100 * np.mean([one.accuracy for one in rows["peer"][method]])
        told = "" if published is None else f"; Table 6.5 {published[0]} ± {published[1]}"
        kernels = np.mean([one.kernels for one in found])
        both = list(zip(found, rows["peer"][method], strict=False))
        same = 100 * np.mean([one.accuracy for one, _ in both])
        worst = max(abs(a.upper - b.upper) / max(1.0, b.upper) for a, b in both)
        share = statistics.median(a.cpu / b.cpu for a, b in both)
        report.note(
            f"{name}, {method}: {accuracy.mean():.2f} ± {accuracy.std(ddof=1):.2f}{told}; {kernels:.1f} kernels; strong loop {other:.2f} "
            f"where we have {same:.2f} ({len(both)} splits); "
            f"upper bounds differ by at most {worst:.1e}; processor time {share:.3f} of the strong loop's"
        )
    totals = {side: [_total(found, place) for place in range(len(found["L1"]))] for side, found in rows.items()}
    for side, found in totals.items():
        report.time(f"{name}: a split, {side}", bench.Timing([wall for wall, _ in found], [cpu for _, cpu in found]))
    wall, cpu = (statistics.median(a[k] / b[k] for a, b in zip(totals["ours"], totals["peer"], strict=False)) for k in (0, 1))
    report.value(f"{name}: ours : strong loop, median of paired splits", wall, "<= 0.3333", form=".3f")
    report.value(f"{name}: the same of processor times", cpu, form=".3f")


def _total(found: Mapping[str, list[Found]], place: int) -> tuple[float, float]:
    """Return wall and processor seconds of all methods on a split."""
    return sum(of[place].seconds for of in found.values()), sum(of[place].cpu for of in found.values())


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", splits=20, peer_splits=5, sets=",".join(PUBLISHED))
    parser.add_argument("--data", default=os.environ.get("GRAMPLANE_DATA"), help="folder of the data sets (default: $GRAMPLANE_DATA)")
    options = parser.parse_args()
    sets = ["stand-in"] if options.tiny else options.sets.split(",")
    unknown = [name for name in sets if name not in (*PUBLISHED, "stand-in")]
    if unknown:
        parser.error(f"--sets: {unknown[0]!r} is not one of {', '.join(PUBLISHED)}")
    if options.tiny:
        options.splits, options.peer_splits = 2, 1
    elif not options.data and sets != ["wdbc"]:
        parser.error("--data or $GRAMPLANE_DATA must name the folder of the data sets")
    report = bench.Report(f"UCI rows of the thesis: {', '.join(sets)}, {options.splits} splits", options)
    warnings.simplefilter("ignore", ConvergenceWarning)
    for name in sets:
        run_set(name, options, report)
    report.show()


if __name__ == "__main__":
    main()
