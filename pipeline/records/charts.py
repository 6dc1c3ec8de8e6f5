"""Chart: a figure of a report as data. Methods provide content and words; the report draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .run_view import RunView, has_values, needs_names

# Colour of what stands behind what is named.
FAINT = "#6b7280"

# Up to this many steps every one has its mark or bar; more are drawn as plain lines and areas, which keeps a page small.
MAX_MARKED_STEPS = 60

# Letters; with a longer name every name of a ranking stands above its bar.
LONG_NAME = 24

Mark = Literal["line", "step", "band", "bar", "area", "point", "whisker"]


@dataclass(frozen=True)
class Series:
    """Numbers that are drawn in the same style."""

    # x, y: as many numbers each; NaN is left out
    x: Sequence[float]
    y: Sequence[float]
    label: str = ""  # in the legend; empty: it has no entry
    # `band` fills from `base` to y, `whisker` is a line from there; `bar` stands on `base`, `area` on the areas before it; `step` changes
    # half way
    mark: Mark = "line"
    colour: int | str = 0  # number in the palette of the page, or a colour
    # style, marker: of lines: `"-"`, `"--"` or `":"`; `""`, `"o"` or `"D"` at its points
    style: str = "-"
    marker: str = ""
    base: Sequence[float] = ()  # where bands and bars begin; empty: at zero
    width: float | None = None  # of a line in points, of a bar on the x axis, of a point in square points; None: as usual
    opacity: float | None = None  # from 0 to 1; None: as usual


@dataclass(frozen=True)
class Legend:
    """Position and form of a legend."""

    position: Literal["inside", "above", "below", "ends"] = "inside"  # "ends": every line has its name at its end
    columns: int = 1
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """A figure of a report.

    ``kind``: ``"series"`` on two axes, ``"ranking"`` or ``"heat"``. A ranking with one series draws a bar of length y for each of
    ``names``. A ranking with two series draws the first as points, and the second as intervals from ``base`` to y. A heat map draws
    ``matrix`` with columns ``names`` and rows ``row_names``, and the series on top. ``series``: drawn in order, the last on top.
    ``x_scale``: ``"falling"`` runs from right to left. ``y_scale``: ``"log"`` is used only if the range of the numbers is large enough that
    a tick is a power of ten; ``"symlog"`` also shows zero. ``whole``: axes with integer ticks only.

    Examples
    --------
    >>> from gramplane.plots import Chart
    >>> Chart(
    ...     "Weights",
    ...     "The two largest weights.",
    ...     kind="ranking",
    ...     names=("age", "dose"),
    ... ).names
    ('age', 'dose')
    """

    # title, caption: its heading, and what it says
    title: str
    caption: str
    kind: Literal["series", "ranking", "heat"] = "series"
    series: Sequence[Series] = ()
    x_label: str = ""
    y_label: str = ""
    x_scale: Literal["linear", "log", "falling"] = "linear"
    y_scale: Literal["linear", "log", "symlog"] = "linear"
    whole: Literal["", "x", "y", "xy"] = ""
    from_zero: bool = False  # whether the y axis begins at zero
    equal: bool = False  # whether one unit is as long on both axes
    unit: bool = False  # whether both axes run from 0 to 1
    legend: Legend | None = None
    size: tuple[float, float] = (6.0, 3.3)  # inches
    names: Sequence[str] = ()
    row_names: Sequence[str] = ()
    matrix: Sequence[Sequence[float]] = ()


@dataclass(frozen=True)
class ShownTable:
    """A table of a run in a report: name, heading, note, and whether it is initially open."""

    name: str
    title: str
    note: str
    is_open: bool = True


@dataclass(frozen=True)
class SystemCharts:
    """The charts and words of a method for reports: ``CHARTS`` in its ``charts.py``."""

    # functions that return charts of several runs in one picture, from all runs of a page
    comparing: Sequence[Callable[[Sequence[RunView]], list[Chart]]] = ()
    found: Sequence[Callable[[RunView], list[Chart]]] = ()  # charts of one run that show what it found, on the first screen
    single: Sequence[Callable[[RunView], list[Chart]]] = ()  # further charts of one run
    tables: Sequence[ShownTable] = ()  # tables of a run that the page shows; the others are files only
    # charts of one run that have a display of their own in Python: `path`, `weights`, `rules`, `groups`, `map`
    displays: Mapping[str, Callable[[RunView], list[Chart]]] = field(default_factory=dict)
    # what its figures mean, for a method of another package: those of this one are in workflows/report/figures.txt
    glossary: Mapping[str, str] = field(default_factory=dict)


def short(name: object, width: int = 40) -> str:
    """Return a name as a label: on one line, at most ``width`` characters."""
    text = " ".join(str(name).split())
    return text if len(text) <= width else f"{text[: width - 1]}…"


def has_long_names(names: Sequence[str]) -> bool:
    """Return whether the names of a ranking are too long to be written beside its bars."""
    return max(map(len, names), default=0) > LONG_NAME


def ranking_height(names: Sequence[str]) -> float:
    """Return the height of a ranking in inches."""
    return 0.65 + (0.38 if has_long_names(names) else 0.21) * len(names)


def run_label(run: RunView, runs: Sequence[RunView], what: str = "") -> str:
    """Return the label of a run's line; with several runs it includes the run's name."""
    return " ".join(part for part in (short(run.name) if needs_names(runs) else "", what) if part)


def step_marker(run: RunView) -> str:
    return "o" if len(run.history) <= MAX_MARKED_STEPS else ""


def run_lines(runs: Sequence[RunView], keys: Sequence[tuple[str, str, str]], x: str = "iteration", positive: bool = False) -> list[Series]:
    """Return the histories of runs as lines. ``keys``: ``(key, label, style)`` of each line. ``positive``: leave out values that are not
    above zero.

    A single run has one colour per line; several runs have one colour each.
    """
    lines = []
    for i, run in enumerate(runs):
        for k, (key, label, style) in enumerate(keys):
            values = [value if value > 0 or not positive else math.nan for value in run.column(key)]
            if has_values(values) and has_values(run.column(x)):
                colour = i if len(runs) > 1 else k
                lines.append(Series(run.column(x), values, run_label(run, runs, label), "line", colour, style, step_marker(run)))
    return lines


def legend_of(series: Sequence[Series], runs: Sequence[RunView]) -> Legend | None:
    """Return the legend of a chart of runs, or ``None`` for a single line of a single run."""
    return Legend() if len(series) > 1 or (series and needs_names(runs)) else None
