"""Cross-validation and grids on a store: folds are row masks, nothing is copied, and fits share passes where the method can."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cluster import Executor, TLSFiles, open_executor
from ...kernels.jit import one_thread
from ...storage import BlockStore, DataError, RunStore
from ...storage.places import check_place
from ...storage.temporary import temporary_folder
from ..core.engine import iterate
from ..core.resources import Emit, ignore, once
from ..grams.contents import confirm_read_whole
from ..inputs.folds import SharedLoop, row_groups
from ..inputs.labels import store_inputs
from ..inputs.scaling import as_scaled
from ..models.held_out_scores import HeldOutRows, Scoring, read_scoring, score_columns
from ..records.compute import ComputeOptions
from ..records.config import make_config
from ..records.context import RunContext
from ..records.run_view import measure_of
from ..registry import MethodInfo
from .run import RunOutcome, executing, jsonable, method_named, open_data, run_method, same_as_before

if TYPE_CHECKING:
    from .folds import Search


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return every combination of a grid, the last name varying fastest. Raises ValueError: a name without values."""
    for name, values in grid.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueError(f"grid[{name!r}]={values!r}: must be a list of at least one value")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def check_tunable(method: str, grid: Mapping[str, Any]) -> None:
    """Refuse methods and parameters whose settings cannot be compared.

    Raises ValueError: an unknown method, one without a score on held-out rows, or a parameter that says where matrices lie.
    """
    from .folds import PLACES

    info = method_named(method)
    if not info.config.has_scores:
        raise ValueError(f"method {method!r} has no score on rows held out, so settings cannot be compared; fit it once per setting")
    for name in grid:
        if not info.shares_passes and name in PLACES:
            raise ValueError(f"grid[{name!r}]: {name} says where matrices lie, which changes no result; give it among the fixed parameters")


@dataclass(frozen=True)
class _Grid:
    """A grid with its data: what is evaluated, and how often."""

    info: MethodInfo
    points: Sequence[Mapping[str, Any]]
    configs: Sequence[Any]
    store: BlockStore
    folds: int
    seed: int
    extra: Mapping[str, Any]
    repeats: int = 1
    scoring: Scoring | None = None  # what points are compared by; None: accuracy, or R2
    column: str | None = None  # rows of one of its values are held out together

    def context(self, executor: Executor, where: ComputeOptions, emit: Emit = ignore) -> RunContext:
        tell = once(lambda message: emit({"event": "warning", "message": message}))
        return RunContext(executor, data=self.store, driver_memory=where.driver_bytes, emit=emit, seed=self.seed, warn=tell)

    def search(self, ctx: RunContext) -> Search:
        from .folds import build_search

        points = [jsonable(point) for point in self.points]
        return build_search(
            ctx, self.info, self.configs, points, self.extra, self.folds, self.seed, self.repeats, self.scoring, self.column
        )


def _grid(
    method: str,
    points: Sequence[Mapping[str, Any]],
    store: BlockStore,
    folds: int,
    seed: int,
    extra: Mapping[str, Any] | None,
    repeats: int,
    scoring: Scoring | None = None,
    column: str | None = None,
) -> _Grid:
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: must be at least 1")
    info = method_named(method)
    configs = [make_config(info.config, point) for point in points]
    shown = {data.digest: data for data in (as_scaled(config, store) for config in configs)}
    if len(shown) > 1:
        kinds = ", ".join(sorted(data.meta.scale for data in shown.values()))
        raise ValueError(
            f"the points of the grid see their columns under different scalings ({kinds}): set one scale, or compare them one by one"
        )
    row_groups(store, column, folds)
    return _Grid(info, points, configs, next(iter(shown.values())), folds, seed, extra or {}, repeats, scoring, column)


def _sharing(grid: _Grid, kind: str) -> ModuleType | None:
    """Return the module by which the fits of a grid share passes, or ``None``; a method may share for some parameters only.

    ``kind``: of the cluster. Fits that share the rows which one process reads are whole fits on workers instead, of the same bits.
    """
    if not grid.info.shares_passes:
        return None
    module = grid.info.module("grid")
    shares = getattr(module, "shares", bool)(grid.configs)
    return module if shares and (kind == "sync" or not getattr(module, "ON_ONE_PROCESS", False)) else None


def _check(grid: _Grid, where: ComputeOptions) -> None:
    """Refuse what does not fit the data before there is a folder, in this process."""
    from .folds import check_points

    with one_thread(), open_executor(None) as executor:
        ctx = grid.context(executor, where)
        if _sharing(grid, where.config().kind) is None:
            check_points(grid.search(ctx), ctx)
        _check_scoring(grid, ctx)


