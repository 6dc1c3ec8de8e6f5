"""Multiple kernel learning in a subspace that tasks share (MK-MTSFL): School and Sarcos, 15 training rows a task, beside the thesis.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.shared_subspace_mkl.shared_subspace --parts school,rivals,sarcos

One linear and six Gaussian kernels on all features (Jawanpuria, PhD thesis, 2014, section 4.5), the squared loss, C by three folds of the
training rows. ``school``: 139 tasks; explained variance of the rest (mean over tasks, and over all rows together), steps and seconds of a
step to a gap of 1e-3. ``rivals``: 20 tasks of School to a gap of 1e-2, beside the thesis' mirror descent and alternation on the average
kernel. ``sarcos``: the seven tasks of its test part.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gramplane.kernels.jit import one_thread

KERNELS = ["linear", *(f"rbf(gamma={10.0**power:g})" for power in range(-2, 4))]
COSTS = {"school": (0.3, 1.0, 3.0), "sarcos": (1.0, 10.0, 100.0, 1000.0)}
ROWS, FOLDS = 15, 3
THESIS = {"school": ("14.0", 13.86), "sarcos": ("25.7", 25.66)}


def folder(options: Any) -> Path | None:
    """Return where the data lie, if anywhere."""
    found = options.folder or os.environ.get("GRAMPLANE_DATA")
    return Path(found) if found and Path(found).is_dir() else None


def school_data(options: Any, tasks: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y and tasks of School, or of random tasks in one direction where it is not there."""
    place = folder(options)
    if options.tiny or place is None:
        rng = np.random.default_rng(0)
        X, task = rng.normal(size=(160, 5)), np.repeat(np.arange(4), 40)
        return X, X @ rng.normal(size=5) * (1 + 0.5 * task) + rng.normal(size=160), task
    held = np.load(place / "school.npz")
    kept = np.isin(held["task"], np.unique(held["task"])[:tasks])
    return held["X"][kept].astype(float), held["y"][kept].astype(float), held["task"][kept]


