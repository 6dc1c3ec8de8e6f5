"""The tables of a page, cells as text."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...pipeline.records.run_view import Row, RunView, number
from .found import model_rows
from .glossary import explain_heading
from .measures import rows_text

TABLE_ROWS = 200  # rows of a table on the page; the CSV file beside it has all
MAX_CLASSES = 12  # classes of a confusion that is shown as a square; of more the commonest errors
MAX_ERRORS = 15  # of them


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
class Confusion:
    """The confusion of classes: ``cells`` are ``(rows, share of the true class)`` by true class and predicted class."""

    title: str
    labels: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float]]]]
    note: str


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
        return clip(", ".join(f"{key}: {cell(item)}" for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        shown = ", ".join(cell(item) for item in value[:20])
        return clip(f"{shown}, …" if len(value) > 20 else shown)
    return clip(str(value))


def clip(text: str, width: int = 300) -> str:
    """Return a text of at most so many letters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def make_table(title: str, rows: Sequence[Row], note: str = "", opened: bool = False) -> Table:
    """Return a table of rows with the union of their keys as columns, those without any value left out, numbers to the right."""
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if cell(value)))
    values = {key: [row.get(key) or 0 for row in rows] for key in columns}
    numbers = {key for key in columns if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values[key])}
    align = ["num" if key in numbers else "text" for key in columns]
    shown = [[cell(row.get(key)) for key in columns] for row in rows[:TABLE_ROWS]]
    cut = f"The first {TABLE_ROWS} of {len(rows):,} rows. " if len(rows) > TABLE_ROWS else ""
    return Table(title, columns, shown, align, cut + note, opened)


def score_tables(runs: Sequence[RunView]) -> list[Table]:
    """Return the scores of all runs, and what they say by class and task."""
    scores = [({"run": run.name} if len(runs) > 1 else {}, score) for run in runs for score in run.scores]
    plain = [{key: value for key, value in score.items() if not isinstance(value, (dict, list, tuple))} for _, score in scores]
    flat = [
        {**of_run, **{key: value for key, value in row.items() if key != "data_digest"}}
        for (of_run, _), row in zip(scores, plain, strict=True)
    ]
    tables = [make_table("Scores", flat, opened=len(flat) > 1)] if flat else []
    for title, key in (("Scores by class", "classes"), ("Scores by task", "tasks")):
        rows = [{**of_run, "store": score.get("store"), **row} for of_run, score in scores for row in score.get(key) or []]
        tables += [make_table(title, rows)] if rows else []
    return tables


def model_tables(run: RunView) -> list[Table]:
    """Return the tables of what a run has learnt."""
    tables = []
    for shown, rows in model_rows(run):
        note = _kernel_note(run, shown.note) if shown.name == "kernels" else shown.note
        tables.append(make_table(shown.title, rows, note, shown.is_open and not tables))
    return tables


def _kernel_note(run: RunView, note: str) -> str:
    chosen = run.summary.get("n_selected")
    if chosen in (None, len(run.kernels)):
        return note
    rule = run.meanings.get("threshold")
    return f"{note} {cell(chosen)} of these {len(run.kernels)} count as selected{f' (threshold: {rule})' if rule else ''}."


def work_tables(run: RunView) -> list[Table]:
    """Return how a run went, and what it was given."""
    settings = [(key, value, run.meanings.get(key, "")) for key, value in run.params.items()]
    settings += [(key, value, explain_heading(key)) for key, value in run.settings.items()]
    rows = [{"name": key, "value": cell(value), "meaning": meaning} for key, value, meaning in settings]
    return [*([make_table("Rounds", run.history)] if run.history else []), make_table("Configuration", rows)]


def confusion(run: RunView, name: str = "") -> Confusion | Table | None:
    """Return which classes are taken for which on the rows scored last: a square, or of many classes the commonest errors. ``name``: of the
    run, where there are others."""
    score = next((score for score in reversed(run.shown_scores) if score.get("confusion")), None)
    if score is None:
        return None
    counts = {(str(row["true"]), str(row["predicted"])): int(number(row["rows"])) for row in score["confusion"]}
    known = [str(row["label"]) for row in score.get("classes") or ()]
    labels = [*known, *(label for label in dict.fromkeys(name for pair in counts for name in pair) if label not in known)]
    title = f"{name}: confusion of classes" if name else "Confusion of classes"
    if len(labels) > MAX_CLASSES:
        errors = sorted(((n, pair) for pair, n in counts.items() if pair[0] != pair[1]), key=lambda item: -item[0])[:MAX_ERRORS]
        rows = [{"true class": a, "predicted": b, "rows": n} for n, (a, b) in errors]
        return make_table(title, rows, f"The commonest errors on {rows_text(score)}; all are in scores_confusion.csv.", opened=True)
    truths = [label for label in labels if any(pair[0] == label for pair in counts)]
    totals = {label: sum(n for pair, n in counts.items() if pair[0] == label) for label in truths}
    told = [label for label in labels if label in known or any(pair[1] == label for pair in counts)]
    lines = [(label, [(f"{(n := counts.get((label, other), 0)):,}", n / totals[label]) for other in told]) for label in truths]
    note = f"{rows_text(score).capitalize()}: a line is a true class, a column what was told; shades are shares of the class."
    return Confusion(title, told, lines, note)
