"""What a fit takes, measured: a process of its own loads and compiles by a small fit, then tells plan and peak of two larger ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gramplane.storage.ingest import ingest
from tests.support.clusters import ROOT

PROGRAM = """
import ctypes, gc, json, sys
from pathlib import Path
from gramplane.pipeline import run_method
from gramplane.storage import block_cache

def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(name + ":")).split()[1])

def fit(k, data, extra):
    options = {"data": data, "run": f"{folder}/run{k}", "extra": extra, "driver_memory": limit}
    plan = run_method(method, params, **options, dry_run=True).plan
    block_cache().clear()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back, or the next fit would find it
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    summary = run_method(method, params, **options).summary
    return {"plan": plan, "peak": memory("VmHWM") - before, "summary": summary}

method, params, limit, folder, places = json.load(sys.stdin)
print(json.dumps([fit(k, *place) for k, place in enumerate(places)]))
"""


class Taken(NamedTuple):
    """Plan, measured peak above the process, and summary of one fit."""

    plan: dict[str, Any]
    peak: int
    summary: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A method with three sizes ``(n, d)``: one that loads and compiles, and two that are measured.

    Attributes
    ----------
    method, params
        As for ``run_method``.
    sizes
        Rows and columns.
    extra
        Further inputs by the number of rows.
    tasks
        Whether the store has three tasks.
    store
        Options of the ingest.
    limit
        The driver's memory; the default leaves every method its first choice.
    """

    method: str
    params: dict[str, Any]
    sizes: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    extra: Callable[[int], dict[str, Any]] = field(default=lambda n: {})
    tasks: bool = False
    store: dict[str, Any] = field(default_factory=dict)
    limit: str | None = None


def write_store(folder: Path, n: int, d: int, tasks: bool = False, **options: Any) -> str:
    """Write a store of two classes and return its place."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    more = {"task_column": np.arange(n) * 7 % 3} if tasks else {}
    return str(ingest((X, np.where(X[:, 0] > 0, 1, -1)), folder, **more, **options).url)


def measured(case: Case, folder: Path) -> list[Taken]:
    """Return the two fits that are measured."""
    places = []
    for k, (n, d) in enumerate(case.sizes):
        extra = case.extra(n)
        if "unlabelled" in extra:
            extra = {"unlabelled": ingest(np.random.default_rng(1).normal(size=(extra["unlabelled"], d)), folder / f"beside{k}").url}
        places.append([write_store(folder / f"data{k}", n, d, case.tasks, **case.store), extra])
    given = json.dumps([case.method, case.params, case.limit, str(folder), places])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests/support/_bare"), str(ROOT)])}
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(words, input=given, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [Taken(**found) for found in json.loads(done.stdout.splitlines()[-1])[1:]]
