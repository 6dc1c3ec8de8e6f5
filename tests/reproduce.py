"""The numbers of every method on the battery's data, as digests, to be compared between two commits on one machine.

    python -m tests.reproduce make FILE       writes them
    python -m tests.reproduce compare FILE    1 where one differs, with its name

Of each case: the arrays of the model, history, summary and tables but for seconds, and what the estimator that is loaded from the run
returns on the data it was trained on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import load_model, run_method
from gramplane.storage import BlockStore, RunStore
from tests.support.methods import CASES

OUTPUTS = ("decision_function", "predict", "predict_proba", "transform")


def digest(value: Any) -> str:
    """Return a digest of numbers, texts, and what is made of them."""
    state = hashlib.sha256()
    for part in _parts(value):
        state.update(part)
    return state.hexdigest()[:24]


def _parts(value: Any) -> Iterator[bytes]:
    if sp.issparse(value):
        value = [value.shape, value.data, value.indices, value.indptr]
    if isinstance(value, np.ndarray) and value.dtype.kind != "O":
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, dict):
        for name in sorted(value):
            yield str(name).encode()
            yield from _parts(value[name])
    elif isinstance(value, list | tuple | np.ndarray):
        for item in value:
            yield from _parts(item)
    else:
        yield repr(value).encode()


def _untimed(row: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in row.items() if "seconds" not in name and name not in ("bytes", "tasks", "retries")}


def numbers_of(case: Any, folder: Path) -> dict[str, str]:
    """Return name -> digest of what a case gives."""
    store = case.data(folder / "data.zarr")
    run_method(case.method, case.params, data=store.url, run=str(folder / "run"), seed=3, extra=case.extra)
    run = RunStore.open(folder / "run")
    found = {f"model/{name}": digest(array) for name, array in _arrays(folder / "run")}
    found |= {"history": digest([_untimed(row) for row in run.history()]), "summary": digest(_untimed(run.read_json("summary")))}
    found["tables"] = digest(run.read_json("tables"))
    estimator = load_model(folder / "run")
    for output in OUTPUTS:
        try:
            found[output] = digest(getattr(estimator, output)(BlockStore.open(store.url)))
        except (AttributeError, TypeError, ValueError):
            continue  # this estimator has no such output, or not for rows that it does not hold
    return found


def _arrays(run: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted((run / "model").rglob("*")):
        if path.is_file() and path.name != "zarr.json" and "json" not in path.suffix:
            yield path.relative_to(run / "model").as_posix(), path.read_bytes()


def all_numbers() -> dict[str, dict[str, str]]:
    """Return case -> name -> digest."""
    found = {}
    for name, case in sorted(CASES.items()):
        with tempfile.TemporaryDirectory() as folder, one_thread():
            found[name] = numbers_of(case, Path(folder))
        print(f"{name}: {len(found[name])} digests", flush=True)
    return found


def main(words: list[str] | None = None) -> int:
    """Make or compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.reproduce", description=__doc__)
    parser.add_argument("part", choices=["make", "compare"])
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args(words)
    found = all_numbers()
    if chosen.part == "make":
        chosen.file.write_text(json.dumps(found, indent=1) + "\n")
        return 0
    before = json.loads(chosen.file.read_text())
    wrong = [f"{case}: {name}" for case in before for name in before[case] if before[case][name] != found.get(case, {}).get(name)]
    print("\n".join(wrong) or f"all {sum(map(len, before.values()))} digests of {len(before)} cases are the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
