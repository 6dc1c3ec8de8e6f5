"""Figures of methods that learn from a stream of rows: losses as they came, regret, and sparsity along the stream."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .figures import Picture, _colours, _label, _mark, draw
from .view import RunView, known, named, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def streams(runs: Sequence[RunView]) -> list[Picture]:
    """Return losses, regret and sparsity along the rows that were learned."""
    runs = [run for run in runs if run.tables.get("stream")]
    if not runs:
        return []
    shown = (
        (
            "Loss along the stream",
            "Loss of rows before they were learned: mean of each step (solid) and of all rows so far (dotted).",
            "loss",
            (("loss", "step", "-"), ("mean_loss", "so far", ":")),
        ),
        (
            "Average regret",
            "Loss and penalty paid so far, per row, less what the last model would have paid on the same rows; the penalty is that at the "
            "ends of steps. Dual averaging brings it to zero as one over the root of the number of rounds.",
            "regret per row",
            (("regret", "", "-"),),
        ),
        (
            "Sparsity along the stream",
            "Features (solid) and groups (dotted) with a weight at the end of each step.",
            "with a weight",
            (("features", "features", "-"), ("groups", "groups", ":")),
        ),
    )
    return [picture for title, told, label, keys in shown for picture in _along(runs, title, told, label, keys)]


def _along(runs: Sequence[RunView], title: str, told: str, label: str, keys: Sequence[tuple[str, str, str]]) -> list[Picture]:
    lines = [
        (run, style, _label(run, runs, name), [number(row.get("rows")) for row in run.tables["stream"]], values)
        for run in runs
        for key, name, style in keys
        if known(values := [number(row.get(key)) for row in run.tables["stream"]])
    ]
    if not lines:
        return []
    colours = dict(zip([run.path for run in runs], _colours(len(runs)), strict=True))

    def paint(axes: Axes) -> None:
        for run, style, name, rows, values in lines:
            axes.plot(rows, values, style, color=colours[run.path], marker=_mark(run), label=name)
        axes.set_xlabel("rows")
        axes.set_ylabel(label)
        if min(value for *_, values in lines for value in values if math.isfinite(value)) >= 0:
            axes.set_ylim(bottom=0)
        if len(lines) > 1 or named(runs):
            axes.legend()

    return [Picture(title, told, draw(paint))]
