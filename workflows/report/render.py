"""One self-contained page from the views of one or more runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from .view import Row, RunView, known, number

TABLE_ROWS = 200
"""Rows of a table on the page; the CSV file beside it has all."""

_SUMMARY = {
    "n_selected": "selected",
    "n_features": "columns in the data",
    "n_kernels": "kernels in all",
    "n_support": "support rows",
    "rounds": "rounds",
    "iterations": "rounds",
    "stop": "stopped by",
    "objective": "objective",
    "lower_bound": "lower bound",
    "gap": "gap of the sub-problem",
    "outer_gap": "gap to the exact optimum",
}
_BOUNDED = {"objective": "upper bound", "gap": "gap between the bounds"}
"""Names of figures where all runs close two bounds around the optimum."""


@dataclass(frozen=True)
class Table:
    """A table of the page, cells as text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    note: str = ""
    open: bool = False


@dataclass(frozen=True)
class Named:
    """A run's part of the page."""

    name: str
    tables: Sequence[Table]


def cell(value: Any) -> str:
    """Return a value as the page shows it: six digits at most, short lists, nothing endless."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
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


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def make_table(title: str, rows: Sequence[Row], note: str = "", opened: bool = False) -> Table:
    """Return a table of rows with the union of their keys as columns, numbers to the right."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    align = ["num" if all(_is_number(row.get(key, 0)) for row in rows) else "text" for key in columns]
    shown = [[cell(row.get(key)) for key in columns] for row in rows[:TABLE_ROWS]]
    cut = f"The first {TABLE_ROWS} of {len(rows):,} rows. " if len(rows) > TABLE_ROWS else ""
    return Table(title, columns, shown, align, cut + note, opened)


def seconds(run: RunView) -> float:
    """Return the seconds of all rounds."""
    values = [value for value in run.column("seconds") if math.isfinite(value)]
    return sum(values) if values else math.nan


def test_accuracy(run: RunView) -> float:
    """Return the accuracy on data the fit has not seen: of the last score, else of the held-out rows of the last round."""
    scored = [number(score.get("accuracy")) for score in run.scores]
    held = run.column("test_accuracy")[-1:]
    return next((value for value in [*reversed(scored), *held] if math.isfinite(value)), math.nan)


def cards(run: RunView) -> list[dict[str, str]]:
    """Return the key figures on top of the page of one run."""
    found: list[tuple[str, Any]] = [("accuracy on unseen rows", share(test_accuracy(run)))]
    found += [(f"selected {run.unit}", run.summary.get("n_selected")), ("columns in the data", run.summary.get("n_features"))]
    found += [("kernels in all", run.summary.get("n_kernels")), ("rounds", run.summary.get("rounds", run.summary.get("iterations")))]
    found += [("seconds", round(seconds(run), 2) if known([seconds(run)]) else None)]
    return [{"name": name, "value": cell(value)} for name, value in found if cell(value)]


def summary_rows(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return ``{"name", "values"}`` rows comparing the runs: figures first, then the parameters that were given or differ."""
    rows: list[tuple[str, list[Any]]] = [("method", [run.title for run in runs])]
    rows.append(("accuracy on unseen rows", [share(test_accuracy(run)) for run in runs]))
    named = {**_SUMMARY, **(_BOUNDED if all(run.bounded for run in runs) else {})}
    rows += [(label, [run.summary.get(key) for run in runs]) for key, label in named.items()]
    rows.append(("seconds in rounds", [seconds(run) for run in runs]))
    rows += _differing(runs)
    filled = [{"name": name, "values": [cell(value) for value in values]} for name, values in rows]
    return [row for row in filled if any(row["values"])]


def _differing(runs: Sequence[RunView]) -> list[tuple[str, list[Any]]]:
    if len(runs) < 2:
        return []
    keys = dict.fromkeys(key for run in runs for key in run.params)
    values = {key: [run.params.get(key) for run in runs] for key in keys}
    return [(key, found) for key, found in values.items() if any(value != found[0] for value in found)]


def _scores(runs: Sequence[RunView]) -> Table | None:
    rows = [({"run": run.name} if len(runs) > 1 else {}) | dict(score) for run in runs for score in run.scores]
    flat = [{key: value for key, value in row.items() if not isinstance(value, (dict, list))} for row in rows]
    return make_table("Scores", flat) if flat else None


def _run_part(run: RunView) -> Named:
    tables = []
    if run.selected:
        tables.append(make_table("Selected features", run.selected, "All of them are in selected.csv.", opened=True))
    if run.kernels:
        tables.append(make_table("Kernels by weight", run.kernels, "All of them are in kernels.csv.", opened=True))
    if run.tables.get("rules"):
        tables.append(make_table("Rules by weight", run.tables["rules"], "All of them are in rules.csv and rules.json.", opened=True))
    if run.tables.get("depths"):
        tables.append(make_table("Kernels by depth", run.tables["depths"], "All of them are in depths.csv.", opened=True))
    if run.tables.get("groups"):
        tables.append(make_table("Groups of tasks by weight", run.tables["groups"], "All of them are in groups.csv.", opened=True))
    if run.tables.get("eigenvalues"):
        told = "Of the weights between tasks, kernel by kernel: how many directions the tasks share."
        tables.append(make_table("Eigenvalues between tasks", run.tables["eigenvalues"], told))
    if run.tables.get("starts"):
        told = "Accuracy on rows held out, beside the machine on the labelled rows alone and the one with every unlabelled row irrelevant."
        tables += [make_table("Validation", rows, told, opened=True)] if (rows := run.tables.get("validation")) else []
        tables.append(make_table("Starts", run.tables["starts"], "Every step of them is in assignments.csv.", opened=True))
    by_class = [{"store": score.get("store"), **row} for score in run.scores for row in score.get("classes", [])]
    if by_class:
        tables.append(make_table("Scores by class", by_class, opened=True))
    if run.trials:
        tables.append(make_table("Cross-validation", run.trials))
    if run.history:
        tables.append(make_table("Rounds", run.history))
    settings = [{"name": key, "value": cell(value)} for key, value in {**run.params, **run.settings}.items()]
    tables.append(make_table("Configuration", settings))
    return Named(run.name, tables)


def page(runs: Sequence[RunView], footer: str = "") -> str:
    """Return the HTML page of one run, or of several side by side.

    Parameters
    ----------
    runs
        At least one.
    footer
        Last line of the page.

    Notes
    -----
    Everything is escaped by jinja2; figures are images in data URIs, in which scripts do not run; a content security policy forbids
    the page to load anything.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    from .figures import pictures

    folder = resources.files(__package__ or "")
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    first = runs[0]
    return template.render(
        title=first.name if len(runs) == 1 else " · ".join(_clip(run.name, 60) for run in runs),
        subtitle=f"{first.title} on {first.settings.get('data', 'data')}" if len(runs) == 1 else f"{len(runs)} runs side by side",
        css=Markup(folder.joinpath("style.css").read_text("utf-8")),  # our own file; in <style> entities are not read
        cards=cards(first) if len(runs) == 1 else [],
        runs=[_run_part(run) for run in runs],
        summary=summary_rows(runs),
        scores=_scores(runs),
        pictures=pictures(runs),
        footer=footer,
    )
