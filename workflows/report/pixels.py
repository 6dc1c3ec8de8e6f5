"""Features named ``pixel_ROW_COLUMN`` (and their products) drawn where they lie in the image."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .charts import NEGATIVE, PALETTE, add_scale
from .svg import RULE, Picture, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PIXEL = re.compile(r"pixel_(\d{1,3})_(\d{1,3})")
MAX_SIDE = 512
TOP_PAIRS = 25
GREY = "#7b8794"  # of pixels in use, on light pages and on dark ones

Pixel = tuple[int, int]


@dataclass(frozen=True)
class PixelUsage:
    """Usage of each pixel and the strongest pairs. ``usage``: ``(rows, columns)`` summed absolute weights; ``pairs``: ``(first, second,
    weight)``, largest weight first."""

    usage: np.ndarray
    pairs: tuple[tuple[Pixel, Pixel, float], ...]

    def paint(self, axes: Axes) -> None:
        """Draw the heat map with the pairs as lines between pixel centres and squares as rings."""
        from matplotlib.colors import LinearSegmentedColormap, to_rgba

        shades = LinearSegmentedColormap.from_list("shades", [to_rgba(GREY, 0.0), to_rgba(GREY, 0.9)], N=33)
        image = axes.imshow(self.usage, cmap=shades, vmin=0.0, vmax=float(self.usage.max()))
        _cells(axes, len(self.usage))
        largest = max((abs(weight) for _, _, weight in self.pairs), default=1.0)
        for first, second, weight in reversed(self.pairs[:TOP_PAIRS]):
            _pair(axes, first, second, weight, largest)
        add_scale(axes, image)


def _cells(axes: Axes, side: int) -> None:
    """Rule the picture into pixels: an unused one has the colour of the page, and must show all the same."""
    axes.grid(visible=False)
    axes.set_xticks(np.arange(side), [])
    axes.set_yticks(np.arange(side), [])
    axes.set_xticks(np.arange(side + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(side + 1) - 0.5, minor=True)
    axes.grid(which="minor", color=RULE, linewidth=0.6)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def _pair(axes: Axes, first: Pixel, second: Pixel, weight: float, largest: float) -> None:
    colour = PALETTE[0] if weight >= 0 else NEGATIVE
    share = abs(weight) / largest
    if first == second:
        axes.plot([first[1]], [first[0]], marker="o", markersize=5 + 9 * share, markerfacecolor="none", color=colour, markeredgewidth=1.8)
        return
    (r0, c0), (r1, c1) = first, second
    axes.plot([c0, c1], [r0, r1], color=colour, linewidth=0.8 + 3.0 * share, alpha=0.75, marker="o", markersize=3.5, solid_capstyle="round")


def pixel_usage(weights: Sequence[tuple[str, float]]) -> PixelUsage | None:
    """Return the usage of every pixel, or ``None`` unless every feature is named like a pixel or a product of two. ``weights``: ``(feature
    name, weight)``, largest weight first."""
    known: list[tuple[list[Pixel], float]] = []
    for name, weight in weights:
        parts = [_PIXEL.fullmatch(part) for part in name.split("*")]
        if None in parts or len(parts) > 2:
            return None
        known.append(([(int(part[1]), int(part[2])) for part in parts if part is not None], weight))
    if not known:
        return None
    rows = 1 + max(row for pixels, _ in known for row, _ in pixels)
    columns = 1 + max(column for pixels, _ in known for _, column in pixels)
    if max(rows, columns) > MAX_SIDE:
        return None
    usage = np.zeros((max(rows, columns),) * 2)
    for pixels, weight in known:
        for pixel in set(pixels):
            usage[pixel] += abs(weight)
    pairs = tuple((pixels[0], pixels[-1], weight) for pixels, weight in known)
    return PixelUsage(usage, pairs)


def pixel_picture(usage: PixelUsage, number: int) -> Picture:
    """Return the figure of the pixels in use."""
    shade = "Shade: summed size of the weights a pixel takes part in."
    lines = "Lines and rings: the largest weights, blue positive, orange negative."
    row, column = np.unravel_index(int(usage.usage.argmax()), usage.usage.shape)
    used = f"{int((usage.usage > 0).sum())} of {usage.usage.size} pixels are in use, most of all that of row {row} and column {column}."
    return Picture("Pixels involved", f"{shade} {lines}", draw(usage.paint, 4.2, number), used)
