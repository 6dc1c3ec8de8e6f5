"""The first words of a page: how well a run does, on which rows, and what runs side by side do not have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...pipeline.records.run_view import RunView, number
from .alternatives import spoken
from .measures import best_known, data_name, majority_share, on_training_rows, rows_text, unseen


def share(value: float) -> str:
    """Return a share as the words of a page have it."""
    return f"{100 * value:.1f} %"


def lead(run: RunView) -> list[str]:
    """Return the first sentences of the page of one run."""
    return [text for text in (_quality(run), _rows_words(run), _choice(run)) if text]


def _quality(run: RunView) -> str:
    accuracy, r2 = best_known(run, "accuracy"), best_known(run, "r2")
    if math.isfinite(accuracy.value):
        label, majority = majority_share(run)
        baseline = f"; always answering {label} gets {share(majority)}" if math.isfinite(majority) else ""
        ends = f" (95 % interval: {share(accuracy.low)} to {share(min(accuracy.high, 1.0))})" if math.isfinite(accuracy.low) else ""
        return f"{share(accuracy.value)} of {accuracy.where} are told right{ends}{baseline}."
    if math.isfinite(r2.value):
        score = run.shown_scores[-1] if run.shown_scores else {}
        errors = [number(score.get(key)) for key in ("rmse", "rmse_of_mean")]
        error = (
            f" The error is {errors[0]:.4g}; always answering the mean errs by {errors[1]:.4g}." if all(map(math.isfinite, errors)) else ""
        )
        ends = f" (95 % interval: {r2.low:.3f} to {r2.high:.3f})" if math.isfinite(r2.low) else ""
        return f"R2 is {r2.value:.3f} on {r2.where}{ends}: the share of the target's variance that is explained.{error}"
    return ""


def _rows_words(run: RunView) -> str:
    """Say so where all that is known is of rows that the fit has seen."""
    known = [measure for measure in ("accuracy", "r2") if math.isfinite(best_known(run, measure).value)]
    if not known or math.isfinite(unseen(run, known[0]).value) or run.trials or not math.isfinite(on_training_rows(run, known[0]).value):
        return ""
    return "These are rows that the fit has learnt from: how well it does on others is not known."


def _choice(run: RunView) -> str:
    selected = run.summary.get("n_selected")
    there = run.settings.get("n_atoms", run.summary.get("n_kernels" if run.unit == "kernels" else "n_features"))
    if selected is None or there is None or run.unit == "rules":
        return "" if selected is None else f"{selected:,} {run.unit} are kept."
    what = "kernels" if run.unit == "kernels" else "columns" if there == run.summary.get("n_features") else "candidates"
    return f"{selected:,} of {there:,} {what} are selected."


def notices(runs: Sequence[RunView]) -> list[str]:
    """Return what has to be known before the figures: runs that are not finished, and runs that cannot be compared."""
    replaced = [f"{run.name}: {run.settings['data_replaced']}." for run in runs if "data_replaced" in run.settings]
    return [text for text in (*map(_state_words, runs), _different_data(runs), _different_scores(runs), *replaced) if text]


def _state_words(run: RunView) -> str:
    """Return what to say of a run that is not finished, or nothing."""
    if run.state == "done":
        return ""
    reached = f"after {run.step} {len(run.history)}" if run.history else "before its first round"
    words = {"running": f"{run.name} is still running, here {reached}", "not started": f"{run.name} has not begun"}
    again = "" if run.state == "running" else f"; gramplane resume {run.path} continues it"
    return f"{words.get(run.state, f'{run.name} is not finished: it was interrupted {reached}')}{again}."


def _different_data(runs: Sequence[RunView]) -> str:
    """Return what to say of runs that were fitted to different data, or nothing."""
    digests = [run.settings.get("data_digest") for run in runs]
    if len({digest for digest in digests if digest is not None}) < 2:
        return ""
    sizes = [f", {run.training['rows']:,} rows" if "rows" in run.training else "" for run in runs]
    told = [f"{run.name} to {data_name(run)} ({str(digest)[:8]}{size})" for run, digest, size in zip(runs, digests, sizes, strict=True)]
    return f"These runs were fitted to different data: {spoken(told)}. What differs between them may come from the data."


def _different_scores(runs: Sequence[RunView]) -> str:
    """Return what to say of runs that were scored on different rows, or nothing."""
    of_runs = [
        frozenset((str(score.get("data_digest", score.get("store"))), str(score.get("rows_are"))) for score in run.scores) for run in runs
    ]
    if len(set(of_runs)) < 2 or not any(of_runs):
        return ""
    told = spoken([f"{run.name} on {spoken([rows_text(score) for score in run.scores]) or 'none'}" for run in runs])
    return f"These runs were not scored on the same rows: {told}. Compare scores of the same rows only."
