"""The numbers of a report, as CSV files and as tables of the page."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...pipeline.records.run_view import Row, RunView, has_values, number, weight_of
from .found import model_rows, what_was_found
from .glossary import explain_heading
from .svg import data_link
from .words import figure, relative_path, rows_text

TABLE_ROWS = 200  # rows of a table on the page
LINK_BYTES, LINK_ROWS = 256 << 10, 1000  # of the CSV in the link of a table; of larger ones the first rows
MAX_CLASSES = 12  # classes of a confusion matrix that is shown as a square; of more the most frequent errors
MAX_ERRORS = 15  # of them


@dataclass(frozen=True)
class Table:
    """A table of the page; its cells are texts. ``link`` contains the table as CSV. ``shares``: for a confusion matrix, each cell as a
    share of the rows of its true class.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    align: Sequence[str]
    note: str = ""
    open: bool = False
    link: str = ""
    file: str = ""
    shares: Sequence[Sequence[float]] = ()


# -- files -------------------------------------------------------------------------------------------------------------------------


def csv_text(rows: Sequence[Row], texts: Callable[[Any], Any] = str) -> str:
    """Return rows as CSV. The header is the union of the rows' keys; floats are written in full precision. ``texts`` converts each text
    cell.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([texts(name) for name in columns])
    writer.writerows([[texts(_plain(cell)) if _is_text(cell) else _plain(cell) for cell in map(row.get, columns)] for row in rows])
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value)):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return " ".join(str(_plain(item)) for item in value)
    return repr(value) if isinstance(value, float) else value


def _is_text(value: object) -> bool:
    """Return whether a value is a text, or a list that begins with a text."""
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], str))


def _is_table(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value)


def csv_files(runs: Sequence[RunView], texts: Callable[[Any], Any] = str) -> dict[str, str]:
    """Return ``{file name: text}``: rounds, selected features and scores of all runs, each row with the name of its run.

    Parts of a score (by class, by task, along the path) have files of their own, such as ``scores_classes.csv``.
    """
    parts: dict[str, list[Row]] = {}

    def add(name: str, run: RunView, rows: Sequence[Row]) -> None:
        parts.setdefault(f"{name}.csv", []).extend({"run": run.name, **row} for row in rows)

    for run in runs:
        add("rounds", run, run.history)
        add("selected", run, run.selected)
        for score in run.scores:
            add("scores", run, [{key: value for key, value in score.items() if not _is_table(value)}])
            for key, rows in score.items():
                if _is_table(rows):
                    add(f"scores_{key}", run, [{"store": score.get("store"), **row} for row in rows])
        add("trials", run, run.trials)
        for name, rows in run.tables.items():
            add(name, run, rows)
    for run in runs:
        add("summary", run, [{"method": run.method, **run.summary}])
    return {name: csv_text(rows, texts) for name, rows in parts.items() if rows}


def json_files(runs: Sequence[RunView]) -> dict[str, str]:
    """Return ``{file name: text}`` with the rules of all runs, where there are any."""
    rules = [{"run": run.name, **row} for run in runs for row in run.tables.get("rules", ())]
    return {"rules.json": json.dumps(rules, indent=1) + "\n"} if rules else {}


# -- tables of the page ------------------------------------------------------------------------------------------------------------


def cell(value: object) -> str:
    """Return a value as the page shows it: numbers to three digits, long lists cut."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return figure(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, Mapping):
        return clip(", ".join(f"{key}: {cell(item)}" for key, item in value.items()))
    if isinstance(value, (list, tuple)):
        shown = ", ".join(cell(item) for item in value[:20])
        return clip(f"{shown}, …" if len(value) > 20 else shown)
    return clip(str(value))


def _is_number(value: object) -> bool:
    is_share = isinstance(value, str) and value.endswith(" %")
    return is_share or (isinstance(value, (int, float)) and not isinstance(value, bool))


def clip(text: str, width: int = 300) -> str:
    """Return a text cut to at most ``width`` letters."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def make_table(title: str, rows: Sequence[Row], note: str = "", opened: bool = False, file: str = "", texts: Any = str) -> Table:
    """Return a table with the union of the rows' keys as columns. Empty columns are left out; numbers are aligned to the right."""
    columns = list(dict.fromkeys(key for row in rows for key, value in row.items() if cell(value)))
    values = {key: [row.get(key) or 0 for row in rows] for key in columns}
    numbers = {key for key in columns if all(map(_is_number, values[key]))}
    align = ["num" if key in numbers else "text" for key in columns]
    shown = [[cell(row.get(key)) for key in columns] for row in rows[:TABLE_ROWS]]
    text, more = csv_text(rows, texts), ""
    if len(text) > LINK_BYTES:
        text, more = csv_text(rows[:LINK_ROWS], texts), f"The link holds the first {LINK_ROWS:,} rows, {file} all. "
    cut = f"The first {TABLE_ROWS} of {len(rows):,} rows. " if len(rows) > TABLE_ROWS else ""
    return Table(title, columns, shown, align, cut + more + note, opened, data_link(text, "text/csv"), file or "table.csv")


