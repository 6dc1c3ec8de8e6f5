"""Stability of the selection of a finished run: the method is fitted again on bootstrap resamples of the training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...cluster import driver_bytes, open_executor
from ...kernels.jit import one_thread
from ...storage import RunStore, StorageError
from ...storage.temporary import temporary_folder
from ..core.memory import Memory, few_blocks_kept, process_plan, refuse_step
from ..core.resources import Emit, RunContext, ignore
from ..records.compute import ComputeOptions
from ..records.config import make_config
from ..registry import METHODS, MethodInfo
from .data import training_store
from .run import executing, method_named


def _steady_method(run: str, record: dict[str, Any]) -> MethodInfo:
    info = method_named(record["method"])
    if not info.has_stability:
        able = ", ".join(name for name, other in METHODS.items() if other.has_stability)
        raise ValueError(f"{run}: the stability of {info.name} cannot be measured, only that of {able}")
    return info


def selection_stability(
    run: str,
    *,
    n_resamples: int = 50,
    seed: int | None = None,
    cluster: str = "sync",
    allow_plaintext: bool = False,
    on_event: Emit | None = None,
    dry_run: bool = False,
    **where: Any,
) -> dict[str, Any]:
    """Return how often a run's method selects each feature (group, product) over bootstrap resamples of its training rows.

    Each resample is a vector of row weights; the fits on all resamples share their passes. ``n_resamples``: number of resamples. ``seed``:
    seed of the resamples, by default the seed of the run. With ``dry_run``, return the plan.

    Returns ``resamples``, ``n_selected``, ``mean_frequency`` (mean over the features that the run selected), ``steady`` (number of features
    selected in at least 80 % of the resamples), ``ever_selected``, and ``features``, a list of rows with the name of a feature, its
    frequency, and whether the run selected it.

    Raises ValueError if stability is not defined for the method, or ``n_resamples`` is below 1; StorageError if the run is not finished;
    DigestMismatch if the training rows of the run are missing; MemoryBoundExceeded if this process would exceed ``driver_memory``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, run_method, selection_stability
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> sorted(selection_stability("runs/iris", n_resamples=10)["features"][0])
    ['feature', 'frequency', 'in_the_fit']
    """
    if n_resamples < 1:
        raise ValueError(f"n_resamples={n_resamples}: must be at least 1")
    options, folder = ComputeOptions(cluster, allow_plaintext=allow_plaintext, **where), RunStore.open(run)
    record = folder.config
    if folder.read_json("summary") is None:
        raise StorageError(f"{run}: the run is not finished; continue it with `gramplane resume {run}`")
    info = _steady_method(run, record)
    config = make_config(info.config, record["params"])
    data = training_store(folder, info)
    limit, root = driver_bytes(options.driver_memory), int(record["seed"] if seed is None else seed)
    kind, emit = options.config().kind, on_event or ignore
    # Rows are held out by the seed of the run, drawn by that of the resamples.
    with one_thread(), open_executor(None) as here:
        ctx = RunContext(here, data=data, driver_memory=limit, emit=ignore, seed=int(record["seed"]))
        _, inputs = info.method.read_inputs(config, ctx, record["extra"])
        ctx = replace(ctx, seed=root)
        problem = info.module("stability").bootstrap_problem(config, inputs, ctx, n_resamples)
        plan = problem.plan
    memory = Memory.planned(plan)
    refuse_step("stability", memory, limit, kind)
    if dry_run:
        place = process_plan(plan["driver_bytes"], plan["task_bytes"], data, limit, kind)
        return {"method": info.name, "data": data.url, "resamples": n_resamples, "distributed": list(problem.distributed), **place, **plan}
    with temporary_folder() as scratch, executing(options, data, emit, info.method.programs) as executor:
        ctx = RunContext(executor, data=data, scratch=RunStore.create(scratch / "run", {}), driver_memory=limit, emit=emit, seed=root)
        with few_blocks_kept(memory, limit, executor.kind):
            rows, summary = info.module("stability").stability_table(problem, folder.read_model(info.method.models), ctx)
        ctx.confirm()
    return {"method": info.name, "data": data.url, **summary, "features": rows}
