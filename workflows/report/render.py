"""One self-contained page from the views of one or more runs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from ...pipeline.records.run_view import RunView, has_values, measure_of, number, step_word
from .advice import Advice, list_advice
from .figures import MODEL, OPTIMUM, PREDICTIONS, WORK, section_pictures
from .glossary import explain_heading, stop_text, words
from .lead import lead, notices
from .measures import best_known, majority_share, on_training_rows, over_folds, rows_text, unseen
from .page_tables import Confusion, Table, cell, clip, confusion, make_table, model_tables, score_tables, work_tables
from .svg import Picture

_SUMMARY = {
    "n_selected": "selected",
    "n_features": "columns in the data",
    "n_atoms": "candidates",
    "n_kernels": "kernels in all",
    "n_groups": "groups",
    "n_tasks": "tasks of the data",
    "graph_nodes": "nodes of the graph",
    "n_nodes": "nodes of the working set",
    "n_support": "support rows",
    "steps": "rounds",
    "rounds": "rounds counted by max_rounds",
    "stream_rounds": "rounds of the stream",
    "stop": "stopped by",
    "objective": "objective",
    "lower_bound": "lower bound",
    "gap": "gap",
    "relative_gap": "relative gap",
    "certified_over": "certified over",
    "restricted_gap": "gap of the working set",
    "outer_gap": "gap to the exact optimum",
    "seconds": "seconds of the run",
}
"""Figures of the summary and what the page calls them: one name for all methods."""


@dataclass(frozen=True)
class Section:
    """A part of the page, with its own heading. ``name``: what links to it are made of; ``folded``: tables and figures are shown when
    they are asked for."""

    name: str
    title: str
    note: str = ""
    sentences: Sequence[str] = ()
    cards: Sequence[dict[str, str]] = ()
    advice: Sequence[tuple[str, Advice]] = ()
    summary: Sequence[dict[str, Any]] = ()
    runs: Sequence[str] = ()
    confusions: Sequence[Confusion] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[tuple[str, Table]] = field(default_factory=tuple)
    folded: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show."""
        return not any((self.sentences, self.cards, self.advice, self.summary, self.confusions, self.pictures, self.tables))


def share(value: float) -> str:
    """Return an accuracy with four digits, whole ones too."""
    return "" if math.isnan(value) else f"{value:.4f}"


def seconds(run: RunView) -> float:
    """Return the seconds of all rounds."""
    values = [value for value in run.column("seconds") if math.isfinite(value)]
    return sum(values) if values else math.nan


_UNSEEN = (("accuracy on unseen rows", "accuracy"), ("R2 on unseen rows", "r2"))
_LESS = (("{} over the folds", over_folds), ("{} on training rows", on_training_rows))


def _candidates(run: RunView) -> object:
    atoms = run.settings.get("n_atoms")
    return None if atoms == run.summary.get("n_features") else atoms


def _quality_figures(run: RunView) -> list[tuple[str, str]]:
    """Return accuracy or R2 of the rows that say most, with what the baseline gets."""
    figures = [(name, share(unseen(run, measure).value)) for name, measure in _UNSEEN]
    for form, look in _LESS:
        if not any(value for _, value in figures):
            figures = [(form.format(name.split()[0]), share(look(run, measure).value)) for name, measure in _UNSEEN]
    further = {measure_of(row): 0 for row in run.trials if "measure" in row and measure_of(row) not in ("accuracy", "r2")}
    figures += [(f"{measure} over the folds", share(over_folds(run, measure).value)) for measure in further]
    if math.isfinite(best_known(run, "accuracy").value):
        figures.append(("always the commonest class", share(majority_share(run)[1])))
    score = run.shown_scores[-1] if run.shown_scores else {}
    return [*figures, ("area under the curve", share(number(score.get("auc"))))]


def cards(run: RunView) -> list[dict[str, str]]:
    """Return the key figures on top of the page of one run."""
    figures: list[tuple[str, Any]] = [*_quality_figures(run)]
    figures += [(f"selected {run.unit}", run.summary.get("n_selected")), ("candidates", _candidates(run))]
    figures += [("columns in the data", run.summary.get("n_features")), ("kernels in all", run.summary.get("n_kernels"))]
    # A run that is not finished has only the seconds of its rounds.
    whole = number(run.summary.get("seconds"))
    name, took = ("seconds of the run", whole) if math.isfinite(whole) else ("seconds in rounds", seconds(run))
    figures += [(f"{run.step}s", run.steps), (name, round(took, 2) if has_values([took]) else None)]
    shown = [(name, cell(value)) for name, value in figures if cell(value)]
    return [{"name": name.replace("_", " "), "value": value, "meaning": explain_heading(name)} for name, value in shown]


def _figure(run: RunView, key: str) -> object:
    if key == "steps":
        return run.steps
    if key in ("rounds", "stream_rounds"):
        rounds = run.summary.get("rounds")
        return rounds if (run.step == "step") == (key == "stream_rounds") and rounds != run.steps else None
    if key == "n_atoms":
        return _candidates(run)
    return stop_text(run.summary.get(key)) if key == "stop" else run.summary.get(key)


