"""Figures of methods for many tasks and of active sets on graphs: heat maps of weights, certificates that close."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .figures import Picture, _lines, _log, _rounds, draw, safe
from .view import Row, RunView, known, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS = 45
"""Rows and columns of a heat map with names; of more, every second, third ... has one."""


def certified(run: RunView) -> bool:
    """Return whether a run closes a certificate over a whole graph around a restricted problem."""
    return known(run.column("restricted_gap"))


def certificates(runs: Sequence[RunView]) -> list[Picture]:
    """Return the certified gap over all nodes of a graph, beside that of the working set, per iteration."""
    runs = [run for run in runs if certified(run)]
    if not runs:
        return []

    def paint(axes: Axes) -> None:
        _lines(axes, runs, [("gap", "all nodes", "-"), ("restricted_gap", "working set", ":")], positive=True)
        _rounds(axes)
        _log(axes)

    told = "Certified distance to the optimum over all nodes, many of them never built (solid), and over the working set (dotted)."
    return [Picture("Certificate", told, draw(paint))]


def working_sets(runs: Sequence[RunView]) -> list[Picture]:
    """Return the size of the working set per iteration."""
    runs = [run for run in runs if certified(run)]
    if not any(value > 0 for run in runs for value in run.column("n_nodes")):
        return []

    def paint(axes: Axes) -> None:
        _lines(axes, runs, [("n_nodes", "", "-")])
        axes.set_ylabel("nodes")
        _rounds(axes)

    return [Picture("Working set", "Nodes of the graph with a weight to be found, all their ancestors among them.", draw(paint))]


def heat_maps(run: RunView, prefix: str) -> list[Picture]:
    """Return the weights of kernels or features by task, and the weights between tasks."""
    shown = (
        ("task_kernels", "Kernels by task", "Weight of every kernel in the machine of every task; the heaviest kernels stand left."),
        ("task_features", "Features by task", "Weight of every selected feature in every task, largest norms left; blue positive."),
        ("task_pairs", "Tasks that learn together", "Weight of one task's rows in another's machine, summed over kernels."),
    )
    return [_heat(f"{prefix}{title}", told, rows) for key, title, told in shown if (rows := run.tables.get(key, ())) and len(rows) > 1]


def _heat(title: str, told: str, rows: Sequence[Row]) -> Picture:
    names = [key for key in rows[0] if key != "task"]
    values = [[number(row.get(name)) for name in names] for row in rows]

    def paint(axes: Axes) -> None:
        every = [value for line in values for value in line if math.isfinite(value)]
        top, signed = max(map(abs, every), default=0.0) or 1.0, min(every, default=0.0) < 0
        shades, least = ("RdBu", -top) if signed else ("Blues", 0.0)
        image = axes.imshow(values, cmap=shades, vmin=least, vmax=top, aspect="auto", interpolation="nearest")
        axes.grid(visible=False)
        _named(axes.set_xticks, names, rotation=90)
        _named(axes.set_yticks, [str(row["task"]) for row in rows])
        axes.tick_params(labelsize=6.5)
        axes.set_ylabel("task")
        axes.figure.colorbar(image, ax=axes, fraction=0.045, pad=0.03)

    return Picture(title, told, draw(paint, (7.2, 5.6)))


def _named(place: object, names: Sequence[str], **options: object) -> None:
    step = -(-len(names) // TICKS)
    at = list(range(0, len(names), step))
    place(at, [safe(names[i], 20) for i in at], **options)  # type: ignore[operator]
