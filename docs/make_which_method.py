"""The page ``which_method.md``: five questions, and what every method declares of itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gramplane import METHODS
from gramplane.pipeline.records.declared import Profile

PAGE = Path(__file__).with_name("which_method.md")
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
        (("IF-THEN rules; missing values and categories as they are", ("rule-ensemble",)),),
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
AFTER = """
**When another library is better.** If you have fewer than a few hundred columns and need to drop none, an l2 model of scikit-learn predicts
better. For one kernel take `SVC`. If only accuracy counts on a table, take boosted trees. [Coming from another
library](guides/coming_from.md) has the calls side by side.

**How large?** Linear methods read columns or rows from disk, so the disk limits their size. Kernel methods hold pairs of rows: ten thousand
rows in one process, tens of thousands with workers. `--dry-run` shows what a run takes; [memory
use](memory.md) has figures for three sizes.

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


def page() -> str:
    """Return the page."""
    named = {method for _, _, answers in QUESTIONS for _, methods in answers for method in methods}
    assert named == set(METHODS), named ^ set(METHODS)
    profiles = [info.profile for info in METHODS.values() if info.profile is not None]
    return HEAD + "\n".join(_cards()) + AFTER + "\n" + "\n".join(_rows(profiles)) + "\n" + COMPARED
