"""Charts shared by several methods: objective and certificates, accuracy, weights, tasks, spectra, streams, time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from .charts import FAINT, MAX_MARKED_STEPS, Chart, Legend, Series, legend_of, ranking_height, run_label, run_lines, short, step_marker
from .run_view import Row, RunView, has_values, number, step_word, weight_of

MAX_WEIGHTS = 15  # bars in the chart of weights
MAX_PANELS = 4  # classes whose weights are drawn; the tables have all
MAX_NAMED = 8  # lines with a colour and a name of their own; further ones are grey
MAX_INSIDE = 3  # names of a legend that stands within its chart; more have their room below
MAX_EIGENVALUES = 40  # eigenvalues drawn as bars
MAX_SIDE = 128  # pixels of an image that is drawn
_PIXEL = re.compile(r"pixel_(\d{1,3})_(\d{1,3})")


def objective(runs: Sequence[RunView]) -> list[Chart]:
    """Return the objective per round. Runs with two bounds are left out, because their upper bound has a chart of its own."""
    runs = [run for run in runs if not run.bounded]
    if not any(has_values(run.column("objective")) for run in runs):
        return []
    word, lines = step_word(runs), run_lines(runs, [("objective", "", "-")])
    cuts = "; it falls as features are added" if all(run.method == "fgm" for run in runs) else ""
    caption = f"Objective after each {word}{cuts}."
    return [Chart("Objective", caption, series=lines, x_label=word, whole="x", legend=legend_of(lines, runs))]


def gaps(runs: Sequence[RunView]) -> list[Chart]:
    """Return charts of the certified gaps per round on a logarithmic scale. Methods that choose columns by cuts have two gaps, other
    methods one.
    """
    runs = [run for run in runs if not run.bounded and not has_values(run.column("restricted_gap"))]
    with_cuts = [run for run in runs if has_values(run.column("outer_gap"))]
    others = [run for run in runs if run not in with_cuts]
    over = list(dict.fromkeys(str(run.summary["certified_over"]) for run in others if run.summary.get("certified_over")))
    problem = f", over {over[0]}" if len(over) == 1 else ""
    both = "Upper bound on the distance to the optimum over all features (solid), and the gap of the sub-problem (dotted)."
    one = f"Upper bound on the distance of the objective from the optimum{problem}."
    parts = (
        ("Gaps", both, with_cuts, [("outer_gap", "all features", "-"), ("gap", "sub-problem", ":")]),
        ("Gap", one, others, [("gap", "", "-")]),
    )
    return [_gap_chart(*part, step_word(part[2])) for part in parts if _is_positive(part[2], [key for key, _, _ in part[3]])]


def _is_positive(runs: Sequence[RunView], keys: Sequence[str]) -> bool:
    return any(value > 0 for run in runs for key in keys for value in run.column(key))


def _gap_chart(title: str, caption: str, runs: Sequence[RunView], keys: Sequence[tuple[str, str, str]], word: str = "round") -> Chart:
    lines = run_lines(runs, keys, positive=True)
    return Chart(title, caption, series=lines, x_label=word, whole="x", y_scale="log", legend=legend_of(lines, runs))


def bounds(runs: Sequence[RunView]) -> list[Chart]:
    """Return the upper and lower bound per round, and the gap between them on a logarithmic scale."""
    runs = [run for run in runs if run.bounded]
    if not runs:
        return []
    series = [part for i, run in enumerate(runs) for part in _band(run, i, run_label(run, runs))]
    both = "Upper bound (solid) and lower bound (dashed) of the optimum; the model has the value of the upper one."
    gap = "Share of the upper bound: over all kernels (solid) and over the working set (dotted)."
    keys = [("relative_gap", "all kernels", "-"), ("working_gap", "working set", ":")]
    return [
        Chart("Bounds", both, series=series, x_label="round", whole="x", legend=Legend()),
        _gap_chart("Gap between the bounds", gap, runs, keys),
    ]


def _band(run: RunView, colour: int, label: str) -> list[Series]:
    rounds, upper, lower = run.column("iteration"), run.column("upper_bound"), run.column("lower_bound")
    marker = step_marker(run)
    return [
        Series(rounds, upper, f"{label} upper".strip(), colour=colour, marker=marker),
        Series(rounds, lower, f"{label} lower".strip(), colour=colour, style="--", marker=marker),
        Series(rounds, upper, mark="band", colour=colour, base=lower, opacity=0.12),
    ]


def certificates(runs: Sequence[RunView]) -> list[Chart]:
    """Return the certified gap over all nodes of a graph and the gap over the working set, per iteration."""
    runs = [run for run in runs if _has_graph_certificate(run)]
    if not runs:
        return []
    caption = "Upper bound on the distance to the optimum: over all nodes (solid) and over the working set (dotted)."
    return [_gap_chart("Certificate", caption, runs, [("gap", "all nodes", "-"), ("restricted_gap", "working set", ":")])]


def _has_graph_certificate(run: RunView) -> bool:
    """Return whether a run has a certificate over a whole graph in addition to that of a restricted problem."""
    return has_values(run.column("restricted_gap"))


def accuracy(runs: Sequence[RunView]) -> list[Chart]:
    """Return accuracy (R2 for regression) over the number of selected features, on training and held-out rows."""
    runs = [run for run in runs if not run.along_path]
    return [chart for measure, name in (("accuracy", "Accuracy"), ("r2", "R2")) for chart in _along_selection(runs, measure, name)]


def _along_selection(runs: Sequence[RunView], measure: str, name: str) -> list[Chart]:
    is_followed = any(has_values(run.column(f"train_{measure}")) and has_values(run.column("n_selected")) for run in runs)
    if not is_followed and not any("n_selected" in run.summary and any(measure in score for score in run.scores) for run in runs):
        return []
    keys = [(f"test_{measure}", "held-out rows", "-"), (f"train_{measure}", "training rows", "--")]
    series = [*run_lines(runs, keys, x="n_selected"), *scored_points(runs, measure)]
    units = list(dict.fromkeys(run.unit for run in runs))
    what, best = " or ".join(units), "best " if units == ["kernels"] else ""
    title, caption = f"{name} against number of {what}", f"Every point is the {best}model after one {step_word(runs)}."
    if units != ["kernels"] and all(run.method == "fgm" for run in runs):
        title = f"{name} along the path"
    label, legend = (name if measure == "r2" else measure), (Legend("below", 2) if len(series) > MAX_INSIDE else Legend())
    return [Chart(title, caption, series=series, x_label=f"selected {what}", y_label=label, whole="x", legend=legend)]


def scored_points(runs: Sequence[RunView], measure: str = "accuracy") -> list[Series]:
    """Return a measure on each scored store: at every point of the path if the path was scored, otherwise of the final model."""
    series = []
    for i, run in enumerate(runs):
        for score in run.shown_scores:
            points = score.get("path") or [{"n_selected": run.summary.get("n_selected"), measure: score.get(measure)}]
            x, y = ([number(point.get(key)) for point in points] for key in ("n_selected", measure))
            if has_values(x) and has_values(y):
                label = run_label(run, runs, short(score.get("store", "scored"), 24))
                series.append(Series(x, y, label, colour=i if len(runs) > 1 else 2, marker="D"))
    return series


def weights(run: RunView) -> list[Chart]:
    """Return the bar chart of the largest weights."""
    every = [row for row in run.selected or run.kernels if has_values([weight_of(row)]) and weight_of(row) != 0]
    rows = every[:MAX_WEIGHTS]
    if not rows:
        return []
    several = any(key.startswith("weight[") for key in rows[0])
    if run.selected:
        title, caption = "Selected features", f"The {len(rows)} largest of {len(every):,} weights{_sign_words(run, several)}."
    else:
        largest = "; of several classes the largest" if several else ""
        title = "Kernels by weight"
        caption = f"The {len(rows)} largest of {len(every):,} kernels with a weight{largest}.{_count_words(run, len(every))}"
    names = [short(row["feature"] if run.selected else row["kernel"]) for row in rows]
    # Of columns in different units weights can only be compared as the fit saw them.
    label = "weight of the scaled column" if run.selected else "weight"
    return [ranking(title, caption, names, [weight_of(row) for row in rows], label)]


def _count_words(run: RunView, in_use: int) -> str:
    """Return a note on how many of the drawn kernels count as selected, or an empty text if all do."""
    chosen = run.summary.get("n_selected")
    return "" if chosen in (None, in_use) else f" {chosen} of them count as selected, the others lie below the threshold."


def _sign_words(run: RunView, several: bool) -> str:
    """Return an explanation of the sign of a weight, for methods that name their classes."""
    classes = run.summary.get("classes")
    if several:
        return "; of several classes the largest; positive weights raise the score of the class"
    if isinstance(classes, (list, tuple)) and len(classes) == 2:
        no, yes = (" ".join(str(name).split())[:60] for name in classes)
        return f"; positive: towards class {yes}, negative: towards class {no}"
    return "" if "classes" not in run.summary else "; positive weights raise the prediction, negative ones lower it"


def weight_paths(run: RunView, table: str = "weights", x: str = "iteration", title: str = "Weights along the rounds") -> list[Chart]:
    """Return the weights of a table ``{"machine": class, x: value, name: weight, ...}`` along ``x``, one chart per class."""
    rows = run.tables.get(table, ())
    classes = list(dict.fromkeys(row.get("machine", "") for row in rows))
    cut = f" The first {MAX_PANELS} of {len(classes)} classes; {table}.csv has all." if len(classes) > MAX_PANELS else ""
    return [
        Chart(
            title + (f", class {name}" if len(classes) > 1 else ""),
            f"The largest weights at the end are named, the others are grey.{cut}",
            series=weight_lines([row for row in rows if row.get("machine", "") == name], x),
            x_label="round" if x == "iteration" else x,
            y_label="weight of the scaled column" if run.selected else "weight",
            x_scale="falling" if x == "p" else "linear",
            whole="" if x == "p" else "x",
            legend=Legend("ends"),
            size=(6.0, 3.8),
        )
        for name in classes[:MAX_PANELS]
    ]


def weight_lines(rows: Sequence[Row], x: str) -> list[Series]:
    """Return a line over ``x`` for each weight of a class. The largest final weights are named; others are grey."""
    rounds = column(rows, x)
    names = [key for key in rows[0] if key not in ("machine", "n_selected", x)]
    names = sorted(names, key=lambda name: -abs(number(rows[-1].get(name))))
    grey = [Series(rounds, column(rows, name), colour=FAINT, width=0.8, opacity=0.5) for name in names[MAX_NAMED:]]
    return grey + [Series(rounds, column(rows, name), short(name, 20), colour=k) for k, name in enumerate(names[:MAX_NAMED])]


def column(rows: Sequence[Row], key: str) -> list[float]:
    """Return one column of a table; NaN where a row lacks it."""
    return [number(row.get(key)) for row in rows]


def group_norms(run: RunView) -> list[Chart]:
    """Return the norms of the weights of groups, for groups of several features."""
    rows = [row for row in run.tables.get("groups", ()) if has_values([number(row.get("norm"))])]
    if not any(number(row.get("size")) > 1 for row in rows):
        return []
    shown = sorted(rows, key=lambda row: -number(row["norm"]))[:MAX_WEIGHTS]
    caption = f"The {len(shown)} largest of {len(rows):,} groups with a weight, by the length of the weights of their features."
    names = [short(f"{row['group']} ({row['size']} features)") for row in shown]
    return [ranking("Groups by weight", caption, names, column(shown, "norm"), "length of the weights")]


def ranking(title: str, caption: str, names: Sequence[str], values: Sequence[float], label: str) -> Chart:
    size = (6.0, ranking_height(names))
    return Chart(title, caption, "ranking", [Series(range(len(names)), values)], x_label=label, names=names, size=size)


_HEAT_MAPS = (
    ("task_kernels", "Kernels by task", "Weight of every kernel in the model of every task, largest kernels left."),
    (
        "task_features",
        "Features by task",
        "Weight of the scaled column of every selected feature in every task; largest norms left, blue positive.",
    ),
    ("task_pairs", "Tasks that learn together", "Weight of one task's rows in another's model, summed over kernels."),
)


def task_heat_maps(run: RunView) -> list[Chart]:
    """Return the weights of kernels or features by task, and the weights between tasks."""
    return [_heat_map(title, caption, rows) for key, title, caption in _HEAT_MAPS if len(rows := run.tables.get(key, ())) > 1]


def _heat_map(title: str, caption: str, rows: Sequence[Row]) -> Chart:
    names = [key for key in rows[0] if key not in ("task", "class")]
    return Chart(
        title,
        caption,
        "heat",
        y_label="task",
        names=[short(name, 20) for name in names],
        row_names=[short(f"{row['class']}: {row['task']}" if "class" in row else row["task"], 20) for row in rows],
        matrix=[[number(row.get(name)) for name in names] for row in rows],
        size=(7.2, 5.6),
    )


def spectra(run: RunView) -> list[Chart]:
    """Return the largest eigenvalues of the kernel."""
    values = column(run.tables.get("spectrum", ()), "eigenvalue")
    if not has_values(values):
        return []
    bars = Series(range(1, 1 + len(values[:MAX_EIGENVALUES])), values[:MAX_EIGENVALUES], mark="bar")
    caption = f"The {min(MAX_EIGENVALUES, len(values))} largest of {len(values):,} positive eigenvalues of the learned kernel."
    return [Chart("Spectrum of the kernel", caption, series=[bars], x_label="direction", y_label="eigenvalue", whole="x")]


def dual_ascents(run: RunView) -> list[Chart]:
    """Return the primal and dual objectives of the dual ascent, which converge to the optimum from both sides."""
    dual, primal, steps = run.column("dual"), run.column("primal"), run.column("iteration")
    if not has_values(dual) or not has_values(primal) or len(steps) < 2:
        return []
    series = [Series(steps, primal, "primal", marker="o"), Series(steps, dual, "dual", colour=1, style="--", marker="o")]
    caption = "Objective of the kernel at every round (primal), and the bound below the optimum (dual)."
    return [Chart("Primal and dual", caption, series=series, x_label="round", y_label="objective", legend=Legend())]


_STREAMS = (
    (
        "Loss along the stream",
        "Loss of each row before it was used: mean of each step (solid) and of all rows so far (dotted).",
        "loss",
        (("loss", "step", "-"), ("mean_loss", "so far", ":")),
    ),
    (
        "Sparsity along the stream",
        "Features (solid) and groups (dotted) with a weight at the end of each step.",
        "with a weight",
        (("features", "features", "-"), ("groups", "groups", ":")),
    ),
)


def streams(runs: Sequence[RunView]) -> list[Chart]:
    """Return loss and sparsity against the number of rows read from a stream."""
    runs = [run for run in runs if run.tables.get("stream")]
    return [chart for words in _STREAMS for chart in _stream_charts(runs, *words)]


def _stream_charts(runs: Sequence[RunView], title: str, caption: str, y_label: str, keys: Sequence[tuple[str, str, str]]) -> list[Chart]:
    lines = [
        Series(column(run.tables["stream"], "rows"), values, run_label(run, runs, name), "line", i, style, step_marker(run))
        for i, run in enumerate(runs)
        for key, name, style in keys
        if has_values(values := column(run.tables["stream"], key))
    ]
    if not lines:
        return []
    from_zero = min(value for line in lines for value in line.y if math.isfinite(value)) >= 0
    legend = legend_of(lines, runs)
    return [Chart(title, caption, series=lines, x_label="rows", y_label=y_label, from_zero=from_zero, legend=legend)]


def phases(run: RunView) -> list[Chart]:
    """Return the seconds of each phase, stacked per round."""
    parts = {name: values for name, values in run.phases().items() if any(value > 0 for value in values)}
    if not parts:
        return []
    heights = {short(name): [value if value > 0 else 0.0 for value in values] for name, values in parts.items()}
    rounds = run.column("iteration")
    if len(rounds) > MAX_MARKED_STEPS:
        series = [Series(rounds, values, name, "area", k) for k, (name, values) in enumerate(heights.items())]
    else:
        series = stacked_bars(rounds, [(values, name, k) for k, (name, values) in enumerate(heights.items())])
    legend = Legend("above", min(4, len(parts)))
    caption = f"Where the time of each {run.step} went."
    return [Chart("Seconds by phase", caption, series=series, x_label=run.step, y_label="seconds", whole="x", legend=legend)]


def stacked_bars(x: Sequence[float], parts: Sequence[tuple[Sequence[float], str, int]]) -> list[Series]:
    """Return stacked bars from ``(heights, label, colour)`` of each layer."""
    floor, bars = [0.0] * len(x), []
    for heights, label, colour in parts:
        bars.append(Series(x, heights, label, "bar", colour, base=floor))
        floor = [a + b for a, b in zip(floor, heights, strict=True)]
    return bars


def pixels(run: RunView) -> list[Chart]:
    """Return an image of the pixels in use, if all features are named as pixels (``pixel_ROW_COLUMN``) or products of two."""
    known = [([_PIXEL.fullmatch(part) for part in str(row["feature"]).split("*")], weight_of(row)) for row in run.selected]
    known = [(parts, weight) for parts, weight in known if weight != 0]
    if not known or any(None in parts or len(parts) > 2 for parts, _ in known):
        return []
    places = [([(int(part[1]), int(part[2])) for part in parts if part is not None], weight) for parts, weight in known]
    side = 1 + max(max(at) for ends, _ in places for at in ends)
    if side > MAX_SIDE:
        return []
    usage = [[0.0] * side for _ in range(side)]
    for ends, weight in places:
        for row, column in set(ends):
            usage[row][column] += abs(weight)
    largest = max(abs(weight) for _, weight in places)
    lines = [_pixel_line(ends, weight, abs(weight) / largest) for ends, weight in reversed(places[:MAX_WEIGHTS]) if len(ends) > 1]
    used = sum(value > 0 for line in usage for value in line)
    caption = f"{used} of {side**2} pixels are used. Shade: sum of absolute weights. Lines: products, blue positive, orange negative."
    return [Chart("Pixels used", caption, "heat", series=lines, matrix=usage, size=(4.7, 4.2))]


def _pixel_line(ends: Sequence[tuple[int, int]], weight: float, share: float) -> Series:
    x, y = [at[1] for at in ends], [at[0] for at in ends]
    mark, width = ("point", 30 + 160 * share) if x[0] == x[1] and y[0] == y[1] else ("line", 0.8 + 3.0 * share)
    return Series(x, y, mark=mark, colour=0 if weight >= 0 else 1, width=width, opacity=0.75, marker="o")
