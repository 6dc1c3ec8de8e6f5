"""Grids and folds of any method: fit after fit through its own preparation, the rows of a fold held out by their weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...storage import RunStore
from ..core.engine import iterate, result_of
from ..core.method import Problem
from ..inputs.folds import draw_masks, row_groups
from ..inputs.labels import Inputs, store_inputs
from ..inputs.tasks import store_tasks, with_tasks
from ..models.held_out_scores import HeldOutRows, Scoring, score_columns
from ..records.context import RunContext
from ..registry import MethodInfo

PLACES = ("grams", "gram_store")  # parameters that say where matrices lie; results do not depend on them


@dataclass(frozen=True)
class Search:
    """A grid that is evaluated fit after fit."""

    info: MethodInfo  # the method
    configs: Sequence[Any]  # parameters of every point
    points: Sequence[Mapping[str, Any]]  # the same as they were given, for the record
    extra: Mapping[str, Any]  # further inputs of the fits, such as groups
    inputs: Inputs  # target and classes
    masks: Sequence[np.ndarray]  # `(n_samples,)` rows held out, of every fold
    record: Mapping[str, Any]  # what the fits have in common, kept in their folders
    scoring: Scoring | None = None  # what points are compared by; None: accuracy, or R2

    def prepared(self, point: int, fold: int, ctx: RunContext) -> Problem:
        """Return the problem of one fit; ``held_out`` among its further inputs is the mask of a fold."""
        return self.info.prepare(self.configs[point], ctx, {**self.extra, "held_out": self.masks[fold]})

    @property
    def measure(self) -> str:
        """What every fit measures: ``"accuracy"``, or ``"r2"`` of regressions."""
        return "r2" if self.inputs.classes is None else "accuracy"


def fold_inputs(
    ctx: RunContext, method: str, tasks: bool, folds: int, seed: int, column: str | None = None
) -> tuple[Inputs, list[np.ndarray]]:
    """Return target and classes of a store, and the mask of held-out rows of every fold.

    Folds are drawn within tasks where the method has ``tasks`` and the store, too; else within classes, where there are any.

    Raises ValueError: fewer than two folds; DataError: a class or task with fewer rows than folds.
    """
    inputs = store_inputs(ctx, method)
    codes = store_tasks(ctx.data) if tasks else None
    rows = inputs if codes is None else with_tasks(inputs, codes, ctx.data.url)
    return inputs, draw_masks(rows, folds, seed, row_groups(ctx.data, column, folds))


def build_search(
    ctx: RunContext,
    info: MethodInfo,
    configs: Sequence[Any],
    points: Sequence[Mapping[str, Any]],
    extra: Mapping[str, Any],
    folds: int,
    seed: int,
    repeats: int = 1,
    scoring: Scoring | None = None,
    column: str | None = None,
) -> Search:
    """Return a grid with the target and the folds of ``ctx.data``: the same wherever it is made.

    ``repeats``: how often the folds are drawn, each time from another seed: those of all repetitions stand one after another;
    ``column``: rows of one of its values are held out together.
    """
    drawn = [fold_inputs(ctx, info.name, info.config.has_tasks, folds, seed + k, column) for k in range(repeats)]
    inputs, masks = drawn[0][0], [mask for _, some in drawn for mask in some]
    record = {"method": info.name, "folds": folds, "seed": seed, "data": ctx.data.digest}
    record |= {} if scoring is None else {"scoring": list(scoring.names)}
    record |= {} if column is None else {"group_column": column}
    return Search(info, configs, points, extra, inputs, masks, record, scoring)


def check_points(search: Search, ctx: RunContext) -> None:
    """Prepare a fit of every point and of every fold, and run none: what does not fit the data is refused before work starts."""
    for point in range(len(search.configs)):
        search.prepared(point, 0, ctx)
    for fold in range(1, len(search.masks)):
        search.prepared(0, fold, ctx)


def table_rows(
    search: Search, ctx: RunContext, folder: Path, names: Sequence[str], known: Mapping[tuple[int, int], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Yield one row per grid point: its score over the folds, and what was selected; ``known``: figures of fits that workers did.

    Every fit has a folder with its checkpoints and, when it is done, its figures: it is never done again.
    """
    for point, config in enumerate(search.configs):
        fits = []
        for fold in range(len(search.masks)):
            done = fit_fold(search, point, fold, ctx, folder, known.get((point, fold)))
            progress = {"point": point + 1, "points": len(search.configs), "fold": fold + 1, "folds": len(search.masks)}
            ctx.emit({"event": "fold", **progress, search.measure: done.get(f"test_{search.measure}"), **done.get("scores", {})})
            fits.append(done)
        settings = {name: getattr(config, name) for name in names}
        yield {"point": point, **settings, **_score_figures(search, fits)}


