"""Cross-validation and grid search on a store. Folds are masks of rows, not copies, and fits share passes if the method supports this."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...cluster import TLSFiles, open_executor
from ...kernels.jit import one_thread
from ...storage import BlockStore, DataError, RunStore
from ...storage.places import check_place
from ...storage.temporary import temporary_folder
from ..core.resources import Emit, ignore
from ..core.search import SQUARES, Score, known
from ..grams.settings import confirm_read_whole
from ..inputs.folds import row_groups
from ..inputs.scaling import as_scaled
from ..models.held_out_scores import Scoring, read_scoring, score_columns
from ..records.compute import ComputeOptions
from ..records.config import make_config
from ..records.run_view import measure_of
from ..registry import check_inputs
from .run import RunOutcome, executing, jsonable, method_named, open_data, run_method, same_as_before
from .search import PLACES, Search

ALONG = {"max_rounds": "rounds", "p": "p"}  # parameters that come with a path, and what tables call them


def grid_points(grid: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of a grid; the last name varies fastest. Raises ValueError if a name has no values."""
    for name, values in grid.items():
        if not isinstance(values, (list, tuple)) or not values:
            raise ValueError(f"grid[{name!r}]={values!r}: must be a list of at least one value")
    return [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]


def check_tunable(method: str, grid: Mapping[str, Any]) -> None:
    """Check that fits of a method with these parameters can be compared.

    Raises ValueError for an unknown method, a method without a held-out score, or a grid over a parameter that only sets where matrices are
    stored.
    """
    if not method_named(method).config.has_scores:
        raise ValueError(f"method {method!r} has no score on rows held out, so settings cannot be compared; fit it once per setting")
    for name in grid:
        if name in PLACES:
            raise ValueError(
                f"grid[{name!r}]: {name} only sets where matrices are stored, which changes no result; set it as a fixed parameter"
            )


def _search(
    method: str,
    points: Sequence[Mapping[str, Any]],
    store: BlockStore,
    folds: int,
    seed: int,
    extra: Mapping[str, Any] | None,
    repeats: int,
    scoring: Scoring | None = None,
    column: str | None = None,
) -> Search:
    if repeats < 1:
        raise ValueError(f"repeats={repeats}: must be at least 1")
    info = method_named(method)
    check_inputs(info, extra or {})
    configs = [make_config(info.config, point) for point in points]
    shown = {data.digest: data for data in (as_scaled(config, store) for config in configs)}
    if len(shown) > 1:
        kinds = ", ".join(sorted(data.meta.scale for data in shown.values()))
        raise ValueError(f"points of the grid set different scalings of columns ({kinds}); set one scale, or tune each scale separately")
    row_groups(store, column, folds)
    given, data = [jsonable(point) for point in points], next(iter(shown.values()))
    return Search(info, given, configs, data, folds, seed, extra or {}, repeats, scoring, column)


def _check(search: Search, where: ComputeOptions) -> None:
    """Check the search against the data before a folder is made."""
    with one_thread(), open_executor(None) as executor:
        ctx = search.context(executor, where.driver_bytes, ignore)
        for group in search.groups(ctx):
            group.check(ctx)


def _table(search: Search, folder: Path, where: ComputeOptions, emit: Emit) -> list[dict[str, Any]]:
    """Return the rows of the table: one for every point of the grid or, if the method gives a path, one for every point of the path."""
    from .jobs import run_jobs

    found, folds = dict[str, tuple[Score, dict[int, Score]]](), search.folds * search.repeats
    with executing(where, search.data, emit, search.info.method.programs) as executor:
        ctx = search.context(executor, where.driver_bytes, emit)
        for group in run_jobs(search, search.groups(ctx), ctx, folder):
            for score in group.all_scores(ctx, folder):
                found.setdefault(repr((score.point, score.further)), (score, {}))[1][score.fold] = score
    complete = [(first, [by_fold[fold] for fold in range(folds)]) for first, by_fold in found.values() if len(by_fold) == folds]
    return [_row(search, first, scores) for first, scores in sorted(complete, key=lambda one: one[0].point)]


