"""Sentences of a page: how good the runs are and on which rows, how close to the optimum, and which runs cannot be compared."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...pipeline.records.charts import Chart
from ...pipeline.records.run_view import HELD_OUT_ROWS, TRAINING_ROWS, Row, RunView, has_values, measure_of, number, weight_of

MEASURES = {"accuracy": "accuracy", "r2": "R2"}
ROWS = {HELD_OUT_ROWS: "test rows", TRAINING_ROWS: "training rows"}


@dataclass(frozen=True)
class Measured:
    """A score with its 95 % interval, and a description of the scored rows. ``correct``: number of correctly predicted rows, if they were
    counted.
    """

    value: float
    where: str
    low: float = math.nan
    high: float = math.nan
    correct: int | None = None


NOTHING = Measured(math.nan, "")


def percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def figure(value: float) -> str:
    """Return a number as text: an integer from 1,000 on, else three significant digits; 141,700 and 0.00012, not 1.417e+05 and 1.2e-04."""
    if not math.isfinite(value):
        return "" if math.isnan(value) else str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def relative_path(path: object) -> str:
    """Return a path relative to the working directory; URLs stay as they are."""
    return str(path) if "://" in str(path) else os.path.relpath(str(path))


def spoken(parts: Sequence[str]) -> str:
    """Return parts joined by commas, with "and" before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


# -- how good a model is, and on which rows --------------------------------------------------------------------------------------


def unseen(run: RunView, measure: str) -> Measured:
    """Return accuracy or R2 on rows not used for training: from the last score on such rows, or else the held-out score of the last
    round.
    """
    for score in reversed(run.shown_scores if run.is_unseen else ()):
        if math.isfinite(number(score.get(measure))):
            return _measured(score, measure)
    value = (run.column(f"test_{measure}") or [math.nan])[-1]
    return Measured(value, "held-out rows") if math.isfinite(value) else NOTHING


def _measured(score: Row, measure: str) -> Measured:
    low, high = [number(end) for end in score.get(f"{measure}_interval") or (math.nan, math.nan)]
    counts = score.get("confusion") or ()
    correct = sum(int(row["rows"]) for row in counts if str(row["true"]) == str(row["predicted"]))
    is_counted = measure == "accuracy" and bool(counts) and math.isclose(correct, number(score[measure]) * number(score.get("rows")))
    return Measured(number(score[measure]), rows_text(score), low, min(high, 1.0), correct if is_counted else None)


def over_folds(run: RunView, measure: str) -> Measured:
    """Return the mean score over the folds of a search, at the chosen setting."""
    rows = [row for row in run.trials if has_values([number(row.get(measure))]) and has_values([number(row.get(measure_of(row)))])]
    if not rows:
        return NOTHING
    best = max(rows, key=lambda row: number(row[measure_of(row)]))
    folds = f"{len(best['folds'])} folds" if isinstance(best.get("folds"), (list, tuple)) else "folds"
    return Measured(number(best[measure]), folds)


def on_training_rows(run: RunView, measure: str) -> Measured:
    """Return accuracy or R2 on training rows, from the last round or the last score."""
    scored = [number(score.get(measure)) for score in run.scores if score.get("rows_are") == TRAINING_ROWS]
    value = next((value for value in (*run.column(f"train_{measure}")[-1:], *reversed(scored)) if math.isfinite(value)), math.nan)
    return Measured(value, "training rows") if math.isfinite(value) else NOTHING


def best_known(run: RunView, measure: str) -> Measured:
    """Return accuracy or R2 on the most informative rows: unseen rows if scored, else held-out folds, else training rows."""
    ways = (unseen(run, measure), over_folds(run, measure), on_training_rows(run, measure))
    return next((way for way in ways if math.isfinite(way.value)), NOTHING)


def rows_text(score: Row) -> str:
    """Return the number of scored rows and their store, in words."""
    count = f"{number(score['rows']):,.0f} " if has_values([number(score.get("rows"))]) else ""
    return count + ROWS.get(str(score.get("rows_are")), f"rows of {score.get('store', 'a store')}")


