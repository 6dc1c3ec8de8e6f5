"""Figures of methods on kernels: bounds that close around the optimum, kernels kept, weights along the rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .figures import FAINT, PALETTE, Picture, _colours, _label, _lines, _log, _mark, _rounds, draw, safe
from .view import Row, RunView, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOOKS = "The bounds over all kernels move when those over the working set (dotted) have met and all kernels are looked at."

PANELS = 4
"""Machines whose weights are drawn; the tables have all."""


def bounds(runs: Sequence[RunView]) -> list[Picture]:
    """Return upper and lower bound per round, and the gap between them on a logarithmic scale."""
    runs = [run for run in runs if run.bounded]
    if not runs:
        return []

    def closing(axes: Axes) -> None:
        for colour, run in zip(_colours(len(runs)), runs, strict=True):
            _band(axes, run, colour, _label(run, runs))
        _rounds(axes)
        axes.legend()

    def gap(axes: Axes) -> None:
        _lines(axes, runs, [("relative_gap", "all kernels", "-"), ("working_gap", "working set", ":")], positive=True)
        _rounds(axes)
        _log(axes)

    told = "Upper bound (solid) and lower bound (dashed) of the optimum, both rigorous; the model returned has the value of the upper one."
    return [
        Picture("Bounds", told, draw(closing)),
        Picture(
            "Gap between the bounds", f"In units of the upper bound, or of one if that is smaller; the fit ends at tol. {LOOKS}", draw(gap)
        ),
    ]


def _band(axes: Axes, run: RunView, colour: str, label: str) -> None:
    rounds, upper, lower = run.column("iteration"), run.column("upper_bound"), run.column("lower_bound")
    axes.plot(rounds, upper, "-", color=colour, marker=_mark(run), label=f"{label} upper".strip())
    axes.plot(rounds, lower, "--", color=colour, marker=_mark(run), label=f"{label} lower".strip())
    axes.fill_between(rounds, lower, upper, color=colour, alpha=0.12, linewidth=0)


def kept(runs: Sequence[RunView]) -> list[Picture]:
    """Return the number of kernels with a weight per round."""
    runs = [run for run in runs if run.bounded]
    if not any(value > 0 for run in runs for value in run.column("n_selected")):
        return []

    def paint(axes: Axes) -> None:
        _lines(axes, runs, [("n_selected", "", "-")])
        _rounds(axes)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("kernels")

    return [Picture("Kernels kept", "Kernels with a weight in the best model so far; of several classes the most.", draw(paint))]


def weight_paths(run: RunView, prefix: str) -> list[Picture]:
    """Return the weights of the heaviest kernels along the rounds, one picture per machine."""
    rows = run.tables.get("weights", ())
    machines = list(dict.fromkeys(row["machine"] for row in rows))
    told = "Weights tried in each round, of the kernels that are heaviest in the end; the grey ones follow behind those named."
    if len(machines) > PANELS:
        told += f" The first {PANELS} of {len(machines)} classes; weights.csv has all."
    found = []
    for machine in machines[:PANELS]:
        own = [row for row in rows if row["machine"] == machine]
        title = "Weights along the rounds" + (f", class {machine}" if len(machines) > 1 else "")

        def paint(axes: Axes, own: Sequence[Row] = own) -> None:
            _paths(axes, own)

        found.append(Picture(f"{prefix}{title}", told, draw(paint, (6.0, 3.8))))
    return found


def _paths(axes: Axes, rows: Sequence[Row]) -> None:
    rounds = [number(row["iteration"]) for row in rows]
    names = [key for key in rows[0] if key not in ("machine", "iteration")]
    # The heaviest of this machine, which the order of all machines together need not show.
    names.sort(key=lambda name: -number(rows[-1].get(name)))
    for name in names[len(PALETTE) :]:
        axes.plot(rounds, [number(row.get(name)) for row in rows], color=FAINT, linewidth=0.8, alpha=0.5)
    for colour, name in zip(PALETTE, names, strict=False):
        axes.plot(rounds, [number(row.get(name)) for row in rows], color=colour, label=safe(name, 30))
    axes.set_ylim(bottom=0)
    axes.set_ylabel("weight")
    _rounds(axes)
    axes.legend(fontsize=8, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.18))
