"""Real data: accuracy at equal feature counts of FGM, l1-SVM, l1-logistic regression, a chi2 screen and a one-pass screen, each refitted.

Run with ``GRAMPLANE_DATA=FOLDER python -m benchmarks.fgm.fgm_real [--only NAMES] [--folder FOLDER]``: splits that the folder has are not
run again. The same protocol for every method, on the same splits:

* a method selects k features on the training part: l1 by the smallest C that keeps k of them (the k heaviest if there are more), chi2 and
  FGM's first pass (T=1) by rank, FGM by 10 rounds of k / 10 new features;
* a ridge-penalised SVM is fitted on the selected columns;
* its C, and FGM's own, come from the same small grids by cross-validation inside the training part, selection included.

Word counts become ``(1 + log count) * idf`` with rows of unit norm, as the published text sets come; rcv1_small does already. Micro-array
columns are standardised (chi2 sees them moved to [0, 1]). Frequencies, means and deviations are those of the training part.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import functools
import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_selection import chi2
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit
from sklearn.preprocessing import normalize
from sklearn.svm import l1_min_c

from benchmarks._peers import l1_lr, l1_svm, quiet_fit, ridge_svm, support
from gramplane import FGMClassifier

COUNTS = (10, 20, 50, 100, 200, 300)
REFIT_COSTS = (0.1, 1.0, 10.0, 100.0)
FGM_COSTS = (1.0, 10.0, 100.0)
ROUNDS = 10
PAIRS = ((4, 5), (1, 20), (2, 6))
"""Classes of news20_multi that are hard to tell apart."""


@dataclass(frozen=True)
class Task:
    """A classification problem: ``targets`` holds one vector of -1 and 1 per machine, ``codes`` the class of every row."""

    name: str
    X: Any
    codes: np.ndarray
    machines: tuple[int, ...]
    counts: tuple[int, ...] = COUNTS
    folds: int = 3
    train: float | int = 2 / 3
    prepare: str = "unit rows"

    @property
    def data_set(self) -> str:
        """Return the name without the part that tells the classes."""
        return self.name.split(":")[0]

    def target(self, machine: int, rows: np.ndarray) -> np.ndarray:
        """Return -1 and 1 for a machine."""
        return np.where(self.codes[rows] == machine, 1, -1)


# -- data ------------------------------------------------------------------------------------------------------------------


def _csr(arrays: Any, prefix: str = "X") -> sp.csr_matrix:
    data, indices, indptr, shape = (arrays[f"{prefix}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    return sp.csr_matrix((data.astype(float), indices, indptr), shape=tuple(shape))


def _binary(name: str, X: Any, y: np.ndarray, **more: Any) -> Task:
    return Task(name, X, (y > 0).astype(int), (1,), **more)


def news20(folder: Path) -> Iterator[Task]:
    with np.load(folder / "news20_multi.npz") as arrays:
        X, y = _csr(arrays), arrays["y"].astype(int)
    for a, b in PAIRS:
        rows = np.flatnonzero((y == a) | (y == b))
        yield _binary(f"news20_multi: {a} against {b}", X[rows], np.where(y[rows] == a, 1, -1), prepare="counts")
    classes = tuple(np.unique(y).tolist())
    yield Task("news20_multi: one against rest", X, y, classes, counts=(10, 50, 200), folds=1, train=4000, prepare="counts")


def rcv1(folder: Path) -> Iterator[Task]:
    with np.load(folder / "rcv1_small.npz") as arrays:
        X = sp.vstack([_csr(arrays, "train"), _csr(arrays, "test")], format="csr")
        y = np.concatenate((arrays["train_y"], arrays["test_y"]))
    yield _binary("rcv1_small", X, y)


def text(name: str, folder: Path) -> Iterator[Task]:
    with np.load(folder / f"{name}.npz") as arrays:
        yield _binary(name, _csr(arrays), arrays["y"], prepare="counts")


def leukemia(folder: Path) -> Iterator[Task]:
    with np.load(folder / "leukemia_allaml.npz") as arrays:
        yield _binary("leukemia_allaml", arrays["X"].astype(float), arrays["y"], prepare="standardise")


def stand_in(_: Path) -> Iterator[Task]:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero((y == 3) | (y == 8))
    yield _binary("stand-in: digits 3 against 8", sp.csr_matrix(X[rows] / 16), np.where(y[rows] == 8, 1, -1), counts=(5, 10))


SETS: dict[str, Callable[[Path], Iterator[Task]]] = {
    "news20_multi": news20,
    "rcv1_small": rcv1,
    "dexter_train": functools.partial(text, "dexter_train"),
    "pcmac": functools.partial(text, "pcmac"),
    "basehock": functools.partial(text, "basehock"),
    "leukemia_allaml": leukemia,
}


# -- methods: features of one binary problem for every count ---------------------------------------------------------------

Chosen = dict[int, np.ndarray]


def by_l1(make: Callable[..., Any], loss: str, X: Any, y: np.ndarray, counts: tuple[int, ...], _: float) -> Chosen:
    """Follow C upwards until there are enough features; for each count take the first model that has them."""
    cost, chosen, open_counts = l1_min_c(X, y, loss=loss), Chosen(), list(counts)
    longest = np.zeros(0, np.int64)
    for _ in range(60):
        cost *= 1.2
        model = quiet_fit(make(cost, fit_intercept=True), X, y)
        weights, features = np.abs(model.coef_.ravel()), support(model)
        longest = max(longest, features[np.argsort(-weights[features], kind="stable")], key=len)
        while open_counts and len(features) >= open_counts[0]:
            chosen[open_counts[0]] = features[np.argsort(-weights[features], kind="stable")[: open_counts[0]]]
            open_counts.pop(0)
        if not open_counts:
            return chosen
    # An l1 model has hardly more features than rows: the longest stands for what it cannot give.
    return chosen | dict.fromkeys(open_counts, longest)


def by_chi2(X: Any, y: np.ndarray, counts: tuple[int, ...], _: float) -> Chosen:
    """Rank by chi2 on values moved to be non-negative."""
    moved = X if sp.issparse(X) else (X - X.min(axis=0)) / np.maximum(np.ptp(X, axis=0), 1e-12)
    score = np.nan_to_num(chi2(moved, y)[0], nan=-1.0)
    order = np.argsort(-score, kind="stable")
    return {count: order[:count] for count in counts}


def by_fgm(rounds: int, X: Any, y: np.ndarray, counts: tuple[int, ...], cost: float) -> Chosen:
    """Take every count in ``rounds`` rounds of new features; one round is the screen by the first pass."""
    return {count: _fgm(X, y, count, rounds, cost) for count in counts}


def _fgm(X: Any, y: np.ndarray, count: int, rounds: int, cost: float) -> np.ndarray:
    B = -(-count // rounds)
    model = FGMClassifier(B=B, C=cost, max_rounds=rounds, n_features_to_select=count, allow_repeat=False, fit_intercept=True, scale=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y).selected_


METHODS: dict[str, tuple[Callable[..., Chosen], tuple[float, ...]]] = {
    "FGM": (functools.partial(by_fgm, ROUNDS), FGM_COSTS),
    "FGM T=1": (functools.partial(by_fgm, 1), (1.0,)),
    "l1-SVM": (functools.partial(by_l1, l1_svm, "squared_hinge"), (1.0,)),
    "l1-LR": (functools.partial(by_l1, l1_lr, "log"), (1.0,)),
    "chi2": (by_chi2, (1.0,)),
}
"""Selection of each method, and the costs it chooses from."""


# -- protocol --------------------------------------------------------------------------------------------------------------

Key = tuple[str, int]
"""Method and count."""


def parts(task: Task, train: np.ndarray, test: np.ndarray) -> tuple[Any, Any]:
    """Return training and test rows as the methods see them; what preparation needs to know comes from the training rows."""
    X, Z = task.X[train], task.X[test]
    if task.prepare == "standardise":
        mean, deviation = X.mean(axis=0), X.std(axis=0)
        factor = np.divide(1.0, deviation, out=np.zeros_like(deviation), where=deviation > 0)
        return (X - mean) * factor, (Z - mean) * factor
    if task.prepare == "counts":
        weight = 1.0 + np.log((1 + len(train)) / (1 + np.bincount(X.indices, minlength=X.shape[1])))
        X, Z = (_log_counts(part) @ sp.diags(weight) for part in (X, Z))
    return normalize(sp.csr_matrix(X)), normalize(sp.csr_matrix(Z))


def _log_counts(X: sp.csr_matrix) -> sp.csr_matrix:
    return sp.csr_matrix((1.0 + np.log(X.data), X.indices, X.indptr), shape=X.shape)


def refitted(task: Task, data: tuple[Any, Any], rows: tuple[np.ndarray, np.ndarray], chosen: list[np.ndarray], cost: float) -> float:
    """Return the accuracy on the second part of ridge machines fitted on the first, each on its features."""
    decisions = []
    for machine, features in zip(task.machines, chosen, strict=True):
        model = quiet_fit(ridge_svm(cost, fit_intercept=True), data[0][:, features], task.target(machine, rows[0]))
        decisions.append(model.decision_function(data[1][:, features]))
    if len(decisions) == 1:
        return float(np.mean((decisions[0] > 0) == (task.codes[rows[1]] == task.machines[0])))
    return float(np.mean(np.asarray(task.machines)[np.argmax(decisions, axis=0)] == task.codes[rows[1]]))


def selections(task: Task, select: Callable[..., Chosen], X: Any, rows: np.ndarray, cost: float) -> dict[int, list[np.ndarray]]:
    """Return the features of every machine, by count."""
    per_machine = [select(X, task.target(machine, rows), task.counts, cost) for machine in task.machines]
    return {count: [chosen[count] for chosen in per_machine] for count in task.counts}


def inner_splits(task: Task, train: np.ndarray, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the parts of the training rows for choosing costs."""
    if task.folds == 1:
        splitter: Any = StratifiedShuffleSplit(1, test_size=0.25, random_state=seed)
    else:
        splitter = StratifiedKFold(task.folds, shuffle=True, random_state=seed)
    return [(train[a], train[b]) for a, b in splitter.split(train, task.codes[train])]