def majority_share(run: RunView) -> tuple[str, float]:
    """Return the most frequent class and its share, among the rows scored last or, if there are none, among the training rows."""
    score = next((score for score in reversed(run.shown_scores) if "majority" in score), None)
    if score is not None:
        return str(score["majority_class"]), number(score["majority"])
    counts: Mapping[str, int] = run.training.get("classes") or {}
    label, total = max(counts, key=lambda name: counts[name], default=""), sum(counts.values())
    return label, counts[label] / total if total else math.nan


# -- sentences ---------------------------------------------------------------------------------------------------------------------


def lead(run: RunView) -> list[str]:
    """Return the first sentences of a page with one run."""
    return [text for text in (_compared(run), _quality(run), _optimism(run), selection_text(run), certificate_text(run)) if text]


def _compared(run: RunView) -> str:
    """Return a text with the score by which a search chose, if it is not the standard one; else ``""``."""
    measure = measure_of(run.trials[0]) if run.trials else "accuracy"
    mean = over_folds(run, measure)
    return "" if measure in MEASURES else f"{measure} {figure(mean.value)} on average over {mean.where}."


def _quality(run: RunView) -> str:
    accuracy, r2 = best_known(run, "accuracy"), best_known(run, "r2")
    if math.isfinite(accuracy.value):
        label, majority = majority_share(run)
        baseline = f' Always predicting "{label}": {percent(majority)}.' if math.isfinite(majority) else ""
        return f"{accuracy_text(accuracy)}.{baseline}"
    if math.isfinite(r2.value):
        score = run.shown_scores[-1] if run.shown_scores else {}
        error, of_mean = [number(score.get(key)) for key in ("rmse", "rmse_of_mean")]
        errors = f" Root mean squared error {figure(error)}; always predicting the mean: {figure(of_mean)}." if error < math.inf else ""
        ends = f" (95 % CI {r2.low:.3f}–{r2.high:.3f})" if math.isfinite(r2.low) else ""
        return f"R2 {r2.value:.3f} on {r2.where}{ends}.{errors}"
    return ""


def accuracy_text(accuracy: Measured) -> str:
    """Return how many rows are correct: ``107 of 108 test rows correct (99.1 %, 95 % CI 94.9–99.8 %)``."""
    ends = f"95 % CI {100 * accuracy.low:.1f}–{percent(accuracy.high)}" if math.isfinite(accuracy.low) else ""
    if "folds" in accuracy.where:
        return f"Accuracy {percent(accuracy.value)} on average over {accuracy.where}"
    if accuracy.correct is None:
        return f"{percent(accuracy.value)} of {accuracy.where} correct{f' ({ends})' if ends else ''}"
    return f"{accuracy.correct:,} of {accuracy.where} correct ({', '.join(filter(None, (percent(accuracy.value), ends)))})"


def _optimism(run: RunView) -> str:
    """Return a warning sentence if only scores on training rows are known; else ``""``."""
    is_trained = any(best_known(run, measure).where.endswith("training rows") for measure in MEASURES)
    return "This figure is optimistic: the model was trained on these rows." if is_trained else ""


def selected_count(run: RunView) -> int | None:
    """Return the number of features, kernels or rules with a non-zero weight."""
    if run.selected:
        return sum(weight_of(row) != 0 for row in run.selected)
    return run.summary.get("n_selected")


def selection_text(run: RunView) -> str:
    """Return how many of the candidates were selected, and how many of the selected ones have weight zero."""
    selected, unit = selected_count(run), run.unit
    if selected is None:
        return ""
    there = run.settings.get("n_atoms", run.summary.get({"kernels": "n_kernels", "features": "n_features"}.get(unit, "")))
    unit = "candidates" if unit == "features" and there not in (None, run.summary.get("n_features")) else unit
    of = f" of {there:,}" if there is not None and unit != "rules" else ""
    empty = len(run.selected) - selected if run.selected else 0
    more = f"; {empty:,} more entered the search and got no weight" if empty else ""
    return f"{selected:,}{of} {_one(unit) if selected == 1 and not of else unit} selected{more}."