def sarcos_data(options: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return X, y and tasks of Sarcos' test part: every joint is a task on the same rows, each scaled to unit variance."""
    place = folder(options)
    if options.tiny or place is None:
        return school_data(options)
    held = np.load(place / "sarcos_test.npz")
    X, Y = held["X"][:2000], held["Y"][:2000]
    return np.tile(X, (Y.shape[1], 1)), (Y / Y.std(axis=0)).T.ravel(), np.repeat(np.arange(Y.shape[1]), len(X))


def model_of(X: np.ndarray, y: np.ndarray, task: np.ndarray, cost: float, **options: Any) -> Any:
    """Return a fitted regression of all tasks."""
    from gramplane import SharedSubspaceMKLRegressor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return SharedSubspaceMKLRegressor(KERNELS, C=cost, loss="squared", **{"tol": 1e-2, "max_iter": 40, **options}, scale=None).fit(
            X, y, task
        )


class Split:
    """Training rows of every task, scaled by themselves, and folds of them."""

    def __init__(self, X: np.ndarray, y: np.ndarray, task: np.ndarray, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.train = np.zeros(len(y), bool)
        for t in np.unique(task):
            self.train[rng.permutation(np.flatnonzero(task == t))[:ROWS]] = True
        center, spread = X[self.train].mean(axis=0), np.maximum(X[self.train].std(axis=0), 1e-9)
        middle, scale = y[self.train].mean(), y[self.train].std()
        self.X, self.y, self.task = (X - center) / spread, (y - middle) / scale, task
        self.folds = np.full(len(y), -1)
        for t in np.unique(task):
            rows = np.flatnonzero(self.train & (task == t))
            self.folds[rows] = rng.permutation(np.arange(len(rows)) % FOLDS)

    def fit(self, rows: np.ndarray, cost: float, **options: Any) -> Any:
        """Return the model of some rows."""
        return model_of(self.X[rows], self.y[rows], self.task[rows], cost, **options)

    def best_cost(self, costs: tuple[float, ...]) -> float:
        """Return the C of least squared error over the folds."""
        errors = np.zeros(len(costs))
        for fold in range(FOLDS):
            inside, outside = self.train & (self.folds != fold), self.train & (self.folds == fold)
            for place, cost in enumerate(costs):
                found = self.fit(inside, cost, tol=3e-2, max_iter=12).predict(self.X[outside], self.task[outside])
                errors[place] += np.sum((self.y[outside] - found) ** 2)
        return costs[int(np.argmin(errors))]

    def explained(self, model: Any) -> tuple[float, float]:
        """Return ``100 (1 - MSE / variance)`` of the other rows: mean over tasks, and over all rows together."""
        rest = ~self.train
        error, y, task = self.y[rest] - model.predict(self.X[rest], self.task[rest]), self.y[rest], self.task[rest]
        own = [1 - np.mean(error[task == t] ** 2) / np.var(y[task == t]) for t in np.unique(task)]
        return 100 * float(np.mean(own)), 100 * float(1 - np.mean(error**2) / np.var(y))


def splits(report: bench.Report, options: Any, name: str, data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """Add the rows of one data set: explained variance, chosen C, steps, seconds of a step."""
    rows, steps, seconds, chosen = [], [], [], []
    for seed in range(2 if options.tiny else options.splits):
        split = Split(*data, seed)
        cost = split.best_cost(COSTS[name])
        clock, model = bench.clocked(lambda split=split, cost=cost: split.fit(split.train, cost, tol=1e-3, max_iter=60))
        steps.append(model.n_iter_)
        seconds.append(clock["cpu"] / model.n_iter_)
        chosen.append(cost)
        rows.append(split.explained(model))
    mean, pooled = np.array(rows).T
    title, told = name.title(), THESIS[name]
    report.value(f"{title}: mean explained variance (thesis {told[0]})", float(mean.mean()), f">= {told[1]}")
    report.value(f"{title}: its deviation over splits", float(mean.std(ddof=1)) if len(mean) > 1 else float("nan"))
    report.value(f"{title}: explained variance of all rows", float(pooled.mean()))
    report.value(f"{title}: C chosen, median", float(np.median(chosen)))
    report.value(f"{title}: steps to a gap of 1e-3, median", float(np.median(steps)), "<= 20" if name == "school" else "")
    report.value(f"{title}: processor seconds a step, median", float(np.median(seconds)), "<= 1.5" if name == "school" else "", unit=" s")


def school(report: bench.Report, options: Any) -> None:
    """Add the rows of School, and of alternation on the average kernel on its first splits."""
    data = school_data(options)
    splits(report, options, "school", data)
    found = []
    for seed in range(1 if options.tiny else options.rival_splits):
        split = Split(*data, seed)
        found.append(split.explained(split.fit(split.train, 1.0, solver="alternate", max_iter=30)))
    report.value("School: mean explained variance of MTSFL on the average kernel, C=1 (thesis 12.4)", float(np.mean(found, axis=0)[0]))


def rivals(report: bench.Report, options: Any) -> None:
    """Add the times of the three solvers on some tasks of School."""
    split = Split(*school_data(options, 20), 0)
    limits = {"auto": 60, "mirror": 60, "alternate": 60}
    times = bench.alternate(
        {name: lambda name=name: split.fit(split.train, 1.0, solver=name, max_iter=limits[name]) for name in limits},
        1 if options.tiny else min(options.reps, 2),
        warm=0,
    )
    for name in limits:
        model = times[name].result
        report.time(f"20 tasks of School, {name}", times[name])
        report.value(f"20 tasks of School, {name}: steps", model.n_iter_)
        report.value(f"20 tasks of School, {name}: relative gap", model.dual_gap_ / model.objective_, "<= 0.01" if name == "auto" else "")
    report.ratio("auto : mirror, 20 tasks of School", times["auto"], times["mirror"], 1.0)


def sarcos(report: bench.Report, options: Any) -> None:
    """Add the rows of Sarcos."""
    splits(report, options, "sarcos", sarcos_data(options))


PARTS = {"school": school, "rivals": rivals, "sarcos": sarcos}


def main() -> None:
    """Print the table."""
    parser = bench.arguments(__doc__ or "", parts="school,rivals,sarcos", folder=None, splits=10, rival_splits=1)
    options = parser.parse_args()
    report = bench.Report(f"multiple kernel learning in a shared subspace: {options.parts}", options)
    with one_thread():
        for name in options.parts.split(","):
            PARTS[name](report, options)
    report.show()


if __name__ == "__main__":
    main()
