"""Texts about runs for users: selection, scores, certificate, and the next commands."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..pipeline.records.run_view import OTHER_ROWS, TRAINING_ROWS, Row, RunView, measure_of, number
from .console import align_rows, count_text, format_figure, size_text, table_lines, verdict
from .report.advice import tune_command
from .report.collect import is_run, model_run, view_run
from .report.found import is_scored, what_was_found
from .report.glossary import stop_reason
from .report.words import MEASURES, best_known, certified_share, majority_share, on_training_rows, percent, unseen

if TYPE_CHECKING:
    from .runner import WorkflowOutcome
    from .schema import Workflow

STEADIEST = 20  # features whose stability is shown
FALL = 0.01  # by so much less accuracy at the end of the path than before it is told


def run_text(path: str, status: str = "done", warnings: bool = True) -> str:
    """Return the closing summary of a run. ``status``: the status of the command. ``warnings``: whether to repeat the warnings of the
    fit.
    """
    if not is_run(model_run(path)):
        return f"{path}: the grid is not finished\n\nnext: the tune command again"
    run = view_run(path, path)
    told = run.summary.get("warnings") if warnings else None
    blocks = [
        [_head(run, status), *([f"note: {run.settings['data_replaced']}"] if "data_replaced" in run.settings else [])],
        trial_lines(run),
    ]
    blocks += [_found_lines(run), [*quality_lines(run), *_certificate(run)], [f"warning: {text}" for text in told or ()], _next(run)]
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _head(run: RunView, status: str) -> str:
    steps = count_text(len(run.history), run.step)
    if run.state != "done":
        return f"{run.path}: {run.state}, {steps} done" if run.history else f"{run.path}: {run.state}"
    if run.trials:
        best = ", ".join(f"{key}={run.params.get(key, run.params.get(f'max_{key}'))}" for key in _tuned(run.trials[0]))
        return f"{run.path}: {'done already' if status == 'already-done' else 'done'}; best of the grid: {best}"
    stop = str(run.summary.get("stop", ""))
    why = stop_reason(stop).partition(";")[0].partition(" (")[0]
    word = "done already, it took" if status == "already-done" else "done in"
    return f"{run.path}: {word} {_time(number(run.summary.get('seconds')))} ({steps}; {why})"


def _tuned(trial: Row) -> list[str]:
    """Return the names of the parameters that a search compares, from a row of its table."""
    return [*trial][1 : [*trial].index(measure_of(trial))]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def _found_lines(run: RunView) -> list[str]:
    found = what_was_found(run)
    if found is None:
        return []
    lines = table_lines(found.rows, found.columns)
    if not found.rows:
        return ["  nothing is selected"]
    if (more := found.total - len(found.rows)) > 0:
        file = Path(run.path) / found.file
        where = f"in {file}" if file.is_file() else f"(gramplane report {shlex.quote(run.path)} writes {file})"
        lines.append(f"  and {more:,} more {where}")
    return lines


def trial_lines(run: RunView) -> list[str]:
    """Return a table as lines: a row for every point of a grid, at its best number of rounds; the chosen row is marked."""
    if not run.trials:
        return []
    measure, best = measure_of(run.trials[0]), {}
    for row in run.trials:
        if row["point"] not in best or number(row[measure]) > number(best[row["point"]][measure]):
            best[row["point"]] = row
    tuned = _tuned(run.trials[0])
    largest = max(best.values(), key=lambda row: number(row[measure]))
    chosen = next((row for row in best.values() if all(run.params.get(key, row[key]) == row[key] for key in tuned)), largest)
    skipped = {"point", "folds", "measure", "standard_error"} | {
        key for row in run.trials for key in row if key.endswith(("_folds", "_deviation"))
    }
    rows = [
        {" ": "*" if row is chosen else "", **{k: format_figure(v) if k in tuned else v for k, v in row.items() if k not in skipped}}
        for row in best.values()
    ]
    folds = len(chosen["folds"]) if isinstance(chosen.get("folds"), (list, tuple)) else 0
    return [*table_lines(rows), f"  * chosen: largest mean over {folds} folds"]


def quality_lines(run: RunView) -> list[str]:
    """Return the scores of a run, the rows they are measured on, and a note if fewer features score better."""
    measure = next((name for name in MEASURES if math.isfinite(best_known(run, name).value)), None)
    if measure is None:
        return []
    known, train = best_known(run, measure), on_training_rows(run, measure)
    figure = percent if measure == "accuracy" else "{:.3g}".format
    majority = majority_share(run)[1] if measure == "accuracy" else math.nan
    beside = f"; most frequent class: {percent(majority)}" if math.isfinite(majority) else ""
    is_train = not run.trials and not math.isfinite(unseen(run, measure).value)
    where = f"{'over' if 'fold' in known.where else 'on'} {known.where}{' (optimistic)' if is_train else ''}"
    lines = [f"{MEASURES[measure]} {figure(known.value)} {where}{beside}"]
    if not is_train and math.isfinite(train.value):
        lines.append(f"{MEASURES[measure]} {figure(train.value)} on training rows (optimistic)")
    return [*lines, *_falling(run, measure)]


def _falling(run: RunView, measure: str) -> list[str]:
    """Return a note if a model with fewer features scored better on held-out rows, with the command that chooses their number."""
    points = [(row["n_selected"], number(row.get(f"test_{measure}"))) for row in run.history if row.get("n_selected") is not None]
    points += [(row["n_selected"], number(row.get(measure))) for score in run.shown_scores[-1:] for row in score.get("path") or ()]
    points = [point for point in points if math.isfinite(point[1])]
    if run.unit != "features" or not points:
        return []
    best, last = max(points, key=lambda point: point[1]), points[-1]
    if best[1] - last[1] < FALL or best[0] >= last[0]:
        return []
    figure = percent if measure == "accuracy" else "{:.3g}".format
    told = f"fewer features do better: {best[0]:,} features {figure(best[1])}, {last[0]:,} features {figure(last[1])}"
    return [told, *([f"help: {command}"] if (command := _tune_command(run)) else [])]


def _tune_command(run: RunView) -> str:
    """Return the command that chooses the number of features for the Feature Generating Machine."""
    return tune_command(run) if run.method == "fgm" and not run.trials else ""


def _short(path: object) -> str:
    """Return a path relative to the current folder if it is inside."""
    place = Path(str(path))
    return shlex.quote(str(place.relative_to(Path.cwd()) if place.is_absolute() and place.is_relative_to(Path.cwd()) else place))


def _certificate(run: RunView) -> list[str]:
    """Return one sentence on the distance of the objective from the optimum."""
    if (found := certified_share(run)) is not None:
        return [f"certified within {found[0]} of the optimum ({found[1]})"]
    gap, over = number(run.summary.get("gap")), run.summary.get("certified_over")
    if math.isfinite(gap):
        return [f"certified: the error is at most {max(gap, 0.0):.1g} ({over})"]
    if run.state != "done":
        return []
    return [f"no certificate{': ' + str(over).removeprefix('none: ') if over else ': rows were read as a stream'}"]


def _held_out(run: RunView) -> float:
    """Return accuracy or R2 on held-out rows, NaN if there are none."""
    return next((value for name in MEASURES if math.isfinite(value := unseen(run, name).value)), math.nan)


def _next(run: RunView) -> list[str]:
    path = shlex.quote(run.path)
    if run.state == "running":
        return []
    if run.state != "done":
        return [f"next: {'the tune command again' if run.trials else f'gramplane resume {path}'}"]
    scored = is_scored(run)
    commands = [f"gramplane report {path}"]
    if scored and not run.is_unseen:
        commands.insert(0, f"gramplane score {path} TEST    # TEST: rows not used for the fit")
    elif not scored and "data" in run.settings and "stream" not in run.settings:
        commands.append(f"gramplane predict {path} {_short(run.settings['data'])} out.csv")
    if scored and not run.is_unseen and not math.isfinite(_held_out(run)) and (command := _tune_command(run)):
        commands.append(f"{command}    # chooses how many features")
    return [f"{'next:' if not k else '     '} {command}" for k, command in enumerate(commands)]


def score_text(score: Row, store: str) -> str:
    """Return a table of metrics: the score and its baseline, then the scores by class, by task, and along the path."""
    left = dict(score)
    rows, which = left.pop("rows", 0), {OTHER_ROWS: f"rows of {store}"}.get(str(left.get("rows_are")), left.get("rows_are"))
    optimistic = " (optimistic)" if left.pop("rows_are", None) == TRAINING_ROWS else ""
    lines = [_accuracy_text(left, rows) if "accuracy" in left else _r2_text(left), f"scored on: {rows:,} {which}{optimistic}"]
    tables = {key: left.pop(key) for key in [*left] if isinstance(left[key], list) and left[key] and isinstance(left[key][0], Mapping)}
    rest = [
        (_FIGURES.get(key, key), _with_interval(left, key)) for key in left if not key.endswith("_interval") and left[key] not in (None, [])
    ]
    blocks = [*lines, *([""] if rest else []), *align_rows(rest).splitlines()]
    for key, table in tables.items():
        shares = {"accuracy", "precision", "recall", "f1"}
        names = {"label": "class", "support": "rows", "n_selected": "features"}
        shown = [{str(names.get(name, name)): percent(value) if name in shares else value for name, value in row.items()} for row in table]
        blocks += ["", f"{_TABLES.get(key, f'by {key}')}:", *table_lines(shown)]
    return "\n".join(blocks)


_FIGURES = {"auc": "area under the ROC curve", "mean_auc": "mean area over the tasks", "mae": "mean absolute error"}
_TABLES = {"classes": "by class", "tasks": "by task", "path": "by number of features"}


def _accuracy_text(left: dict[str, Any], rows: int) -> str:
    left.pop("majority_class", None)
    accuracy = left.pop("accuracy")
    interval, majority = left.pop("accuracy_interval", None), left.pop("majority", None)
    low_high = f", 95 % CI {100 * interval[0]:.1f}–{percent(min(interval[1], 1.0))}" if interval else ""
    beside = "" if majority is None else f"; most frequent class: {percent(majority)}"
    return f"{round(accuracy * rows):,} of {rows:,} correct ({percent(accuracy)}{low_high}){beside}"


def _r2_text(left: dict[str, Any]) -> str:
    r2, interval, error, of_mean = (left.pop(key, None) for key in ("r2", "r2_interval", "rmse", "rmse_of_mean"))
    low_high = f" (95 % CI {interval[0]:.3f} to {interval[1]:.3f})" if interval else ""
    explained = "R2 is not defined: the target is constant" if r2 is None else f"R2 {r2:.3f}{low_high}"
    return f"{explained}; root mean squared error {format_figure(error, 3)} (always predicting the mean: {format_figure(of_mean, 3)})"


def _with_interval(left: Row, key: str) -> object:
    interval = left.get(f"{key}_interval")
    return f"{left[key]:.3f} (95 % CI {interval[0]:.3f} to {interval[1]:.3f})" if interval else format_figure(left[key], 4)


def stability_text(found: Row, path: str) -> str:
    """Return the stability of a run's features, most stable first."""
    features, resamples = found["features"], found["resamples"]
    rows = [{"feature": row["feature"], "selected in": percent(row["frequency"]), "in the fit": row["in_the_fit"]} for row in features]
    told = f"{path}: {found['steady']} features are stable (selected in at least 80 % of {resamples} resamples)"
    lines = [told, "", *table_lines(rows[:STEADIEST])]
    more = len(rows) - STEADIEST
    lines += [f"  and {more:,} more (gramplane report {shlex.quote(path)} writes {Path(path) / 'stability.csv'})"] if more > 0 else []
    mean = found["mean_frequency"]
    of_the_fit = [] if mean is None else [f"the {found['n_selected']} features of the fit: selected in {percent(mean)} on average"]
    return "\n".join([*lines, "", *of_the_fit])


