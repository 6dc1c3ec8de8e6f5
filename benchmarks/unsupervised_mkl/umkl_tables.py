"""Kernels learnt without labels on real sets, after Zhuang's thesis (2011, Tables 5.2 and 5.3): machines, and neighbours in two components.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.unsupervised_mkl.umkl_tables --sets heart,liver --folder FOLDER

Random halves; features standardised by the training half, constant columns dropped; Gaussian kernels of ten widths 2^-3 ... 2^6 and
polynomials of degree 1 to 3 on all features and on each single one, mean diagonal 1 (the thesis: unit trace, with which the model takes one
kernel). Table 5.2: accuracy of a support vector machine on a weighted sum of the kernels, C of 0.01 ... 100 by 5-fold cross-validation on
every training half; weights equal, by alignment (non-negative least squares of centred kernels to the labels), by simplex MKL (C as that
of equal weights), or without labels by UMKL with 10 bases. Table 5.3: 5 nearest neighbours in two kernel principal components: one Gaussian
of width 1, equal weights, UMKL. The thesis names no gamma1: 0, 0.01 (our default), 0.1 and 1 are all reported, and one is never chosen
by its result. C-UKL, GMKL and Lp-MKL of the tables have no program here; their figures stand in the notes.

Sets: heart, liver, sonar, australian are the thesis'; pima is its Diabetes, wdbc a stand-in for its Breast (another table of the same
clinic), titanic is the first 150 rows in a fixed random order of the whole table, waveform is drawn by its published formula (400 rows,
class 0 against the rest). German, Thyroid, Banana and FlareSolar are not at hand. Every split is kept in ``--folder`` and not run again.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, ShuffleSplit
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from gramplane import MKLClassifier, UnsupervisedMKL
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.spec import KernelSpec, kernel_grid

COSTS = (0.01, 0.1, 1.0, 10.0, 100.0)
GAMMAS = (0.0, 0.01, 0.1, 1.0)
NEIGHBORS, ONE_GAUSSIAN = 5, 0.5  # the second: gamma of width 1
FILES = {"titanic": "titanic"}
ROWS = {"titanic": 150}

MACHINES = {
    "wdbc": (95.5, 96.5, 96.2, 97.0, 96.5, 97.0),
    "pima": (65.4, 75.8, 72.6, 66.4, 75.2, 77.1),
    "titanic": (76.2, 77.1, 77.0, 76.7, 78.9, 79.2),
    "heart": (75.6, 83.0, 76.7, 77.0, 82.0, 84.7),
    "australian": (66.7, 85.0, 84.5, 80.0, 87.2, 86.3),
    "waveform": (73.5, 88.2, 88.9, 88.2, 88.5, 88.4),
    "sonar": (59.1, 78.3, 84.8, 78.8, 81.3, 81.0),
    "liver": (57.6, 62.3, 69.4, 63.6, 68.7, 68.3),
}
"""Table 5.2, per cent: equal weights, MKL, Lp-MKL, GMKL, alignment, UMKL."""

COMPONENTS = {
    "wdbc": (95.1, 92.7, 94.8, 95.2),
    "pima": (64.6, 65.1, 64.2, 66.3),
    "heart": (56.2, 61.5, 55.7, 72.4),
    "australian": (57.7, 55.9, 69.4, 72.9),
    "waveform": (59.4, 63.2, 63.9, 76.9),
    "sonar": (50.7, 56.7, 54.6, 57.0),
    "liver": (52.9, 52.0, 53.4, 53.2),
}
"""Table 5.3, per cent: one Gaussian, equal weights, C-UKL, UMKL."""


def load(name: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features without constant columns, and labels 0 and 1."""
    if name == "waveform":
        return waveform(400)
    if name == "wdbc":
        X, y = load_breast_cancer(return_X_y=True)
    else:
        with np.load(Path(folder) / f"{FILES.get(name, f'uci_{name}')}.npz") as arrays:
            X, y = arrays["X"].astype(np.float64), arrays["y"]
    some = np.random.default_rng(0).permutation(len(y))[: ROWS.get(name, len(y))]
    X, y = X[np.sort(some)], y[np.sort(some)]
    return X[:, np.ptp(X, axis=0) > 0], (y == np.max(y)).astype(int)


