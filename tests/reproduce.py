"""The numbers of every method, as digests, to be compared between two commits on one machine.

    python -m tests.reproduce make FILE       writes them
    python -m tests.reproduce compare FILE    1 where one differs, with its name, the old and the new
    ... --only PATTERN                        only entries whose name has this regular expression in it, say `/fgm/` or `^memory/mkl`

An entry is ``PART/METHOD/CASE``. Parts: ``runs`` (the batteries' cases, also those of large data), ``workers`` (some of these on two
processes), ``memory`` (estimators on arrays, tables, strings), ``search`` (cross-validation), ``tune``, ``files`` (predictions of files).
Digests are of numbers and texts as they are read, never of bytes of files: how they are stored may change. Times are left out. Behind
each digest stands the norm of all its numbers, which shows whether a result moved by rounding or by more. A call that is refused is an
entry, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.datasets import dump_svmlight_file

import gramplane.pipeline as api
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS, load_model, predict_store, run_method, tune
from gramplane.storage import BlockStore, RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.battery import changed_sizes
from tests.batteries import test_objectives as objectives
from tests.support import searches
from tests.support.distributed import DISTRIBUTED
from tests.support.methods import CASES

OUTPUTS = ("decision_function", "predict", "predict_proba", "transform")
UNSTEADY = re.compile(r"seconds|time$|^(bytes|tasks|retries)$|^model_$")
"""What is not the same in two runs, and the stored record of a model, whose numbers are attributes of the estimator, too."""

Numbers = dict[str, Any]
Entry = tuple[str, Callable[[Path], Numbers]]


# -- digests -----------------------------------------------------------------------------------------------------------------------


def digest(value: Any) -> str:
    """Return a digest of numbers, texts, and what is made of them, with the norm of the numbers; of a short text itself."""
    if isinstance(value, str) and len(value) < 40:
        return value
    state, squares = hashlib.sha256(), 0.0
    for part in _parts(value):
        state.update(part if isinstance(part, bytes) else f"{part.dtype} {part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        if isinstance(part, np.ndarray) and part.dtype.kind in "fiu":
            squares += float(np.sum(np.square(part[np.isfinite(part)].astype(np.float64))))
    return f"{state.hexdigest()[:16]} {squares**0.5:.9g}"


def _parts(value: Any) -> Iterator[bytes | np.ndarray]:
    if sp.issparse(value):
        value = sp.csr_array(value)
        value = [value.shape, value.data, value.indices.astype(np.int64), value.indptr.astype(np.int64)]
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield value
    elif isinstance(value, bool | int | float | np.number):
        yield np.asarray(value)
    elif isinstance(value, dict):
        for name in sorted(value, key=str):
            if not UNSTEADY.search(str(name)):
                yield str(name).encode()
                yield from _parts(value[name])
    elif isinstance(value, list | tuple | np.ndarray | pd.Series | pd.DataFrame):
        for item in value.to_dict("list").items() if isinstance(value, pd.DataFrame) else value:
            yield from _parts(item)
    elif isinstance(value, BaseEstimator):
        yield from _parts({**value.get_params(deep=False), **learnt(value)})
    elif dataclasses.is_dataclass(value):
        yield from _parts({item.name: getattr(value, item.name) for item in dataclasses.fields(value)})
    else:
        yield (str(value) if value is None or isinstance(value, str) else type(value).__name__).encode()


def learnt(model: Any) -> Numbers:
    """Return the public attributes that a fit leaves, stored or computed."""
    names = {*dir(type(model)), *vars(model)}
    found = {name: getattr(model, name, None) for name in names if name.endswith("_") and not name.startswith("_")}
    return {name: value for name, value in found.items() if not UNSTEADY.search(name) and not callable(value)}


def outputs(model: Any, data: Any, **beside: Any) -> Numbers:
    """Return what a model says of data; an output that it has not, or not for these rows, is told by the kind of its error."""
    found = {}
    for name in OUTPUTS:
        try:
            found[name] = getattr(model, name)(data, **(beside if name != "transform" else {}))
        except (AttributeError, TypeError, ValueError) as error:
            found[name] = f"refused: {type(error).__name__}"
    return found


# -- runs of methods ---------------------------------------------------------------------------------------------------------------


def _run(case: Any, folder: Path, **options: Any) -> Numbers:
    with changed_sizes(case.sizes):
        store = case.data(folder / "data.zarr").url
        limit = {} if case.driver_memory is None else {"driver_memory": case.driver_memory}
        run_method(case.method, case.params, data=store, run=str(folder / "run"), seed=3, extra=case.extra, **limit, **options)
        run = RunStore.open(folder / "run")
        found = {name: run.read_json(name) for name in ("summary", "tables")} | {"history": run.history()}
        record = run.read_model(METHODS[case.method].method.models)
        for item in dataclasses.fields(record):
            value = getattr(record, item.name)
            if isinstance(value, np.ndarray) or sp.issparse(value):
                found[f"model/{item.name}"] = value
        model = load_model(folder / "run")
        return {**found, **learnt(model), **outputs(model, BlockStore.open(store))}


def run_entries() -> Iterator[Entry]:
    """Runs in this process, and of a few methods on two workers."""
    for name, case in {**CASES, **DISTRIBUTED}.items():
        yield f"runs/{case.method}/{name}", partial(_run, case)
    for name in ("fgm-rows", "group-lasso-working-set", "mkl-passes"):
        yield f"workers/{DISTRIBUTED[name].method}/{name}", partial(_run, DISTRIBUTED[name], cluster="local:2")


def _tune(case: Any, folder: Path) -> Numbers:
    store, (params, name) = case.data(folder / "data.zarr").url, case.other
    grid = {name: [case.params[name], params[name]] if name in case.params else [params[name]]}
    tune(case.method, grid, params=case.params, data=store, run=str(folder / "run"), folds=2, seed=3, extra=case.extra)
    return {"table": RunStore.open(folder / "run").read_json("tune"), **outputs(load_model(folder / "run"), BlockStore.open(store))}


def tune_entries() -> Iterator[Entry]:
    """One grid of every method that has a target."""
    for name, case in {case.method: (name, case) for name, case in reversed(CASES.items()) if "test_share" not in case.extra}.values():
        if any(kind in str(METHODS[case.method].estimators) for kind in SUPERVISED):
            yield f"tune/{case.method}/{name}", partial(_tune, case)


# -- estimators in memory ----------------------------------------------------------------------------------------------------------

SUPERVISED = ("Classifier", "Regressor", "TriClassSVC", "KTASelectionPath", "MultiTaskSelector")
SMALL: dict[str, dict[str, Any]] = {
    "TriClassSVC": {"irrelevant_label": None},
    "RuleEnsemble": {"n_thresholds": 2},
    "Hierarchical": {"dag": "subsets(gaussian; depth=1)"},
    "FGM": {"B": 2},
    "TwoLayer": {"max_iter": 5},
    "SharedSubspace": {"max_iter": 5},
}
STRINGS = ["".join("ACGT"[(i * k + i // 3) % 4] for k in range(8 + i % 5)) for i in range(searches.N)]


def _fit(name: str, situation: str, _: Path) -> Numbers:
    kind, X = getattr(api, name), searches.X
    is_real = "Regressor" in name or name == "MultiTaskSelector"
    params, more = {key: value for stem, given in SMALL.items() if name.startswith(stem) for key, value in given.items()}, {}
    y = searches.Y if is_real else searches.LABELS
    if name.startswith(("MultiTask", "SharedSubspace", "LatentTask")):
        more["task"] = np.array(["b", "a", "c"])[searches.TASKS] if situation == "names" else searches.TASKS
    if situation == "names" and not is_real:
        y = np.array(["low", "mid", "top"])[searches.THREE]
    elif situation == "weights":
        more["sample_weight"] = np.arange(len(X)) % 4 / 2
    elif situation == "balanced":
        params["class_weight"] = "balanced"
    elif situation == "plain":
        params["scale"] = None
    elif situation == "groups":
        params["groups"] = [0, 0, 1, 1, 2, 2]
    elif situation == "sparse":
        X = sp.csr_array(np.where(np.abs(X) > 0.5, X, 0.0))
    elif situation == "table":
        X = pd.DataFrame(X, columns=list("abcdef")).assign(f=np.where(X[:, 5] > 0, "red", "blue"))
    elif situation == "strings":
        X, params["kernels"] = STRINGS, ["spectrum(k=2)", "spectrum(k=3)"]
    if name == "SharedSubspaceMKLClassifier" and "kernels" not in params:
        params["kernels"] = searches.KERNELS
    model = kind(**params).fit(X, y, **more)
    return {**learnt(model), **outputs(model, X, **{key: value for key, value in more.items() if key == "task"})}


def memory_entries() -> Iterator[Entry]:
    """Estimators: what the objectives' battery fits, and those with a target in every situation that they take."""
    methods = {name: info.name for info in METHODS.values() for name in info.public_names}
    for case in objectives.CASES:
        method = methods.get(case.name.partition("-")[0], "other")
        yield (
            f"memory/{method}/{case.name}",
            lambda _, case=case: (lambda model: {**learnt(model), **outputs(model, objectives.X)})(case.fit()),
        )
    for name, method in methods.items():
        if not name.endswith("CV") and any(kind in name for kind in SUPERVISED):
            known = getattr(api, name)().get_params()
            needs = {"balanced": "class_weight", "plain": "scale", "groups": "groups", "strings": "kernels"}
            for situation in ("defaults", "names", "weights", "balanced", "plain", "groups", "sparse", "table", "strings"):
                if needs.get(situation, "verbose") in known:
                    yield f"memory/{method}/{name}-{situation}", partial(_fit, name, situation)


