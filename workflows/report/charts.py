"""Draw charts on matplotlib axes, for reports and for ``gramplane.plots``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from ...pipeline.records.charts import FAINT, Chart, Legend, Series, has_long_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALETTE = ("#1f5fa8", "#c2570c", "#2f8f6b", "#8a4fa3", "#b8334a", "#6b7280", "#b8860b", "#0e7490", "#5c4033", "#be2f8a")
INK = "#1f2933"
NEGATIVE = PALETTE[1]

MAX_TICKS = 30  # rows and columns of a heat map with names; of more, every second, third ... has one.
MAX_LARGE = 16  # rows and columns of a heat map whose names have room for larger letters
BAR_WIDTH = 0.72  # of the distance of two bars
LEGEND_LETTERS = 48  # letters in a line of a legend, with what stands before every name
MAX_OPACITY = 0.85  # of the largest entry of a heat map


def paint(axes: Axes, chart: Chart) -> None:
    """Draw a chart on matplotlib axes.

    Examples --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> from matplotlib.figure import Figure
    >>> from gramplane.plots import list_charts, paint
    >>> axes = Figure().subplots()
    >>> paint(axes, list_charts("runs/iris")[0])
    """
    {"series": _paint_series, "ranking": _paint_ranking, "heat": _paint_heat}[chart.kind](axes, chart)


def plain_text(name: str) -> str:
    """Return a text in which matplotlib does not read ``$`` as mathematics."""
    return name.replace("$", r"\$")


def _colour(series: Series) -> str:
    return PALETTE[series.colour % len(PALETTE)] if isinstance(series.colour, int) else series.colour


def _paint_series(axes: Axes, chart: Chart) -> None:
    for series in chart.series:
        if series.mark != "area":
            _add_mark(axes, series)
    areas = [series for series in chart.series if series.mark == "area"]
    if areas:
        labels, colours = [plain_text(area.label) for area in areas], [_colour(area) for area in areas]
        axes.stackplot(areas[0].x, *(area.y for area in areas), labels=labels, colors=colours)  # pyright: ignore[reportArgumentType]
    if any(series.mark in ("bar", "area") for series in chart.series):
        axes.grid(visible=False, axis="x")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    _set_scales(axes, chart)
    if chart.legend is not None and chart.legend.position == "ends":
        _name_ends(axes, chart.series)
    elif chart.legend is not None:
        has_lines = any(series.mark in ("line", "step") for series in chart.series)
        _add_legend(axes, chart.legend, **({} if has_lines else {"handlelength": 1.0}))


def _add_mark(axes: Axes, series: Series) -> None:
    x, y, label = cast("Any", series.x), cast("Any", series.y), plain_text(series.label)
    style: dict[str, Any] = {"color": _colour(series)}
    if series.mark == "step":
        axes.step(x, y, where="mid", label=label, **style)
    elif series.mark == "band":
        axes.fill_between(x, cast("Any", series.base), y, alpha=series.opacity, linewidth=0, **style)
    elif series.mark == "whisker":
        axes.vlines(x, cast("Any", series.base), y, linewidth=series.width or 1.4, label=label, alpha=series.opacity, **style)
    elif series.mark == "bar":
        style |= {"bottom": series.base} if series.base else {}
        axes.bar(x, y, width=series.width or BAR_WIDTH, label=label or None, **style)
    elif series.mark == "point":
        axes.scatter(x, y, s=series.width, alpha=series.opacity, linewidths=0, label=label or None, **style)
    else:
        style |= {"markersize": 7, "markeredgecolor": "white"} if series.marker == "D" else {}
        style |= {} if series.width is None else {"linewidth": series.width}
        axes.plot(x, y, series.style, alpha=series.opacity, marker=series.marker, label=label, **style)


def _set_scales(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import MaxNLocator

    for along in chart.whole:
        (axes.xaxis if along == "x" else axes.yaxis).set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if chart.y_scale == "log":
        _log_scale(axes)
    elif chart.y_scale == "symlog":
        axes.set_yscale("symlog", linthresh=1)
    # Behind the scale of the other axis: to turn an axis fixes the limits of both.
    if chart.x_scale == "falling":
        axes.invert_xaxis()
    elif chart.x_scale == "log":
        axes.set_xscale("log")
    if chart.from_zero:
        axes.set_ylim(bottom=0)
    if chart.unit:
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    if chart.equal:
        axes.set_aspect("equal", adjustable="datalim")


def _log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic if its lines span at least a factor of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = [float(value) for line in axes.lines for value in cast("Any", line.get_ydata()) if value > 0]
    if max(values, default=1.0) < 10 * min(values, default=1.0):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if 1e-3 <= value < 1e5 else f"{value:.0e}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _add_legend(axes: Axes, legend: Legend, **options: Any) -> None:
    if legend.position == "above":
        options |= {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}
    elif legend.position == "below":
        options |= {"loc": "upper left", "bbox_to_anchor": (0, -0.2)}
    longest = max((len(text) for text in axes.get_legend_handles_labels()[1]), default=0)
    columns = max(1, min(legend.columns, LEGEND_LETTERS // (longest + 7)))
    axes.legend(ncols=columns, title=legend.title or None, **options)


def _name_ends(axes: Axes, series: Sequence[Series]) -> None:
    """Write the name of every line at its end, without overlap."""
    known = sorted(((item.y[-1], item) for item in series if item.label), key=lambda end: end[0])
    (low, high), places = axes.get_ylim(), []
    step = 0.065 * (high - low)
    for y, _ in known:
        places.append(max(y, places[-1] + step) if places else y)
    for k, (_, item) in enumerate(known):
        at = min(places[k], high - step * (len(known) - 1 - k))
        options: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": _colour(item), "annotation_clip": False}
        axes.annotate(plain_text(item.label), (1.0, at), (4, 0), xycoords=axes.get_yaxis_transform(), fontsize=9, **options)


def _paint_ranking(axes: Axes, chart: Chart) -> None:
    """Draw a bar for each name or, if there is a second series, a point with its interval. Long names are written above their bars."""
    values, names = chart.series[0].y, [plain_text(name) for name in chart.names]
    rows = range(len(values))
    is_long, colours = has_long_names(chart.names), [PALETTE[0] if value >= 0 else NEGATIVE for value in values]
    if len(chart.series) > 1:
        axes.hlines(rows, cast("Any", chart.series[1].base), cast("Any", chart.series[1].y), color=PALETTE[0], linewidth=1.4)
        axes.scatter(values, rows, color=PALETTE[0], s=26, zorder=3)
    else:
        axes.barh(rows, values, color=colours, height=0.34 if is_long else BAR_WIDTH)
        axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.set_yticks(rows, [""] * len(names) if is_long else names, color=INK)
    if is_long:
        for row, name in zip(rows, names, strict=True):
            axes.text(0.01, row - 0.27, name, transform=axes.get_yaxis_transform(), va="bottom", color=INK)
        axes.set_ylim(len(names) - 0.5, -1.0)
    else:
        axes.invert_yaxis()
    if max(values) <= 0 and len(chart.series) == 1:
        axes.invert_xaxis()  # bars of one sign begin at the left
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(chart.x_label)


def _paint_heat(axes: Axes, chart: Chart) -> None:
    """Draw cells in one colour per sign; small values are transparent, so that they match the background of light and dark pages."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgba

    values = [value for row in chart.matrix for value in row if math.isfinite(value)]
    largest, is_signed = max(map(abs, values), default=0.0) or 1.0, min(values, default=0.0) < 0
    colour = FAINT if chart.series else PALETTE[0]
    most, none = to_rgba(colour, MAX_OPACITY), to_rgba(colour, 0.0)
    ends = [to_rgba(NEGATIVE, MAX_OPACITY), to_rgba(NEGATIVE, 0.0), none, most] if is_signed else [none, most]
    places = [0.0, 0.5, 0.5, 1.0] if is_signed else [0.0, 1.0]
    shades = LinearSegmentedColormap.from_list("shades", list(zip(places, ends, strict=True)), N=65)
    least = -largest if is_signed else 0.0
    image = axes.imshow(
        chart.matrix, cmap=shades, vmin=least, vmax=largest, aspect="auto" if chart.names else "equal", interpolation="nearest"
    )  # pyright: ignore[reportArgumentType]
    axes.grid(visible=False)
    _set_names(axes.set_xticks, chart.names, rotation=90)
    _set_names(axes.set_yticks, chart.row_names)
    axes.tick_params(labelsize=8.5 if max(len(chart.names), len(chart.row_names)) <= MAX_LARGE else 7)
    axes.set_ylabel(chart.y_label)
    for series in chart.series:
        _add_mark(axes, series)
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.045, pad=0.03)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.solids.set_edgecolor("none")  # pyright: ignore[reportOptionalMemberAccess]


def _set_names(set_ticks: Callable[..., Any], names: Sequence[str], **options: Any) -> None:
    at = list(range(0, len(names), max(1, -(-len(names) // MAX_TICKS))))
    set_ticks(at, [plain_text(names[i]) for i in at], **options)