def waveform(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw mixtures of two of three triangular waves with noise (Breiman, Friedman, Olshen, Stone, 1984)."""
    rng, at = np.random.default_rng(0), np.arange(1, 22)
    waves = np.stack([np.maximum(6.0 - np.abs(at - centre), 0.0) for centre in (11, 7, 15)])
    classes, share = rng.integers(0, 3, n), rng.random(n)[:, None]
    left, right = waves[np.array([0, 0, 1])[classes]], waves[np.array([1, 2, 2])[classes]]
    return share * left + (1.0 - share) * right + rng.normal(size=(n, 21)), (classes == 0).astype(int)


def combined(specs: list[KernelSpec], weights: np.ndarray, X: np.ndarray, Z: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the weighted sum of the kernels between rows, scaled as on the training rows."""
    used = np.flatnonzero(weights)
    return np.tensordot(weights[used] * scale[used], gram_block([specs[q] for q in used], X, Z, dtype=np.float32), 1).astype(np.float64)


def alignment_weights(grams: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the weights w >= 0 with the best alignment of the centred sum to the labels (Cortes, Mohri, Rostamizadeh, 2012)."""
    centred = grams - grams.mean(axis=1, keepdims=True) - grams.mean(axis=2, keepdims=True) + grams.mean(axis=(1, 2), keepdims=True)
    rows = centred.reshape(len(grams), -1).astype(np.float64)
    M, a = rows @ rows.T, np.einsum("kij,i,j->k", centred, 2.0 * y - 1.0, 2.0 * y - 1.0)
    values, vectors = np.linalg.eigh(M)
    keep = values > 1e-10 * values[-1]
    root = vectors[:, keep] * np.sqrt(values[keep])
    found = nnls(root.T, (vectors[:, keep] / np.sqrt(values[keep])).T @ a, maxiter=100 * len(a))[0]
    return found / max(found.sum(), 1e-300)


def machine_accuracy(train: np.ndarray, y: np.ndarray, test: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Return the accuracy of a machine on a given kernel, per cent, and its C."""
    search = GridSearchCV(SVC(kernel="precomputed", max_iter=1_000_000), {"C": list(COSTS)}, cv=5).fit(train, y)
    return 100 * float(search.score(test, truth)), float(search.best_params_["C"])


def neighbor_accuracy(train: np.ndarray, y: np.ndarray, test: np.ndarray, truth: np.ndarray) -> float:
    """Return what nearest neighbours in two components of a given kernel get right, per cent."""
    from sklearn.decomposition import KernelPCA

    components = KernelPCA(2, kernel="precomputed").fit(train)
    found = KNeighborsClassifier(NEIGHBORS).fit(components.transform(train), y)
    return 100 * float(found.score(components.transform(test), truth))


def run_split(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray, max_bases: int) -> dict[str, Any]:
    """Return accuracies of all methods on one split."""
    scaler = StandardScaler().fit(X[train])
    Z, T, labels, truth = scaler.transform(X[train]), scaler.transform(X[test]), y[train], y[test]
    specs, n = kernel_grid(X.shape[1]), len(train)
    grams = gram_block(specs, Z, None, dtype=np.float32)
    scale = n / np.maximum(np.trace(grams, axis1=1, axis2=2), 1e-300)
    grams *= scale[:, None, None].astype(np.float32)
    found: dict[str, Any] = {"machines": {}, "components": {}, "kernels": {}, "seconds": {}}

    def take(name: str, weights: np.ndarray) -> float:
        kernels = [combined(specs, weights, rows, Z, scale) for rows in (Z, T)]
        found["machines"][name], cost = machine_accuracy(kernels[0], labels, kernels[1], truth)
        found["components"][name] = neighbor_accuracy(kernels[0], labels, kernels[1], truth)
        found["kernels"][name] = int(np.count_nonzero(weights))
        return cost

    cost = take("equal weights", np.full(len(specs), 1.0 / len(specs)))
    take("alignment", alignment_weights(grams, labels))
    mkl = MKLClassifier(specs, constraint="simplex", C=cost, tol=1e-2, scale=None).fit(Z, labels)
    take("MKL", np.asarray(mkl.kernel_weights_).ravel())
    for gamma1 in GAMMAS:
        began = time.perf_counter()
        weights = UnsupervisedMKL(specs, gamma1=gamma1, n_bases=max_bases).fit(Z).kernel_weights_
        found["seconds"][f"UMKL {gamma1:g}"] = time.perf_counter() - began
        take(f"UMKL {gamma1:g}", weights)
    distances = [((rows[:, None] - Z[None]) ** 2).sum(axis=2) for rows in (Z, T)]
    found["components"]["one Gaussian"] = neighbor_accuracy(
        np.exp(-ONE_GAUSSIAN * distances[0]), labels, np.exp(-ONE_GAUSSIAN * distances[1]), truth
    )
    return found


def run_set(name: str, options: Any) -> list[dict[str, Any]]:
    """Return the figures of all splits of a set; those of the folder are not run again."""
    X, y = load(name, options.data)
    rows, part = min(len(y), options.rows), bench.Parts(options.folder)
    splits = ShuffleSplit(options.splits, train_size=rows // 2, test_size=rows - rows // 2, random_state=0)
    parts = enumerate(splits.split(X))
    return [part(f"{name}-{rows}-{options.bases}-{number}", lambda own=own: run_split(X, y, *own, options.bases)) for number, own in parts]


def spread(values: list[float]) -> str:
    """Return mean and standard deviation."""
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values) if len(values) > 1 else 0.0:.1f}"


def table(report: bench.Report, kind: str, found: dict[str, list[dict[str, Any]]], published: dict[str, Any], title: str) -> None:
    """Report one table: a note per set, means over the sets as figures."""
    names = list(next(iter(found.values()))[0][kind])
    for name, splits in found.items():
        told = ", ".join(f"{method} {spread([split[kind][method] for split in splits])}" for method in names)
        report.note(f"{title}, {name}: {told}; thesis {published.get(name, 'none')}")
    for method in names:
        mean = statistics.mean(split[kind][method] for splits in found.values() for split in splits)
        report.value(f"{title}, mean over {len(found)} sets, {method}", mean, form=".2f", unit=" %")


def main() -> None:
    """Print the tables."""
    sets = "heart,liver,sonar,wdbc,pima,australian,titanic,waveform"
    parser = bench.arguments(__doc__ or "", sets=sets, splits=10, rows=800, bases=10, folder="")
    parser.set_defaults(reps=1)
    options = parser.parse_args()
    options.data = os.environ.get("GRAMPLANE_DATA", "")
    warnings.filterwarnings("ignore", category=ConvergenceWarning)
    if options.tiny or not options.data:
        options.sets = "wdbc,waveform" if not options.tiny else "waveform"
    if options.tiny:
        options.splits, options.rows = 2, 80
    report = bench.Report(f"unsupervised kernels on {len(options.sets.split(','))} sets, {options.splits} random halves", options)
    found = {name: run_set(name, options) for name in options.sets.split(",")}
    table(report, "machines", found, MACHINES, "machine")
    table(report, "components", found, COMPONENTS, "5 neighbours in 2 components")
    for gamma1 in GAMMAS:
        kernels = [split["kernels"][f"UMKL {gamma1:g}"] for splits in found.values() for split in splits]
        report.value(f"kernels with a weight, gamma1={gamma1:g}, mean", statistics.mean(kernels))
    report.value("a fit at most", max(max(split["seconds"].values()) for splits in found.values() for split in splits), unit=" s")
    report.note("thesis: Table 5.2 equal weights, MKL, Lp-MKL, GMKL, alignment, UMKL; Table 5.3 one Gaussian, equal weights, C-UKL, UMKL")
    if not options.data:
        report.note("GRAMPLANE_DATA names no folder: only the sets that need none were run")
    report.show()


if __name__ == "__main__":
    main()