def score_tables(runs: Sequence[RunView]) -> list[Table]:
    """Return the scores of all runs, and their parts by class and by task."""
    scores = [({"run": run.name} if len(runs) > 1 else {}, score) for run in runs for score in run.scores]
    plain = [
        {**of_run, **{key: value for key, value in score.items() if not isinstance(value, (dict, list, tuple))}} for of_run, score in scores
    ]
    flat = [{key: value for key, value in row.items() if key != "data_digest"} for row in plain]
    tables = [make_table("Scores", flat, opened=len(flat) > 1, file="scores.csv")] if flat else []
    for title, key in (("Scores by class", "classes"), ("Scores by task", "tasks")):
        rows = [{**of_run, "store": score.get("store"), **row} for of_run, score in scores for row in score.get(key) or []]
        tables += [make_table(title, rows, file=f"scores_{key}.csv")] if rows else []
    return tables


def model_tables(run: RunView) -> list[Table]:
    """Return the tables of a model."""
    tables = []
    for shown, rows in model_rows(run):
        kept = [row for row in rows if not has_values([weight_of(row)]) or weight_of(row) != 0]
        tables.append(make_table(shown.title, kept, shown.note, file=f"{shown.name}.csv"))
    return tables


def found_table(run: RunView) -> Table | None:
    """Return the main result of a run as a table."""
    found = what_was_found(run)
    if found is None:
        return None
    note = f"and {found.total - len(found.rows):,} more under The model" if found.total > len(found.rows) else ""
    return make_table(found.title, found.rows, note, file=found.file)


def decision_table(run: RunView, name: str = "") -> Table | None:
    """Return the contributions to the decision for one example row, from the last score that stored such a row."""
    score = next((score for score in reversed(run.shown_scores) if score.get("decision")), None)
    if score is None:
        return None
    parts, last = [{key: row.get(key) for key in ("part", "value", "contribution")} for row in score["decision"]], score["decision"][-1]
    if "towards" in last:
        told = f'Row {last["row"]} of {score["store"]}, correctly classified as "{last["true"]}", the clearest of its rows. '
        note = f'{told}The contributions add up to the decision value; positive ones point to "{last["towards"]}".'
    else:
        note = f"Row {last['row']} of {score['store']}; its true value is {cell(last['true'])}. The contributions add up to the prediction."
    return make_table(f"{name}: one decision" if name else "One decision taken apart", parts, note, file="scores_decision.csv")


def work_tables(run: RunView) -> list[Table]:
    """Return the rounds, the summary and the parameters of a run as tables."""
    settings = [(key, value, run.meanings.get(key, "")) for key, value in run.params.items()]
    settings += [(key, relative_path(value) if key == "data" else value, explain_heading(key)) for key, value in run.settings.items()]
    rows = [{"name": key, "value": cell(value), "meaning": meaning} for key, value, meaning in settings]
    rounds = [make_table("Rounds", run.history, file="rounds.csv")] if run.history else []
    return [*rounds, make_table("Configuration", rows, file="configuration.csv")]


def confusion(run: RunView, name: str = "") -> Table | None:
    """Return the confusion matrix of the rows scored last or, if there are many classes, the most frequent errors. ``name``: name of the
    run, if there are several.
    """
    score = next((score for score in reversed(run.shown_scores) if score.get("confusion")), None)
    if score is None:
        return None
    counts = {(str(row["true"]), str(row["predicted"])): int(number(row["rows"])) for row in score["confusion"]}
    known = [str(row["label"]) for row in score.get("classes") or ()]
    labels = [*known, *(label for label in dict.fromkeys(name for pair in counts for name in pair) if label not in known)]
    title, file = (f"{name}: confusion matrix" if name else "Confusion matrix"), "scores_confusion.csv"
    if len(labels) > MAX_CLASSES:
        errors = sorted(((n, pair) for pair, n in counts.items() if pair[0] != pair[1]), key=lambda item: -item[0])
        rows = [{"true class": a, "predicted class": b, "rows": n} for n, (a, b) in errors]
        note = f"The most frequent errors on {rows_text(score)}; all are in {file}."
        return make_table(title, rows[:MAX_ERRORS], note, opened=True, file=file)
    truths = [label for label in labels if any(pair[0] == label for pair in counts)]
    predicted = [label for label in labels if label in known or any(pair[1] == label for pair in counts)]
    cells = [[counts.get((label, other), 0) for other in predicted] for label in truths]
    note = f"{rows_text(score)}. Rows: true class; columns: predicted class; shading: share of the true class."
    texts = [[label, *(f"{n:,}" for n in line)] for label, line in zip(truths, cells, strict=True)]
    link, shares = data_link(csv_text(score["confusion"]), "text/csv"), [[n / max(sum(line), 1) for n in line] for line in cells]
    return Table(title, ["true class", *predicted], texts, ["text", *("num" for _ in predicted)], note, link=link, file=file, shares=shares)