def summary_rows(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return ``{"name", "values", "meaning"}`` rows comparing the runs: figures first, then the parameters that differ between runs that
    have them."""
    rows: list[tuple[str, list[Any]]] = [("method", [run.title for run in runs])]
    if any(run.state != "done" for run in runs):
        rows.append(("state", [run.state for run in runs]))
    rows += [(name, [share(unseen(run, measure).value) for run in runs]) for name, measure in _UNSEEN]
    if len(runs) > 1:
        rows.append(("unseen rows", [next((way.where for _, key in _UNSEEN if (way := unseen(run, key)).where), "") for run in runs]))
        rows.append(("data", [run.settings.get("data") for run in runs]))
    steps = " or ".join(f"{word}s" for word in step_word(runs).split(" or "))
    named = {**_SUMMARY, "steps": steps, "objective": "upper bound" if all(run.bounded for run in runs) else "objective"}
    rows += [(label, [_figure(run, key) for run in runs]) for key, label in named.items()]
    rows.append(("seconds in rounds", [seconds(run) for run in runs]))
    explained_rows = [(name, values, explain_heading(name)) for name, values in rows] + _differing(runs)
    filled = [{"name": name, "values": [cell(value) for value in values], "meaning": meaning} for name, values, meaning in explained_rows]
    return [row for row in filled if any(row["values"])]


def _differing(runs: Sequence[RunView]) -> list[tuple[str, list[Any], str]]:
    if len(runs) < 2:
        return []
    keys = [key for key in dict.fromkeys(key for run in runs for key in run.params) if sum(key in run.params for run in runs) > 1]
    values = {key: [run.params.get(key) for run in runs] for key in keys}
    meanings = {key: next((run.meanings[key] for run in runs if run.meanings.get(key)), "") for key in keys}
    return [(key, row, meanings[key]) for key, row in values.items() if any(value != row[0] for value in row)]


def _prediction_note(runs: Sequence[RunView]) -> str:
    """Return which rows the figures of predictions are of."""
    rows = list(dict.fromkeys(rows_text(score) for run in runs for score in run.shown_scores))
    if not rows:
        return ""
    caution = "" if any(run.is_unseen for run in runs) else " The fit has learnt from these rows: others are told less well."
    return f"Figures are of {' and of '.join(rows)}.{caution}"


def sections(runs: Sequence[RunView]) -> list[Section]:
    """Return the parts of a page of one run, or of several, in the order in which they are read."""
    summary, drawn, names = summary_rows(runs), section_pictures(runs), [run.name if len(runs) > 1 else "" for run in runs]
    advice = [(name, item) for name, run in zip(names, runs, strict=True) for item in list_advice(run)]
    confusions = [item for name, run in zip(names, runs, strict=True) if (item := confusion(run, name)) is not None]
    squares = [item for item in confusions if isinstance(item, Confusion)]
    errors = [("", item) for item in confusions if isinstance(item, Table)]
    learnt, work = ([(n, t) for n, run in zip(names, runs, strict=True) for t in look(run)] for look in (model_tables, work_tables))
    top = Section("summary", "At a glance", sentences=lead(runs[0]), cards=cards(runs[0]))
    over = list(dict.fromkeys(str(run.summary["certified_over"]) for run in runs if run.summary.get("certified_over")))
    gap = "A gap is how far a fit is from the least value of its problem, at most." + (
        f" It is certified over {over[0]}." if len(over) == 1 else ""
    )
    trials = [("", make_table("Cross-validation", run.trials)) for run in runs if run.trials]
    found = [
        top if len(runs) == 1 else Section("summary", "Side by side", summary=summary, runs=[run.name for run in runs]),
        Section("next", "What to try next", advice=advice),
        Section(
            PREDICTIONS,
            "How well it predicts",
            _prediction_note(runs),
            confusions=squares,
            pictures=drawn[PREDICTIONS],
            tables=[*errors, *(("", table) for table in score_tables(runs)), *trials],
        ),
        Section(MODEL, "What it learnt", pictures=drawn[MODEL], tables=learnt),
        Section(OPTIMUM, "How close to the optimum", gap, pictures=drawn[OPTIMUM]),
        Section(WORK, "The run", summary=summary if len(runs) == 1 else (), pictures=drawn[WORK], tables=work, folded=True),
    ]
    return [section for section in found if not section.is_empty]


def page(runs: Sequence[RunView], footer: str = "") -> str:
    """Return the HTML page of one run, or of several side by side. Everything is escaped by jinja2, names in figures by matplotlib; a
    content security policy forbids the page to load anything, and to run anything."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = resources.files(__package__ or "")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    first, parts = runs[0], sections(runs)
    tables = [table for part in parts for _, table in part.tables if table.title != "Configuration"]
    meanings = {name: explain_heading(name) for table in tables for name in table.columns}
    meanings |= {str(row["name"]): str(row["meaning"]) for part in parts for row in (*part.summary, *part.cards)}
    return template.render(
        title=first.name if len(runs) == 1 else " · ".join(clip(run.name, 60) for run in runs),
        subtitle=f"{first.title} on {first.settings.get('data', 'data')}" if len(runs) == 1 else f"{len(runs)} runs side by side",
        css=Markup(folder.joinpath("style.css").read_text("utf-8")),  # our own file; in <style> entities are not read
        markup=Markup,
        notices=notices(runs),
        sections=parts,
        words=words(meanings),
        explain=explain_heading,
        footer=footer,
    )
