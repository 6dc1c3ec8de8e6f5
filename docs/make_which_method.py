"""The page ``which_method.md``: five questions, and what every method declares of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from gramplane import METHODS
from gramplane.pipeline.records.declared import Profile

PAGE = Path(__file__).with_name("which_method.md")
RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results"
HEAD = """# Which method?

Answer the first question that fits. With a plain table of numbers and one target, begin with {class}`~gramplane.FGMClassifier` or
{class}`~gramplane.FGMRegressor`, beside a model of scikit-learn that uses all columns.

"""
# Question, pages of the guide that answer it, and (what you want, methods to take), the first to try first.
QUESTIONS = (
    (
        "1. Do you want a few of very many columns?",
        ("few_features", "groups", "interactions"),
        (
            ("few features, groups, or products of two", ("fgm",)),
            ("groups or a graph of features, with an exact optimum", ("group-lasso",)),
            ("features that matter in a curved way", ("kta-path",)),
            ("interactions of any order among some dozens of columns", ("hierarchical-kernels",)),
        ),
    ),
    (
        "2. Must people read and check the model?",
        ("rules",),
        (("IF-THEN rules, for classes or numbers; missing values and categories as they are", ("rule-ensemble",)),),
    ),
    (
        "3. Several kernels, views or kinds of data?",
        ("kernels",),
        (
            ("which kernels matter, and predictions", ("mkl",)),
            ("products of kernels", ("two-layer-mkl",)),
            ("no labels", ("unsupervised-mkl",)),
        ),
    ),
    (
        "4. Many related tasks, or rows that keep coming?",
        ("many_tasks", "streams"),
        (
            ("tasks share features", ("multitask-selector",)),
            ("tasks share kernels, or directions", ("multitask-mkl", "shared-subspace-mkl")),
            ("which tasks belong together", ("latent-task-mkl",)),
            ("a stream of rows", ("group-lasso", "multitask-selector")),
        ),
    ),
    (
        "5. Few labels, pairs, a graph or images?",
        ("few_labels", "maps"),
        (
            ("labels for few rows, some rows of neither class", ("tri-class-svm",)),
            ("pairs of rows that belong together: clusters", ("npkl",)),
            ("ties between users", ("social-strength",)),
            ("a map", ("colored-mvu", "mve", "spe")),
            ("a ranking", ("semantic-ranker", "visual-rank")),
        ),
    ),
)
GUIDES = {
    "few_features": "few features",
    "groups": "groups",
    "interactions": "interactions",
    "rules": "rules",
    "kernels": "kernels",
    "many_tasks": "many tasks",
    "streams": "streams",
    "few_labels": "few labels and pairs",
    "maps": "maps and rankings",
}
# The largest problem of a method among the kept runs: size in words, file, and the figure that holds its time.
LARGEST = {
    "fgm": (
        "10⁶ × 10⁷, sparse, from disk; two workers of 1 GiB",
        "fgm_out_of_core--fgm-from-a-store-of-1000000-x-10000000-b-20-t-10-local-2",
        "FGM, whole run",
    ),
    "group-lasso": (
        "a stream of 10⁵ × 10⁶, sparse",
        "stream--stream-of-100000-x-1000000-100-non-zeros-a-row-batches-of-1000",
        "group lasso",
    ),
    "mkl": ("200 kernels of 2,000 rows", "mkl_elastic--elastic-net-mkl-n-2000-200-kernels-v-0-5-c-1-0-gap-0-001", "ours"),
    "tri-class-svm": (
        "30,000 labelled and 30,000 unlabelled rows",
        "triclass_passes--3c-svm-by-passes-rbf-mm-30-000-30-000-rows",
        "seconds",
    ),
    "unsupervised-mkl": (
        "30,000 rows; two workers of 1 GiB",
        "umkl_distributed--unsupervised-kernels-of-30000-points-2-workers-of-1gib",
        "whole fit, cluster and components included",
    ),
    "kta-path": ("800 × 100,000", "kta_path--kernel-selection-path-300-x-1-000-and-800-x-100-000", "wide: all of it"),
    "latent-task-mkl": (
        "6 tasks, 40,000 rows; two workers of 2 GiB",
        "pooled_machines--latent-task-6-tasks-40000-rows-2-workers-of-2gib",
        "latent-task: seconds of the run, cluster included",
    ),
    "rule-ensemble": ("3,000 × 20", "rules--rule-ensembles", "planted, n=3000, rho=1.1, C=10"),
    "hierarchical-kernels": (
        "6 tasks, 40,000 rows; two workers of 2 GiB",
        "pooled_machines--hierarchical-6-tasks-40000-rows-2-workers-of-2gib",
        "hierarchical: seconds of the run, cluster included",
    ),
    "multitask-mkl": ("20 tasks of 200 rows, 50 kernels", "multitask_mkl--multiple-kernel-learning-for-many-tasks", "ours, p=2"),
    "shared-subspace-mkl": (
        "6 tasks, 40,000 rows; two workers of 2 GiB",
        "pooled_machines--one-machine-of-6-tasks-40000-rows-2-workers-of-2gib",
        "shared-subspace: seconds of the run, cluster included",
    ),
    "multitask-selector": (
        "8 tasks, 200,000 × 2,000; two workers, driver of 512 MiB",
        "selector_out_of_core--feature-selection-over-8-tasks-200000-x-2000-float32-local-2-driver-512mib",
        "batch, out of core (working_set)",
    ),
    "npkl": ("16,000 rows", "npkl_distributed--a-non-parametric-kernel-of-16000-rows-c-0-7", "here: whole run"),
    "social-strength": (
        "100,000 users; two workers of 1 GiB",
        "many_users--ties-between-100000-users-local-2-workers-of-1gib",
        "whole fit",
    ),
}
AFTER = """
**When another library is better.** If you have fewer than a few hundred columns and need to drop none, an l2 model of scikit-learn predicts
better. For one kernel take `SVC`. If only accuracy counts on a table, take boosted trees. [Coming from another
library](guides/coming_from.md) has the calls side by side.

