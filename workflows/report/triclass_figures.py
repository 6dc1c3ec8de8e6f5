"""Figures of tri-class machines: the objective of every start, and how many unlabelled rows belong to which class, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .figures import PALETTE, Picture, _rounds, draw, safe
from .view import RunView, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDES = (("minus", "-1", PALETTE[1]), ("zero", "neither", PALETTE[5]), ("plus", "+1", PALETTE[0]))


def assignments(run: RunView, prefix: str) -> list[Picture]:
    """Return the objective of every start, and the assignment of the unlabelled rows by the best machine, over the steps."""
    rows = run.tables.get("assignments", ())
    names = list(dict.fromkeys(str(row["start"]) for row in rows))
    if not rows or "minus" not in rows[0]:
        return []

    def paint(axes: Axes) -> None:
        for index, name in enumerate(names):
            own = [row for row in rows if row["start"] == name]
            values = [number(row.get("objective")) for row in own]
            axes.plot([number(row["iteration"]) for row in own], values, color=PALETTE[index % len(PALETTE)], marker="o", label=safe(name))
        _rounds(axes, "step")
        axes.set_ylabel("objective")
        axes.legend()

    told = "Objective of every start after each of its convex problems; it never rises."
    found = [Picture(f"{prefix}Objective by start", told, draw(paint))]
    if any(value > 0 for key, _, _ in SIDES for value in run.column(key)):
        told = "Assigned by the best machine of each step."
        found.append(Picture(f"{prefix}Unlabelled rows", told, draw(lambda axes: _sides(axes, run))))
    return found


def _sides(axes: Axes, run: RunView) -> None:
    steps, floor = run.column("iteration"), [0.0] * len(run.history)
    for key, label, colour in SIDES:
        heights = run.column(key)
        axes.bar(steps, heights, bottom=floor, color=colour, label=label, width=0.72)
        floor = [a + b for a, b in zip(floor, heights, strict=True)]
    axes.grid(visible=False, axis="x")
    axes.set_xlabel("step")
    axes.set_ylabel("rows")
    axes.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0))
