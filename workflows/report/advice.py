"""What to try next: at most three pieces of advice, most important first, each with its reason and the option to change."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...pipeline.records.run_view import RunView, number
from ...pipeline.registry import METHODS
from .found import is_scored
from .words import MEASURES, best_known, figure, majority_share, on_training_rows, percent, relative_path, selected_count, spoken, unseen

MOST = 3  # lines of advice on a page
MARGIN = 0.01  # an accuracy that is not above the baseline by more is no better
RARE = 0.05  # share of the rows below which a class is rare
OVERFITTED = {"accuracy": 0.1, "r2": 0.2}  # by how much training rows may be predicted better than others
LEFT = 0.01  # share of the objective from which a gap is worth mentioning
MORE_WORK = {"max_rounds": "rounds", "max_iter": "steps", "max_nodes": "nodes", "max_rules": "rules"}


@dataclass(frozen=True)
class Advice:
    """A suggestion: the reason, the remedy, and the command to type if there is one. Of all suggestions on one subject (``about``), only
    the first is shown.
    """

    about: str
    text: str
    command: str = ""


def list_advice(run: RunView) -> list[Advice]:
    """Return the advice that the results of a run suggest, most important first, at most one piece for each subject."""
    found: dict[str, Advice] = {}
    for rule in RULES:
        if (item := rule(run)) is not None:
            found.setdefault(item.about, item)
    return list(found.values())[:MOST]


def tune_command(run: RunView) -> str:
    """Return the ``tune`` command that compares values of the parameter that controls how much is selected; ``""`` if there is none."""
    data = run.settings.get("data")
    key = next((key for key in ("B", "C", "lam") if key in run.params), None)
    if key is None or data is None:
        return ""
    value = run.params[key]
    middle = value if isinstance(value, (int, float)) and value > 0 else 1.0
    grid = [middle * factor for factor in (0.01, 0.1, 1.0, 10.0)]
    if key == "B":
        grid = sorted({max(1, int(middle) // part) for part in (4, 2, 1)})
    places = ["--data", relative_path(data), "--run", f"{run.path.rstrip('/')}-tuned"]
    return shlex.join(["gramplane", "tune", run.method, *places, "--grid", f"{key}={','.join(f'{item:g}' for item in grid)}"])


def _no_better_than_baseline(run: RunView) -> Advice | None:
    accuracy, (label, share), r2 = best_known(run, "accuracy"), majority_share(run), best_known(run, "r2")
    if math.isfinite(share) and accuracy.value <= share + MARGIN:
        text = f'Accuracy {percent(accuracy.value)} on {accuracy.where} is no better than always predicting "{label}" ({percent(share)}).'
    elif r2.value <= MARGIN:
        text = f"R2 {r2.value:.3f} on {r2.where} is no better than always predicting the mean (0)."
    else:
        return None
    return Advice("fit", f"{text} Compare strengths of the penalty, or try other columns or kernels.", tune_command(run))


def _nothing_selected(run: RunView) -> Advice | None:
    if run.summary.get("n_selected") != 0:
        return None
    most = [number(row.get("lambda_max")) for row in run.tables.get("certificates", ())]
    limit = f" (every weight is zero from lam = {max(most):.3g} on)" if most and math.isfinite(max(most)) else ""
    key = "a smaller lam" if "lam" in run.params else "a larger C"
    return Advice("fit", f"Nothing is selected, so every row gets the same prediction. Try {key}{limit}.", tune_command(run))


def _overfitted(run: RunView) -> Advice | None:
    for measure, most in OVERFITTED.items():
        seen, other = on_training_rows(run, measure), unseen(run, measure)
        if seen.value - other.value > most:
            text = f"The model overfits: {MEASURES[measure]} {seen.value:.3f} on training rows, {other.value:.3f} on {other.where}."
            return Advice("fit", f"{text} Select fewer {run.unit}, or use a stronger penalty.", tune_command(run))
    return None


def _fewer_suffice(run: RunView) -> Advice | None:
    """Return advice if a model along the path has at most half the features and scores within one standard error of the best."""
    score = next((score for score in reversed(run.shown_scores) if score.get("path") and run.is_unseen), None)
    points = [point for point in (score or {}).get("path") or () if number(point.get("n_selected")) > 0]
    if run.method != "fgm" or score is None or len(points) < 2:
        return None
    measure = "accuracy" if "accuracy" in points[0] else "r2"
    best = max(number(point[measure]) for point in points)
    low, high = [number(end) for end in score.get("r2_interval") or (math.nan, math.nan)]
    error = math.sqrt(best * (1 - best) / score["rows"]) if measure == "accuracy" else (high - low) / 4
    first = next((point for point in points if number(point[measure]) >= best - error), points[-1])
    if not 2 * number(first["n_selected"]) <= number(points[-1]["n_selected"]):
        return None
    told = [f"{MEASURES[measure]} {number(point[measure]):.3f} with {point['n_selected']} features" for point in (first, points[-1])]
    return Advice("fit", f"Fewer features are as good: {spoken(told)}, on {score['rows']:,} rows. Select fewer.", tune_command(run))


def _stopped_by_limit(run: RunView) -> Advice | None:
    stop, limit = str(run.summary.get("stop")), run.params.get(str(run.summary.get("stop")))
    compared = [number(row.get("rounds" if stop == "max_rounds" else stop)) for row in run.trials]
    if stop not in MORE_WORK or not _still_rises(run) or any(value > number(limit) for value in compared):
        return None
    gap = number(run.summary.get("gap" if run.summary.get("outer_gap") is None else "outer_gap"))
    objective = abs(number(run.summary.get("objective")))
    if not (objective > 0 and gap / objective > LEFT):
        return None
    text = f"Stopped at {stop}={limit}, at most {gap:.3g} ({gap / objective:.0%}) above the optimum. Allow more {MORE_WORK[stop]}."
    return Advice("fit", text.replace("%)", " %)"), f"--set {stop}={2 * limit}" if isinstance(limit, int) else "")


def _still_rises(run: RunView) -> bool:
    """Return whether held-out scores rose in the last round, or are unknown. If they did not rise, more rounds will not help."""
    for measure in MEASURES:
        score = next((score for score in reversed(run.shown_scores if run.is_unseen else ()) if score.get("path")), {"path": ()})
        for values in ([number(point.get(measure)) for point in score["path"]], run.column(f"test_{measure}")):
            known = [value for value in values if math.isfinite(value)]
            if len(known) > 1 and not known[-1] > known[-2]:
                return False
    return True


def _unscaled_columns(run: RunView) -> Advice | None:
    widths = run.training.get("widths")
    if not widths or run.params.get("scale", "auto") not in (None, "none") or not widths[1]["width"] > 1e3 * widths[0]["width"]:
        return None
    narrow, wide = (f"{item['feature']} spans {figure(item['width'])}" for item in widths)
    return Advice("scale", f"Columns differ in scale ({wide}; {narrow}), so the large ones dominate the fit.", "--scale auto")


def _rare_class(run: RunView) -> Advice | None:
    scored: Sequence[Any] = next((score["classes"] for score in reversed(run.scores) if score.get("classes")), ())
    counts = run.training.get("classes") or {str(row["label"]): int(row["support"]) for row in scored if "support" in row}
    if len(counts) < 2 or not sum(counts.values()) or run.params.get("class_weight", "") is not None:
        return None
    label = min(counts, key=lambda name: counts[name])
    share = counts[label] / sum(counts.values())
    text = f'Class "{label}" is rare: {counts[label]:,} of {sum(counts.values()):,} rows ({percent(share)}). Weigh classes alike.'
    return Advice("classes", text, "--set class_weight=balanced") if share < RARE else None


def _edge_of_grid(run: RunView) -> Advice | None:
    edges = []
    for key in run.trials[0] if len(run.trials) > 1 else ():
        values = sorted({number(row.get(key)) for row in run.trials if key in run.params and math.isfinite(number(row.get(key)))})
        chosen = number(run.params.get(key))
        if len(values) > 1 and chosen in (values[0], values[-1]) and _is_allowed(run, key, values):
            edges.append(f"{key}={chosen:g} is the {'smallest' if chosen == values[0] else 'largest'} value compared")
    return Advice("grid", f"{spoken(edges)}, so the best may lie beyond. Extend the grid.") if edges else None


def _is_allowed(run: RunView, key: str, values: Sequence[float]) -> bool:
    """Return whether the method accepts one more value beyond the end of the grid; the chosen value lies at this end."""
    near, end = (values[1], values[0]) if number(run.params[key]) == values[0] else (values[-2], values[-1])
    following = end**2 / near if values[0] > 0 else 2 * end - near
    try:
        METHODS[run.method].config.model_validate({key: type(run.params[key])(following)})
    except ValueError:
        return False
    return True


def _all_selected(run: RunView) -> Advice | None:
    there = number(run.settings.get("n_atoms", run.summary.get("n_features"))) if run.unit == "features" else math.nan
    if not (there > 1 and number(selected_count(run)) >= there):
        return None
    key = "a larger lam" if "lam" in run.params else "n_features_to_select, or a smaller max_rounds,"
    return Advice("fit", f"All {there:,.0f} {run.unit} are selected, so none was left out. Use {key} to select fewer.")


def _fit_remarks(run: RunView) -> Advice | None:
    told: Any = run.summary.get("warnings") or run.summary.get("remark")
    texts = [told] if isinstance(told, str) else [str(text) for text in told or ()]
    return Advice("remarks", " ".join(texts)) if texts else None


def _not_measured(run: RunView) -> Advice | None:
    if run.state != "done" or run.is_unseen or "classes" not in run.summary or not is_scored(run):
        return None
    data = shlex.quote(relative_path(run.settings.get("data", "STORE")))
    if any(unseen(run, measure).where for measure in MEASURES):
        text = "Only one figure is known of the held-out rows. Score them for the confusion matrix, curves and residuals."
        return Advice("measure", text, f"gramplane score {shlex.quote(run.path)} {data}")
    if run.trials:
        text = "The folds took part in choosing the parameters. Score rows that took no part in the search."
        return Advice("measure", text, f"gramplane score {shlex.quote(run.path)} STORE")
    text = "Nothing was measured on rows outside the fit. Hold a share of the rows out, or score another store."
    return Advice("measure", text, f"gramplane fit {run.method} --data {data} --test-share 0.25 …")


RULES: Sequence[Callable[[RunView], Advice | None]] = (
    _nothing_selected,
    _no_better_than_baseline,
    _fit_remarks,
    _fewer_suffice,
    _overfitted,
    _all_selected,
    _unscaled_columns,
    _rare_class,
    _stopped_by_limit,
    _edge_of_grid,
    _not_measured,
)