def best_costs(task: Task, method: str, inner: list[tuple[np.ndarray, np.ndarray]]) -> dict[int, tuple[float, float]]:
    """Return, for every count, the selection and refit costs with the best mean accuracy on the inner parts; ties go to small ones."""
    select, costs = METHODS[method]
    scores = {count: dict.fromkeys(itertools.product(costs, REFIT_COSTS), 0.0) for count in task.counts}
    for rows in inner:
        data = parts(task, *rows)
        for cost in costs:
            for count, chosen in selections(task, select, data[0], rows[0], cost).items():
                for again in REFIT_COSTS:
                    scores[count][cost, again] += refitted(task, data, rows, chosen, again)
    return {count: max(found, key=found.__getitem__) for count, found in scores.items()}


def one_split(task: Task, train: np.ndarray, test: np.ndarray, seed: int) -> tuple[dict[Key, float], dict[Key, float]]:
    """Return accuracy and mean number of features of every method and count on one split."""
    data, inner = parts(task, train, test), inner_splits(task, train, seed)
    accuracy, features = {}, {}
    for method, (select, _) in METHODS.items():
        wanted = best_costs(task, method, inner)
        made = {cost: selections(task, select, data[0], train, cost) for cost in {cost for cost, _ in wanted.values()}}
        for count, (cost, again) in wanted.items():
            chosen = made[cost][count]
            accuracy[method, count] = refitted(task, data, (train, test), chosen, again)
            features[method, count] = float(np.mean([len(found) for found in chosen]))
    return accuracy, features