def _check_scoring(grid: _Grid, ctx: RunContext) -> None:
    """Refuse scores that do not suit the target."""
    if grid.scoring is None:
        return
    if grid.info.shares_passes:
        inputs = store_inputs(ctx, grid.info.name)
    else:
        ready = grid.info.prepare(grid.configs[0], ctx, grid.extra)
        inputs = ready.inputs.labelled
    grid.scoring.check(inputs.classes, inputs.target)


def _table(grid: _Grid, folder: Path, where: ComputeOptions, emit: Emit) -> list[dict[str, Any]]:
    from .folds import table_rows
    from .jobs import run_jobs

    names = sorted({name for point in grid.points for name in point})
    with executing(where, grid.store, emit, grid.info.method.programs) as executor:
        ctx = grid.context(executor, where, emit)
        if (module := _sharing(grid, executor.kind)) is not None:
            drawn = [list(_shared_rows(module, grid, ctx, folder, names, k)) for k in range(grid.repeats)]
            rows = drawn[0] if grid.repeats == 1 else _joined_rows(drawn, grid.scoring)
        else:
            search = grid.search(ctx)
            rows = table_rows(search, ctx, folder, names, run_jobs(search, ctx, folder))
        return [_with_error(row, grid.folds * grid.repeats) for row in rows]