def _row(search: Search, first: Score, scores: Sequence[Score]) -> dict[str, Any]:
    """Return the row of a point: parameters, mean scores over folds (``None`` if the score is undefined in a fold), and the size of the
    selection.
    """
    config = search.configs[first.point]
    names = sorted({name for point in search.points for name in point})
    further = {ALONG[name]: value for name, value in first.further.items()}
    measure, selected = "accuracy" if "accuracy" in first.values else "r2", float(np.mean([score.n_selected for score in scores]))
    scoring = search.scoring or Scoring((measure,))
    columns = score_columns(scoring, {name: [score.values[name] for score in scores] for name in scoring.names}, selected)
    if search.scoring is None:
        del columns["measure"]
        if measure == "r2":
            error = known(-float(np.mean([score.values[SQUARES] for score in scores])))
            columns = {measure: columns.pop(measure), "mse": error, **columns}
    row = {"point": first.point, **{name: getattr(config, name) for name in names}, **further, **columns}
    deviation, head = row["deviation"], list(row).index("deviation") + 1
    error = {"standard_error": None if deviation is None else deviation / len(scores) ** 0.5}
    return {**dict(list(row.items())[:head]), **error, **dict(list(row.items())[head:])}


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
    """Return the plan of :func:`tune`: the number of fits, what runs as tasks on workers (the passes of a fit, or whole fits), and the
    memory in bytes that a whole fit takes.
    """
    from .jobs import FITS, job_bytes

    check_tunable(method, grid)
    options, points = ComputeOptions(**where), [{**(params or {}), **point} for point in grid_points(grid)]
    search = _search(method, points, open_data(data, method_named(method)), folds, seed, extra, repeats, column=group_column)
    again = {} if repeats == 1 else {"repeats": repeats}
    sizes: dict[str, Any] = {"points": len(points), "folds": folds, **again}
    with one_thread(), open_executor(None) as executor:
        ctx = search.context(executor, options.driver_bytes, ignore)
        groups = search.groups(ctx)
        ready = [group.problem(k, 0, ctx) for group in groups for k in range(len(group.points))]
        shares = all(group.shares(ctx) for group in groups) and (options.config().kind == "sync" or all(one.distributed for one in ready))
        work = list(dict.fromkeys(item for one in ready for item in one.distributed or (FITS,)))
        jobs = {"job_bytes": max(job_bytes(one) for one in ready if not one.distributed)} if FITS in work else {}
    fits = {"fits_sharing_passes" if shares else "fits": len(points) * folds * repeats}
    return {**sizes, **fits, "distributed": work, **jobs}


