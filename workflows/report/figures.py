"""Figures of a report, as SVG in data URIs: nothing outside the page is loaded, and nothing inside an image can run."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from .pixels import pixel_usage
from .view import RunView, known, named, number, step_word, weight_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#1f5fa8", "#d2691e", "#2f8f6b", "#8a4fa3", "#b8334a", "#6b7280", "#b8860b", "#0e7490")
INK, FAINT, RULE = "#1f2933", "#6b7280", "#e3e7ec"
NEGATIVE = PALETTE[1]
TOP = 30
"""Bars in the chart of weights."""
FEW = 60
"""Up to this many rounds every one has its mark or bar; more are drawn as plain lines and areas, which keeps the page small."""

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gramplane",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": RULE,
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
    "legend.handlelength": 4.0,
    "lines.dashed_pattern": (3.0, 1.8),
    "lines.linewidth": 2.0,
    "lines.markersize": 5,
    "figure.facecolor": "white",
}


@dataclass(frozen=True)
class Picture:
    """A figure of the page: its heading, what it says, and the image."""

    title: str
    caption: str
    uri: str
    wide: bool = False


def safe(name: str, width: int = 40) -> str:
    """Return a name fit for a label: shortened, and with ``$`` read as a dollar, not as mathematics."""
    text = " ".join(str(name).split())
    text = text if len(text) <= width else f"{text[: width - 1]}…"
    return text.replace("$", r"\$")


def _uri(figure: Figure) -> str:
    out = io.BytesIO()
    with warnings.catch_warnings():
        # A font without the glyphs of a feature's name: the browser draws the text, with its own fonts.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        figure.savefig(out, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def draw(paint: Callable[[Axes], Any], size: tuple[float, float] = (6.0, 3.3)) -> str:
    """Return the data URI of a figure with one pair of axes, painted in the page's style."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(cast("Any", _STYLE)):
        figure = Figure(figsize=size, layout="constrained")
        paint(figure.add_subplot())
        return _uri(figure)


def _rounds(axes: Axes, word: str = "round") -> None:
    axes.set_xlabel(word)
    _whole(axes)


def _whole(axes: Axes, along: str = "x") -> None:
    """Put the ticks of an axis at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    (axes.xaxis if along == "x" else axes.yaxis).set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def _log(axes: Axes) -> None:
    """Make the y axis logarithmic, if its lines differ enough for a power of ten to be among its ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    values = [float(value) for line in axes.lines for value in cast("Any", line.get_ydata()) if value > 0]
    if max(values, default=1.0) < 10 * min(values, default=1.0):
        return
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
    axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(which="minor", length=0)


def _label(run: RunView, runs: Sequence[RunView], what: str = "") -> str:
    return " ".join(part for part in (safe(run.name) if named(runs) else "", what) if part)


def _lines(axes: Axes, runs: Sequence[RunView], keys: Sequence[tuple[str, str, str]], x: str = "iteration", positive: bool = False) -> None:
    """Draw ``(key, label, line style)`` of every run; on a logarithmic scale only values above zero."""
    drawn = 0
    for colour, run in zip(_colours(len(runs)), runs, strict=True):
        # One run has a colour per line, several have one each.
        colours = [colour] * len(keys) if len(runs) > 1 else _colours(len(keys))
        for (key, label, style), colour in zip(keys, colours, strict=True):
            values = [value if value > 0 or not positive else math.nan for value in run.column(key)]
            if known(values) and known(run.column(x)):
                axes.plot(run.column(x), values, style, color=colour, marker=_mark(run), label=_label(run, runs, label))
                drawn += 1
    if drawn > 1 or named(runs):
        axes.legend()


def _mark(run: RunView) -> str:
    return "o" if len(run.history) <= FEW else ""


def _colours(count: int) -> list[str]:
    return [PALETTE[index % len(PALETTE)] for index in range(count)]


def objective(runs: Sequence[RunView]) -> list[Picture]:
    """Return the objective per round; of runs with two bounds it is the upper one, which has a figure of its own."""
    runs = [run for run in runs if not run.bounded]
    if not any(known(run.column("objective")) for run in runs):
        return []

    def paint(axes: Axes) -> None:
        _lines(axes, runs, [("objective", "", "-")])
        _rounds(axes, word)

    word = step_word(runs)
    cuts = "; it falls as cuts are added" if all(run.method == "fgm" for run in runs) else ""
    return [Picture("Objective", f"Value of the problem after each {word}{cuts}.", draw(paint))]


def gaps(runs: Sequence[RunView]) -> list[Picture]:
    """Return the certificates per round, on a logarithmic scale: two of methods that choose columns in cuts, else one."""
    runs = [run for run in runs if not run.bounded and not known(run.column("restricted_gap"))]
    two = [run for run in runs if known(run.column("outer_gap"))]
    one = [run for run in runs if run not in two]
    both = "Certified distance to the exact optimum (solid), and the duality gap left in the round's sub-problem (dotted)."
    over = list(dict.fromkeys(str(run.summary["certified_over"]) for run in one if run.summary.get("certified_over")))
    told = f"Certified distance of the objective to the least value{f', over {chr(32).join(over)}' if len(over) == 1 else ''}."
    shown = (
        ("Gaps", both, two, [("outer_gap", "to the exact optimum", "-"), ("gap", "of the sub-problem", ":")]),
        ("Gap", told, one, [("gap", "", "-")]),
    )
    return [_gap(title, caption, own, keys) for title, caption, own, keys in shown if _positive(own, [key for key, _, _ in keys])]


