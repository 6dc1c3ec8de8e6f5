"""Cross-validation and grids on a store: folds are row masks, all fits share the passes, nothing is copied."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..cluster import TLSFiles
from ..storage import BlockStore, RunStore
from .loops.run import run_loop
from .methods.fgm_run import store_inputs
from .methods.fgm_tune import best_row, shared_loops, table_rows
from .records.context import Emit, RunContext, ignore
from .records.validation import configured
from .running import RunOutcome, Where, executing, jsonable, method_named, run_method


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of a grid, the last name varying fastest.

    Raises
    ------
    ValueError
        A name without values.
    """
    for name, values in grid.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueError(f"grid[{name!r}]={values!r}: must be a list of at least one value")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def _table(
    method: str,
    points: Sequence[Mapping[str, Any]],
    store: BlockStore,
    folder: Path,
    folds: int,
    seed: int,
    where: Where,
    emit: Emit,
    extra: Any,
) -> list[dict[str, Any]]:
    info = method_named(method)
    if info.name != "fgm":
        raise ValueError(f"method {method!r} has no grids that share passes; run it once per setting")
    configs = [configured(info.config, point) for point in points]
    names = sorted({name for point in points for name in point})
    rows: list[dict[str, Any]] = []
    with executing(where, store, emit) as executor:
        inputs = store_inputs(RunContext(executor, store), extra)
        for k, shared in enumerate(shared_loops(configs, inputs, folds, seed)):
            settings = {"points": [jsonable(points[i]) for i in shared.points], "folds": folds, "seed": seed, "data": store.digest}
            run = RunStore.create(folder / f"cv-{k}", settings)
            with run.lock():
                history = run_loop(shared.loop, RunContext(executor, store, run, emit=emit, seed=seed)).history
            rows += table_rows(shared, configs, folds, history, names)
    return rows


def cross_validate(
    method: str,
    params: Mapping[str, Any],
    *,
    data: str,
    folds: int = 5,
    seed: int = 0,
    cluster: str = "sync",
    extra: Mapping[str, Any] | None = None,
    on_event: Emit | None = None,
    **where: Any,
) -> list[dict[str, Any]]:
    """Return the accuracy of a method over stratified folds of a store, one row per round.

    Parameters
    ----------
    method, params
        Name and parameters.
    data
        Block store.
    folds, seed
        Number of folds and seed of the split.
    cluster, where
        As in :func:`~gramplane.pipeline.run_method`.
    extra
        ``groups``.

    Returns
    -------
    list of dict
        ``rounds``, ``accuracy`` (mean over folds), ``deviation``, ``selected``, ``folds``.
    """
    with tempfile.TemporaryDirectory(prefix="gramplane-") as folder:
        place = Where(cluster, **where)
        return _table(method, [dict(params)], BlockStore.open(data), Path(folder), folds, seed, place, on_event or ignore, extra or {})


def tune(
    method: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    data: str,
    run: str,
    params: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    cluster: str = "sync",
    worker_memory: str | int | None = None,
    driver_memory: str | int = "2GiB",
    allow_plaintext: bool = False,
    tls: TLSFiles | None = None,
    stall_timeout: float | None = None,
    extra: Mapping[str, Any] | None = None,
    on_event: Emit | None = None,
) -> RunOutcome:
    """Evaluate a grid by cross-validation and fit the best point on all rows.

    The path of every fit gives each number of rounds up to ``max_rounds`` for free; the best number of rounds is part of the choice.

    Parameters
    ----------
    grid
        Parameter names and their values.
    params
        Parameters common to all points.
    data, run
        Block store and run directory; the table is ``tune.json``, the final fit lies in ``best``.
    folds, seed
        Stratified folds, as row masks.

    Returns
    -------
    RunOutcome
        ``summary`` holds the best parameters and their accuracy.
    """
    where = Where(cluster, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout)
    store, emit, more = BlockStore.open(data), on_event or ignore, extra or {}
    points = [{**(params or {}), **point} for point in grid_points(grid)]
    record = {
        "tune": method,
        "points": jsonable(points),
        "folds": folds,
        "seed": seed,
        "data_digest": store.digest,
        "extra": jsonable(more),
    }
    folder = RunStore.create(run, record)
    with folder.lock():
        done = folder.read_json("summary")
        if done is not None:
            return RunOutcome("already-done", done, run=run)
        rows = _table(method, points, store, Path(run), folds, seed, where, emit, more)
        best = best_row(rows)
        folder.write_json("tune", rows)
        final = {**points[best["point"]], "max_rounds": best["rounds"]}
        fit = run_method(method, final, data=data, run=str(Path(run) / "best"), seed=seed, extra=more, on_event=on_event, **vars(where))
        summary = {"best": jsonable(final), **{key: best[key] for key in ("accuracy", "deviation", "selected")}, "fit": fit.summary}
        folder.write_json("summary", summary)
    return RunOutcome("done", summary, run=run)
