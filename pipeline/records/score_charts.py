"""Charts of scores: separation of classes, calibration, regression errors, and the settings of a search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from .charts import FAINT, Chart, Legend, Series, run_label, short
from .run_view import Row, RunView, has_values, measure_of, number
from .shared_charts import MAX_NAMED, column

MAX_BANDS = 2  # curves that are drawn with their intervals; more would lie on top of each other
MAX_TRIALS = 15  # settings of a search that a chart shows; the table has all
MAX_LINEAR_RATIO = 30  # values of a parameter that differ by more than this factor are drawn on a logarithmic scale

SQUARE = (5.0, 4.4)  # inches of charts of two rates


def roc(runs: Sequence[RunView]) -> list[Chart]:
    """Return the ROC curve of every shown score."""
    lines = _curves(runs, "roc", "false_positive_rate", "true_positive_rate", "auc")
    chance = Series([0.0, 1.0], [0.0, 1.0], "chance", colour=FAINT, style="--", width=1.0)
    caption = f"Every point is a threshold of the decision value.{_band_words(lines)}"
    labels = {"x_label": "false positive rate", "y_label": "true positive rate", "unit": True, "size": SQUARE}
    return [Chart("ROC curve", caption, series=[chance, *lines], legend=Legend(), **labels)] if lines else []


def precision_recall(runs: Sequence[RunView]) -> list[Chart]:
    """Return the precision-recall curve of every shown score."""
    lines = _curves(runs, "precision_recall", "recall", "precision", "average_precision")
    caption = f"Every point is a threshold of the decision value.{_band_words(lines)}"
    labels = {"x_label": "recall", "y_label": "precision", "unit": True, "size": SQUARE}
    return [Chart("Precision-recall curve", caption, series=lines, legend=Legend(), **labels)] if lines else []


def _band_words(lines: Sequence[Series]) -> str:
    return " The band is a 95 % interval, from 200 resamples of the rows." if any(line.mark == "band" for line in lines) else ""


def _curves(runs: Sequence[RunView], table: str, x: str, y: str, area: str) -> list[Series]:
    parts = [(run, score, label) for run in runs for score in run.shown_scores for label in _labels(score.get(table) or ())][:MAX_NAMED]
    series = []
    for k, (run, score, label) in enumerate(parts):
        rows = [row for row in score[table] if row["class"] == label]
        at = column(rows, x)
        if len(parts) <= MAX_BANDS:
            series.append(Series(at, column(rows, "upper"), mark="band", colour=k, base=column(rows, "lower"), opacity=0.16))
        series.append(Series(at, column(rows, y), _curve_name(run, runs, score, label, table, area), colour=k))
    return series


def _labels(rows: Sequence[Row]) -> list[object]:
    return list({str(row["class"]): row["class"] for row in rows}.values())


def _curve_name(run: RunView, runs: Sequence[RunView], score: Row, label: object, table: str, area: str) -> str:
    """Return the label of a curve: the run, store and class that distinguish it, and the area under it."""
    several = len(_labels(score[table])) > 1
    names = [str(score.get("store", "")) if len(run.shown_scores) > 1 else "", f"class {label}" if several or not score.get(area) else ""]
    name = run_label(run, runs, " ".join(short(part, 20) for part in names if part)) or f"class {short(label, 20)}"
    return name if several or not score.get(area) else f"{name}: {'area' if area == 'auc' else 'average'} {number(score[area]):.3f}"


def calibration(runs: Sequence[RunView]) -> list[Chart]:
    """Return the fraction of positive rows against predicted probability; without probabilities, against the decision value."""
    known = [(run, score, score["calibration"]) for run in runs for score in run.shown_scores if score.get("calibration")][:MAX_NAMED]
    charts = []
    for key, words in _CALIBRATION.items():
        parts = [(run, score, rows) for run, score, rows in known if has_values(column(rows, key))]
        if parts:
            label = short(parts[0][2][0]["class"], 20)
            diagonal = [Series([0.0, 1.0], [0.0, 1.0], "ideal", colour=FAINT, style="--", width=1.0)] if key == "probability" else []
            lines = [series for k, part in enumerate(parts) for series in _calibration_lines(part, runs, key, k)]
            legend = Legend() if len(diagonal) + len(parts) > 1 else None
            axes = {"x_label": words[0], "y_label": f"observed share of class {label}", "unit": key == "probability", "size": SQUARE}
            charts.append(Chart("Calibration", words[1], series=[*diagonal, *lines], legend=legend, from_zero=True, **axes))
    return charts


_CALIBRATION = {
    "probability": (
        "predicted probability",
        "Observed share of the class by predicted probability, in ten bins of equal size, with 95 % intervals.",
    ),
    "decision": (
        "decision value",
        "Observed share of the class by decision value, in ten bins of equal size, with 95 % intervals. These are not probabilities.",
    ),
}


def _calibration_lines(part: tuple[RunView, Row, Sequence[Row]], runs: Sequence[RunView], key: str, colour: int) -> list[Series]:
    run, score, rows = part
    at, store = column(rows, key), str(score.get("store", "")) if len(run.shown_scores) > 1 else ""
    name = run_label(run, runs, short(store, 20) if store else "") or "these rows"
    whiskers = Series(at, column(rows, "upper"), mark="whisker", colour=colour, base=column(rows, "lower"), opacity=0.6)
    return [whiskers, Series(at, column(rows, "share"), name, colour=colour, marker="o")]


def predictions(run: RunView) -> list[Chart]:
    """Return two charts of a regression: predictions against true values, and residuals against predictions."""
    score = next((score for score in reversed(run.shown_scores) if score.get("predictions")), None)
    if score is None:
        return []
    truth, told = column(score["predictions"], "truth"), column(score["predictions"], "prediction")
    ends = [min(*truth, *told), max(*truth, *told)]
    which = f"{len(truth):,} of {score['rows']:,} rows, evenly by their true value" if score["rows"] > len(truth) else "every row"
    line = Series(ends, ends, "ideal", colour=FAINT, style="--", width=1.0)
    zero = Series([min(told), max(told)], [0.0, 0.0], colour=FAINT, style="--", width=1.0)
    residuals = [a - b for a, b in zip(truth, told, strict=True)]
    looks = {"mark": "point", "width": 14.0, "opacity": 0.6}
    labels = {"x_label": "true value", "y_label": "prediction", "size": SQUARE}
    return [
        Chart("Predicted against true", f"Every point is a row: {which}.", series=[line, Series(truth, told, **looks)], **labels),
        Chart(
            "Residuals",
            "True value minus prediction. A trend or a funnel shows what the model misses.",
            series=[zero, Series(told, residuals, **looks)],
            x_label="prediction",
            y_label="residual",
        ),
    ]


def trials(run: RunView) -> list[Chart]:
    """Return the scores of all settings of a search, with standard errors."""
    rows = [row for row in run.trials if has_values([number(row.get(measure_of(row)))])]
    if len(rows) < 2:
        return []
    measure, keys = measure_of(rows[0]), differing_keys(rows)
    words = f"Mean over the folds, with one standard error; {len(run.trials)} settings were compared."
    if "rounds" in keys and len(_settings(rows, keys)) <= MAX_NAMED:
        lines = [series for k, group in enumerate(_settings(rows, keys)) for series in _trial_line(group, measure, "rounds", k)]
        legend = Legend() if len(_settings(rows, keys)) > 1 else None
        return [Chart("Cross-validation", words, series=lines, x_label="rounds", y_label=_measure_name(measure), whole="x", legend=legend)]
    if len(keys) == 1 and all(isinstance(row[keys[0]], (int, float)) for row in rows):
        ordered = sorted(rows, key=lambda row: row[keys[0]])
        least, most = ordered[0][keys[0]], ordered[-1][keys[0]]
        scale = "log" if least > 0 and most > MAX_LINEAR_RATIO * least else "linear"
        lines = _trial_line(("", ordered), measure, keys[0], 0)
        return [Chart("Cross-validation", words, series=lines, x_label=keys[0], y_label=_measure_name(measure), x_scale=scale)]
    return [_trial_ranking(rows, keys, measure, words)]


def search_path(rows: Sequence[Row], keys: Sequence[str], x: str) -> Chart:
    """Return the scores of an estimator's search along one parameter, with standard errors over the folds.

    There is a line for each setting of the other parameters, and the chosen point is marked. ``keys``: all searched parameters.
    """
    measure, settings = measure_of(rows[0]), _settings(rows, keys, x)
    series = []
    for k, (name, group) in enumerate(settings[:MAX_NAMED]):
        ordered = sorted(group, key=lambda row: number(row[x]))
        at, (lower, upper) = column(ordered, x), _bounds(ordered, measure)
        series.append(Series(at, upper, mark="whisker", colour=k, base=lower, opacity=0.6))
        series.append(Series(at, column(ordered, measure), name, colour=k, marker="o"))
    chosen = [row for row in rows if row["chosen"]]
    series.append(Series(column(chosen, x), column(chosen, measure), "chosen", colour=FAINT, marker="D"))
    values = sorted({number(row[x]) for row in rows})
    is_whole, is_log = all(value.is_integer() for value in values), _is_geometric(values)
    cut = f" {MAX_NAMED} of {len(settings)} settings are drawn." if len(settings) > MAX_NAMED else ""
    words = f"Mean over the folds, with one standard error; the diamond was chosen.{cut}"
    return Chart(
        f"Scores along {x}",
        words,
        x_label=x,
        y_label=_measure_name(measure),
        x_scale="log" if is_log else "linear",
        whole="x" if is_whole and not is_log else "",
        series=series,
        legend=Legend(),
    )


def _is_geometric(values: Sequence[float]) -> bool:
    """Return whether ascending positive values are evenly spaced on a logarithmic scale, or span a large range."""
    if len(values) < 2 or not values[0] > 0:
        return False
    ratios = [after / before for before, after in pairwise(values)]
    is_even = len(ratios) > 1 and max(ratios) < 1.01 * min(ratios)
    return is_even or values[-1] > MAX_LINEAR_RATIO * values[0]


def _measure_name(measure: str) -> str:
    return "R2" if measure == "r2" else measure


def differing_keys(rows: Sequence[Row]) -> list[str]:
    """Return the columns before the score: the parameters that differ between settings."""
    head = list(rows[0])[: list(rows[0]).index(measure_of(rows[0]))]
    return [key for key in head if key != "point" and len({str(row.get(key)) for row in rows}) > 1]


def _setting_name(row: Row, keys: Sequence[str]) -> str:
    return ", ".join(f"{key}={short(row.get(key), 30)}" for key in keys)


def _settings(rows: Sequence[Row], keys: Sequence[str], along: str = "rounds") -> list[tuple[str, list[Row]]]:
    """Group rows by all differing parameters except ``along``, the parameter of the path."""
    others = [key for key in keys if key != along]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_setting_name(row, others), []).append(row)
    return list(groups.items())


def _trial_line(group: tuple[str, Sequence[Row]], measure: str, key: str, colour: int) -> list[Series]:
    name, rows = group
    at, mean, (lower, upper) = column(rows, key), column(rows, measure), _bounds(rows, measure)
    return [
        Series(at, upper, mark="band", colour=colour, base=lower, opacity=0.14),
        Series(at, mean, name, colour=colour, marker="o"),
    ]


def _bounds(rows: Sequence[Row], measure: str) -> tuple[list[float], list[float]]:
    """Return the mean minus and plus one standard error. Runs of earlier versions have no standard error."""
    pairs = list(zip(column(rows, measure), column(rows, "standard_error"), strict=True))
    errors = [0.0 if math.isnan(error) else error for _, error in pairs]
    return [mean - error for (mean, _), error in zip(pairs, errors, strict=True)], [
        mean + error for (mean, _), error in zip(pairs, errors, strict=True)
    ]


def _trial_ranking(rows: Sequence[Row], keys: Sequence[str], measure: str, words: str) -> Chart:
    best = sorted(rows, key=lambda row: -number(row[measure]))[:MAX_TRIALS]
    lower, upper = _bounds(best, measure)
    mean = Series(range(len(best)), column(best, measure))
    names = [short(_setting_name(row, keys), 60) for row in best]
    cut = f" The best {len(best)} are drawn." if len(rows) > len(best) else ""
    return Chart(
        "Cross-validation",
        words + cut,
        "ranking",
        [mean, Series(range(len(best)), upper, base=lower)],
        x_label=_measure_name(measure),
        names=names,
    )
