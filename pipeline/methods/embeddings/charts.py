"""Charts of embeddings: the map, and the eigenvalues of the kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...records.charts import FAINT, Chart, Legend, Series, ShownTable, SystemCharts, short
from ...records.run_view import Row, RunView, has_values, number
from ...records.shared_charts import column, spectra

MAX_POINTS = 2000  # points of a map; more would make the page large and the picture black
MAX_LABELS = 10  # labels with a colour each; of more all points have one colour


def maps(run: RunView) -> list[Chart]:
    """Return charts of the first two coordinates of every row, coloured by label if there are labels."""
    rows = [row for row in run.tables.get("embedding", ()) if has_values([number(row.get("component_0"))])]
    if not rows:
        return []
    step = -(-len(rows) // MAX_POINTS)
    shown = rows[::step]
    which = "Every point is a row" if step == 1 else f"{len(shown):,} of {len(rows):,} rows, evenly chosen"
    labels = list(dict.fromkeys(str(row["label"]) for row in shown if row.get("label") is not None))
    coloured = labels if len(labels) <= MAX_LABELS else []
    caption = f"{which}{'; colours are labels' if coloured else ''}."
    shape: dict[str, Any] = {"x_label": "first coordinate", "y_label": "second coordinate", "equal": True, "size": (6.0, 4.6)}
    legend = Legend("above", min(4, len(coloured) + 1)) if coloured else None
    return [Chart("Map", caption, series=_points_by_label(shown, coloured), legend=legend, **shape)]


def _points_by_label(rows: Sequence[Row], labels: Sequence[str]) -> list[Series]:
    if not labels:
        return [_points(rows)]
    series = [_points([row for row in rows if str(row.get("label")) == name], short(name, 24), k) for k, name in enumerate(labels)]
    unlabelled = [row for row in rows if row.get("label") is None]
    return [*series, _points(unlabelled, "without a label", FAINT, 10.0, 0.4)] if unlabelled else series


def _points(rows: Sequence[Row], label: str = "", colour: int | str = 0, area: float = 14.0, opacity: float = 0.75) -> Series:
    return Series(column(rows, "component_0"), column(rows, "component_1"), label, "point", colour, width=area, opacity=opacity)


SPECTRUM = ShownTable(
    "spectrum", "Directions of the map", "By the eigenvalues of the kernel; all of them are in spectrum.csv.", is_open=False
)
CHARTS = SystemCharts(found=(maps,), single=(spectra,), tables=(SPECTRUM,), displays={"map": maps})
