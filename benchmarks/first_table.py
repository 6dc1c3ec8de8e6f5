"""A stranger's first table: every classifier and regressor at its defaults, and its CV form, on tables that nobody tuned them for.

    GRAMPLANE_DATA=FOLDER python -m benchmarks.first_table --keep FILE [--sets iris,wine] [--machines FGMClassifier,SVC] [--splits 5]

Sets: iris, wine, breast_cancer, digits (scikit-learn), uci_australian, uci_glass, uci_vote, w8a, leukemia_allaml, madelon, pcmac, usps; for
targets diabetes, sarcos_test (the first torque), bardet; for tasks school and landmine. Each raw, dense ones also standardised by the
training rows. Nominal columns are written out, a missing cell is a level of its own. Every split takes 30 % of the rows for the test,
classes stratified; the CV forms run on the first two splits, dense sets standardised only. Machines have their defaults, nothing else
(but ``loss="logistic"`` of MultiTaskSelector where the target is classes); peers read the task of a row as columns. Of w8a kernel methods
and rules, and of tasks all methods, read 10,000 rows; TriClassSVC takes part in sets of two classes.

Each machine runs in a process of its own for each set, forked from one that has imported everything; ``cpu`` are the processor seconds
of `fit` (the first of a process loads what was compiled), which a busy machine changes little, ``seconds`` those on the clock, ``MiB`` the
peak of the process. What ``--keep`` has is not run again; --minutes ends the program after the part in which they are over;
--report runs nothing, and reports what ``--keep`` has.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import json
import multiprocessing
import os
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from benchmarks._sets import csr

CLASSES = "iris,wine,breast_cancer,digits,uci_australian,uci_glass,uci_vote,w8a,leukemia_allaml,madelon,pcmac,usps"
TARGETS = "diabetes,sarcos_test,bardet"
TASKS = "school,landmine"
MOST_ROWS = 10_000
SHOWN = ("score", "balanced", "auc", "majority", "seconds", "cpu", "MiB", "features", "load")
LIMIT = 600  # processor seconds of one machine on one set: of the first split, and of the others together
SLOWEST = 20  # times as long it may take on the clock of a busy machine

LINEAR, KERNEL, TREE = "linear", "kernel", "rule or tree"
PEERS = {
    "LinearSVC": LINEAR,
    "LogisticRegression": LINEAR,
    "SVC": KERNEL,
    "RandomForest": TREE,
    "HistGradientBoosting": TREE,
    "Ridge": LINEAR,
    "SVR": KERNEL,
}
CLASSIFIERS = {
    "FGMClassifier": LINEAR,
    "GroupLassoClassifier": LINEAR,
    "MKLClassifier": KERNEL,
    "KTASelectionPath": KERNEL,
    "TwoLayerMKLClassifier": KERNEL,
    "HierarchicalKernelClassifier": KERNEL,
    "TriClassSVC": KERNEL,
    "RuleEnsembleClassifier": TREE,
}
REGRESSORS = {"FGMRegressor": LINEAR, "GroupLassoRegressor": LINEAR, "MKLRegressor": KERNEL, "HierarchicalKernelRegressor": KERNEL}
OF_TASKS = {
    "MultiTaskSelector": LINEAR,
    **{f"{name}{kind}": KERNEL for name in ("MultiTaskMKL", "SharedSubspaceMKL", "LatentTaskMKL") for kind in ("Classifier", "Regressor")},
}
KINDS = {**PEERS, **CLASSIFIERS, **REGRESSORS, **OF_TASKS}


@dataclass(frozen=True)
class Table:
    """Rows, what is to be told of them, and their tasks, if any."""

    X: Any
    y: np.ndarray
    task: np.ndarray | None = None
    regression: bool = False


# -- sets ------------------------------------------------------------------------------------------------------------------


def load(name: str) -> Table:
    known: dict[str, Callable[..., Any]] = {
        "iris": load_iris,
        "wine": load_wine,
        "breast_cancer": load_breast_cancer,
        "digits": load_digits,
    }
    if name in known:
        return Table(*known[name](return_X_y=True))
    if name == "diabetes":
        return Table(*load_diabetes(return_X_y=True, scaled=False), regression=True)
    arrays = bench.arrays(name)
    if name == "usps":
        return Table(np.vstack([arrays["X_train"], arrays["X_test"]]) / 1000.0, np.concatenate([arrays["y_train"], arrays["y_test"]]))
    if name == "sarcos_test":
        return Table(arrays["X"].astype(float), arrays["Y"][:, 0], regression=True)
    if name in ("school", "landmine"):
        rows = np.sort(np.random.default_rng(0).permutation(len(arrays["y"]))[:MOST_ROWS])
        X = arrays["X"][:, np.ptp(arrays["X"], axis=0) > 0].astype(float)
        return Table(X[rows], arrays["y"][rows], arrays["task"][rows].astype(int), name == "school")
    if "X_data" in arrays:
        return Table(csr(arrays), arrays["y"])
    X = arrays["X"].astype(float)
    return Table(written_out(X, arrays["nominal"]) if "nominal" in arrays else X, arrays["y"], regression=name == "bardet")


def written_out(X: np.ndarray, nominal: np.ndarray) -> np.ndarray:
    """Return the columns with nominal ones as indicators of their levels, a missing cell being one of them."""
    columns = []
    for column, is_nominal in zip(X.T, nominal, strict=True):
        levels = np.unique(np.nan_to_num(column, nan=-1.0))
        columns.append((np.nan_to_num(column, nan=-1.0)[:, None] == levels).astype(float) if is_nominal else column[:, None])
    return np.hstack(columns)


def parts(table: Table, count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    kind = ShuffleSplit if table.regression else StratifiedShuffleSplit
    rows = np.zeros(len(table.y))
    return list(kind(count, test_size=0.3, random_state=0).split(rows, None if table.regression else table.y))


def variants(table: Table) -> tuple[str, ...]:
    return ("raw",) if sp.issparse(table.X) else ("raw", "standardised")


# -- machines --------------------------------------------------------------------------------------------------------------


def make(name: str, regression: bool) -> Any:
    from sklearn import ensemble, linear_model, svm

    import gramplane

    peers: dict[str, Callable[[], Any]] = {
        "LinearSVC": lambda: svm.LinearSVC(penalty="l1", dual=False),
        "LogisticRegression": linear_model.LogisticRegression,
        "SVC": svm.SVC,
        "SVR": svm.SVR,
        "Ridge": linear_model.Ridge,
        "RandomForest": lambda: (ensemble.RandomForestRegressor if regression else ensemble.RandomForestClassifier)(random_state=0),
        "HistGradientBoosting": lambda: (ensemble.HistGradientBoostingRegressor if regression else ensemble.HistGradientBoostingClassifier)(
            random_state=0
        ),
    }
    if name in peers:
        return peers[name]()
    # This one is a regressor until it is told of classes.
    return gramplane.MultiTaskSelector(loss="logistic") if name == "MultiTaskSelector" and not regression else getattr(gramplane, name)()


def machines_of(table: Table, with_cv: bool) -> list[str]:
    import gramplane

    if table.task is not None:
        kind = "Regressor" if table.regression else "Classifier"
        own = [name for name in OF_TASKS if name.endswith((kind, "Selector"))]
    else:
        own = list(REGRESSORS if table.regression else CLASSIFIERS)
    own = [name for name in own if name != "TriClassSVC" or len(np.unique(table.y)) == 2]
    peers = ["Ridge", "SVR"] if table.regression else ["LinearSVC", "LogisticRegression", "SVC"]
    names = [*peers, "RandomForest", "HistGradientBoosting", *own, *([f"{name}CV" for name in own] if with_cv else [])]
    return [name for name in names if name in PEERS or hasattr(gramplane, name)]


def kind_of(name: str) -> str:
    return KINDS[name.removesuffix("CV")]


def as_columns(table: Table, rows: np.ndarray) -> Any:
    """Return rows with the task as columns, for peers."""
    X = table.X[rows]
    return X if table.task is None else np.hstack([X, table.task[rows][:, None] == np.unique(table.task)])


def scores(table: Table, model: Any, Z: Any, given: list[np.ndarray], truth: np.ndarray) -> dict[str, float]:
    told = model.predict(Z, *given)
    if table.regression:
        return {"score": float(r2_score(truth, told))}
    found = {"score": float(np.mean(told == truth)), "balanced": float(balanced_accuracy_score(truth, told))}
    decide = model.decision_function if hasattr(model, "decision_function") else model.predict_proba
    values = np.asarray(decide(Z, *given))
    if values.ndim == 2 and values.shape[1] == 2:
        values = values[:, 1]
    if values.ndim == 1:
        return {**found, "auc": float(roc_auc_score(truth, values))}
    areas = [roc_auc_score(truth == label, column) for label, column in zip(model.classes_, values.T, strict=True)]
    return {**found, "auc": float(np.mean(areas))}


def used(model: Any) -> float:
    """Return how many features a machine reads, NaN where it does not say."""
    model = getattr(model, "best_estimator_", model)
    if hasattr(model, "selected_"):
        return float(len(np.unique(np.asarray(model.selected_))))
    coef = getattr(model, "coef_", None)
    if coef is None:
        return float("nan")
    return float(np.count_nonzero(np.abs(coef.toarray() if sp.issparse(coef) else np.atleast_2d(coef)).sum(axis=0)))


def one_split(table: Table, name: str, variant: str, train: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    """Return scores, seconds, features and messages of a machine on one split."""
    is_peer = name in PEERS
    rows = [as_columns(table, part) if is_peer else table.X[part] for part in (train, test)]
    if name == "HistGradientBoosting":  # (reads no sparse rows)
        rows = [part.toarray() if sp.issparse(part) else part for part in rows]
    if variant == "standardised":
        scaler = StandardScaler().fit(rows[0])
        rows = [scaler.transform(part) for part in rows]
    given = [[], []] if is_peer or table.task is None else [[table.task[train]], [table.task[test]]]
    model = make(name, table.regression)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        clock, _ = bench.clocked(lambda: model.fit(rows[0], table.y[train], *given[0]))
    messages = sorted({str(one.message)[:200] for one in caught})
    return {**scores(table, model, rows[1], given[1], table.y[test]), **clock, "features": used(model), "warnings": messages}


def run_machine(given: tuple[str, str, str, bool], splits: list[int], folder: Path) -> None:
    set_name, variant, name, tiny = given
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))
    for stream, file in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / file, os.O_CREAT | os.O_WRONLY), stream)
    table = rows_read(load(set_name), name, tiny)
    for split, (train, test) in enumerate(parts(table, max(splits) + 1)):
        if split in splits:
            result = one_split(table, name, variant, train, test)
            majority = 0.0 if table.regression else float(np.mean(table.y[test] == most_common(table.y[train])))
            more = {"majority": majority, "MiB": bench.peak_memory() / bench.MIB, "load": os.getloadavg()[0]}
            print(json.dumps(bench.plain(rounded({**result, **more}))), flush=True)


def rows_read(table: Table, name: str, tiny: bool) -> Table:
    if tiny:
        some = np.sort(np.random.default_rng(0).permutation(len(table.y))[:150])
        table = Table(table.X[some], table.y[some], None if table.task is None else table.task[some] % 3, table.regression)
    if (kind_of(name) == KERNEL or name.startswith("RuleEnsemble")) and len(table.y) > MOST_ROWS:
        some = np.sort(np.random.default_rng(0).permutation(len(table.y))[:MOST_ROWS])
        table = Table(table.X[some], table.y[some], table.task, table.regression)
    return table


def rounded(row: dict[str, Any]) -> dict[str, Any]:
    """Return figures with the digits that are shown, no others: many rows are kept."""
    return {key: round(value, 4 if abs(value) < 1000 else 0) if isinstance(value, float) else value for key, value in row.items()}


def most_common(y: np.ndarray) -> Any:
    labels, counts = np.unique(y, return_counts=True)
    return labels[counts.argmax()]


def apart(given: tuple[str, str, str, bool], splits: list[int]) -> dict[str, Any]:
    """Return the rows of a machine on a set, run in a process of its own, and how it ended."""
    with bench.scratch() as folder:
        process = multiprocessing.get_context("fork").Process(target=run_machine, args=(given, splits, folder))
        process.start()
        process.join(SLOWEST * LIMIT)
        code = "time" if process.exitcode in (None, -signal.SIGXCPU) else process.exitcode
        process.kill()
        process.join()
        out, err = ((folder / name).read_text() if (folder / name).exists() else "" for name in ("out", "err"))
        rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        messages = sorted({message for row in rows for message in row.pop("warnings")})
        return {"rows": rows, "end": code, "warnings": messages, "error": "" if code == 0 else err[-600:]}


def measure(keep: bench.Parts, given: tuple[str, str, str, bool], count: int, known_only: bool = False) -> dict[str, Any]:
    """Return the rows of a machine on a set: the first split alone, which tells what is wrong, then the others."""
    found: dict[str, Any] = {"rows": [], "end": 0, "warnings": [], "error": ""}
    for splits in ([0], list(range(1, count))):
        name = f"{' '.join(given[:3])} {splits[0]}-{splits[-1]}" if splits else ""
        if splits and found["end"] == 0 and (not known_only or keep.has(name)):
            part = keep(name, lambda splits=splits: apart(given, splits))
            messages = sorted({*found["warnings"], *part["warnings"]})
            found = {**part, "rows": found["rows"] + part["rows"], "warnings": messages}
    return found


# -- the table -------------------------------------------------------------------------------------------------------------


def mean(rows: list[dict[str, Any]], key: str) -> float:
    """Return the mean of a figure over splits; NaN where there is none."""
    values = [row[key] for row in rows if isinstance(row.get(key), (int, float))]
    return float(np.mean(values)) if values else float("nan")


Tables = dict[tuple[str, str], dict[str, dict[str, Any]]]
"""By set and variant, and by machine: rows of its splits, and how it ended."""


def tell(report: bench.Report, tables: Tables) -> None:
    names = sorted({name for machines in tables.values() for name in machines if name not in PEERS})
    for name in names:
        gaps, below, slow, large = gaps_of(name, tables)
        if not gaps:
            continue
        bound = "0.005" if name.endswith("CV") else "0.02"
        behind = float(np.mean(gaps))
        report.value(f"{name}: behind the best {kind_of(name)} peer, mean", behind, f"<= {bound}", form=".4f")
        report.figures[f"{name}: tables"] = len(gaps)
        if np.isfinite(below):
            report.value(f"{name}: behind the majority at most", below, "<= 0.01", form=".4f")
        report.value(f"{name}: slowest fit, processor", slow, "<= 60", form=".1f", unit=" s")
        report.value(f"{name}: greatest process", large / 1024, "<= 4", form=".2f", unit=" GiB")
    for (set_name, variant), machines in tables.items():
        for name, ran in machines.items():
            if ran["end"] != 0:
                ended = f"ENDED with {ran['end']} after {len(ran['rows'])} splits {last_line(ran['error'])}"
                report.note(f"{set_name} {variant}, {name} {ended}")
    report.figures["table"] = [
        {
            "set": set_name,
            "variant": variant,
            "machine": name,
            "kind": kind_of(name),
            "splits": len(ran["rows"]),
            "end": ran["end"],
            **{key: value for key in SHOWN if np.isfinite(value := mean(ran["rows"], key))},
        }
        for (set_name, variant), machines in tables.items()
        for name, ran in machines.items()
    ]


def last_line(text: str) -> str:
    lines = text.splitlines()
    return f"({lines[-1][:160]})" if lines else ""


def gaps_of(name: str, tables: Tables) -> tuple[list[float], float, float, float]:
    """Return how far a machine is behind the best peer on every table, behind the majority of classes, its slowest fit, and its greatest
    peak.
    """
    gaps, below, slow, large = [], -np.inf, 0.0, 0.0
    for machines in tables.values():
        rows = machines.get(name, {"rows": []})["rows"]
        peers = [ran["rows"][: len(rows)] for peer, ran in machines.items() if peer in PEERS and kind_of(peer) == kind_of(name)]
        peers = [peer for peer in peers if peer]
        if not rows or not peers:
            continue
        gaps.append(max(mean(peer, "score") for peer in peers) - mean(rows, "score"))
        below = max(below, mean(rows, "majority") - mean(rows, "score")) if "balanced" in rows[0] else below
        slow, large = max(slow, *(row["cpu"] for row in rows)), max(large, *(row["MiB"] for row in rows))
    return gaps, below, slow, large


def import_all() -> None:
    """Import what machines import, so that forked processes need not."""
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.svm  # noqa: F401

    import gramplane

    for name in gramplane.__all__:
        getattr(gramplane, name)


def jobs(options: Any) -> Iterator[tuple[tuple[str, str, str, bool], int]]:
    """Yield what is to be run: set, variant and machine, and how many splits."""
    for set_name in options.sets.split(","):
        table = load(set_name)
        for variant in variants(table):
            if options.variants and variant not in options.variants.split(","):
                continue
            names = machines_of(table, with_cv=variant == "standardised" or sp.issparse(table.X))
            for name in names:
                count = options.cv_splits if name.endswith("CV") else options.splits
                if count and (not options.machines or name in options.machines.split(",")):
                    yield (set_name, variant, name, options.tiny), count


@bench.program(
    sets=(f"{CLASSES},{TARGETS},{TASKS}", "iris,breast_cancer,diabetes"),
    machines="",
    splits=(5, 2),
    cv_splits=(2, 1),
    keep="",
    variants="",
    minutes=1e9,
    report=False,
)
def first_table(report: bench.Report, options: Any) -> None:
    report.title = "a stranger's first table"
    import_all()
    keep, clock = bench.Parts(options.keep, {"tiny": options.tiny}), bench.stopwatch()
    tables: Tables = {}
    for given, count in jobs(options):
        if clock() > 60 * options.minutes:
            print("time is over; the same command goes on")
            return
        ran = measure(keep, given, count, options.report)
        if options.report and not ran["rows"] and ran["end"] == 0:
            continue
        tables.setdefault(given[:2], {})[given[2]] = ran
        if options.keep and not options.report:
            rows = ran["rows"]
            figures = f"{mean(rows, 'score'):.4f} {mean(rows, 'cpu'):.2f} cpu s {mean(rows, 'seconds'):.2f} s {mean(rows, 'MiB'):.0f} MiB"
            print(*given[:3], figures, ran["end"] or "", flush=True)
    tell(report, tables)


if __name__ == "__main__":
    bench.run()
