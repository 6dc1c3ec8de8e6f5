"""What a fit takes, measured: a process of its own loads and compiles by a small fit, then tells plan and peak of two larger ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gramplane.storage.blocks.row_files import matrix_file
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

def take(k, data, extra):
    params = json.loads(json.dumps(asked).replace("FOLDER", f"{folder}/beside{k}"))
    options = {"data": data, "run": f"{folder}/run{k}", "extra": extra}
    if use is None:
        plan = run_method(method, params, **options, driver_memory=limit, dry_run=True).plan
        act = lambda: run_method(method, params, **options, driver_memory=limit).summary
    else:
        from tests.support.driver_memory import USES
        plan, act = USES[use](method, params, options, limit)
    block_cache().clear()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back, or the next fit would find it
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    summary = act()
    return {"plan": plan, "peak": memory("VmHWM") - before, "summary": summary}

method, asked, limit, folder, use, places = json.load(sys.stdin)
print(json.dumps([take(k, *place) for k, place in enumerate(places)]))
"""


class Using(NamedTuple):
    """What is measured in the place of a fit: its plan, and the act itself, which returns a summary."""

    plan: dict[str, Any]
    act: Callable[[], dict[str, Any]]


def _asked(n: int, way: str) -> dict[str, Any]:
    members = [[f"g{i % (n // 20)}", i] for i in range(n)]
    return {"recommend": {"recommend": 5}, "members": {"recommend": 5, "members": members}, "labels": {"labels": ["a", "", "b"] * n}}[way]


def _use_store(way: str, method: str, params: dict[str, Any], options: dict[str, Any], limit: str | None) -> Using:
    from gramplane.pipeline import run_method
    from gramplane.pipeline.runs.recommend import use_store
    from gramplane.storage import BlockStore

    run_method(method, params, **options, driver_memory=limit)
    n = BlockStore.open(options["data"]).n_rows
    asked = _asked(n, way)
    asked = {name: value[:n] if name == "labels" else value for name, value in asked.items()}
    place = options["run"], options["data"], f"{options['run']}.npz"
    return Using(use_store(*place, **asked, driver_memory=limit, dry_run=True), lambda: use_store(*place, **asked, driver_memory=limit))


def _predict(method: str, params: dict[str, Any], options: dict[str, Any], limit: str | None) -> Using:
    from gramplane.pipeline import predict_store, run_method

    run_method(method, params, data=write_store(Path(f"{options['run']}-train"), 300, 3), run=options["run"])
    place = options["run"], options["data"], f"{options['run']}.csv"
    return Using(predict_store(*place, dry_run=True, driver_memory=limit), lambda: predict_store(*place, driver_memory=limit))


def _cluster_run(method: str, params: dict[str, Any], options: dict[str, Any], limit: str | None) -> Using:
    from gramplane.pipeline import load_model, run_method
    from gramplane.pipeline.runs.clusters import cluster_run, factor_item

    run_method(method, params, **options, driver_memory=limit)
    n, rank = load_model(options["run"]).eigenvectors_.shape
    return Using({"process_bytes": factor_item(n, rank)[1]}, lambda: cluster_run(options["run"], f"{options['run']}.npz", 3))


def _stability(method: str, params: dict[str, Any], options: dict[str, Any], limit: str | None) -> Using:
    from gramplane.pipeline import run_method
    from gramplane.pipeline.runs.stability import selection_stability

    run_method(method, params, **options, driver_memory=limit)
    asked = {"n_resamples": 4, "driver_memory": limit}
    plan = selection_stability(options["run"], **asked, dry_run=True)
    return Using(plan, lambda: {"features": len(selection_stability(options["run"], **asked)["features"])})


def _job(method: str, params: dict[str, Any], options: dict[str, Any], limit: str | None) -> Using:
    """A whole fit, as a worker runs it."""
    from gramplane.cluster import driver_bytes, open_executor
    from gramplane.pipeline import METHODS
    from gramplane.pipeline.core.memory import process_plan
    from gramplane.pipeline.core.resources import ignore
    from gramplane.pipeline.records.config import make_config
    from gramplane.pipeline.runs.jobs import FitJob, _order, job_bytes, run_job
    from gramplane.pipeline.runs.search import Search
    from gramplane.storage import BlockStore

    info = METHODS[method]
    with open_executor(None) as executor:
        search = Search(info, [params], [make_config(info.config, params)], BlockStore.open(options["data"]), 3, 0, {})
        ctx = search.context(executor, driver_bytes(limit), ignore)
        (group,) = search.groups(ctx)
        ready, order = group.problem(0, 0, ctx), _order(search, ctx, Path(f"{options['run']}-jobs"))
        nbytes = job_bytes(ready)
        # The blocks that the process keeps are no part of a job: workers have a share for them.
        plan = process_plan(ready.plan["driver_bytes"], ready.plan["task_bytes"], ctx.data, ctx.driver_memory, "sync")
    return Using(plan, lambda: {"fits": len(run_job(FitJob((0,), 0, nbytes, 0), info, order))})


USES: dict[str, Callable[..., Using]] = {
    **{way: partial(_use_store, way) for way in ("recommend", "members", "labels")},
    "predict": _predict,
    "cluster": _cluster_run,
    "stability": _stability,
    "job": _job,
}
"""What a process does beside fits, by name."""


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
        As for ``run_method``; ``FOLDER`` in a parameter is a place of each fit.
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
    use
        What of ``USES`` is measured in the place of the fit.
    """

    method: str
    params: dict[str, Any]
    sizes: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    extra: Callable[[int], dict[str, Any]] = field(default=lambda n: {})
    tasks: bool = False
    store: dict[str, Any] = field(default_factory=dict)
    limit: str | None = None
    use: str | None = None


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
        if "label_kernel" in extra:
            np.save(folder / f"labels{k}.npy", extra["label_kernel"])
            extra = {"label_kernel": matrix_file(str(folder / f"labels{k}.npy"), n)}
        kept = {"covariates": extra.pop("covariates")} if "covariates" in extra else {}
        places.append([write_store(folder / f"data{k}", n, d, case.tasks, **kept, **case.store), extra])
    given = json.dumps([case.method, case.params, case.limit, str(folder), case.use, places])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "tests/support/_bare"), str(ROOT)])}
    words = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    done = subprocess.run(words, input=given, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return [Taken(**found) for found in json.loads(done.stdout.splitlines()[-1])[1:]]