def _positive(runs: Sequence[RunView], keys: Sequence[str]) -> bool:
    return any(value > 0 for run in runs for key in keys for value in run.column(key))


def _gap(title: str, caption: str, runs: Sequence[RunView], keys: Sequence[tuple[str, str, str]]) -> Picture:
    def paint(axes: Axes) -> None:
        _lines(axes, runs, keys, positive=True)
        _rounds(axes, step_word(runs))
        _log(axes)

    return Picture(title, caption, draw(paint))


def accuracy(runs: Sequence[RunView]) -> list[Picture]:
    """Return accuracy against the number of selected features, on training and held-out rows."""
    runs = [run for run in runs if not run.along_path]
    followed = any(known(run.column("train_accuracy")) and known(run.column("n_selected")) for run in runs)
    if not followed and not any("n_selected" in run.summary and any("accuracy" in score for score in run.scores) for run in runs):
        return []

    def paint(axes: Axes) -> None:
        _lines(axes, runs, [("test_accuracy", "held-out rows", "-"), ("train_accuracy", "training rows", "--")], x="n_selected")
        _scored(axes, runs)
        _whole(axes)
        axes.set_xlabel(f"selected {' or '.join(units)}")
        axes.set_ylabel("accuracy")
        axes.legend()

    units, word = list(dict.fromkeys(run.unit for run in runs)), step_word(runs)
    if units == ["kernels"]:
        return [Picture("Accuracy against number of kernels", f"Every point is the best model after one {word}.", draw(paint))]
    if all(run.method == "fgm" for run in runs):
        return [Picture("Accuracy along the path", "Each round adds features; every point is the model after one round.", draw(paint))]
    return [Picture(f"Accuracy against number of {' or '.join(units)}", f"Every point is the model after one {word}.", draw(paint))]


def _scored(axes: Axes, runs: Sequence[RunView]) -> None:
    """Draw the accuracy on each scored store: along the path where the score followed it, else of the final model."""
    for colour, run in zip(_colours(len(runs)) if len(runs) > 1 else [PALETTE[2]], runs, strict=True):
        for score in run.scores:
            points = score.get("path") or [{"n_selected": run.summary.get("n_selected"), "accuracy": score.get("accuracy")}]
            x, y = ([number(point.get(key)) for point in points] for key in ("n_selected", "accuracy"))
            name = _label(run, runs, safe(str(score.get("store", "scored")), 24))
            if known(x) and known(y):
                axes.plot(x, y, "-", marker="D", markersize=7, color=colour, markeredgecolor="white", label=name)


def weights(run: RunView, prefix: str) -> list[Picture]:
    """Return the bar chart of the largest weights."""
    every = run.selected or run.kernels
    rows = [row for row in every if known([weight_of(row)])][:TOP]
    if not rows:
        return []

    def paint(axes: Axes) -> None:
        values = [weight_of(row) for row in rows]
        places = range(len(rows))
        axes.barh(places, values, color=[PALETTE[0] if value >= 0 else NEGATIVE for value in values], height=0.72)
        axes.set_yticks(places, [safe(row["feature"] if run.selected else row["kernel"]) for row in rows], color=INK)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.axvline(0, color=FAINT, linewidth=0.8)
        axes.set_xlabel("weight in the machine" if run.along_path else "weight")

    size = (6.0, 0.7 + 0.19 * len(rows))
    several = any(key.startswith("weight[") for key in rows[0])
    if not run.selected:
        told = f"The {len(rows)} heaviest of {len(every):,} kernels with a weight{'; of several classes the largest' if several else ''}."
        return [Picture(f"{prefix}Kernels by weight", told + _counted(run, len(every)), draw(paint, size))]
    shown = f"The {len(rows)} largest of {len(every):,} weights{_signs(run, several)}."
    return [Picture(f"{prefix}Selected features", shown, draw(paint, size))]


def _counted(run: RunView, in_use: int) -> str:
    """Return which of the kernels drawn count as selected, and in what their weights are measured, where that needs saying."""
    chosen = run.summary.get("n_selected")
    counted = "" if chosen in (None, in_use) else f" {chosen} of them count as selected, the others weigh too little."
    scaled = " Weights of the machine sum to the number of rows; along p they are drawn before that scaling." if run.along_path else ""
    return counted + scaled


