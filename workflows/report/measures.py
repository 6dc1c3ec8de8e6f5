"""How well a run does, and on which rows: what its page puts first, and advice looks at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...pipeline.records.run_view import HELD_OUT_ROWS, TRAINING_ROWS, Row, RunView, measure_of, number

MEASURES = {"accuracy": "accuracy", "r2": "R2"}


@dataclass(frozen=True)
class Measured:
    """A figure, and the rows it is of in words."""

    value: float
    where: str
    low: float = math.nan
    high: float = math.nan


NOTHING = Measured(math.nan, "")


def unseen(run: RunView, measure: str) -> Measured:
    """Return accuracy or R2 on rows that the fit has not seen: of the last score of such rows, else of those held out in the last round."""
    for score in reversed(run.shown_scores if run.is_unseen else ()):
        if math.isfinite(number(score.get(measure))):
            low, high = [number(end) for end in score.get(f"{measure}_interval") or (math.nan, math.nan)]
            return Measured(number(score[measure]), rows_text(score), low, high)
    value = (run.column(f"test_{measure}") or [math.nan])[-1]
    return Measured(value, HELD_OUT_ROWS) if math.isfinite(value) else NOTHING


def over_folds(run: RunView, measure: str) -> Measured:
    """Return the mean over the folds of a search at the setting that was chosen."""
    rows = [row for row in run.trials if math.isfinite(number(row.get(measure))) and math.isfinite(number(row.get(measure_of(row))))]
    if not rows:
        return NOTHING
    best = max(rows, key=lambda row: number(row[measure_of(row)]))
    error = number(best.get("standard_error"))
    if measure != measure_of(best):
        error *= number(best.get(f"{measure}_deviation")) / (number(best.get("deviation")) or math.nan)
    folds = len(best["folds"]) if isinstance(best.get("folds"), (list, tuple)) else 0
    return Measured(
        number(best[measure]), f"{folds} folds" if folds else "folds", number(best[measure]) - error, number(best[measure]) + error
    )


def on_training_rows(run: RunView, measure: str) -> Measured:
    """Return accuracy or R2 on training rows, as the last round or a score of them says."""
    scored = [number(score.get(measure)) for score in run.scores if score.get("rows_are") == TRAINING_ROWS]
    values = [*run.column(f"train_{measure}")[-1:], *reversed(scored)]
    value = next((value for value in values if math.isfinite(value)), math.nan)
    return Measured(value, TRAINING_ROWS) if math.isfinite(value) else NOTHING


def best_known(run: RunView, measure: str) -> Measured:
    """Return what is known of accuracy or R2 of rows that say most: unseen ones, else folds, else training rows."""
    ways = (unseen(run, measure), over_folds(run, measure), on_training_rows(run, measure))
    return next((way for way in ways if math.isfinite(way.value)), NOTHING)


def rows_text(score: Row) -> str:
    """Return which rows a score is of: their number, and where they lie."""
    rows, store = number(score.get("rows")), str(score.get("store", ""))
    count = f"{rows:,.0f} " if math.isfinite(rows) else ""
    return f"{count}{score['rows_are']}" if score.get("rows_are") in (TRAINING_ROWS, HELD_OUT_ROWS) else f"{count}rows of {store}"


def majority_share(run: RunView) -> tuple[str, float]:
    """Return the commonest class, and the accuracy of always answering it: on the rows scored last, else on the training data."""
    score = next((score for score in reversed(run.shown_scores) if "majority" in score), None)
    if score is not None:
        return str(score["majority_class"]), number(score["majority"])
    counts: Mapping[str, int] = run.training.get("classes") or {}
    label, total = max(counts, key=lambda name: counts[name], default=""), sum(counts.values())
    return label, counts[label] / total if total else math.nan


def data_name(run: RunView) -> str:
    """Return the name of the training data."""
    return Path(str(run.settings.get("data", "data"))).name
