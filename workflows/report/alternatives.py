"""What a figure shows, in words: for readers who do not see it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...pipeline.records.charts import Chart, Series

MAX_LINES = 8  # lines of a figure that are told; of more the number
MAX_NAMES = 5  # bars of a ranking that are told


def describe_chart(chart: Chart) -> str:
    """Return what a chart shows in a few sentences: where lines begin and end, what is first of a ranking, the largest cell of a table."""
    return {"series": _describe_series, "ranking": describe_ranking, "heat": _describe_heat}[chart.kind](chart)


def _figure(value: float) -> str:
    return f"{value:.3g}"


def _describe_series(chart: Chart) -> str:
    shown = [series for series in chart.series if series.mark not in ("band", "whisker") and (series.label or series.mark != "line")]
    shown = shown or list(chart.series)
    x, y = chart.x_label or "x", chart.y_label or chart.title.lower()
    told = [text for series in shown[:MAX_LINES] if (text := _describe_line(series, x, y))]
    more = [f"{len(shown) - MAX_LINES} more."] if len(shown) > MAX_LINES else []
    return " ".join([f"{y[:1].upper()}{y[1:]} over {x}.", *told, *more])


def _describe_line(series: Series, x: str, y: str) -> str:
    points = [(a, b) for a, b in zip(series.x, series.y, strict=True) if math.isfinite(a) and math.isfinite(b)]
    if not points:
        return ""
    name = series.label[:1].upper() + series.label[1:] if series.label else y[:1].upper() + y[1:]
    low, high = min(b for _, b in points), max(b for _, b in points)
    if series.mark == "point":
        return f"{name}: {len(points):,} points, between {_figure(low)} and {_figure(high)}."
    (first_x, first), (last_x, last) = points[0], points[-1]
    if len(points) == 1:
        return f"{name}: {_figure(first)} at {x} {_figure(first_x)}."
    between = "" if {low, high} <= {first, last} else f", between {_figure(low)} and {_figure(high)}"
    return f"{name}: from {_figure(first)} at {x} {_figure(first_x)} to {_figure(last)} at {_figure(last_x)}{between}."


def describe_ranking(chart: Chart) -> str:
    """Return what is first of a ranking."""
    pairs = list(zip(chart.names, chart.series[0].y, strict=True))
    told = "; ".join(f"{name}: {_figure(value)}" for name, value in pairs[:MAX_NAMES])
    more = f"; and {len(pairs) - MAX_NAMES} more" if len(pairs) > MAX_NAMES else ""
    return f"{chart.x_label[:1].upper()}{chart.x_label[1:]} of {len(pairs)}: {told}{more}."


def _describe_heat(chart: Chart) -> str:
    rows, columns = len(chart.row_names), len(chart.names)
    cells = [(value, i, j) for i, row in enumerate(chart.matrix) for j, value in enumerate(row) if math.isfinite(value)]
    if not cells:
        return f"{rows} rows and {columns} columns, all empty."
    value, i, j = max(cells, key=lambda cell: abs(cell[0]))
    return f"{rows} rows and {columns} columns; the largest entry is {_figure(value)}, of {chart.row_names[i]} and {chart.names[j]}."


def spoken(parts: Sequence[str]) -> str:
    """Return parts of a sentence with commas, and an "and" before the last."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""
