"""Cross-validation and grids on a store: folds are row masks, all fits share the passes, nothing is copied."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cluster import TLSFiles, parse_bytes
from ..storage import BlockStore, RunStore
from .loops.run import run_loop
from .methods import fgm_tune, gmkl_tune, multitask_tune
from .records.context import Emit, RunContext, ignore
from .records.validation import configured
from .running import RunOutcome, Where, executing, jsonable, method_named, run_method

_TUNED: dict[str, Any] = {"fgm": fgm_tune, "mkl": gmkl_tune, "multitask-mkl": multitask_tune}
"""Methods whose grids share passes: their ``shared_loops(ctx, configs, extra, folds, seed)`` and ``table_rows``."""


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
    if info.name not in _TUNED:
        raise ValueError(
            f"method {method!r} has no grids that share passes ({', '.join(_TUNED)} have); fit it once per setting, with a test share"
        )
    tuned = _TUNED[info.name]
    configs = [configured(info.config, point) for point in points]
    names = sorted({name for point in points for name in point})
    rows: list[dict[str, Any]] = []
    with executing(where, store, emit) as executor:
        ctx = RunContext(executor, store, None, parse_bytes(where.driver_memory), emit, seed)
        for k, shared in enumerate(tuned.shared_loops(ctx, configs, extra, folds, seed)):
            settings = {"points": [jsonable(points[i]) for i in shared.points], "folds": folds, "seed": seed, "data": store.digest}
            run = RunStore.create(folder / f"cv-{k}", settings)
            with run.lock():
                history = run_loop(shared.loop, replace(ctx, run=run)).history
            rows += tuned.table_rows(shared, configs, folds, history, names)
    return rows


def best_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row of highest mean accuracy, or R2; among equals the one with fewest features or kernels, then the first."""
    return min(rows, key=lambda row: (-row[measure_of(row)], row["selected"]))


def measure_of(row: Mapping[str, Any]) -> str:
    """Return what a table compares by: ``"accuracy"``, or ``"r2"`` of regressions."""
    return "accuracy" if "accuracy" in row else "r2"


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
        ``rounds`` (of the Feature Generating Machine), ``accuracy`` (mean over folds), ``deviation``, ``selected``, ``folds``; of
        regressions ``r2`` and ``mse`` in place of the accuracy.
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

    All fits share the passes over the data. Feature Generating Machine: the path of every fit gives each number of rounds up to
    ``max_rounds`` for free, and the best number is part of the choice. Multiple kernel learning (``mkl``; say a grid of ``C`` and ``v``):
    the fits share the Gram matrices, one pass of forms for all in every step; kernels are normalised over all rows, those held out
    included. Of many tasks (``multitask-mkl``) folds are drawn within tasks. Points are compared by accuracy, those of a real-valued
    target by R2.

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
        ``summary`` holds the best parameters and their accuracy, or R2.
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
        rounds = {"max_rounds": best["rounds"]} if "rounds" in best else {}
        folder.write_json("tune", rows)
        final = {**points[best["point"]], **rounds}
        fit = run_method(method, final, data=data, run=str(Path(run) / "best"), seed=seed, extra=more, on_event=on_event, **vars(where))
        summary = {"best": jsonable(final), **{key: best[key] for key in (measure_of(best), "deviation", "selected")}, "fit": fit.summary}
        folder.write_json("summary", summary)
    return RunOutcome("done", summary, run=run)
