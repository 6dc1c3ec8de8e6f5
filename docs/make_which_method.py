"""The page ``which_method.md``, from what methods declare and from kept runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from gramplane import METHODS
from gramplane.pipeline.records.declared import Data, Profile, Want

PAGE = Path(__file__).with_name("which_method.md")
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"

# The largest problem of each method among the kept runs: file, size in words, figure that holds its time.
LARGEST = {
    "fgm": (
        "fgm_out_of_core--fgm-from-a-store-of-1000000-x-10000000-b-20-t-10-local-2",
        "10^6 × 10^7 sparse from disk, two workers of 1 GiB",
        "FGM, whole run",
    ),
    "group-lasso": (
        "stream--stream-of-100000-x-1000000-100-non-zeros-a-row-batches-of-1000",
        "stream of 10^5 × 10^6 sparse",
        "group lasso",
    ),
    "mkl": ("mkl_elastic--elastic-net-mkl-n-2000-200-kernels-v-0-5-c-1-0-gap-0-001", "200 kernels of 2,000 rows", "ours"),
    "tri-class-svm": (
        "triclass_passes--3c-svm-by-passes-rbf-mm-30-000-30-000-rows",
        "30,000 labelled and 30,000 unlabelled rows, Gaussian",
        "seconds",
    ),
    "unsupervised-mkl": (
        "umkl_distributed--unsupervised-kernels-of-30000-points-2-workers-of-1gib",
        "30,000 rows, two workers of 1 GiB",
        "whole fit, cluster and components included",
    ),
    "latent-task-mkl": (
        "pooled_machines--latent-task-6-tasks-40000-rows-2-workers-of-2gib",
        "6 tasks, 40,000 rows, two workers of 2 GiB",
        "latent-task: seconds of the run, cluster included",
    ),
    "rule-ensemble": ("rules--rule-ensembles", "3,000 × 20", "planted, n=3000, rho=1.1, C=10"),
    "hierarchical-kernels": (
        "pooled_machines--hierarchical-6-tasks-40000-rows-2-workers-of-2gib",
        "6 tasks, 40,000 rows, two workers of 2 GiB",
        "hierarchical: seconds of the run, cluster included",
    ),
    "multitask-mkl": ("multitask_mkl--multiple-kernel-learning-for-many-tasks", "20 tasks of 200 rows, 50 kernels", "ours, p=2"),
    "shared-subspace-mkl": (
        "pooled_machines--one-machine-of-6-tasks-40000-rows-2-workers-of-2gib",
        "6 tasks, 40,000 rows, two workers of 2 GiB",
        "shared-subspace: seconds of the run, cluster included",
    ),
    "multitask-selector": (
        "selector_out_of_core--feature-selection-over-8-tasks-200000-x-2000-float32-local-2-driver-512mib",
        "8 tasks, 200,000 × 2,000, two workers, driver of 512 MiB",
        "batch, out of core (working_set)",
    ),
    "npkl": ("npkl_distributed--a-non-parametric-kernel-of-16000-rows-c-0-7", "16,000 rows", "here: whole run"),
    "social-strength": (
        "many_users--ties-between-100000-users-local-2-workers-of-1gib",
        "100,000 users, two workers of 1 GiB",
        "whole fit",
    ),
}
HAVE = {
    "wide table": "a wide table",
    "text": "text, bags of words",
    "table": "a table of some columns",
    "stream": "rows that keep coming",
    "tasks": "many tasks, few rows each",
    "kernels": "several kernels or views",
    "few labels": "labels for few rows",
    "no labels": "no labels",
    "pairs": "pairs of rows",
    "graph": "a graph or a similarity",
    "images": "images with tags",
}
GET = {
    "few features": "few features",
    "few groups": "few groups of features",
    "products": "products of two features",
    "rules": "rules to read",
    "kernel weights": "which kernels matter",
    "groups of tasks": "which tasks belong together",
    "predictions": "predictions",
    "clusters": "clusters",
    "map": "a map",
    "ranking": "a ranking",
}
HEAD = """# Which method?

Find on the left what you have, in the middle what you want; the method on the right leads to its page of theory. If two stand there,
read *when not* in the table below. On a narrow screen the picture moves sideways.

