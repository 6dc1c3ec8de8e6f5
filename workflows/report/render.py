"""One self-contained page from the views of one or more runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ...pipeline.records.run_view import Row, RunView, has_values, number, step_word
from .figures import pictures, system_charts
from .glossary import explain_heading, stop_text, words

TABLE_ROWS = 200  # rows of a table on the page; the CSV file beside it has all

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
class Table:
    """A table of the page, cells as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    note: str = ""
    open: bool = False


def cell(value: object) -> str:
    """Return a value as the page shows it: six digits at most, short lists, nothing endless."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return _clip(", ".join(f"{key}: {cell(item)}" for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        shown = ", ".join(cell(item) for item in value[:20])
        return _clip(f"{shown}, …" if len(value) > 20 else shown)
    return _clip(str(value))


def _clip(text: str, width: int = 300) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def share(value: float) -> str:
    """Return an accuracy with four digits, whole ones too."""
    return "" if math.isnan(value) else f"{value:.4f}"


def make_table(title: str, rows: Sequence[Row], note: str = "", opened: bool = False) -> Table:
    """Return a table of rows with the union of their keys as columns, those without any value left out, numbers to the right."""
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if cell(value)))
    values = {key: [row.get(key) or 0 for row in rows] for key in columns}
    numbers = {key for key in columns if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values[key])}
    align = ["num" if key in numbers else "text" for key in columns]
    shown = [[cell(row.get(key)) for key in columns] for row in rows[:TABLE_ROWS]]
    cut = f"The first {TABLE_ROWS} of {len(rows):,} rows. " if len(rows) > TABLE_ROWS else ""
    return Table(title, columns, shown, align, cut + note, opened)


def seconds(run: RunView) -> float:
    """Return the seconds of all rounds."""
    values = [value for value in run.column("seconds") if math.isfinite(value)]
    return sum(values) if values else math.nan


def unseen(run: RunView, measure: str) -> float:
    """Return accuracy or R2 on data the fit has not seen: of the last score, else of the held-out rows of the last round."""
    scored = [number(score.get(measure)) for score in run.scores]
    held_out = run.column(f"test_{measure}")[-1:]
    return next((value for value in [*reversed(scored), *held_out] if math.isfinite(value)), math.nan)


_UNSEEN = (("accuracy on unseen rows", "accuracy"), ("R2 on unseen rows", "r2"))


def _candidates(run: RunView) -> object:
    atoms = run.settings.get("n_atoms")
    return None if atoms == run.summary.get("n_features") else atoms


def cards(run: RunView) -> list[dict[str, str]]:
    """Return the key figures on top of the page of one run."""
    figures: list[tuple[str, Any]] = [(name, share(unseen(run, measure))) for name, measure in _UNSEEN]
    figures += [(f"selected {run.unit}", run.summary.get("n_selected")), ("candidates", _candidates(run))]
    figures += [("columns in the data", run.summary.get("n_features")), ("kernels in all", run.summary.get("n_kernels"))]
    # A run that is not finished has only the seconds of its rounds.
    whole = number(run.summary.get("seconds"))
    name, took = ("seconds of the run", whole) if math.isfinite(whole) else ("seconds in rounds", seconds(run))
    figures += [(f"{run.step}s", run.steps), (name, round(took, 2) if has_values([took]) else None)]
    shown = [{"name": name, "value": cell(value)} for name, value in figures if cell(value)]
    return [{**card, "meaning": explain_heading(card["name"])} for card in shown]


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
    """Return ``{"name", "values", "meaning"}`` rows comparing the runs: figures first, then the parameters that were given or differ."""
    rows: list[tuple[str, list[Any]]] = [("method", [run.title for run in runs])]
    if any(run.state != "done" for run in runs):
        rows.append(("state", [run.state for run in runs]))
    rows += [(name, [share(unseen(run, measure)) for run in runs]) for name, measure in _UNSEEN]
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
    keys = dict.fromkeys(key for run in runs for key in run.params)
    values = {key: [run.params.get(key) for run in runs] for key in keys}
    meanings = {key: next((run.meanings[key] for run in runs if run.meanings.get(key)), "") for key in keys}
    return [(key, row, meanings[key]) for key, row in values.items() if any(value != row[0] for value in row)]


def _scores(runs: Sequence[RunView]) -> list[Table]:
    rows = [({"run": run.name} if len(runs) > 1 else {}) | dict(score) for run in runs for score in run.scores]
    flat = [{key: value for key, value in row.items() if not isinstance(value, (dict, list))} for row in rows]
    return [make_table("Scores", flat)] if flat else []


def _kernel_note(run: RunView) -> str:
    chosen, note = run.summary.get("n_selected"), "All of them are in kernels.csv."
    if chosen in (None, len(run.kernels)):
        return note
    rule = run.meanings.get("threshold")
    return f"{note} {cell(chosen)} of these {len(run.kernels)} count as selected{f' (threshold: {rule})' if rule else ''}."


def _run_tables(run: RunView) -> list[Table]:
    tables = []
    if run.selected:
        tables.append(make_table("Selected features", run.selected, "All of them are in selected.csv.", opened=True))
    if run.kernels:
        tables.append(make_table("Kernels by weight", run.kernels, _kernel_note(run), opened=True))
    for shown in system_charts(run).tables:
        if run.tables.get(shown.name):
            tables.append(make_table(shown.title, run.tables[shown.name], shown.note, shown.is_open))
    for title, key in (("Scores by class", "classes"), ("Scores by task", "tasks")):
        rows = [{"store": score.get("store"), **row} for score in run.scores for row in score.get(key) or []]
        if rows:
            tables.append(make_table(title, rows, opened=key == "classes"))
    if run.trials:
        tables.append(make_table("Cross-validation", run.trials))
    if run.history:
        tables.append(make_table("Rounds", run.history))
    settings = [(key, value, run.meanings.get(key, "")) for key, value in run.params.items()]
    settings += [(key, value, explain_heading(key)) for key, value in run.settings.items()]
    rows = [{"name": key, "value": cell(value), "meaning": meaning} for key, value, meaning in settings]
    return [*tables, make_table("Configuration", rows)]


def _notice(run: RunView) -> str:
    """Return what to say of a run that is not finished, or nothing."""
    if run.state == "done":
        return ""
    reached = f"after {run.step} {len(run.history)}" if run.history else "before its first round"
    notices = {"running": f"{run.name} is still running, here {reached}", "not started": f"{run.name} has not begun"}
    again = "" if run.state == "running" else f"; gramplane resume {run.path} continues it"
    return f"{notices.get(run.state, f'{run.name} is not finished: it was interrupted {reached}')}{again}."


def page(runs: Sequence[RunView], footer: str = "") -> str:
    """Return the HTML page of one run, or of several side by side. Everything is escaped by jinja2; figures are images in data URIs, in
    which scripts do not run; a content security policy forbids the page to load anything."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = resources.files(__package__ or "")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    first, rows, scores = runs[0], summary_rows(runs), _scores(runs)
    parts = [{"name": run.name, "tables": _run_tables(run)} for run in runs]
    tables = [table for part in parts for table in part["tables"] if table.title != "Configuration"] + scores
    meanings = {name: explain_heading(name) for table in tables for name in table.columns}
    meanings |= {str(row["name"]): str(row["meaning"]) for row in rows}
    return template.render(
        title=first.name if len(runs) == 1 else " · ".join(_clip(run.name, 60) for run in runs),
        subtitle=f"{first.title} on {first.settings.get('data', 'data')}" if len(runs) == 1 else f"{len(runs)} runs side by side",
        css=Markup(folder.joinpath("style.css").read_text("utf-8")),  # our own file; in <style> entities are not read
        cards=cards(first) if len(runs) == 1 else [],
        notices=[text for run in runs if (text := _notice(run))],
        runs=parts,
        summary=rows,
        scores=scores[0] if scores else None,
        words=words(meanings),
        explain=explain_heading,
        pictures=pictures(runs),
        footer=footer,
    )
