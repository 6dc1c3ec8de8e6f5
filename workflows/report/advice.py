"""What to try next: rules that look at the figures of a run, each saying which figure it is about and which option changes it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...pipeline.records.run_view import Row, RunView, number
from ...pipeline.registry import METHODS
from .alternatives import spoken
from .measures import MEASURES, best_known, majority_share, on_training_rows, unseen

MARGIN = 0.01  # an accuracy that is not above the baseline by more is no better
RARE = 0.05  # share of the rows below which a class is rare
FAR = 1e3  # ratio of the widths of two columns from which on the wide one rules
OVERFITTED = {"accuracy": 0.1, "r2": 0.2}  # by how much training rows may be told better than others
LEFT = 0.01  # share of the objective that a gap is worth a word from
LIMITS = ("max_rounds", "max_iter", "max_nodes", "max_rules")
SCALE_FREE = ("rule-ensemble", "kta-path")  # methods that look at one column at a time, in its own units

MORE_WORK = {"max_rounds": "rounds", "max_iter": "steps", "max_nodes": "nodes", "max_rules": "rules"}


@dataclass(frozen=True)
class Advice:
    """One thing to try: what the figures say, and what changes it, as words to type if there are any."""

    text: str
    command: str = ""


def list_advice(run: RunView) -> list[Advice]:
    """Return what the figures of a run suggest, what matters most first."""
    return [item for rule in RULES if (item := rule(run)) is not None]


def _tuning(run: RunView) -> str:
    """Return the words that compare values of the weight of the penalty or loss of a method."""
    key = next((key for key in ("C", "lam") if key in run.params), None)
    data = run.settings.get("data")
    if key is None or data is None:
        return ""
    middle = run.params[key] if isinstance(run.params[key], (int, float)) and run.params[key] > 0 else 1.0
    grid = ",".join(f"{middle * factor:g}" for factor in (0.01, 0.1, 1.0, 10.0))
    words = ["gramplane", "tune", run.method, "--data", str(data), "--run", f"{run.path.rstrip('/')}-tuned", "--grid", f"{key}={grid}"]
    return shlex.join(words)


def _no_better_than_baseline(run: RunView) -> Advice | None:
    accuracy, (label, share) = best_known(run, "accuracy"), majority_share(run)
    if math.isfinite(share) and accuracy.value <= share + MARGIN:
        text = f"Accuracy {accuracy.value:.3f} on {accuracy.where} is not above always answering {label}, which has {share:.3f}."
        return Advice(f"{text} Compare other strengths of the penalty, or give it other columns or kernels.", _tuning(run))
    r2 = best_known(run, "r2")
    if r2.value <= MARGIN:
        text = f"R2 {r2.value:.3f} on {r2.where} is not above always answering the mean, which has 0."
        return Advice(f"{text} Compare other strengths of the penalty, or give it other columns or kernels.", _tuning(run))
    return None


def _nothing_selected(run: RunView) -> Advice | None:
    if run.summary.get("n_selected") != 0:
        return None
    most = [number(row.get("lambda_max")) for row in run.tables.get("certificates", ())]
    limit = f" (every weight is zero from lam = {max(most):.3g} on)" if most and math.isfinite(max(most)) else ""
    key = "a smaller lam" if "lam" in run.params else "a larger C"
    return Advice(f"Nothing is selected, so every row gets the same answer: give {key}{limit}.", _tuning(run))


def _all_selected(run: RunView) -> Advice | None:
    # Of methods that choose columns or groups; kernels are all kept by some constraints.
    there = run.settings.get("n_atoms", run.summary.get("n_features")) if run.unit == "features" else None
    selected, choices = number(run.summary.get("n_selected")), number(there)
    if not (math.isfinite(choices) and choices > 1 and selected >= choices):
        return None
    key = "a larger lam" if "lam" in run.params else "n_features_to_select, or fewer rounds (max_rounds),"
    return Advice(f"All {selected:,.0f} {run.unit} are selected, so nothing was left out: {key} selects fewer.")


def _stopped_by_limit(run: RunView) -> Advice | None:
    stop = run.summary.get("stop")
    if stop not in LIMITS or _too_close_fit(run) is not None:
        return None  # nothing more is needed where the fit follows its rows too closely as it is
    compared = [number(row.get("rounds" if stop == "max_rounds" else stop)) for row in run.trials]
    if any(value > number(run.params.get(stop)) for value in compared):
        return None  # folds looked beyond, and found nothing better
    is_by_cuts = run.summary.get("outer_gap") is not None
    gap, objective = number(run.summary.get("outer_gap" if is_by_cuts else "gap")), abs(number(run.summary.get("objective")))
    share = gap / objective if objective > 0 else math.nan
    if not share > LEFT:
        return None
    limit = run.params.get(stop)
    text = f"{stop}={limit} ended the fit {gap:.3g} above the least value at most, {share:.0%} of the objective."
    told = " Where accuracy still rises with the rounds," if is_by_cuts else ""
    more = f" {'Allow' if not told else 'allow'} more {MORE_WORK[str(stop)]}."
    return Advice(text + told + more, f"--set {stop}={2 * int(limit)}" if isinstance(limit, int) else "")


def _rare_class(run: RunView) -> Advice | None:
    scored: Sequence[Row] = next((score["classes"] for score in reversed(run.scores) if score.get("classes")), ())
    known = {str(row["label"]): int(row["support"]) for row in scored if "support" in row}
    counts: Mapping[str, int] = run.training.get("classes") or known
    total = sum(counts.values())
    if len(counts) < 2 or not total or "class_weight" not in run.params or run.params["class_weight"] is not None:
        return None
    label = min(counts, key=lambda name: counts[name])
    share = counts[label] / total
    if share >= RARE:
        return None
    text = f"Class {label} has {counts[label]:,} of {total:,} rows ({share:.1%}), and rows of every class count alike."
    return Advice(
        f"{text} Let classes count alike instead, and look at precision and recall rather than accuracy.", "--set class_weight=balanced"
    )


def _unscaled_columns(run: RunView) -> Advice | None:
    widths = run.training.get("widths")
    if not widths or run.method in SCALE_FREE or not widths[1]["width"] > FAR * widths[0]["width"]:
        return None
    narrow, wide = (f"{item['feature']} ({item['width']:.3g})" for item in widths)
    text = f"Columns have very different widths: {wide} beside {narrow}. Penalties and distances look at the wide ones first."
    option = "--scale standard" if "scale" in run.params else "gramplane ingest --scale standard …"
    return Advice(f"{text} Scaled columns count alike.", option)


def _too_close_fit(run: RunView) -> Advice | None:
    for measure, most in OVERFITTED.items():
        seen, other = on_training_rows(run, measure), unseen(run, measure)
        if seen.value - other.value > most:
            text = f"{MEASURES[measure].capitalize()} is {seen.value:.3f} on training rows and {other.value:.3f} on {other.where}"
            key = "a larger lam" if "lam" in run.params else "a smaller C" if "C" in run.params else "a stronger penalty"
            return Advice(f"{text}: the fit follows its rows too closely. Try {key}, fewer {run.unit}, or more rows.", _tuning(run))
    return None


def _fewer_do(run: RunView) -> Advice | None:
    """Say so where a model on the way has half of the features, and is as good up to the error of the rows."""
    score = next((score for score in reversed(run.shown_scores) if score.get("path") and run.is_unseen), None)
    points = [point for point in (score or {}).get("path") or () if number(point.get("n_selected")) > 0]
    if run.method != "fgm" or score is None or len(points) < 2:
        return None
    measure = "accuracy" if "accuracy" in points[0] else "r2"
    best = max(number(point[measure]) for point in points)
    if measure == "accuracy":
        error = math.sqrt(best * (1 - best) / score["rows"])
    else:
        low, high = [number(end) for end in score.get("r2_interval") or (math.nan, math.nan)]
        error = (high - low) / 4  # of two standard errors to either side
    k, first = next(((k, point) for k, point in enumerate(points, 1) if number(point[measure]) >= best - error), (0, points[-1]))
    if not 2 * number(first["n_selected"]) <= number(points[-1]["n_selected"]):
        return None
    first_words, last_words = (
        f"{point['n_selected']} features have {MEASURES[measure]} {number(point[measure]):.3f}" for point in (first, points[-1])
    )
    text = f"{first_words}, {last_words}: no difference that {score['rows']:,} rows can tell. Let folds decide how many are needed."
    return Advice(text, _tuning(run) or f"--set max_rounds={k}")


def _edge_of_grid(run: RunView) -> Advice | None:
    if len(run.trials) < 2:
        return None
    edges = []
    for key in run.trials[0]:
        values = sorted({number(row.get(key)) for row in run.trials if key in run.params and math.isfinite(number(row.get(key)))})
        chosen = number(run.params.get(key))
        if len(values) > 1 and chosen in (values[0], values[-1]) and _may_lie_beyond(run, key, values):
            edges.append(f"{key}={chosen:g} is the {'least' if chosen == values[0] else 'largest'} that was compared")
    return Advice(f"{spoken(edges)}: the best may lie beyond. Let the grid reach further.") if edges else None


def _may_lie_beyond(run: RunView, key: str, values: Sequence[float]) -> bool:
    """Return whether the method takes the next value of a grid beyond the end that was chosen."""
    ends = (values[1], values[0]) if number(run.params[key]) == values[0] else (values[-2], values[-1])
    following = ends[1] ** 2 / ends[0] if values[0] > 0 else 2 * ends[1] - ends[0]
    if run.method not in METHODS:
        return True
    try:
        METHODS[run.method].config.model_validate({key: type(run.params[key])(following)})
    except ValueError:
        return False
    return True


def _not_measured(run: RunView) -> Advice | None:
    if run.state != "done" or run.is_unseen or "classes" not in run.summary:
        return None
    data = shlex.quote(str(run.settings.get("data", "STORE")))
    held_out = [key for key in ("test_accuracy", "test_r2") if math.isfinite(number((run.history or [{}])[-1].get(key)))]
    if held_out:
        text = "Of the rows held out only one figure is known. Score them for the confusion of classes, curves and residuals."
        return Advice(text, f"gramplane score {shlex.quote(run.path)} {data}")
    if run.trials:
        text = "What is known of rows outside the fit are the folds of the search. Score rows that took no part in it."
        return Advice(text, f"gramplane score {shlex.quote(run.path)} STORE")
    text = "Nothing here was measured on rows that the fit has not seen. Hold a share of the rows out, or score another store."
    return Advice(text, f"gramplane fit {run.method} --data {data} --test-share 0.25 …")


def fit_remarks(run: RunView) -> Advice | None:
    """Hand on what the fit itself had to say."""
    told: Any = run.summary.get("warnings") or run.summary.get("remark")
    texts = [told] if isinstance(told, str) else [str(text) for text in told or ()]
    return Advice(" ".join(texts)) if texts else None


RULES: Sequence[Callable[[RunView], Advice | None]] = (
    _no_better_than_baseline,
    _nothing_selected,
    _all_selected,
    _rare_class,
    _unscaled_columns,
    fit_remarks,
    _too_close_fit,
    _stopped_by_limit,
    _edge_of_grid,
    _fewer_do,
    _not_measured,
)
