"""The numbers of a report as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence

from ...pipeline.records.run_view import Row, RunView


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV with the union of their keys as header; floats in full precision."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[_plain(row.get(key)) for key in columns] for row in rows])
    return out.getvalue()


def _plain(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, Mapping) or (isinstance(value, (list, tuple)) and any(isinstance(item, Mapping) for item in value)):
        return json.dumps(value)
    if isinstance(value, (list, tuple)):
        return " ".join(str(_plain(item)) for item in value)
    return repr(value) if isinstance(value, float) else value


def _names(runs: Sequence[RunView]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.tables))


def _listed(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, Mapping) for item in value)


def _scalars(score: Row) -> Row:
    return {key: value for key, value in score.items() if not _listed(value)}


def _score_parts(runs: Sequence[RunView]) -> dict[str, list[Row]]:
    """Return ``{"scores_classes.csv": rows, ...}``: the tables inside scores, each row naming its run and store."""
    named = [({"run": run.name, "store": score.get("store")}, score) for run in runs for score in run.scores]
    keys = list(dict.fromkeys(key for _, score in named for key, value in score.items() if _listed(value)))
    return {f"scores_{key}.csv": [{**place, **row} for place, score in named for row in score.get(key) or ()] for key in keys}


def csv_files(runs: Sequence[RunView]) -> dict[str, str]:
    """Return ``{file name: text}``: rounds, selected features and scores of all runs, each row naming its run. What a score holds by class,
    task or along the path has files of its own, ``scores_classes.csv`` say."""
    parts = {
        "rounds.csv": [{"run": run.name, **row} for run in runs for row in run.history],
        "selected.csv": [{"run": run.name, **row} for run in runs for row in run.selected],
        "scores.csv": [{"run": run.name, **_scalars(row)} for run in runs for row in run.scores],
        **_score_parts(runs),
        "trials.csv": [{"run": run.name, **row} for run in runs for row in run.trials],
        **{f"{name}.csv": [{"run": run.name, **row} for run in runs for row in run.tables.get(name, ())] for name in _names(runs)},
        "summary.csv": [{"run": run.name, "method": run.method, **run.summary} for run in runs],
    }
    return {name: csv_text(rows) for name, rows in parts.items() if rows}


def json_files(runs: Sequence[RunView]) -> dict[str, str]:
    """Return ``{file name: text}``: the rules of all runs, where there are any."""
    rules = [{"run": run.name, **row} for run in runs for row in run.tables.get("rules", ())]
    return {"rules.json": json.dumps(rules, indent=1) + "\n"} if rules else {}
