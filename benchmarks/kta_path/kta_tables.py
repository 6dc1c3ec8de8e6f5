"""Accuracy along the path of kernels on real sets: Tables 7.2 and 7.3 of Jawanpuria's thesis (2014), for the sets that could be had.

Run with ``GRAMPLANE_DATA=FOLDER python -m benchmarks.kta_path.kta_tables [--sets madelon]``. One Gaussian per feature with the median of
its distances as width, centred, trace one; p from 2 to 1. Table 7.2: five folds, the best accuracy along the path, chosen on the
test fold as the thesis does (and, honestly, the accuracy at the point that is best on a fifth of the training rows), beside equal weights.
Table 7.3: half of the rows for training, at most 200 features, chosen on a fifth of them; Gaussian and linear kernels, chi square on the
same split. C from 0.1 to 100 by the same fifth; ``--machines`` along a path. madelon has 2,600 rows here, of which 2,000 are drawn.
Splits that ``--folder`` has are not run again.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_selection import chi2
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import minmax_scale
from sklearn.svm import SVC

from benchmarks._peers import quiet_fit, ridge_svm
from gramplane import KTASelectionPath

PUBLISHED = {
    "madelon": ((65.70, 12), (59.85, 500), (64.50, 14), (62.04, 12), (61.69, 10)),
    "pcmac": ((93.62, 2947), (92.49, 3289), (89.76, 196), (88.88, 180), (88.24, 155)),
    "basehock": ((98.59, 4262), (97.99, 4862), (95.46, 184), (94.76, 189), (95.28, 160)),
}
"""Accuracy in per cent and features of Table 7.2 (path, equal weights) and 7.3 (Gaussian, linear, chi square)."""

COSTS = (0.1, 1.0, 10.0, 100.0)
MOST = 200


def load(name: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return dense rows and labels; word counts become logarithms."""
    with np.load(Path(folder) / f"{name}.npz") as arrays:
        y = np.where(arrays["y"] > 0, 1, -1)
        if "X" in arrays:
            rows = np.random.default_rng(0).permutation(len(y))[:2000]
            return arrays["X"][rows].astype(float), y[rows]
        parts = (arrays[f"X_{part}"] for part in ("data", "indices", "indptr"))
        X = sp.csr_array(tuple(parts), shape=tuple(arrays["X_shape"])).toarray()
    return np.log1p(X.astype(float)), y


@dataclass(frozen=True)
class Protocol:
    """Kernels, greatest number of features, and machines along a path."""

    kernel: str
    most: int | None
    machines: int

    def path_of(self, X: np.ndarray, y: np.ndarray) -> KTASelectionPath:
        """Return the path, which does not depend on C."""
        return KTASelectionPath(kernel=self.kernel, n_machines=1).fit(X, y)  # pyright: ignore[reportArgumentType]

    def along(self, path: KTASelectionPath, C: float, Z: np.ndarray, t: np.ndarray) -> Iterator[tuple[float, int, float]]:
        """Yield p, number of features and accuracy on other rows of machines along the path."""
        counts = np.asarray(path.n_active_)
        points = np.flatnonzero(counts > 0) if self.most is None else np.flatnonzero((counts > 0) & (counts <= self.most))
        if len(points):
            chosen = points[np.unique(np.linspace(0, len(points) - 1, self.machines).astype(int))]
            for machine, count in zip(path.svm_path(np.asarray(path.p_grid_)[chosen], C), counts[chosen], strict=True):
                yield float(machine.p_), int(count), float(np.mean(machine.predict(Z) == t))


def fitted(protocol: Protocol, train: Any, test: Any, seed: int) -> dict[str, tuple[float, int]]:
    """Return accuracy and features at the best point of the test rows (C fixed before), and at the point chosen on a fifth of training."""
    (X, y), (Z, t) = train, test
    part, rest = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(y, y))
    path = protocol.path_of(X[part], y[part])
    tried = {C: list(protocol.along(path, C, X[rest], y[rest])) for C in COSTS}
    C = max(COSTS, key=lambda cost: max(row[2] for row in tried[cost]))
    p = max(tried[C], key=lambda row: row[2])[0]
    rows = list(protocol.along(protocol.path_of(X, y), C, Z, t))
    best, honest = max(rows, key=lambda row: row[2]), min(rows, key=lambda row: abs(row[0] - p))
    return {"best on the test rows": (best[2], best[1]), "chosen on training rows": (honest[2], honest[1])}