def _shared_rows(
    tuned: ModuleType, grid: _Grid, ctx: RunContext, folder: Path, names: Sequence[str], repeat: int
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one repetition, whose folds are drawn from a seed of its own."""
    seed, name = grid.seed + repeat, "cv" if repeat == 0 else f"cv-again{repeat}"
    for k, shared in enumerate(tuned.shared_loops(ctx, grid.configs, grid.extra, grid.folds, seed, grid.column)):
        points = [jsonable(grid.points[i]) for i in shared.points]
        record = {"points": points, "folds": grid.folds, "seed": seed, "data": grid.store.digest}
        record |= {} if grid.scoring is None else {"scoring": list(grid.scoring.names)}
        record |= {} if grid.column is None else {"group_column": grid.column}
        measured = _measured(grid, shared)
        with RunStore.begin(folder / f"{name}-{k}", record) as run:
            inner = replace(ctx, scratch=run)
            outcome = iterate(grid.info.method, shared.loop, inner, store=run)
            history = list(outcome.history)
            if grid.scoring is not None and shared.decide is not None:
                history[-1] = {**history[-1], **measured(dict(enumerate(shared.decide(outcome.state, inner))))}
        for row in tuned.table_rows(shared, grid.configs, grid.folds, history, names):
            yield row if grid.scoring is None else _scored_row(row, shared, grid, history)


def _measured(grid: _Grid, shared: SharedLoop) -> Callable[[Mapping[int, np.ndarray]], dict[str, Any]]:
    """Return what makes the scores of every fit of the decision values of all machines; a loop that scores every round gets it."""
    trackers = shared.loop.fits if shared.decide is not None else shared.loop.trackers
    kinds = [grid.configs[point].probability_kind for point in shared.points for _ in range(grid.folds)]
    fits = [HeldOutRows.of(one, kind) for one, kind in zip(trackers, kinds, strict=True)] if grid.scoring is not None else []
    count = len(trackers[0].machines)  # of a fit: they come fit after fit

    def measure(values: Mapping[int, np.ndarray]) -> dict[str, Any]:
        assert grid.scoring is not None
        machines = (np.stack([values[m] for m in range(k * count, (k + 1) * count)]) for k in range(len(fits)))
        scores = [rows.scores(grid.scoring, decided) for rows, decided in zip(fits, machines, strict=True)]
        return {f"test_{name}": [score[name] for score in scores] for name in grid.scoring.names}

    if grid.scoring is not None and shared.decide is None:
        shared.loop.further = measure
    return measure


def _scored_row(row: Mapping[str, Any], shared: SharedLoop, grid: _Grid, history: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a row of a table with the scores that were asked for in place of accuracy, or R2."""
    assert grid.scoring is not None
    entry = next(one for one in reversed(history) if row.get("rounds", one["iteration"]) == one["iteration"])
    first = shared.points.index(row["point"]) * grid.folds
    scores = {name: entry[f"test_{name}"][first : first + grid.folds] for name in grid.scoring.names}
    head = list(row)[: list(row).index(measure_of(row))]
    return {**{name: row[name] for name in head}, **score_columns(grid.scoring, scores, row["selected"])}


def plan_search(
    method: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    data: str | BlockStore,
    params: Mapping[str, Any] | None = None,
    folds: int = 5,
    seed: int = 0,
    extra: Mapping[str, Any] | None = None,
    repeats: int = 1,
    group_column: str | None = None,
    **where: Any,
) -> dict[str, Any]:
    """Return what :func:`tune` will do: fits, and what workers do of them, passes of a fit or whole fits, with the bytes of a whole fit."""
    from .jobs import FITS, job_bytes

    check_tunable(method, grid)
    options, points = ComputeOptions(**where), [{**(params or {}), **point} for point in grid_points(grid)]
    search = _grid(method, points, open_data(data, method_named(method)), folds, seed, extra, repeats, column=group_column)
    fits = "fits" if _sharing(search, options.config().kind) is None else "fits_sharing_passes"
    again = {} if repeats == 1 else {"repeats": repeats}
    sizes: dict[str, Any] = {"points": len(points), "folds": folds, **again, fits: len(points) * folds * repeats}
    with one_thread(), open_executor(None) as executor:
        ctx = search.context(executor, options)
        looked_at = search.configs[:1] if _sharing(search, "local") is not None else search.configs
        ready = [search.info.prepare(config, ctx, search.extra) for config in looked_at]
        work = list(dict.fromkeys(item for one in ready for item in one.distributed or (FITS,)))
        jobs = {"job_bytes": max(job_bytes(one) for one in ready if not one.distributed)} if FITS in work else {}
    return {**sizes, "distributed": work, **jobs}


def _with_error(row: Mapping[str, Any], folds: int) -> dict[str, Any]:
    """Return a row with the standard error of its mean beside the deviation."""
    deviation = row["deviation"]
    error = {"standard_error": None if deviation is None else deviation / folds**0.5}
    head = list(row).index("deviation") + 1
    return {**dict(list(row.items())[:head]), **error, **dict(list(row.items())[head:])}


def _joined_rows(drawn: Sequence[Sequence[Mapping[str, Any]]], scoring: Scoring | None) -> list[dict[str, Any]]:
    """Return the rows of all repetitions as one table over all of their folds; what not all of them have is left out."""
    tables = [{(row["point"], row.get("rounds")): row for row in rows} for rows in drawn]
    joined = []
    for key, first in tables[0].items():
        if all(key in table for table in tables):
            same = [table[key] for table in tables]
            if scoring is not None:
                keys = {name: "folds" if name == measure_of(first) else f"{name}_folds" for name in scoring.names}
                folds = {name: [score for row in same for score in row[key]] for name, key in keys.items()}
                joined.append({**first, **score_columns(scoring, folds, float(np.mean([row["selected"] for row in same])))})
                continue
            scores = np.array([score for row in same for score in row["folds"]], dtype=float)
            means = {name: float(np.mean([row[name] for row in same])) for name in ("mse", "selected") if name in first}
            spread = {measure_of(first): float(scores.mean()), "deviation": float(scores.std(ddof=1))}
            joined.append({**first, **means, **spread, "folds": scores.tolist()})
    return joined


def best_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row of highest mean: accuracy, R2, or the score that decides. Among equals the one with fewest features or kernels, then
    the first.

    Raises DataError: no row has a score in every fold.
    """
    # Without a score a row holds None, or NaN where its method's own table says so.
    known = [row for row in rows if row[measure_of(row)] is not None and row[measure_of(row)] == row[measure_of(row)]]
    if not known:
        raise DataError("no point of the grid has a score in every fold: nothing was selected, or the target has no variance there")
    return min(known, key=lambda row: (-row[measure_of(row)], row["selected"]))


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
    repeats: int = 1,
    scoring: str | Sequence[str] | None = None,
    group_column: str | None = None,
    **where: Any,
) -> list[dict[str, Any]]:
    """Return the accuracy of a method, or other scores, over stratified folds of a store: one row, of ``fgm`` one per round.

    ``method``, ``params``: name and parameters; ``data``: block store; ``folds``, ``seed``: number of folds and seed of the split;
    ``cluster``, ``where``: as in :func:`~gramplane.pipeline.run_method`; ``extra``: ``groups``; ``repeats``: how often the folds are
    drawn, from ``seed``, ``seed + 1`` and so on; ``scoring``, ``group_column``: as in
    :func:`tune`. Returns ``rounds`` (of the Feature Generating Machine),
    ``accuracy`` (mean over folds), ``deviation``, ``standard_error``, ``selected``, ``folds``; of regressions ``r2`` and ``mse`` in place
    of the accuracy. With ``scoring`` the first score stands under its name in place of both, and of each further one its mean,
    ``NAME_deviation`` and ``NAME_folds``. Raises ValueError: an unknown method or score, a score that does not suit the target, or a
    method that has no score on rows held out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, cross_validate
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> rows = cross_validate("fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", folds=3)
    >>> [row["rounds"] for row in rows], rows[-1]["accuracy"] > 0.9
    ([1, 2], True)
    """
    check_tunable(method, {})
    asked, options = read_scoring(scoring), ComputeOptions(cluster, **where)
    grid = _grid(method, [dict(params)], open_data(data, method_named(method)), folds, seed, extra, repeats, asked, group_column)
    with one_thread(), open_executor(None) as executor:
        _check_scoring(grid, grid.context(executor, options))
    with temporary_folder() as folder:
        return _table(grid, folder, options, on_event or ignore)


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
    driver_memory: str | int | None = None,
    allow_plaintext: bool = False,
    tls: TLSFiles | None = None,
    stall_timeout: float | None = None,
    extra: Mapping[str, Any] | None = None,
    on_event: Emit | None = None,
    repeats: int = 1,
    scoring: str | Sequence[str] | None = None,
    refit: str | None = None,
    group_column: str | None = None,
) -> RunOutcome:
    """Evaluate a grid by cross-validation and fit the best point on all rows.

    The fits of ``fgm``, ``mkl``, ``multitask-mkl`` and ``group-lasso`` share the passes over the data. Feature Generating Machine: the path
    of every fit gives each number of rounds up to ``max_rounds`` for free, and the best number is part of the choice. Multiple kernel
    learning (say a grid of ``C`` and ``v``): the fits share the Gram matrices, one pass of forms for all in every step. Group lasso on a
    stream: every block of rows is read once for all fits. Other methods fit point after point, fold after fold, each as a run of its own
    with the fold held out; a fit that is done is not done again. On a cluster fits whose passes are not distributed are tasks themselves,
    each a whole fit on a worker, to the same bits; so are those of the group lasso on a stream.

    Rows held out have weight zero; kernels are normalised over all rows, those held out included. Of many tasks folds are drawn within
    tasks. Points are compared by accuracy, those of a real-valued target by R2, or by ``scoring``. Of two classes the second is the
    positive one, whatever the labels. Where a score is of probabilities, decision values of a logistic loss are log odds; others go through
    a sigmoid that is fitted within the rows held out, for each fifth of them to the other four.

    Parameters
    ----------
    grid, params
        Parameter names and their values, and parameters common to all points.
    data, run
        Block store and run directory; the table is ``tune.json``, the final fit lies in ``best``.
    folds, seed, repeats
        Stratified folds, as row masks, drawn so many times: from ``seed``, ``seed + 1`` and so on.
    group_column
        What names the rows of the store, or a feature: rows of one value are held out together, such as all rows of a patient.
    scoring, refit
        Name of a scorer of scikit-learn, such as ``"roc_auc"``, or several; ``refit`` names the one that decides, by default the first.

    Returns
    -------
    RunOutcome
        ``summary`` holds the best parameters and their accuracy, R2, or scores.

    Raises
    ------
    ValueError
        An unknown method, parameter or score, a grid without values, or one that cannot be compared; a score that does not suit the
        target.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, load_model, tune
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = tune("fgm", {"C": [0.1, 1.0]}, data="stores/iris", run="runs/tuned", params={"B": 2, "max_rounds": 2}, folds=3)
    >>> load_model("runs/tuned").score(*load_iris(return_X_y=True)) > 0.9
    True
    """
    check_tunable(method, grid)
    run, asked = check_place(run, "run", "run"), read_scoring(scoring, refit)
    options = ComputeOptions(cluster, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout)
    store, emit, more = open_data(data, method_named(method)), on_event or ignore, extra or {}
    points = [{**(params or {}), **point} for point in grid_points(grid)]
    # Runs of earlier versions know no repetitions and no scores.
    split = {"folds": folds, "seed": seed, "data_digest": store.digest, **({} if repeats == 1 else {"repeats": repeats})}
    split |= {} if asked is None else {"scoring": list(asked.names)}
    split |= {} if group_column is None else {"group_column": group_column}
    record = {"tune": method, "points": jsonable(points), **split, "extra": jsonable(more)}
    search = _grid(method, points, store, folds, seed, more, repeats, asked, group_column)
    same_as_before(run, record)
    if not (Path(run) / "config.json").exists():
        _check(search, options)
    with RunStore.begin(run, record) as folder:
        done = folder.read_json("summary")
        if done is not None:
            return RunOutcome("already-done", done, run=run)
        confirm_read_whole(folder, search.configs)
        rows = _table(search, Path(run), options, emit)
        confirm_read_whole(folder, search.configs)
        best = best_row(rows)
        rounds = {"max_rounds": best["rounds"]} if "rounds" in best else {}
        folder.write_json("tune", rows)
        final = {**points[best["point"]], **rounds}
        fit = run_method(method, final, data=store, run=str(Path(run) / "best"), seed=seed, extra=more, on_event=on_event, **vars(options))
        names = () if asked is None else (*asked.names[1:], "measure")
        figures = {key: best[key] for key in (measure_of(best), "deviation", "standard_error", "selected", *names)}
        summary = {"best": jsonable(final), **figures, "fit": fit.summary}
        folder.write_json("summary", summary)
    return RunOutcome("done", summary, run=run)