def _one(unit: str) -> str:
    word, *rest = unit.split(" ")
    return " ".join([word[:-1], *rest])


def certified_share(run: RunView) -> tuple[str, str] | None:
    """Return the certified distance from the optimum as a share of the objective, and the features (or other candidates) for which it is
    certified; None if unknown.
    """
    name = "outer_gap" if run.summary.get("outer_gap") is not None else "gap"
    gap, objective = number(run.summary.get(name)), abs(number(run.summary.get("objective")))
    if not (math.isfinite(gap) and objective > 0):
        return None
    over = "all features" if name == "outer_gap" else str(run.summary.get("certified_over") or "")
    return f"{figure(100 * max(gap, 0.0) / objective)} %", over


def certificate_text(run: RunView) -> str:
    """Return the certificate as a sentence; ``""`` if there is none."""
    if (found := certified_share(run)) is None:
        return ""
    of = f", over {found[1]}" if found[1] else ""
    return f"Certificate: the objective is within {found[0]} of the optimum{of}. This bounds the solver, not the error of predictions."


def notices(runs: Sequence[RunView]) -> list[str]:
    """Return notes that precede the results: unfinished runs, and runs that cannot be compared."""
    replaced = [f"{run.name}: {run.settings['data_replaced']}." for run in runs if "data_replaced" in run.settings]
    return [text for text in (*map(_state_words, runs), _different_data(runs), _different_scores(runs), *replaced) if text]


def _state_words(run: RunView) -> str:
    if run.state == "done":
        return ""
    reached = f"after {run.step} {len(run.history)}" if run.history else "before its first round"
    words = {"running": f"{run.name} is still running, here {reached}", "not started": f"{run.name} has not begun"}
    again = "" if run.state == "running" else f". To resume: gramplane resume {relative_path(run.path)}"
    return f"{words.get(run.state, f'{run.name} is not finished: it was interrupted {reached}')}{again}."


def _different_data(runs: Sequence[RunView]) -> str:
    digests = [run.settings.get("data_digest") for run in runs]
    if len({digest for digest in digests if digest is not None}) < 2:
        return ""
    sizes = [f", {run.training['rows']:,} rows" if "rows" in run.training else "" for run in runs]
    told = [f"{run.name} to {data_name(run)} ({str(digest)[:8]}{size})" for run, digest, size in zip(runs, digests, sizes, strict=True)]
    return f"These runs were fitted to different data: {spoken(told)}. Differences between them may come from the data."


def _different_scores(runs: Sequence[RunView]) -> str:
    scored = [{(str(score.get("data_digest", score.get("store"))), str(score.get("rows_are"))) for score in run.scores} for run in runs]
    if all(rows == scored[0] for rows in scored):
        return ""
    told = spoken([f"{run.name} on {spoken([rows_text(score) for score in run.scores]) or 'none'}" for run in runs])
    return f"These runs were scored on different rows: {told}. Compare only scores of the same rows."


def data_name(run: RunView) -> str:
    return Path(str(run.settings.get("data", "data"))).name


# -- what a figure shows, for readers who do not see it ----------------------------------------------------------------------------


def describe_chart(chart: Chart) -> str:
    """Return a description of a chart in one sentence: the first bars of a ranking, the size of a table, or the ends of the first lines."""
    if chart.kind == "heat":
        return f"A table of {len(chart.row_names)} rows and {len(chart.names)} columns. {chart.caption}"
    if chart.kind == "ranking":
        first = "; ".join(f"{name}: {figure(value)}" for name, value in list(zip(chart.names, chart.series[0].y, strict=True))[:5])
        return f"{chart.x_label.capitalize()} of {len(chart.names)}, first {first}."
    shown = [series for series in chart.series if series.label] or chart.series
    lines = [(series.label, [y for y in series.y if math.isfinite(y)]) for series in shown]
    told = [f"{label or 'from'}: {figure(values[0])} to {figure(values[-1])}" for label, values in lines[:5] if values]
    return f"{chart.y_label or chart.title} over {chart.x_label or 'x'}. {'; '.join(told)}."
