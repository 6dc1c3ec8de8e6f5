"""Charts as inline SVG, with text as text, in the page's colours (light or dark).

The page loads nothing and runs nothing: names are escaped, and its content security policy forbids scripts.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from dataclasses import dataclass, replace
from typing import Any, cast

from ...pipeline.records.charts import FAINT, Chart, ranking_height
from .charts import INK, PALETTE, paint
from .words import describe_chart

WIDTH = 4.7  # inches of every figure: a unit of it is a pixel of a phone's page, so that its text can be read there
RULE, PAPER = "#e3e7ec", "#ffffff"

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gramplane",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.facecolor": "none",
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
    "legend.fontsize": 9.5,
    "legend.handlelength": 3.2,
    "lines.dashed_pattern": (3.0, 1.8),
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
}
VARIABLES = {**{colour: f"var(--c{k})" for k, colour in enumerate(PALETTE)}, INK: "var(--ink)", FAINT: "var(--faint)"}
VARIABLES |= {RULE: "var(--rule)", PAPER: "var(--paper)"}
"""CSS variables for the colours that matplotlib draws in."""


@dataclass(frozen=True)
class Picture:
    """A figure of the page: heading, caption, drawing, description in words, and a link that contains the drawing as a file."""

    title: str
    caption: str
    svg: str
    alternative: str
    link: str


def picture(chart: Chart, number: int = 0) -> Picture:
    """Return a chart as a figure of the page; ``number`` makes the ids in the drawing unique on the page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    height = ranking_height(chart.names) if chart.kind == "ranking" else chart.size[1] * (0.9 if chart.kind == "series" else 1.0)
    with mpl.rc_context(cast("Any", STYLE)):
        figure, out = Figure(figsize=(WIDTH, height), layout="constrained"), io.StringIO()
        paint(figure.add_subplot(), chart)
        with warnings.catch_warnings():
            # A font without the glyphs of a feature's name: the browser draws the text, with its own fonts.
            warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
            figure.savefig(out, format="svg", metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", out.getvalue(), flags=re.DOTALL)
    link = data_link(re.sub(r"<[^>]+>", lambda tag: _short_numbers(tag[0]), text[text.index("<svg") :]), "image/svg+xml")
    return Picture(chart.title, chart.caption, _for_page(text, f"f{number}-"), describe_chart(chart), link)


def data_link(text: str, kind: str) -> str:
    """Return a ``data:`` URL that holds a text."""
    return f"data:{kind};base64,{base64.b64encode(text.encode('utf-8', 'backslashreplace')).decode()}"


def _for_page(text: str, prefix: str) -> str:
    """Return the drawing without prologue and style sheet, with the page's colours and unique ids."""
    text = re.sub(r"<style.*?</style>", "", text[text.index("<svg") :], flags=re.DOTALL)
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    # Names are text between tags, in which no tag can begin: what is changed stands in tags alone.
    text = re.sub(r"<[^>]+>", lambda tag: _tag_for_page(tag[0], used, prefix), text)
    return re.sub(r"\s*\n\s*", "\n", text).strip()


def _short_numbers(tag: str) -> str:
    return tag if "base64," in tag else re.sub(r"(\.\d\d)\d+", r"\1", tag)


def _tag_for_page(tag: str, used: set[str], prefix: str) -> str:
    if tag.startswith("<svg"):
        box = re.search(r'viewBox="[^"]*"', tag)
        return f'<svg class="chart" {box[0] if box else ""} aria-hidden="true">'
    tag = re.sub(r' id="([^"]*)"', lambda name: f' id="{prefix}{name[1]}"' if name[1] in used else "", tag)
    tag = re.sub(r'((?:href="|url\()#)', rf"\g<1>{prefix}", tag)
    tag = re.sub(r"#[0-9a-f]{6}\b", lambda colour: VARIABLES.get(colour[0], colour[0]), tag)
    tag = re.sub(r"font: ?([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"font-family:[^;\"]*;? ?", "", tag)
    return _short_numbers(tag)


def name_run(item: Picture, name: str) -> Picture:
    """Return a figure with the name of its run in the heading."""
    return replace(item, title=f"{name}: {item.title}")
