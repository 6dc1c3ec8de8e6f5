"""Sparse matrices that are broken on purpose, and every way in: each estimator's methods by their signatures, and each form of ingest.

As a program (``python -m tests.support.broken_sparse``) it hands them in and says how each call ended, a line of JSON each: a crash ends
the program, and that is what its caller looks for.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.io
import scipy.sparse as sp

import gramplane.pipeline as pipeline
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest

ROWS, COLUMNS = 24, 6
SPARSE = {"X", "Z", "X_unlabelled", "target", "tags", "membership", "constraints", "similarity", "rows", "cols"}
"""Arguments that take sparse matrices: a broken one is refused there by name."""

Parts = dict[str, Any]


# -- matrices ----------------------------------------------------------------------------------------------------------------


def sound(rows: int = ROWS, columns: int = COLUMNS, form: str = "csr") -> Any:
    """Return a small sound matrix in which every row has entries."""
    rng = np.random.default_rng(0)
    dense = rng.random((rows, columns)) * (rng.random((rows, columns)) < 0.6)
    dense[:, 0] = rng.random(rows) + 0.5
    return getattr(sp, f"{form}_array")(dense)


def put(parts: Parts, form: str, shape: tuple[int, ...], matrix: bool = False) -> Any:
    """Return a CSR or CSC matrix of the given arrays, whatever they say; SciPy is not asked."""
    made = getattr(sp, f"{form}_{'matrix' if matrix else 'array'}")((ROWS, COLUMNS))
    made.data, made.indices, made.indptr = parts["data"], parts["indices"], parts["indptr"]
    made._shape = shape
    return made


def the_reported(form: str = "csr", rows: int = 2) -> Any:
    """Return the matrix of the report: a last pointer of 0 behind one of 2^30."""
    indptr = np.zeros(rows + 1, "i4")
    indptr[1] = 1 << 30
    return put({"data": np.ones(1), "indices": np.zeros(1, "i4"), "indptr": indptr}, form, (rows, 3) if form == "csr" else (3, rows))


def certainly_broken(shape: tuple[int, int], form: str = "csr") -> list[Any]:
    """Return matrices of a shape, each of which breaks one rule."""
    found = []
    for name, place, value in (
        ("indptr", 1, 1 << 30),
        ("indptr", 1, -5),
        ("indptr", -1, 1 << 28),
        ("indptr", 0, 3),
        ("indices", 0, 1 << 29),
        ("indices", 1, -7),
    ):
        parts = arrays(sound(*shape, form))
        parts[name][place] = value
        found.append(put(parts, form, shape))
    parts = arrays(sound(*shape, form))
    parts["indptr"][1:-1], parts["indptr"][-1] = 1 << 30, 0
    found.append(put(parts, form, shape))
    for name in ("indices", "data", "indptr"):
        parts = arrays(sound(*shape, form))
        found.append(put({**parts, name: parts[name][:-2]}, form, shape))
    return found


def arrays(X: Any) -> Parts:
    """Return copies of the three arrays."""
    return {"data": X.data.copy(), "indices": X.indices.copy(), "indptr": X.indptr.copy()}


def mutated(rng: np.random.Generator, X: Any, far: int = 1 << 20) -> tuple[Parts, tuple[int, ...]]:
    """Return the arrays and the shape of a matrix after one to three random changes; a length grows by ``far`` at most."""
    parts, shape = arrays(X), tuple(X.shape)
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(["indptr", "indptr", "indices", "indices", "data", "shape"]))
        if name == "shape":
            shape = tuple(int(max(0, length + rng.choice([0, 0, -1, 1, -length, far]))) for length in shape)
        else:
            parts[name] = _changed(rng, parts[name], name)
    return parts, shape


_VALUES = [0, 1, -1, 5, ROWS, COLUMNS, 1 << 20, 1 << 30, (1 << 31) - 1, -(1 << 31), 1 << 33, (1 << 63) - 1, -(1 << 63)]


def _changed(rng: np.random.Generator, array: Any, name: str) -> Any:
    way = int(rng.integers(8))
    if way < 4 and array.size and array.dtype.kind in "iu":
        out = array.astype(np.int64) if rng.random() < 0.3 else array.copy()
        bounds = np.iinfo(out.dtype)
        out[int(rng.integers(out.size))] = np.clip(rng.choice(_VALUES), int(bounds.min), int(bounds.max))
        return out
    if way == 4:
        return array[: int(rng.integers(array.size + 1))].copy()
    if way == 5:
        return np.concatenate([array, array[: int(rng.integers(array.size + 1))]])
    if way == 6:
        kinds = [">i4", "i8", "u4", "f8", "i2", "O"] if name != "data" else [">f8", "f2", "f4", "c16", "i4", "O", "g"]
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype(str(rng.choice(kinds)))
    return array[::-1].copy() if rng.random() < 0.5 else np.repeat(array, 2)[::2]


# -- estimators ----------------------------------------------------------------------------------------------------------------


SETTINGS: dict[str, dict[str, Any]] = {"MultiTaskSelector": {"loss": "logistic"}}
"""Parameters other than the defaults, for estimators whose methods depend on them."""


def _made(name: str) -> Any:
    return getattr(pipeline, name)(**SETTINGS.get(name, {}))


def _pairs() -> tuple[np.ndarray, np.ndarray]:
    pairs = np.array([(i, (i * 5 + 3) % ROWS) for i in range(ROWS) if i != (i * 5 + 3) % ROWS])
    return pairs, (np.arange(len(pairs)) % 2).astype(np.int64)


def _views() -> np.ndarray:
    dense = sound().toarray()
    return np.stack([dense @ dense.T, (dense[:, :3] @ dense[:, :3].T)])


def arguments(name: str) -> dict[str, Any]:
    """Return sound values of the arguments that methods of an estimator may have."""
    y = np.where(np.arange(ROWS) % 3 == 0, 1, -1)
    common: dict[str, Any] = {"X": sound(), "y": y, "task": np.arange(ROWS) % 2, "Z": sound(), "X_unlabelled": sound(8)}
    if "Regressor" in name:
        common["y"] = np.linspace(-1.0, 1.0, ROWS) + (np.arange(ROWS) % 3)
    if name == "SocialStrengthRanker":
        pairs, z = _pairs()
        common |= {"kernels": _views(), "pairs": pairs, "z": z, "users": [0, 1], "user": 0, "target": sound(ROWS, ROWS)}
        common |= {"membership": sound(ROWS, 4), "labels": np.where(np.arange(ROWS) % 2, 1.0, 0.0), "k": 3}
    if name in ("SemanticKernelRanker", "VisualRank"):
        common |= {"tags": [f"t{i % 3} t{i % 4}" for i in range(ROWS)], "similarity": sound(ROWS, ROWS), "prior": np.ones(ROWS)}
        common |= {"rows": sound(), "cols": sound()}
    if name == "SimpleNPKL":
        common |= {"constraints": np.array([(0, 3, 1), (1, 4, 1), (0, 1, -1), (2, 5, -1)])}
    return common


def estimators() -> list[str]:
    """Return the names of all public estimators."""
    return sorted(name for name in pipeline.__all__ if hasattr(getattr(pipeline, name), "get_params"))


SKIPPED = {"get_params", "set_params", "from_model", "get_metadata_routing", "set_output", "to_csv", "to_json"}


def methods(name: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the public methods of an estimator that take data: name, all arguments, those needed."""
    kind, made = getattr(pipeline, name), _made(name)
    for method, function in inspect.getmembers(kind, callable):
        if method.startswith("_") or method in SKIPPED or method.endswith("_request") or not hasattr(made, method):
            continue
        plain: Any = getattr(inspect.getattr_static(kind, method), "fn", function)
        given = [p for p in list(inspect.signature(plain).parameters.values())[1:] if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        if given:
            yield method, [p.name for p in given], [p.name for p in given if p.default is p.empty or p.name in ("y", "tags", "constraints")]


def entries(name: str) -> list[tuple[str, str]]:
    """Return every (method, argument) of an estimator that data come in by."""
    data = set(arguments(name)) - {"user", "k"}
    return [(method, argument) for method, given, _ in methods(name) for argument in given if argument in data]


@cache
def fitted(name: str) -> Any:
    """Return an estimator fitted to sound data."""
    made, values = _made(name), arguments(name)
    given = next(item for item in methods(name) if item[0] == "fit")[1]
    chosen = {key: values[key] for key in given if key in values and key != "target"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made.fit(**chosen)


def shape_of(name: str, argument: str) -> tuple[int, int]:
    """Return the shape that an argument has."""
    known = arguments(name).get(argument)
    found = getattr(known, "shape", (ROWS,))
    return (found[0], found[1]) if len(found) == 2 else (ROWS, COLUMNS)


def enter(name: str, method: str, argument: str, value: Any) -> Any:
    """Call a method with a value in one argument, sound values in those needed beside it."""
    values = arguments(name)
    needed = next(item[2] for item in methods(name) if item[0] == method)
    fresh = method in ("fit", "fit_transform", "fit_predict", "partial_fit")
    estimator = _made(name) if fresh else fitted(name)
    given = {key: values[key] for key in needed if key in values}
    known = next(item[1] for item in methods(name) if item[0] == method)
    if "task" in known and "Task" in name:
        given["task"] = values["task"]
    if "classes" in known and hasattr(estimator, "decision_function"):
        given["classes"] = [-1, 1]
    given[argument] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(estimator, method)(**given)


# -- files and other forms ----------------------------------------------------------------------------------------------------


def _npz(form: str, prefix: str, folder: Path, parts: Parts, shape: Any) -> Any:
    path = folder / "x.npz"
    named = {f"{prefix}{key}": value for key, value in parts.items()}
    np.savez(path, **named, **{f"{prefix}shape": np.array(shape), f"{prefix}format": form, "y": np.where(np.arange(shape[0]) % 2, 1, -1)})
    return ingest(str(path), str(folder / "s"), overwrite=True)


def _mat(folder: Path, parts: Parts, shape: Any) -> Any:
    """Write a sound .mat file, then the broken numbers over its bytes."""
    X, path = sound(form="csc"), folder / "x.mat"
    scipy.io.savemat(path, {"X": sp.csc_matrix(X), "y": np.ones(ROWS)}, do_compression=False)
    raw = path.read_bytes()
    for key, kept in (("indices", X.indices), ("indptr", X.indptr)):
        old, new = kept.astype("<i4").tobytes(), np.asarray(parts[key]).astype("<i4", casting="unsafe").tobytes()
        raw = raw.replace(old, new[: len(old)].ljust(len(old), b"\xff"))
    path.write_bytes(raw)
    return ingest(str(path), str(folder / "s"), overwrite=True)


def _dask(form: str, folder: Path, parts: Parts, shape: Any) -> Any:
    import dask.array as da

    X = put(parts, form, tuple(shape))
    chunks = da.from_array(np.zeros((2, 1)), chunks=(1, 1)).map_blocks(lambda part: X, dtype=np.float64, meta=sp.csr_array((0, 0)))
    return ingest(chunks, str(folder / "s"), overwrite=True, task="regression")


def _frame(folder: Path, parts: Parts, shape: Any) -> Any:
    frame = pd.DataFrame.sparse.from_spmatrix(sound())
    places = frame.iloc[:, 1].array.sp_index.indices
    places[: len(parts["indices"])] = np.asarray(parts["indices"]).astype(np.int64).astype(np.int32)[: len(places)]
    return ingest(frame, str(folder / "s"), overwrite=True, task="regression")


FORMS: dict[str, Callable[[Path, Parts, Any], Any]] = {
    "npz csr": lambda *given: _npz("csr", "", *given),
    "npz csc": lambda *given: _npz("csc", "", *given),
    "npz X_ csr": lambda *given: _npz("csr", "X_", *given),
    "mat": _mat,
    "array csr": lambda folder, parts, shape: ingest(put(parts, "csr", tuple(shape)), str(folder / "s"), overwrite=True),
    "array csc": lambda folder, parts, shape: ingest(put(parts, "csc", tuple(shape), True), str(folder / "s"), overwrite=True),
    "dask": lambda *given: _dask("csr", *given),
    "frame": _frame,
    "MemoryBlocks": lambda folder, parts, shape: MemoryBlocks(put(parts, "csr", tuple(shape))).column_blocks()[0].load(),
}


# -- the program ---------------------------------------------------------------------------------------------------------------


def outcome(call: Callable[[], Any]) -> str:
    """Return how a call ended: "done", or the error."""
    try:
        call()
    except Exception as error:  # whatever it is, it is an answer; what must not happen ends the process
        return f"{type(error).__name__}: {error}"
    return "done"


def _told(entry: str, ended: str) -> None:
    sys.stdout.write(json.dumps({"entry": entry, "ended": ended}) + "\n")
    sys.stdout.flush()


def _refused(names: list[str]) -> None:
    """Fit on the matrix of the report and on the other broken ones; nothing is compiled for that."""
    for name in names:
        for k, broken in enumerate([the_reported(rows=ROWS), *certainly_broken((ROWS, COLUMNS))]):
            _told(f"{name}.fit(X) {k}", outcome(lambda: enter(name, "fit", "X", broken)))  # noqa: B023


def _every(names: list[str]) -> None:
    """Hand in each broken matrix once by every argument of every method that may take one, and by every form of ingest."""
    for name in names or estimators():
        for method, argument in entries(name):
            for k, broken in enumerate(certainly_broken(shape_of(name, argument))):
                if argument in SPARSE or k == 0:
                    _told(f"{name}.{method}({argument}) {k}", outcome(lambda: enter(name, method, argument, broken)))  # noqa: B023
    if not names or "KTASelectionPath" in names:
        machine = fitted("KTASelectionPath").svm_at(2.0)
        for k, broken in enumerate(certainly_broken((ROWS, COLUMNS))):
            _told(f"PathMachine.predict(X) {k}", outcome(lambda: machine.predict(broken)))  # noqa: B023


def _forms() -> None:
    with tempfile.TemporaryDirectory(prefix="gramplane-door-") as folder:
        for form, come in FORMS.items():
            for k, broken in enumerate(certainly_broken((ROWS, COLUMNS), "csc" if "csc" in form or form == "mat" else "csr")):
                _told(f"{form} {k}", outcome(lambda: come(Path(folder), arrays(broken), broken.shape)))  # noqa: B023


def _counted(entry: str, count: int, call: Callable[[np.random.Generator], Any], seed: int) -> None:
    """Make ``count`` random calls, and tell how often each kind of end was met."""
    rng, ends = np.random.default_rng(seed), dict[str, int]()
    for _ in range(count):
        kind = outcome(lambda: call(rng)).partition(":")[0]
        ends[kind] = ends.get(kind, 0) + 1
    _told(entry, json.dumps(ends, sort_keys=True))


def _fuzz_door(count: int, seed: int) -> None:
    """Mutate triples, and read whatever passes as SciPy and compiled code would: by rows, by columns and sorted."""
    for form in ("csr", "csc"):
        X = sound(form=form)

        def call(rng: np.random.Generator, X: Any = X, form: str = form) -> None:
            given = MemoryBlocks(put(*_swapped(mutated(rng, X), form)))
            if given.X.nnz and max(given.shape) < 1 << 19:
                given.column_table("sumsq")
                given.row_blocks()[0].load().sum()

        _counted(f"door {form}", count // 2, call, seed)


def _swapped(found: tuple[Parts, tuple[int, ...]], form: str) -> tuple[Parts, str, tuple[int, ...]]:
    return found[0], form, found[1]


def _fuzz_estimators(names: list[str], count: int, seed: int) -> None:
    for name in names:
        for method, argument in entries(name):
            if argument not in SPARSE:
                continue
            X = sound(*shape_of(name, argument))

            def call(rng: np.random.Generator, X: Any = X, place: tuple[str, str, str] = (name, method, argument)) -> None:
                parts, shape = mutated(rng, X, far=3)
                enter(*place, put(parts, "csr", shape))

            _counted(f"{name}.{method}({argument})", count, call, seed)


def _fuzz_forms(count: int, seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="gramplane-door-") as folder:
        for form, come in FORMS.items():
            X = sound(form="csc" if "csc" in form or form == "mat" else "csr")
            _counted(form, count, lambda rng, X=X, come=come: come(Path(folder), *mutated(rng, X, far=3)), seed)


def main() -> None:
    """Do one part of the work."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["refused", "every", "forms", "fuzz-door", "fuzz-forms", "fuzz-estimator"])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    parts: dict[str, Callable[[], None]] = {
        "refused": lambda: _refused(given.names),
        "every": lambda: _every(given.names),
        "forms": _forms,
        "fuzz-door": lambda: _fuzz_door(given.count, given.seed),
        "fuzz-forms": lambda: _fuzz_forms(given.count, given.seed),
        "fuzz-estimator": lambda: _fuzz_estimators(given.names or estimators(), given.count, given.seed),
    }
    parts[given.part]()
    _told("end", "done")


if __name__ == "__main__":
    main()
