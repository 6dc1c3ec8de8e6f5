"""Sparse matrices that lie about their places are refused by name, wherever they come in; none ends the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.reliability.walks import walk
from tests.support import broken_sparse
from tests.support.clusters import ROOT
from tests.support.commands import gramplane

AT_THE_DOOR, BY_ENTRY = 100_000, 1_000
"""Mutated triples of the whole walk."""

PART = 20_000
"""Triples of one process at the door; parts of estimators are one estimator each."""

ALLOWED = {"DataError", "SchemaError", "ValueError", "TypeError", "done"}


def _handed_in(cache: Path, *words: object) -> dict[str, str]:
    """Run a part of the program in a process that checks bounds and has compiled nothing before; return how each entry ended."""
    place = os.pathsep.join([str(ROOT / "tests" / "support" / "_bare"), str(ROOT)])
    env = {**os.environ, "PYTHONPATH": place, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache)}
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.broken_sparse", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    found = {row["entry"]: row["ended"] for row in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0 and found.pop("end", "") == "done", f"{words}: status {done.returncode} after {list(found)[-1:]}"
    return found


def _fuzzed(cache: Path, *words: object) -> int:
    """Return how many mutated triples were handed in; every end is an answer."""
    ends = [json.loads(ended) for ended in _handed_in(cache, *words).values()]
    strange = {kind for counts in ends for kind in counts} - ALLOWED
    assert not strange, f"{words}: ended with {sorted(strange)}"
    return sum(sum(counts.values()) for counts in ends)


@walk(6, "the .npz of the report is refused with 3 by file, place and rule")
def the_reported_file(folder: Path) -> None:
    """Type the command of the report."""
    indptr = np.array([0, 1 << 30, 0], "i4")
    np.savez(folder / "x.npz", data=np.ones(1), indices=np.zeros(1, "i4"), indptr=indptr, shape=np.array([2, 3]), y=np.array([1, -1]))
    code, told = gramplane(["ingest", "x.npz", "s"], folder)
    assert code == 3 and "x.npz: indptr[2] is 0 after 1073741824" in json.dumps(told), (code, told)
    assert not (folder / "s").exists()


@walk(6, "mutated triples at the door and by the estimators of the report: no crash, bounds checked")
def some_triples(folder: Path) -> None:
    """A small share of the whole walk."""
    assert _fuzzed(folder / "cache", "fuzz-door", "--count", 2000) == 2000
    found = _handed_in(folder / "cache", "refused", "FGMClassifier", "MKLClassifier", "RuleEnsembleClassifier")
    assert found and all(ended.startswith("DataError: X: ") for ended in found.values()), found


@walk(6, "100,000 mutated triples at the door, 1,000 by every form of ingest and every argument of every estimator: no crash", quick=False)
def all_triples(folder: Path) -> None:
    """Every part in a process of its own, with a cache of its own; parts can be run alone by `tests.support.broken_sparse`."""
    total = sum(_fuzzed(folder / f"door{seed}", "fuzz-door", "--count", PART, "--seed", seed) for seed in range(AT_THE_DOOR // PART))
    assert total == AT_THE_DOOR
    _fuzzed(folder / "forms", "fuzz-forms", "--count", BY_ENTRY)
    for name in broken_sparse.estimators():
        assert _fuzzed(folder / name, "fuzz-estimator", name, "--count", BY_ENTRY) >= BY_ENTRY, name