def _place(folder: Path, point: int, fold: int) -> Path:
    return folder / f"cv-{point}-{fold}"


def is_done(folder: Path, point: int, fold: int) -> bool:
    """Return whether a fit of a search has its figures already."""
    place = _place(folder, point, fold)
    return (place / "config.json").exists() and RunStore.open(place).read_json("summary") is not None


def fit_fold(search: Search, point: int, fold: int, ctx: RunContext, folder: Path, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the figures of a fit: those in its folder, those that are ``known`` and are written there now, or what it ends with."""
    record = {**search.record, "point": search.points[point], "fold": fold}
    with RunStore.begin(_place(folder, point, fold), record) as run:
        done = run.read_json("summary")
        if done is None:
            done = known or fit_figures(search, point, fold, replace(ctx, scratch=run))
            run.drop_scratch()
            run.write_json("summary", done)
    return done


def fit_figures(search: Search, point: int, fold: int, ctx: RunContext) -> dict[str, Any]:
    """Return the figures of a fit, run to its end, from the checkpoints of ``ctx.scratch`` if there are any."""
    ready = search.prepared(point, fold, ctx)
    outcome = iterate(search.info.method, ready, ctx, store=ctx.scratch)
    last = outcome.history[-1] if outcome.history else {}
    names = f"train_{search.measure}", f"test_{search.measure}"
    scores = {name: last[name] for name in names if _known(last.get(name)) is not None}
    figures = {**result_of(search.info.method, ready, outcome, ctx).summary, **scores}
    if search.scoring is not None:
        mask, is_scored = search.masks[fold], _known(figures.get(f"test_{search.measure}")) is not None
        values = search.info.method.decision_values(ready, outcome.state, ctx) if is_scored else np.full((1, len(mask)), np.nan)
        classes, kind = ready.inputs.labelled.classes, search.configs[point].probability_kind
        rows = HeldOutRows(ready.inputs.truth, None if classes is None else len(classes), mask, kind)
        figures["scores"] = {name: _known(value) for name, value in rows.scores(search.scoring, values).items()}
    return figures


def _score_figures(search: Search, fits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean and deviation over folds, ``None`` where a fold has no score: no kernel left, or a target without variance there.

    With them what was selected, as a mean over folds.
    """
    # How much of its kernels, rules or groups a fit has kept; all kernels where it chooses none.
    selected = float(np.mean([float(fit["n_selected"] if "n_selected" in fit else fit["n_kernels"]) for fit in fits]))
    if search.scoring is not None:
        return score_columns(search.scoring, {name: [fit["scores"][name] for fit in fits] for name in search.scoring.names}, selected)
    measure, target = search.measure, search.inputs.target
    scores = np.array([fit.get(f"test_{measure}", np.nan) for fit in fits], dtype=float)
    row = {measure: _known(scores.mean())}
    if measure == "r2":
        row["mse"] = _known(np.mean([(1.0 - r2) * target[mask].var() for r2, mask in zip(scores, search.masks, strict=True)]))
    return {**row, "deviation": _known(scores.std(ddof=1)), "selected": selected, "folds": [_known(value) for value in scores]}


def _known(value: Any) -> float | None:
    return None if value is None or value != value else float(value)
