"""Drawing of charts as SVG in data URIs: nothing outside the page is loaded, and nothing inside an image can run."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ...pipeline.records.charts import FAINT, Chart, Legend, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALETTE = ("#1f5fa8", "#d2691e", "#2f8f6b", "#8a4fa3", "#b8334a", "#6b7280", "#b8860b", "#0e7490")
INK, RULE = "#1f2933", "#e3e7ec"
NEGATIVE = PALETTE[1]

MAX_TICKS = 45  # rows and columns of a heat map with names; of more, every second, third ... has one.
BAR_WIDTH = 0.72  # of the distance of two bars

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gramplane",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": FAINT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.handlelength": 4.0,
    "lines.dashed_pattern": (3.0, 1.8),
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "figure.facecolor": "white",
}


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its heading, what it says, and the image."""

    title: str
    caption: str
    uri: str


def picture(chart: Chart) -> Picture:
    """Return a chart as a figure of the page."""
    return Picture(chart.title, chart.caption, draw(lambda axes: paint(axes, chart), chart.size))


def draw(paint: Callable[[Axes], Any], size: tuple[float, float] = (6.0, 3.3)) -> str:
    """Return the data URI of a figure with one pair of axes, painted in the page's style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(cast("Any", _STYLE)):
        figure, out = Figure(figsize=size, layout="constrained"), io.BytesIO()
        paint(figure.add_subplot())
        with warnings.catch_warnings():
            # A font without the glyphs of a feature's name: the browser draws the text, with its own fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure.savefig(out, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def paint(axes: Axes, chart: Chart) -> None:
    """Draw a chart on a pair of axes."""
    {"series": _paint_series, "ranking": _paint_ranking, "heat": _paint_heat}[chart.kind](axes, chart)


def plain_text(name: str) -> str:
    """Return a text in which ``$`` is a dollar, and does not begin mathematics."""
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
    if chart.legend is not None:
        has_points = all(series.mark == "point" for series in chart.series)
        _add_legend(axes, chart.legend, **({"handlelength": 1.0} if has_points else {}))


def _add_mark(axes: Axes, series: Series) -> None:
    x, y, label = cast("Any", series.x), cast("Any", series.y), plain_text(series.label)
    style: dict[str, Any] = {"color": _colour(series)}
    if series.mark == "step":
        axes.step(x, y, where="mid", label=label, **style)
    elif series.mark == "band":
        axes.fill_between(x, cast("Any", series.base), y, alpha=series.opacity, linewidth=0, **style)
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
    if chart.equal:
        axes.set_aspect("equal", adjustable="datalim")


def _log_scale(axes: Axes) -> None:
    """Make the y axis logarithmic, if its lines differ enough for a power of ten to be among its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = [float(value) for line in axes.lines for value in cast("Any", line.get_ydata()) if value > 0]
    if max(values, default=1.0) < 10 * min(values, default=1.0):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _add_legend(axes: Axes, legend: Legend, **options: Any) -> None:
    if legend.position == "above":
        options |= {"loc": "lower left", "bbox_to_anchor": (0, 1.0)}
    elif legend.position == "below":
        options |= {"loc": "upper left", "bbox_to_anchor": (0, -0.18), "fontsize": 8}
    axes.legend(ncols=legend.columns, title=legend.title or None, **options)


def _paint_ranking(axes: Axes, chart: Chart) -> None:
    values = chart.series[0].y
    rows = range(len(values))
    axes.barh(rows, values, color=[PALETTE[0] if value >= 0 else NEGATIVE for value in values], height=BAR_WIDTH)
    axes.set_yticks(rows, [plain_text(name) for name in chart.names], color=INK)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=FAINT, linewidth=0.8)
    axes.set_xlabel(chart.x_label)


def _paint_heat(axes: Axes, chart: Chart) -> None:
    values = [value for row in chart.matrix for value in row if math.isfinite(value)]
    largest, is_signed = max(map(abs, values), default=0.0) or 1.0, min(values, default=0.0) < 0
    shades, least = ("RdBu", -largest) if is_signed else ("Blues", 0.0)
    image = axes.imshow(chart.matrix, cmap=shades, vmin=least, vmax=largest, aspect="auto", interpolation="nearest")  # pyright: ignore[reportArgumentType]
    axes.grid(visible=False)
    _set_names(axes.set_xticks, chart.names, rotation=90)
    _set_names(axes.set_yticks, chart.row_names)
    axes.tick_params(labelsize=6.5)
    axes.set_ylabel(chart.y_label)
    axes.figure.colorbar(image, ax=axes, fraction=0.045, pad=0.03)


def _set_names(set_ticks: Callable[..., Any], names: Sequence[str], **options: Any) -> None:
    at = list(range(0, len(names), -(-len(names) // MAX_TICKS)))
    set_ticks(at, [plain_text(names[i]) for i in at], **options)
