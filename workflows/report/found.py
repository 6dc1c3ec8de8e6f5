"""The first table of a page: the main result of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...pipeline.records.charts import ShownTable, SystemCharts
from ...pipeline.records.run_view import Row, RunView, number
from ...pipeline.registry import METHODS
from .words import percent

MOST_CLASSES = 3  # weights by class that have a column each; of more the largest is shown with its class
_HEADINGS: Mapping[str, Mapping[str, str]] = {
    "rules": {"rule": "rule", "vote": "predicts", "support": "rows", "weight": "weight"},
    "kernels": {"kernel": "kernel", "depth": "depth", "weight": "weight", "alignment": "alignment"},
    "queries": {"query": "query", "images": "images", "untagged": "untagged", "average_precision": "average precision"},
    "starts": {"class": "class", "start": "start", "objective": "objective", "minus": "minus", "zero": "zero", "plus": "plus"},
    "spectrum": {"index": "direction", "eigenvalue": "eigenvalue", "share": "share"},
}
"""For tables with many columns: the columns that are shown, with their headings."""


class Found(NamedTuple):
    """The main result of a run.

    ``rows``: the first rows with a non-zero weight, largest first; ``total``: the number of all such rows; ``file``: the report's file
    with all of them; ``columns``: the headings.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    total: int
    file: str


def system_charts(run: RunView) -> SystemCharts:
    """Return the charts and tables that the method of a run adds to reports."""
    return METHODS[run.method].charts if run.method in METHODS else SystemCharts()


def is_scored(run: RunView) -> bool:
    """Return whether the method of a run predicts a target, so that it can be scored."""
    return run.method in METHODS and METHODS[run.method].config.has_scores


def model_rows(run: RunView) -> list[tuple[ShownTable, Sequence[Row]]]:
    """Return the non-empty tables of a model."""
    selected = ShownTable("selected", "Selected features", "All of them are in selected.csv.", is_open=False)
    kernels = ShownTable("kernels", "Kernels by weight", "All of them are in kernels.csv.", is_open=False)
    known = [(selected, run.selected), (kernels, run.kernels)]
    known += [(shown, run.tables.get(shown.name, ())) for shown in system_charts(run).tables]
    return [(shown, rows) for shown, rows in known if rows]


def what_was_found(run: RunView, most: int = 10) -> Found | None:
    """Return the first rows of the main result of a run; None before the first round.

    Each selected feature has the share of resamples that select it, if the stability was measured.
    """
    shown, rows = next(iter(model_rows(run)), (None, ()))
    if shown is None:
        return None
    kept = [row for row in map(_with_one_weight, rows) if _size(row) != 0.0]
    steady = {row["feature"]: percent(row["frequency"]) for row in run.tables.get("stability", ())}
    if shown.name == "selected" and steady:
        kept = [{**row, "selected in": steady.get(row["feature"], "")} for row in kept]
    # Of a real target, the sign of the weight is the vote.
    hidden = {"column", "vote"} if run.summary.get("classes", ()) is None else {"column"}
    known = list(dict.fromkeys(key for row in kept for key in row if key not in hidden))
    headings = _HEADINGS.get(shown.name, {key: key for key in known})
    columns = [key for key in headings if key in known]
    columns += [key for key in known if key.startswith("weight[") and "weight" not in known and key not in columns]
    named = [{headings.get(key, key): row.get(key) for key in columns} for row in kept[:most]]
    return Found(shown.title, [headings.get(key, key) for key in columns], named, len(kept), f"{shown.name}.csv")


def _with_one_weight(row: Row) -> Row:
    weights = {key: number(value) for key, value in row.items() if key.startswith("weight[")}
    if len(weights) <= MOST_CLASSES or "weight" in row:
        return row
    largest = max(weights, key=lambda key: abs(weights[key]))
    rest = {key: value for key, value in row.items() if key not in weights}
    return {**rest, "weight": weights[largest], "class": largest.removeprefix("weight[").removesuffix("]")}


def _size(row: Row) -> float:
    """Return the largest absolute weight of a row; infinity if it has none."""
    sizes = [abs(number(value)) for key, value in row.items() if key == "norm" or key.startswith("weight")]
    return max((size for size in sizes if not math.isnan(size)), default=math.inf)
