"""Figures of kernels known by their spectrum: the map of an embedding, the eigenvalues, and the bounds of the dual ascent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figures import FAINT, PALETTE, Picture, draw, safe
from .view import Row, RunView, known, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN = 2000
"""Points of a map; more would make the page large and the picture black."""
BARS = 40
"""Eigenvalues drawn as bars."""


def maps(run: RunView, prefix: str) -> list[Picture]:
    """Return the first two coordinates of every point, coloured by label where there is one."""
    rows = [row for row in run.tables.get("embedding", ()) if known([number(row.get("component_0"))])]
    if not rows:
        return []
    step = -(-len(rows) // SHOWN)
    shown = rows[::step]
    told = "Every point is a row" if step == 1 else f"{len(shown):,} of {len(rows):,} rows, evenly chosen"
    labels = list(dict.fromkeys(str(row["label"]) for row in shown if row.get("label") is not None))
    caption = f"{told}{'; colours are labels' if labels else ''}."
    return [Picture(f"{prefix}Map", caption, draw(lambda axes: _scatter(axes, shown, labels), (6.0, 4.6)))]


def _scatter(axes: Axes, rows: list[Row], labels: list[str]) -> None:
    few = labels if len(labels) <= len(PALETTE) else []
    for name in few or [None]:
        own = [row for row in rows if name is None or str(row.get("label")) == name]
        colour = PALETTE[few.index(name)] if name is not None else PALETTE[0]
        places = [number(row.get("component_0")) for row in own], [number(row.get("component_1")) for row in own]
        axes.scatter(*places, s=14, color=colour, alpha=0.75, linewidths=0, label=None if name is None else safe(name, 24))
    unlabelled = [row for row in rows if few and row.get("label") is None]
    if unlabelled:
        places = [number(row.get("component_0")) for row in unlabelled], [number(row.get("component_1")) for row in unlabelled]
        axes.scatter(*places, s=10, color=FAINT, alpha=0.4, linewidths=0, label="without a label")
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel("first coordinate")
    axes.set_ylabel("second coordinate")
    if few:
        axes.legend(ncols=min(4, len(few) + 1), loc="lower left", bbox_to_anchor=(0, 1.0), handlelength=1.0)


def spectra(run: RunView, prefix: str) -> list[Picture]:
    """Return the largest eigenvalues of the kernel."""
    values = [number(row.get("eigenvalue")) for row in run.tables.get("spectrum", ())]
    if not known(values):
        return []

    def paint(axes: Axes) -> None:
        axes.bar(range(1, 1 + len(values[:BARS])), values[:BARS], color=PALETTE[0], width=0.72)
        axes.grid(visible=False, axis="x")
        axes.set_xlabel("eigenvalue")
        axes.set_ylabel("size")

    told = f"The {min(BARS, len(values))} largest of {len(values):,} positive eigenvalues of the learned kernel matrix."
    return [Picture(f"{prefix}Spectrum of the kernel", told, draw(paint))]


def ascents(run: RunView, prefix: str) -> list[Picture]:
    """Return both objectives of the dual ascent, which close on the optimum from both sides."""
    dual, primal, steps = run.column("dual"), run.column("primal"), run.column("iteration")
    if not known(dual) or not known(primal) or len(steps) < 2:
        return []

    def paint(axes: Axes) -> None:
        axes.plot(steps, primal, "-", color=PALETTE[0], marker="o", label="primal")
        axes.plot(steps, dual, "--", color=PALETTE[1], marker="o", label="dual")
        axes.set_xlabel("round")
        axes.set_ylabel("objective")
        axes.legend()

    told = "Objective of the kernel at every round (primal), and the bound below the optimum (dual)."
    return [Picture(f"{prefix}Primal and dual", told, draw(paint))]
