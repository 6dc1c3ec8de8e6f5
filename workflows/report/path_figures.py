"""Figures of the kernel selection path and of unsupervised multiple kernel learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .figures import PALETTE, Picture, _colours, _label, _lines, _mark, _rounds, _scored, _whole, draw, safe
from .view import Row, RunView, known, named, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMED = 8
"""Kernels with a colour of their own; the others are grey."""

FAR = 30
"""Counts of kernels that differ by more than this factor are drawn on a logarithmic scale."""


def _falling(axes: Axes) -> None:
    axes.set_xlabel("p")
    axes.invert_xaxis()


def _column(rows: Sequence[Row], key: str) -> list[float]:
    return [number(row.get(key)) for row in rows]


def path_counts(runs: Sequence[RunView]) -> list[Picture]:
    """Return the number of active kernels along p, on a logarithmic scale where it falls far."""
    runs = [run for run in runs if run.tables.get("path")]
    if not runs:
        return []
    counts = [value for run in runs for value in _column(run.tables["path"], "n_active") if value > 0]

    def paint(axes: Axes) -> None:
        for colour, run in zip(_colours(len(runs)), runs, strict=True):
            rows = run.tables["path"]
            axes.step(_column(rows, "p"), _column(rows, "n_active"), where="mid", color=colour, label=_label(run, runs))
        if counts and max(counts) > FAR * min(counts):
            axes.set_yscale("symlog", linthresh=1)
        axes.set_ylabel("active kernels")
        _falling(axes)
        if named(runs):
            axes.legend()

    return [Picture("Kernels along p", "Active kernels; as p falls they become fewer and none comes back.", draw(paint))]


def path_weights(run: RunView, prefix: str) -> list[Picture]:
    """Return the weights of the kernels that stay longest along p."""
    rows = run.tables.get("path_weights", ())
    names = [key for key in rows[0] if key != "p"] if rows else []
    if not names:
        return []

    def paint(axes: Axes) -> None:
        at = _column(rows, "p")
        for name in names[NAMED:]:
            axes.plot(at, _column(rows, name), color="#c3c8cf", linewidth=1.0)
        for colour, name in zip(PALETTE, names[:NAMED], strict=False):
            axes.plot(at, _column(rows, name), color=colour, label=safe(name, 24))
        axes.set_ylabel("weight")
        _falling(axes)
        axes.legend(title="kernel", fontsize=8, ncols=4, loc="upper left", bbox_to_anchor=(0, -0.18))

    told = f"The {len(names)} best aligned kernels; below 1/e a weight only falls, above exp(-1/p) it only rises."
    return [Picture(f"{prefix}Weights along p", told, draw(paint, (6.0, 3.8)))]


def path_accuracy(runs: Sequence[RunView]) -> list[Picture]:
    """Return accuracy against the number of kernels of the machines along the path."""
    scored = [(run, [row for row in run.tables.get("path", ()) if known([number(row.get("train_accuracy"))])]) for run in runs]
    scored = [(run, rows) for run, rows in scored if rows]
    if not scored:
        return []
    shown = [run for run, _ in scored]

    def paint(axes: Axes) -> None:
        for index, (run, rows) in enumerate(scored):
            for k, (key, label, style) in enumerate((("test_accuracy", "held-out rows", "-"), ("train_accuracy", "training rows", "--"))):
                values, colour = _column(rows, key), PALETTE[(index if len(scored) > 1 else k) % len(PALETTE)]
                if known(values):
                    axes.plot(_column(rows, "n_active"), values, style, color=colour, marker="o", label=_label(run, shown, label))
        _scored(axes, shown)
        _scale(axes, [value for _, rows in scored for value in _column(rows, "n_active") if value > 0])
        axes.set_xlabel("kernels")
        axes.set_ylabel("accuracy")
        axes.legend()

    told = "Machines at points of the path, from all kernels (right) to the last (left); a diamond is the model on a scored store."
    return [Picture("Accuracy against number of kernels along p", told, draw(paint))]


def _scale(axes: Axes, counts: Sequence[float]) -> None:
    """Scale the x axis, logarithmically where counts differ much."""
    if counts and max(counts) > FAR * min(counts):
        axes.set_xscale("log")
    else:
        _whole(axes)


def changed_bases(runs: Sequence[RunView]) -> list[Picture]:
    """Return how many points changed their bases in each round, and how many kept them."""
    runs = [run for run in runs if run.method == "unsupervised-mkl" and known(run.column("changed"))]
    if not runs:
        return []

    def changes(axes: Axes) -> None:
        _lines(axes, runs, [("changed", "changed", "-"), ("kept", "kept by the safeguard", ":")])
        _rounds(axes)
        axes.set_ylabel("points")

    told = "Points whose bases changed in a round, and points that kept the old ones because they are better."
    return [Picture("Bases", told, draw(changes))]


def kernels_in_use(runs: Sequence[RunView]) -> list[Picture]:
    """Return the number of kernels with a weight per round of unsupervised learning."""
    runs = [run for run in runs if run.method == "unsupervised-mkl" and known(run.column("n_selected"))]
    if not runs:
        return []

    def paint(axes: Axes) -> None:
        for colour, run in zip(_colours(len(runs)), runs, strict=True):
            given: dict[str, Any] = {"color": colour, "marker": _mark(run), "label": _label(run, runs)}
            axes.plot(run.column("iteration"), run.column("n_selected"), **given)
        _rounds(axes)
        axes.set_ylim(bottom=0)
        axes.set_ylabel("kernels")
        if named(runs):
            axes.legend()

    return [Picture("Kernels in use", "Kernels with a weight after each round.", draw(paint))]