def uniform(train: Any, test: Any, seed: int) -> float:
    """Return the accuracy of equal weights on all kernels, each centred and of trace one on the training rows."""
    (X, y), (Z, t) = train, test
    every, n = np.vstack([X, Z]).astype(np.float32), len(y)
    total = np.zeros((len(every), len(every)), np.float32)
    for column in every.T:
        gaps = (column[:, None] - column[None]) ** 2
        width = np.median(np.sqrt(gaps[:n, :n][np.triu_indices(n, 1)]))
        if width > 0:
            kernel = np.exp(-gaps / (2.0 * width**2))
            total += kernel / (n - kernel[:n, :n].mean() * n)
    part, rest = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(y, y))
    costs = [C * n for C in COSTS]  # traces of one
    scores = [
        SVC(kernel="precomputed", C=C).fit(total[np.ix_(part, part)], y[part]).score(total[np.ix_(rest, part)], y[rest]) for C in costs
    ]
    machine = SVC(kernel="precomputed", C=costs[int(np.argmax(scores))]).fit(total[:n, :n], y)
    return float(machine.score(total[n:, :n], t))


def chi_square(train: Any, test: Any, seed: int) -> tuple[float, int]:
    """Return the accuracy of a linear machine on the features of largest chi square, at the number best on a fifth of the rows."""
    (X, y), (Z, t) = train, test
    part, rest = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(y, y))
    order = np.argsort(-np.nan_to_num(chi2(minmax_scale(X), y)[0]))
    scores = {
        (count, C): quiet_fit(ridge_svm(C, True), X[part][:, order[:count]], y[part]).score(X[rest][:, order[:count]], y[rest])
        for count in range(20, MOST + 1, 20)
        for C in COSTS[:3]
    }
    count, C = max(scores, key=lambda key: scores[key])
    return float(quiet_fit(ridge_svm(C, True), X[:, order[:count]], y).score(Z[:, order[:count]], t)), count


def tell(report: bench.Report, name: str, found: list[tuple[float, int]], published: tuple[float, int] | None) -> None:
    right = 100 * np.array([row[0] for row in found])
    told = "" if published is None else f"; thesis {published[0]} ({published[1]})"
    report.value(name, float(right.mean()), form=".2f")
    spread = np.std(right, ddof=min(1, len(right) - 1))
    report.note(f"{name}: {right.mean():.2f} +- {spread:.2f} with {np.mean([row[1] for row in found]):.0f} features{told}")


def run_set(name: str, options: Any, report: bench.Report) -> None:
    X, y = load(name, options.data)
    if options.tiny:
        X, y = X[:120, :40], y[:120]
    path, equal, gaussian, linear, chi = PUBLISHED[name]
    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))[: options.splits]
    parts = [((X[train], y[train]), (X[test], y[test])) for train, test in folds]
    keep = bench.Parts(options.folder)

    def rows_of(what: str, kernel: str, most: int | None) -> list[Any]:
        named = f"{name}-{what}-{kernel}{'-tiny' * options.tiny}"
        protocol = Protocol(kernel, most, options.machines)
        return [keep(f"{named}-{seed}", lambda seed=seed, part=part: fitted(protocol, *part, seed)) for seed, part in enumerate(parts)]

    rows = rows_of("7.2", "rbf", None)
    for key in rows[0]:
        tell(report, f"{name}, 7.2: {key}", [row[key] for row in rows], path)
    if name in options.uniform.split(","):
        tell(report, f"{name}, 7.2: equal weights", [(uniform(*part, 0), X.shape[1]) for part in parts], equal)
    halves = list(StratifiedShuffleSplit(options.splits, train_size=0.5, random_state=0).split(X, y))
    parts = [((X[train], y[train]), (X[test], y[test])) for train, test in halves]
    for kernel, told in (("rbf", gaussian), ("linear", linear)):
        rows = rows_of("7.3", kernel, MOST)
        tell(report, f"{name}, 7.3: {kernel}", [row["chosen on training rows"] for row in rows], told)
    tell(report, f"{name}, 7.3: chi square", [chi_square(*part, seed) for seed, part in enumerate(parts)], chi)


def main() -> None:
    parser = bench.arguments(__doc__ or "", splits=5, machines=21, sets=",".join(PUBLISHED), uniform="madelon", folder="")
    parser.add_argument("--data", default=os.environ.get("GRAMPLANE_DATA"), help="folder of the data sets (default: $GRAMPLANE_DATA)")
    options = parser.parse_args()
    if options.data is None:
        parser.error("--data or $GRAMPLANE_DATA must name the folder of the data sets")
    if options.tiny:
        options.splits, options.sets = 2, "madelon"
    for name in options.sets.split(","):
        report = bench.Report(f"kernel selection path on {name}, {options.splits} splits", options)
        run_set(name, options, report)
        report.show()


if __name__ == "__main__":
    main()
