"""Additive kernels on real sets: FGM under the Gaussian and the histogram map beside linear FGM, and beside the columns written out.

Run with ``GRAMPLANE_DATA=FOLDER python -m benchmarks.fgm.fgm_additive [--only NAMES]``. The paper's Figures 16 and 17 compare accuracies on
aut-avn and rcv1, and Table 3 the size of the columns written out: 11 a feature of the Gaussian map, 100 of histogram intersection. Neither
set could be had whole: a sample of rcv1, pcmac, basehock and dexter stand here, and digits 3 and 8 of mnist. Five splits, two thirds for
training; C from three values on a fifth of the training rows, at up to 100 features. The columns written out are learnt by the batch group
lasso (an active set, as the paper's ACTIVE) where they take less than 2 GiB.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import normalize

from benchmarks._peers import paired
from benchmarks.fgm.fgm_degree2_real import SETS, Task, chosen
from gramplane import FGMClassifier, GroupLassoClassifier
from gramplane.kernels.features.expansions import Expansion, expand

COSTS = (1.0, 10.0, 100.0)
SHARES = (0.5, 0.2, 0.1)
"""Shares of the least penalty that selects nothing, of the group lasso."""

MOST_BYTES = 2 << 30
BINS = 100


def scaled(task: Task) -> Task:
    """Return the rows with columns divided by their largest value: ranges of both maps."""
    X = sp.csc_array(task.X)
    top = np.maximum(abs(X).max(axis=0).toarray().ravel(), 1e-12)
    return Task(sp.csr_array(X @ sp.diags_array(1.0 / top)), task.y, 1.0)


def dexter(arrays: Any) -> Task:
    parts = (arrays[f"X_{part}"] for part in ("data", "indices", "indptr"))
    X = sp.csr_array(tuple(parts), shape=tuple(arrays["X_shape"])).astype(float)
    return Task(normalize(X), np.where(arrays["y"] > 0, 1, -1), 1.0)


READERS: dict[str, tuple[str, Callable[[Any], Task]]] = {
    **{name: SETS[name] for name in ("mnist38", "pcmac", "basehock", "rcv1_small")},
    "dexter": ("dexter_train", dexter),
}


def fgm(feature_map: str | None) -> Callable[[float], FGMClassifier]:
    """Return machines of ten rounds with 10 features each, by C."""
    return lambda C: FGMClassifier(B=10, C=C, max_rounds=10, feature_map=feature_map, fit_intercept=True, n_bins=BINS, scale=None)


def written_out(X: Any, name: str, low: np.ndarray, high: np.ndarray) -> Any:
    """Return the columns of a map."""
    return expand(sp.csc_array(X), Expansion(name, 1.0, BINS), low, high)  # pyright: ignore[reportArgumentType]


def bytes_written_out(X: Any, name: str) -> float:
    """Return the bytes of the columns of a map: dense float64, or sparse with an index of 4 bytes an entry."""
    if name == "additive_gaussian":
        return 8.0 * 11 * X.shape[0] * X.shape[1]
    top = np.maximum(X.max(axis=0).toarray().ravel(), 1e-12)
    entries = X.tocoo()
    return 12.0 * float(np.floor(entries.data / top[entries.coords[1]] * BINS + 1e-9).sum())


def group_lasso(X: Any, y: np.ndarray, Z: Any, t: np.ndarray, width: int) -> float:
    """Return the accuracy of the batch group lasso on columns written out; its penalty from shares of the largest useful one."""
    groups = np.arange(X.shape[1]) // width

    def make(share: float) -> GroupLassoClassifier:
        machine = GroupLassoClassifier(algorithm="fista", groups=groups, loss="logistic", lam=1e9, tol=1e-2, scale=None).fit(X, y)
        return GroupLassoClassifier(
            algorithm="fista",
            groups=groups,
            loss="logistic",
            lam=share * machine.model_.figures["lambda_max"],
            tol=1e-2,
            max_iter=300,
            scale=None,
        )

    part, rest = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=0).split(y, y))
    models = {share: make(share) for share in SHARES}
    scores = {share: model.fit(X[part], y[part]).score(X[rest], y[rest]) for share, model in models.items()}
    return models[max(scores, key=lambda share: scores[share])].fit(X, y).score(Z, t)


def compared(task: Task, seed: int, *, peer: bool) -> dict[str, float]:
    """Return test accuracies and seconds of one split."""
    train, test = next(StratifiedShuffleSplit(1, test_size=1 / 3, random_state=seed).split(task.y, task.y))
    X, y, Z, t = task.X[train], task.y[train], task.X[test], task.y[test]
    found: dict[str, float] = {}
    for name in (None, "additive_gaussian", "hik"):
        clock, label = bench.stopwatch(), f"FGM, {name or 'linear'}"
        model = chosen(fgm(name), COSTS, X, y, seed)
        found |= {label: model.score(Z, t), f"{label}: features": float(len(model.selected_)), f"{label}: seconds": clock()}
    low, high = np.zeros(X.shape[1]), np.asarray(X.max(axis=0).toarray()).ravel()
    for name, width in (("additive_gaussian", 11), ("hik", BINS)):
        if peer and bytes_written_out(X, name) < MOST_BYTES:
            clock, label = bench.stopwatch(), f"group lasso on the columns of {name}"
            wide, other = (written_out(part, name, low, high) for part in (X, Z))
            rows = (sp.csr_array(wide), sp.csr_array(other)) if sp.issparse(wide) else (wide, other)
            found |= {label: group_lasso(rows[0], y, rows[1], t, width), f"{label}: seconds": clock()}
    return found


def main() -> None:
    options = bench.arguments(__doc__, only=",".join(READERS), splits=5, peer=1, folder="").parse_args()
    keep = bench.Parts(options.folder)
    folder = bench.data_folder()
    for name in options.only.split(","):
        file, read = READERS[name]
        with np.load(folder / f"{file}.npz") as arrays:
            task = scaled(read(arrays))
        if options.tiny:
            rows = np.random.default_rng(0).permutation(len(task.y))[:200]
            task, options.splits = scaled(Task(task.X[rows][:, 200:260], task.y[rows], 1.0)), 2
        few = np.random.default_rng(1).permutation(len(task.y))[:100]
        compared(scaled(Task(task.X[few][:, :40], task.y[few], 1.0)), 0, peer=False)  # compiles
        rows = [
            keep(f"{name}-{seed}{'-tiny' * options.tiny}", lambda seed=seed, task=task: compared(task, seed, peer=bool(options.peer)))
            for seed in range(options.splits)
        ]
        report = bench.Report(f"additive kernels on {name}, {task.X.shape[0]} x {task.X.shape[1]}", options)
        for key in rows[0]:
            values = [row[key] for row in rows]
            report.value(key, float(np.mean(values)), unit=" s" if key.endswith("seconds") else "")
            if ":" not in key:
                report.value(f"{key}: deviation over {len(rows)} splits", float(np.std(values, ddof=1)))
        report.value("size as stored", 12.0 * task.X.nnz / 2**20, unit=" MiB")
        for kind in ("additive_gaussian", "hik"):
            report.value(f"size written out, {kind}", bytes_written_out(task.X, kind) / 2**20, unit=" MiB")
            gain, error = paired([row[f"FGM, {kind}"] for row in rows], [row["FGM, linear"] for row in rows])
            report.note(f"{kind} minus linear: {gain:+.4f} (standard error {error:.4f})")
        report.show()


if __name__ == "__main__":
    main()