@dataclass
class Result:
    """Accuracies of a task: ``(n_splits,)`` per method and count, and the features really used."""

    task: Task
    accuracy: dict[Key, np.ndarray]
    features: dict[Key, float]

    def overall(self, method: str) -> np.ndarray:
        """Return the mean over counts, per split."""
        return np.mean([self.accuracy[method, count] for count in self.task.counts], axis=0)


def run_task(task: Task, splits: int, keep: bench.Parts) -> Result:
    """Run all splits of a task that were not run before."""
    splitter = StratifiedShuffleSplit(splits, train_size=task.train, random_state=0)

    def of_split(seed: int, train: np.ndarray, test: np.ndarray) -> list[tuple[str, int, float, float]]:
        accuracy, features = one_split(task, train, test, seed)
        return [(*key, accuracy[key], features[key]) for key in accuracy]

    rows = [
        keep(f"{task.name}, split {seed}", lambda seed=seed, train=train, test=test: of_split(seed, train, test))
        for seed, (train, test) in enumerate(splitter.split(task.codes, task.codes))
    ]
    found = [({(m, c): a for m, c, a, _ in row}, {(m, c): n for m, c, _, n in row}) for row in rows]
    accuracy = {key: np.array([row[key] for row, _ in found]) for key in found[0][0]}
    return Result(task, accuracy, {key: float(np.mean([row[key] for _, row in found])) for key in found[0][1]})