def search_entries() -> Iterator[Entry]:
    """Estimators that choose parameters by cross-validation."""
    methods = {name: info.name for info in METHODS.values() for name in info.cross_validated}
    for search in searches.SEARCHES:

        def call(_: Path, search: searches.Search = search) -> Numbers:
            model = search.fitted(cv=3)
            return {**learnt(model), **outputs(model, searches.X, **search.fit)}

        yield f"search/{methods[search.name]}/{search}", call


# -- files -------------------------------------------------------------------------------------------------------------------------

FILES: dict[str, dict[str, Any]] = {
    "fgm": {"B": 2, "max_rounds": 2, "C": 1.0},
    "group-lasso": {"lam": 0.02},
    "mkl": {"kernels": searches.KERNELS},
    "rule-ensemble": {"n_thresholds": 2},
}


def _file(form: str, path: Path, rows: slice) -> dict[str, Any]:
    X, y = np.where(np.abs(searches.X) > 0.5, searches.X, 0.0)[rows], searches.LABELS[rows]
    if form == "csv":
        table = pd.DataFrame(X, columns=list("abcdef")).assign(colour=np.where(X[:, 1] > 0, "red", "blue"), y=y)
        table.to_csv(path, index=False)
        return {"target": "y"}
    if form == "svm":
        dump_svmlight_file(X, np.where(y == "yes", 1, -1), str(path), zero_based=False)
    else:
        np.savez(path, X=X, y=np.where(y == "yes", 1, 0))
    return {}