"""
AFTER = """
**In doubt?** With a plain table of numbers and one target begin with {class}`~gramplane.FGMClassifier` or
{class}`~gramplane.FGMRegressor` at their defaults, beside a machine of scikit-learn that uses all columns. If few
features do as well, you have learnt something; if they do not, the target is spread over many columns, or it is curved:
then {class}`~gramplane.MKLClassifier`, or products (`feature_map="poly2"`).

**How large?** Linear methods read columns or rows from disk: their size is that of the disk. Kernel methods hold pairs of
rows: ten thousand rows in one process, tens of thousands with workers. [Memory](memory.md) has figures for three sizes, and
`--dry-run` tells what a run would take before it starts.

## All methods

Times are those of kept [benchmark runs](benchmarks.md) on two shared virtual processors. Picture and table follow
from what the methods declare of themselves.
"""


def profiles() -> list[Profile]:
    """Return what the methods declare."""
    return [info.profile for info in METHODS.values() if info.profile is not None]


def _theory(profile: Profile) -> str:
    return f"theory/{METHODS[profile.method].system}"


def ways() -> list[tuple[str, str, list[Profile]]]:
    """Return (what one has, what one wants, methods), in the order of the declared words."""
    found = [
        (data, want, [profile for profile in profiles() if data in profile.data and want in profile.wants])
        for data in HAVE
        for want in get_args(Want)
    ]
    return [way for way in found if way[2]]


def _box(x: int, y: int, width: int, height: int, text: str, kind: str) -> str:
    middle = y + height / 2 + 5
    return f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/><text x="{x + 10}" y="{middle:g}">{text}</text>'


def _line(x: int, y: float, to_x: int, to_y: float) -> str:
    bend = (x + to_x) / 2
    return f'<path d="M{x} {y:g} C{bend:g} {y:g} {bend:g} {to_y:g} {to_x} {to_y:g}"/>'


def picture() -> str:
    """Return the picture to follow, as SVG with links."""
    row, parts, y, right = 34, [], 34, 0
    for x, title in ((0, "You have"), (270, "You want"), (540, "Take")):
        parts.append(f'<text class="title" x="{x + 4}" y="18">{title}</text>')
    for data, name in HAVE.items():
        rows = [way for way in ways() if way[0] == data]
        middle = y + row * len(rows) / 2 - 3
        for i, (_, want, methods) in enumerate(rows):
            top = y + i * row
            parts += [_line(210, middle, 270, top + 14), _line(490, top + 14, 540, top + 14), _box(270, top, 220, 28, GET[want], "want")]
            x = 540
            for profile in methods:
                width = 22 + 8 * len(profile.method)
                link = _box(x, top, width, 28, profile.method, "take")
                parts.append(f'<a href="{_theory(profile)}.html">{link}</a>')
                x += width + 8
                right = max(right, x)
        parts.append(_box(0, int(middle) - 14, 210, 28, name, "have"))
        y += row * len(rows) + 10
    label = "What you have, what you want, and the method to take; the table below says the same in words"
    body = "".join(parts)
    return (
        f'<div class="way" tabindex="0"><svg viewBox="0 0 {right} {y}" width="{right}" role="img" aria-label="{label}">{body}</svg></div>'
    )


def _largest(method: str) -> str:
    if method not in LARGEST:
        return "no kept run"
    file, size, figure = LARGEST[method]
    record = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    value = next(value for name, value, *_ in record["lines"] if name == figure)
    return f"{size}: {value.partition(' (')[0]}"


def _rows() -> Iterator[str]:
    yield "| method | problem | largest here, time | returns | certificate over | nearest known | when not |"
    yield "|---|---|---|---|---|---|---|"
    for profile in profiles():
        info = METHODS[profile.method]
        names = ", ".join(f"{{class}}`~gramplane.{name}`" for name in info.estimators)
        cells = (
            f"[{profile.method}]({_theory(profile)}.md): {names}",
            profile.problem,
            _largest(profile.method),
            profile.returns,
            profile.certificate,
            profile.nearest,
            profile.avoid,
        )
        yield "| " + " | ".join(cells) + " |"


def page() -> str:
    """Return the page."""
    unknown = {data for profile in profiles() for data in profile.data} - set(HAVE) | set(get_args(Data)) - set(HAVE)
    assert not unknown, unknown
    return HEAD + "```{raw} html\n" + picture() + "\n```\n" + AFTER + "\n" + "\n".join(_rows()) + "\n"