# -- report ----------------------------------------------------------------------------------------------------------------


def error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def against_rivals(ours: np.ndarray, rivals: dict[str, np.ndarray]) -> tuple[str, float, float]:
    """Return the best rival with mean and standard error of the paired difference."""
    best = max(rivals, key=lambda name: rivals[name].mean())
    return best, float((ours - rivals[best]).mean()), error(ours - rivals[best])


def print_task(result: Result) -> None:
    """Print the markdown table of a task."""
    task, rivals = result.task, list(METHODS)[1:]
    print(f"\n#### {task.name}: {task.X.shape[0]} x {task.X.shape[1]}, {len(result.accuracy['FGM', task.counts[0]])} splits\n")
    print("| features | " + " | ".join(METHODS) + " | FGM minus best other |\n|" + "---|" * (len(METHODS) + 2))
    for count in (*task.counts, None):
        column = {name: result.overall(name) if count is None else result.accuracy[name, count] for name in METHODS}
        short = {name for name in METHODS if count and result.features[name, count] < 0.98 * count}
        cells = [f"{values.mean():.4f} ± {error(values):.4f}" + ("*" if name in short else "") for name, values in column.items()]
        name, gain, deviation = against_rivals(column["FGM"], {name: column[name] for name in rivals})
        print(f"| {count or 'mean'} | " + " | ".join(cells) + f" | {gain:+.4f} ± {deviation:.4f} ({name}) |")
        if short:
            print(f"<!-- * fewer: {', '.join(f'{name} {result.features[name, count]:.0f}' for name in sorted(short))} -->")
    print(flush=True)


def verdicts(results: list[Result]) -> dict[str, tuple[str, float, float]]:
    """Return for every data set (the mean of its tasks) the best other method and the paired difference to it."""
    found = {}
    for name in dict.fromkeys(result.task.data_set for result in results):
        own = [result for result in results if result.task.data_set == name]
        means = {method: np.mean([result.overall(method) for result in own], axis=0) for method in METHODS}
        found[name] = against_rivals(means.pop("FGM"), means)
    return found


def main() -> None:
    parser = bench.arguments(__doc__, splits=5, folder="")
    parser.add_argument("--data", default=os.environ.get("GRAMPLANE_DATA"), help="folder of the data sets (default: $GRAMPLANE_DATA)")
    parser.add_argument("--only", default="", help="data sets, separated by commas")
    options = parser.parse_args()
    sets = {"stand-in": stand_in} if options.tiny else SETS
    if options.tiny:
        options.splits = 2
    elif not options.data:
        parser.error("--data or $GRAMPLANE_DATA must name the folder of the data sets")
    named = f": {options.only}" * bool(options.only)
    report = bench.Report(f"Accuracy at equal feature counts, {options.splits} splits{named}", options)
    results, keep = [], bench.Parts(options.folder)
    for name, tasks in sets.items():
        if not options.only or name in options.only.split(","):
            for task in tasks(Path(options.data or ".")):
                results.append(run_task(task, options.splits, keep))
                print_task(results[-1])
    good = 0
    for name, (rival, gain, deviation) in verdicts(results).items():
        holds = gain + deviation >= 0
        good += holds
        report.value(f"{name}: FGM minus {rival}", gain, form="+.4f")
        report.note(f"{name}: {gain:+.4f} ± {deviation:.4f} against {rival}: {'best or within one standard error' if holds else 'WORSE'}")
    report.value("data sets where FGM is best or within one standard error", good, "" if options.only else ">= 5")
    report.note("every figure: mean ± standard error over splits; * a method that has fewer features to give")
    report.figures["tasks"] = {f"{result.task.name}/{m}/{k}": v for result in results for (m, k), v in result.accuracy.items()}
    report.show()


if __name__ == "__main__":
    main()