**How large?** Linear methods read columns or rows from disk, so the disk limits their size. Kernel methods hold pairs of rows: ten thousand
rows in one process, tens of thousands with workers. `--dry-run` shows what a run takes; [memory
use](memory.md) has figures for three sizes, [largest runs](#largest-runs) what was measured.

## All methods
"""
COMPARED = """
## Compared with other libraries

| library | is best for | what gramplane adds |
|---|---|---|
| glmnet, LIBLINEAR | l1 and l2 models on data in memory | a fixed number of features or products; data on disk; a bound over all features |
| celer, skglm | lasso and group lasso in memory, also with a certificate | streams, data on disk, overlapping groups and graphs |
| MKLpy, himalaya | kernels in memory; many targets on a GPU | a bound over all weights; many tasks; kernels from disk |
| RuleFit (imodels) | rules from trees | a search over all rules, with a certificate; missing values as they are |
| EBM (interpret) | additive models, explained feature by feature | short lists of rules or features |
| scikit-learn | everything else | the same interface |
"""


def _theory(method: str) -> str:
    return f"theory/{METHODS[method].system}.md"


def _cards() -> Iterator[str]:
    yield "::::{grid} 1 1 2 2\n:gutter: 3\n"
    for title, guides, answers in QUESTIONS:
        links = ", ".join(f"[{GUIDES[name]}](guides/{name}.md)" for name in guides)
        yield f":::{{grid-item-card}} {title}\n"
        for want, methods in answers:
            yield f"- {want}: {', '.join(f'[`{method}`]({_theory(method)})' for method in methods)}"
        yield f"\nGuide: {links}\n:::\n"
    yield "::::\n"


def _rows(profiles: list[Profile]) -> Iterator[str]:
    yield "| method | what it does | take something else |\n|---|---|---|"
    for profile in profiles:
        names = ", ".join(f"{{class}}`~gramplane.{name}`" for name in METHODS[profile.method].estimators)
        yield f"| [`{profile.method}`]({_theory(profile.method)}): {names} | {profile.problem}; gives {profile.returns} | {profile.avoid} |"
    yield "\n## What the certificate covers\n\n| method | certificate over | nearest known estimator |\n|---|---|---|"
    for profile in profiles:
        yield f"| `{profile.method}` | {profile.certificate} | {profile.nearest} |"


def _largest() -> Iterator[str]:
    yield "## Largest runs\n\nTimes of kept runs on two shared virtual CPUs.\n\n| method | problem | time |\n|---|---|---|"
    for method, (size, file, figure) in LARGEST.items():
        record = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
        time = next(value for name, value, *_ in record["lines"] if name == figure)
        yield f"| `{method}` | {size} | {time.partition(' (')[0]} |"
    rest = ", ".join(f"`{method}`" for method in METHODS if method not in LARGEST)
    yield f"\nNo large run is kept of {rest}: they were measured on hundreds of rows."


def page() -> str:
    """Return the page."""
    named = {method for _, _, answers in QUESTIONS for _, methods in answers for method in methods}
    assert named == set(METHODS), named ^ set(METHODS)
    profiles = [info.profile for info in METHODS.values() if info.profile is not None]
    return HEAD + "\n".join(_cards()) + AFTER + "\n" + "\n".join(_rows(profiles)) + "\n\n" + "\n".join(_largest()) + "\n" + COMPARED