def workflow_text(read: Workflow, outcome: WorkflowOutcome) -> str:
    """Return a line for each step of a workflow: state, main result, and the path that the step wrote."""
    results, plans = outcome.last.get("results"), outcome.last.get("plans", {})
    results = dict.fromkeys(outcome.steps, outcome.last) if results is None else results
    rows = []
    for name, state in outcome.steps.items():
        told = verdict(plans[name]) if name in plans else _step_words(outcome.folder / name, results.get(name, {}))
        time = _time(outcome.seconds[name]) if state == "done" else ""
        rows.append({"step": name, "state": state.replace("-", " "), "time": time, "outcome": told})
    return "\n".join([f"{read.spec.name}: {_short(outcome.folder)}", *table_lines(rows, ["step", "state", "time", "outcome"])[1:]])


def _step_words(folder: Path, figures: Row) -> str:
    """Return the main result of a step in a few words, and its path."""
    best = figures.get("fit", figures)
    majority = f" (most frequent class: {percent(figures['majority'])})" if figures.get("majority") is not None else ""
    words = [
        f"{figures['rows']:,} rows" if "rows" in figures and not {"accuracy", "r2"} & set(figures) else "",
        f"{figures['columns']:,} columns" if "columns" in figures else "",
        f"{figures['kernels']} kernels" if isinstance(figures.get("kernels"), int) else "",
        f"{best['n_selected']:,} selected" if "n_selected" in best and "resamples" not in figures else "",
        f"{figures['steady']:,} stable features" if "steady" in figures else "",
        f"{size_text(figures['bytes'])} in {figures['objects']:,} objects, all sound" if "objects" in figures else "",
    ]
    measured = {"accuracy": "accuracy", "r2": "R2", "test_accuracy": "held-out accuracy", "test_r2": "held-out R2"}
    key = next((key for key in measured if figures.get(key) is not None), None)
    if key is not None:
        words.append(f"{measured[key]} {percent(figures[key]) if 'accuracy' in key else format_figure(figures[key], 3)}{majority}")
    is_run = "iterations" in best
    written = next(
        (figures[key] for key in ("report", "out", "grams", "store") if isinstance(figures.get(key), str)), folder if is_run else ""
    )
    return "  ".join(filter(None, (", ".join(filter(None, words)), _short(written) if written else "")))