def best_row(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the row with the highest mean of the deciding score. Ties go to the fewest features or kernels, then to the first row.

    Raises DataError if no row has a score in every fold.
    """
    # Without a score a row holds None, or NaN where its method's own table says so.
    known = [row for row in rows if row[measure_of(row)] is not None and row[measure_of(row)] == row[measure_of(row)]]
    if not known:
        raise DataError("no point of the grid has a score in every fold: in some fold nothing was selected, or the target is constant")
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
    """Return the cross-validated scores of a method on a store: one row, or for ``fgm`` and ``kta-path`` one row per point of the path.

    ``method``, ``params``: name and parameters. ``data``: block store. ``folds``, ``seed``: number of stratified folds, and seed of the
    split. ``cluster``, ``where``: as in :func:`~gramplane.pipeline.run_method`. ``extra``: ``groups``. ``repeats``: number of times that
    the folds are drawn (with the seeds ``seed``, ``seed + 1``, …). ``scoring``, ``group_column``: as in :func:`tune`.

    Rows have ``rounds`` (for ``fgm``) or ``p`` (for ``kta-path``), ``accuracy`` (mean over folds), ``deviation``, ``standard_error``,
    ``selected`` and ``folds``. Regressions have ``r2`` and ``mse`` instead of the accuracy. With ``scoring``, a column with the name of the
    first score replaces ``accuracy`` (or ``r2`` and ``mse``), and ``deviation``, ``standard_error`` and ``folds`` are those of this score.
    Every further score NAME has columns ``NAME`` (mean), ``NAME_deviation`` and ``NAME_folds``. Raises ValueError for an unknown method or
    score, a score that does not suit the target, or a method without a held-out score.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, cross_validate
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> rows = cross_validate(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", folds=3
    ... )
    >>> [row["rounds"] for row in rows], rows[-1]["accuracy"] > 0.9
    ([1, 2], True)
    """
    check_tunable(method, {})
    asked, options = read_scoring(scoring), ComputeOptions(cluster, **where)
    search = _search(method, [dict(params)], open_data(data, method_named(method)), folds, seed, extra, repeats, asked, group_column)
    _check(search, options)
    with temporary_folder() as folder:
        return _table(search, folder, options, on_event or ignore)


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
    """Evaluate a grid by cross-validation, and fit the best point on all rows.

    Points are compared by accuracy, by R2 for a numeric target, or by ``scoring``. Scores equal those of the cross-validated estimators.
    With two classes, the second is positive, whatever the labels. For scores that need probabilities, the decision values of a logistic
    loss are read as log odds; decision values of other losses are converted by a sigmoid, fitted on the held-out rows in five folds.

    Held-out rows have weight zero. Kernels are normalised over all rows, including held-out ones. With several tasks, folds are drawn
    within tasks.

    Fits of different folds share passes and Gram matrices, or one fit is the warm start of another. The path of a Feature Generating
    Machine gives the scores of every number of rounds up to ``max_rounds`` without further fits, so the number of rounds is chosen as well;
    the same holds for ``p`` of a kernel selection path. A stream for the group lasso is read once for all fits. Finished fits are not
    repeated. On a cluster, fits without distributed passes run as tasks, with bit-identical results.

    Parameters
    ----------
    grid, params
        ``grid``: parameter names, each with the values to try. ``params``: parameters common to all points.
    data, run
        Block store and run directory. The table is ``tune.json``; the final fit is in ``best``.
    folds, seed, repeats
        Number of stratified folds, and how often they are drawn: with ``seed``, ``seed + 1`` and so on.
    group_column
        The row names of the store, or a feature. Rows with the same value are held out together, such as all rows of a patient.
    scoring, refit
        Name of a scikit-learn scorer, such as ``"roc_auc"``, or several; ``refit`` names the score that decides; by default it is the
        first.

    Returns
    -------
    RunOutcome
        ``summary`` holds the best parameters and their scores.

    Raises
    ------
    ValueError
        An unknown method, parameter or score, a grid without values, points that cannot be compared, or a score that does not suit the
        target.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, load_model, tune
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = tune(
    ...     "fgm",
    ...     {"C": [0.1, 1.0]},
    ...     data="stores/iris",
    ...     run="runs/tuned",
    ...     params={"B": 2, "max_rounds": 2},
    ...     folds=3,
    ... )
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
    search = _search(method, points, store, folds, seed, more, repeats, asked, group_column)
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
        along = {name: best[key] for name, key in ALONG.items() if key in best}
        folder.write_json("tune", rows)
        final = {**points[best["point"]], **along}
        fit = run_method(method, final, data=store, run=str(Path(run) / "best"), seed=seed, extra=more, on_event=on_event, **vars(options))
        names = () if asked is None else (*asked.names[1:], "measure")
        figures = {key: best[key] for key in (measure_of(best), "deviation", "standard_error", "selected", *names)}
        summary = {"best": jsonable(final), **figures, "fit": fit.summary}
        folder.write_json("summary", summary)
    return RunOutcome("done", summary, run=run)