def _predict(method: str, form: str, folder: Path) -> Numbers:
    train, new, out = folder / f"train.{form}", folder / f"new.{form}", folder / "out.npz"
    ingest(train, folder / "data", **_file(form, train, slice(0, 40)))
    _file(form, new, slice(40, None))
    run_method(method, FILES[method], data=str(folder / "data"), run=str(folder / "run"), seed=3)
    predict_store(str(folder / "run"), str(new), str(out), proba=True)
    return dict(np.load(out))


def file_entries() -> Iterator[Entry]:
    """Predictions that stored runs make of files."""
    for method in FILES:
        for form in ("csv", "svm", "npz"):
            yield f"files/{method}/{form}", partial(_predict, method, form)


# -- program -----------------------------------------------------------------------------------------------------------------------


def all_numbers(only: str = "") -> dict[str, dict[str, str]]:
    """Return entry -> name -> digest."""
    found: dict[str, dict[str, str]] = {}
    for part in (run_entries, tune_entries, memory_entries, search_entries, file_entries):
        for name, call in part():
            if not re.search(only, name):
                continue
            with tempfile.TemporaryDirectory() as folder, one_thread(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    numbers = call(Path(folder))
                except (TypeError, ValueError) as error:
                    numbers = {"fit": f"refused: {type(error).__name__}"}
            found[name] = {key: digest(value) for key, value in sorted(numbers.items())}
            print(f"{name}: {len(found[name])} digests", file=sys.stderr, flush=True)
    return found


def differences(before: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """Return a line for every digest that differs, is gone or is new."""
    pairs = {(entry, name) for found in (before, now) for entry in found for name in found[entry]}
    told = [(f"{entry}: {name}", *(found.get(entry, {}).get(name, "none") for found in (before, now))) for entry, name in sorted(pairs)]
    return [f"{name}: {old} -> {new}" for name, old, new in told if old != new]


def main(words: list[str] | None = None) -> int:
    """Make or compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.reproduce", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("part", choices=["make", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", metavar="PATTERN")
    chosen = parser.parse_args(words)
    found = all_numbers(chosen.only)
    if chosen.part == "make":
        chosen.file.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    before = {name: value for name, value in json.loads(chosen.file.read_text()).items() if re.search(chosen.only, name)}
    wrong = differences(before, found)
    print("\n".join(wrong) or f"all {sum(map(len, before.values()))} digests of {len(before)} entries are the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
