"""One self-contained page from the views of one or more runs."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from importlib import resources
from typing import Any

from ...pipeline.records.run_view import RunView, step_word
from .advice import Advice, list_advice
from .figures import FOUND, MODEL, PREDICTIONS, WORK, section_pictures
from .glossary import stop_text, words
from .head import head_facts, method_sources, methods_text, places
from .svg import Picture
from .tables import Table, cell, clip, confusion, decision_table, found_table, make_table, model_tables, score_tables, work_tables
from .words import lead, notices, percent, relative_path, rows_text, selected_count, unseen

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
"""Entries of the summary and their names on the page, the same for all methods."""

LINKS = 3 << 18  # bytes that the links of all tables of a page may hold


@dataclass(frozen=True)
class Section:
    """A section of the page. ``name``: the target of links; ``folded``: closed until the reader opens it."""

    name: str
    title: str
    note: str = ""
    sentences: Sequence[str] = ()
    advice: Sequence[tuple[str, Advice]] = ()
    summary: Sequence[dict[str, Any]] = ()
    runs: Sequence[str] = ()
    squares: Sequence[Table] = ()
    pictures: Sequence[Picture] = ()
    tables: Sequence[tuple[str, Table]] = ()
    folded: bool = False

    @property
    def is_empty(self) -> bool:
        parts = (self.sentences, self.advice, self.summary, self.squares, self.pictures, self.tables)
        return not any(parts)


def _figure(run: RunView, key: str) -> object:
    if key == "steps":
        return run.steps
    if key in ("rounds", "stream_rounds"):
        rounds = run.summary.get("rounds")
        return rounds if (run.step == "step") == (key == "stream_rounds") and rounds != run.steps else None
    if key == "n_atoms":
        return None if run.settings.get(key) == run.summary.get("n_features") else run.settings.get(key)
    if key == "n_selected":
        return selected_count(run)
    return stop_text(run.summary.get(key)) if key == "stop" else run.summary.get(key)


def summary_rows(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return ``{"name", "values"}`` rows with a value for each run: first the results, then the settings in which the runs differ."""
    measures = [("accuracy on unseen rows", "accuracy", percent), ("R2 on unseen rows", "r2", cell)]
    rows: list[tuple[str, list[Any]]] = []
    for name, measure, text in measures:
        found = [unseen(run, measure) for run in runs]
        rows.append((name, [text(item.value) if math.isfinite(item.value) else "" for item in found]))
        rows.append(("unseen rows", [item.where for item in found] if len(runs) > 1 else [""]))
    if any(run.state != "done" for run in runs):
        rows.append(("state", [run.state for run in runs]))
    steps = " or ".join(f"{word}s" for word in step_word(runs).split(" or "))
    named = {**_SUMMARY, "steps": steps, "objective": "upper bound" if all(run.bounded for run in runs) else "objective"}
    rows += [(label, [_figure(run, key) for run in runs]) for key, label in named.items()]
    seconds = [[value for value in run.column("seconds") if math.isfinite(value)] for run in runs]
    rows.append(("seconds in rounds", [sum(values) if values else None for values in seconds]))
    if len(runs) > 1:
        keys = dict.fromkeys(key for run in runs for key in run.params)
        others = [("method", [run.title for run in runs]), ("data", [relative_path(run.settings.get("data", "")) for run in runs])]
        others += [(key, [run.params.get(key) for run in runs]) for key in keys if sum(key in run.params for run in runs) > 1]
        rows += [(name, values) for name, values in others if any(value != values[0] for value in values)]
    filled = [{"name": name, "values": [cell(value) for value in values]} for name, values in rows]
    return [row for row in filled if any(row["values"])]


def _prediction_note(runs: Sequence[RunView]) -> str:
    rows = list(dict.fromkeys(rows_text(score) for run in runs for score in run.shown_scores))
    caution = "" if any(run.is_unseen for run in runs) else " They are optimistic: the model was trained on these rows."
    return f"These figures are of {' and of '.join(rows)}.{caution}" if rows else ""