def _signs(run: RunView, several: bool) -> str:
    """Return what the sign of a weight says, of a method that tells its classes."""
    classes = run.summary.get("classes")
    if several:
        return "; of several classes the largest in size, positive where it speaks for its class"
    if isinstance(classes, (list, tuple)) and len(classes) == 2:
        no, yes = (" ".join(str(name).split())[:60] for name in classes)
        return f"; positive ones speak for class {yes}, negative ones for class {no}"
    return "" if "classes" not in run.summary else "; positive ones raise the prediction, negative ones lower it"


def _stack(axes: Axes, rounds: list[float], parts: dict[str, list[float]]) -> None:
    if len(rounds) > FEW:
        axes.stackplot(rounds, *parts.values(), labels=list(parts), colors=_colours(len(parts)))
        return
    floor = [0.0] * len(rounds)
    for colour, (name, heights) in zip(_colours(len(parts)), parts.items(), strict=True):
        axes.bar(rounds, heights, bottom=floor, color=colour, label=name, width=0.72)
        floor = [a + b for a, b in zip(floor, heights, strict=True)]


def phases(run: RunView, prefix: str) -> list[Picture]:
    """Return seconds by phase, stacked per round."""
    parts = {name: values for name, values in run.phases().items() if any(value > 0 for value in values)}
    if not parts:
        return []

    def paint(axes: Axes) -> None:
        heights = [[value if value > 0 else 0.0 for value in values] for values in parts.values()]
        _stack(axes, run.column("iteration"), dict(zip(map(safe, parts), heights, strict=True)))
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("seconds")
        _rounds(axes, run.step)
        axes.legend(ncols=min(4, len(parts)), loc="lower left", bbox_to_anchor=(0, 1.0))

    return [Picture(f"{prefix}Seconds by phase", f"Where the time of each {run.step} went.", draw(paint))]


def _beside(axes: Axes, runs: Sequence[RunView], key: str, unit: float) -> None:
    """Draw one figure of every run, as bars side by side or, of many rounds, as lines."""
    width = 0.72 / len(runs)
    for index, (colour, run) in enumerate(zip(_colours(len(runs)), runs, strict=True)):
        values, rounds = [value / unit for value in run.column(key)], run.column("iteration")
        if len(rounds) > FEW:
            axes.plot(rounds, values, color=colour, label=_label(run, runs))
            continue
        shift = (index - (len(runs) - 1) / 2) * width
        axes.bar([at + shift for at in rounds], values, width=width, color=colour, label=_label(run, runs))
        axes.grid(visible=False, axis="x")


def traffic(runs: Sequence[RunView]) -> list[Picture]:
    """Return tasks and bytes of their blocks per round."""
    word, pictures = step_word(runs), []
    wanted = (
        ("tasks", f"Tasks per {word}", 1.0, "tasks", f"Block tasks of all passes of a {word}, counted, not timed."),
        ("bytes", f"Bytes per {word}", 2.0**20, "MiB", f"Blocks that the tasks of a {word} worked on, read from the store or computed."),
    )
    for key, title, unit, label, told in wanted:
        if not any(value > 0 for run in runs for value in run.column(key)):
            continue

        def paint(axes: Axes, key: str = key, unit: float = unit, label: str = label) -> None:
            _beside(axes, runs, key, unit)
            axes.set_ylabel(label)
            if unit == 1.0:
                _whole(axes, "y")
            _rounds(axes, word)
            if named(runs):
                axes.legend()

        pictures.append(Picture(title, told, draw(paint)))
    return pictures


def pixels(run: RunView, prefix: str) -> list[Picture]:
    """Return the picture of the pixels involved, when the features are named like pixels."""
    usage = pixel_usage([(str(row["feature"]), weight_of(row)) for row in run.selected])
    if usage is None:
        return []
    caption = (
        "Shade: summed size of the weights a pixel takes part in. Lines and rings: the largest weights, blue positive, orange negative."
    )
    return [Picture(f"{prefix}Pixels involved", caption, draw(usage.paint, (6.0, 5.2)))]


def pictures(runs: Sequence[RunView]) -> list[Picture]:
    """Return every figure the runs have data for: shared ones first, then one set per run."""
    from .kernel_figures import bounds, kept, weight_paths
    from .path_figures import changed_bases, kernels_in_use, path_accuracy, path_counts, path_weights
    from .spectral_figures import ascents, maps, spectra
    from .stream_figures import streams
    from .task_figures import certificates, heat_maps, working_sets
    from .triclass_figures import assignments

    runs = [replace(run, beside=len(runs) > 1) for run in runs]
    found = [*accuracy(runs), *objective(runs), *gaps(runs), *bounds(runs), *kept(runs), *certificates(runs), *working_sets(runs)]
    found += [*path_accuracy(runs), *path_counts(runs), *kernels_in_use(runs), *changed_bases(runs), *streams(runs)]
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        found += [*weights(run, prefix), *weight_paths(run, prefix), *path_weights(run, prefix), *heat_maps(run, prefix)]
        found += [*maps(run, prefix), *spectra(run, prefix), *ascents(run, prefix)]
        found += [*assignments(run, prefix), *pixels(run, prefix), *phases(run, prefix)]
    return [*found, *traffic(runs)]
