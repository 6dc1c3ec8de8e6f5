"""The plots of docs/benchmarks.md as SVG that follows the theme of the site; what they show stands in a table beside them, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

WIDTH, LEFT, ROW = 860, 430, 26
LOWEST, HIGHEST = 1 / 200, 5.0  # ratios on the axis


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, LOWEST), HIGHEST) / LOWEST) / math.log(HIGHEST / LOWEST)
    return LEFT + 10 + share * (WIDTH - LEFT - 30)


def _shown(parts: Sequence[str], height: int, label: str) -> str:
    body = "".join(parts)
    svg = f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" aria-label="{escape(label)}">{body}</svg>'
    return f'```{{raw}} html\n<div class="plot" tabindex="0">{svg}</div>\n```'


def ratios(rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return points on an axis of ratios for every row: our time over the peer's."""
    height = ROW * len(rows) + 50
    parts = []
    for ratio, name in ((0.01, "100× faster"), (0.1, "10×"), (0.25, "4×"), (1.0, "1"), (4.0, "4× slower")):
        kind = "one" if ratio == 1.0 else "grid"
        parts.append(f'<line class="{kind}" x1="{_x(ratio):.0f}" y1="20" x2="{_x(ratio):.0f}" y2="{height - 26}"/>')
        parts.append(f'<text class="axis" text-anchor="middle" x="{_x(ratio):.0f}" y="14">{name}</text>')
    for i, (name, values) in enumerate(rows):
        y = 36 + i * ROW
        parts.append(f'<text x="0" y="{y + 5}">{escape(name)}</text>')
        parts += [f'<circle cx="{_x(value):.1f}" cy="{y}" r="5"/>' for value in values]
    parts.append(f'<text class="axis" x="{LEFT}" y="{height - 6}">our time over the peer\'s, log scale; left of 1 is faster</text>')
    return _shown(parts, height, "Our time over the peer's for every workload of the table above")


def label_of(workload: str) -> str:
    """Return as many whole parts of the words for a workload as fit beside the axis."""
    label = workload.partition(";")[0]
    while len(label) > 58:
        label = label.rpartition(", ")[0]
    return label
