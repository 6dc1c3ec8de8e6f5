"""The numbers of a report as CSV."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...pipeline.records.run_view import Row, RunView


def csv_text(rows: Sequence[Row], texts: Callable[[Any], Any]) -> str:
    """Return rows as CSV with the union of their keys as header; floats in full precision. ``texts``: what is written of a text."""
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
    """Whether a cell begins with a text, not with a number."""
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], str))


def _is_table(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value)


def csv_files(runs: Sequence[RunView], texts: Callable[[Any], Any] = str) -> dict[str, str]:
    """Return ``{file name: text}``: rounds, selected features and scores of all runs, each row naming its run. What a score holds by class,
    task or along the path has files of its own, ``scores_classes.csv`` say."""
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
    """Return ``{file name: text}``: the rules of all runs, where there are any."""
    rules = [{"run": run.name, **row} for run in runs for row in run.tables.get("rules", ())]
    return {"rules.json": json.dumps(rules, indent=1) + "\n"} if rules else {}