def sections(runs: Sequence[RunView]) -> list[Section]:
    """Return the sections of a page in reading order."""
    summary, drawn, is_one = summary_rows(runs), section_pictures(runs), len(runs) == 1
    named = [("" if is_one else run.name, run) for run in runs]
    errors = [item for name, run in named if (item := confusion(run, name)) is not None]
    trials = [make_table("Cross-validation", run.trials, file="trials.csv") for run in runs if run.trials]
    advice = [(name, item) for name, run in named for item in list_advice(run)]
    decisions = [decision_table(run, name) for name, run in named]
    tops = [(name, found_table(run)) for name, run in named]
    found = [
        Section("summary", "Side by side", summary=() if is_one else summary, runs=[run.name for run in runs]),
        Section(
            FOUND,
            "What it found" if is_one else "What they found",
            sentences=lead(runs[0]) if is_one else (),
            squares=[replace(item, title=f"{name}: {item.title}" if name else item.title) for name, item in tops if item is not None],
            pictures=drawn[FOUND],
        ),
        Section(
            PREDICTIONS,
            "How well it predicts",
            _prediction_note(runs),
            squares=[item for item in errors if item.shares] + [item for item in decisions if item is not None],
            pictures=drawn[PREDICTIONS],
            tables=[("", item) for item in (*(item for item in errors if not item.shares), *score_tables(runs), *trials)],
        ),
        Section(MODEL, "The model", pictures=drawn[MODEL], tables=[(n, table) for n, run in named for table in model_tables(run)]),
        Section("next", "What to try next", advice=advice),
        Section(
            WORK,
            "The run",
            summary=summary if is_one else (),
            pictures=drawn[WORK],
            tables=[(n, table) for n, run in named for table in work_tables(run)],
            folded=True,
        ),
    ]
    return _within_limit([section for section in found if not section.is_empty])


def _within_limit(parts: Sequence[Section]) -> list[Section]:
    """Return the sections. If the CSV links of all tables together exceed the size limit of a page, the last tables lose theirs."""
    left, shown = LINKS, []
    for part in parts:
        tables = []
        for name, table in part.tables:
            left -= len(table.link)
            tables.append((name, table if left >= 0 else replace(table, link="", note=f"{table.file} has all rows. {table.note}")))
        shown.append(replace(part, tables=tables))
    return shown


def slug(text: str) -> str:
    """Return a text in a form that is safe as a file name."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "figure"


def page(runs: Sequence[RunView], footer: str = "", title: str = "") -> str:
    """Return the HTML page of one run, or of several side by side.

    jinja2 escapes all text; matplotlib escapes the names in figures. A content security policy forbids scripts and external content.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = resources.files(__package__ or "")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    parts = sections(runs)
    headings = [name for part in parts for _, table in part.tables if table.title != "Configuration" for name in table.columns]
    return template.render(
        title=title or (runs[0].name if len(runs) == 1 else " · ".join(clip(run.name, 60) for run in runs)),
        subtitle=runs[0].title if len(runs) == 1 else f"{len(runs)} runs side by side",
        facts=head_facts(runs[0]) if len(runs) == 1 else [],
        origins=[("" if len(runs) == 1 else run.name, run.command, places(run)) for run in runs],
        date=f"{date.today():%-d %B %Y}",
        css=Markup(folder.joinpath("style.css").read_text("utf-8")),  # our own file; in <style> entities are not read
        markup=Markup,
        slug=slug,
        notices=notices(runs),
        sections=parts,
        methods=[("" if len(runs) == 1 else run.name, methods_text(run)) for run in runs],
        sources="\n\n".join(dict.fromkeys(entry for run in runs for entry in method_sources(run.method))),
        words=words([*headings, *(str(row["name"]) for part in parts for row in part.summary)]),
        footer=footer,
    )
