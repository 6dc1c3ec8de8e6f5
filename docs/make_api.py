"""The pages of ``api``, from the public names: estimators by task, data and runs, plots and testing; and the groups of parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gramplane
from gramplane import METHODS

FOLDER = Path(__file__).with_name("api")
HEAD = """# Python

All estimators follow scikit-learn (`get_params`, `clone`, `GridSearchCV`, `Pipeline`). They take NumPy arrays, SciPy sparse matrices, data
frames (pandas, polars, Arrow), Dask arrays, or the path of a store. Attributes with an underscore at the end exist after `fit`.

```{toctree}
:maxdepth: 2

estimators
runs
plots
```
"""
TASKS = {
    "Few features of many": ("fgm", "kta-path"),
    "Groups of features, and streams": ("group-lasso",),
    "Interactions": ("hierarchical-kernels",),
    "Rules": ("rule-ensemble",),
    "Kernels and views": ("mkl", "two-layer-mkl", "unsupervised-mkl"),
    "Many related tasks": ("multitask-selector", "multitask-mkl", "shared-subspace-mkl", "latent-task-mkl"),
    "Few labels, and pairs": ("tri-class-svm", "npkl", "social-strength"),
    "Maps and rankings": ("colored-mvu", "mve", "spe", "semantic-ranker", "visual-rank"),
}
RUNS = {
    "Stores": ("ingest", "ingest_grams"),
    "Runs": ("run_method", "resume_run", "tune", "cross_validate", "load_model", "predict_store", "score_store", "selection_stability"),
    "Around runs": ("RunOutcome", "ConfigMismatch", "use_client", "METHODS", "MethodInfo"),
}
# Parameters of estimators by what they decide; those that are not listed belong to "What to select".
PARAMETERS = {
    "Fit": "C C_irrelevant C_unlabelled Cs D G alignment all_relevant average balance base closure cv damping debias degree delta"
    " epsilon fit_intercept gamma1 gamma2 infinite irrelevant_label loss one_standard_error refit rule scoring"
    " task_offset validation weights",
    "Data": "categorical class_weight graph label_kernel min_images normalize probability scale shuffle untagged view_scale warp",
    "Solver": "add algorithm allow_repeat batch_size decrease_tol divergence dp epochs eps eta0 import_tol inner_stop inner_tol inverted"
    " max_inner max_iter max_nodes max_rules max_solves max_visits n_add n_import n_random n_restarts order outer_stop outer_tol p_end"
    " p_start prune refine_cuts rest safeguard skip_implied solver start stop stop_at_rest tau tol walk_tol",
    "Running": "callbacks cluster gram_store grams n_jobs random_state run_on verbose",
}
GROUP_OF = {name: group for group, names in PARAMETERS.items() for name in names.split()}
GROUPS = ("What to select", *PARAMETERS)


def _table(module: str, names: list[str]) -> list[str]:
    rows = "\n".join(f"   {name}" for name in names)
    return ["```{eval-rst}", f".. currentmodule:: {module}", "", ".. autosummary::", "   :toctree: generated", "", rows, "```", ""]


def sections() -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield page, title, module and names of every part, in order."""
    listed = [method for methods in TASKS.values() for method in methods]
    assert set(listed) == set(METHODS), set(listed) ^ set(METHODS)
    for title, methods in TASKS.items():
        yield "estimators", title, "gramplane", [name for method in methods for name in METHODS[method].public_names]
    for title, names in RUNS.items():
        yield "runs", title, "gramplane", list(names)
    for door in gramplane.DOORS:
        yield "plots", f"`gramplane.{door}`", f"gramplane.{door}", list(getattr(gramplane, door).__all__)


def pages() -> dict[Path, str]:
    """Return every page by its path."""
    parts = {"estimators": ["# Estimators by task", ""], "runs": ["# Data and runs", ""], "plots": ["# Plots, data sets and testing", ""]}
    for page, title, module, names in sections():
        parts[page] += [f"## {title}", "", *_table(module, names)]
    return {FOLDER / "index.md": HEAD} | {FOLDER / f"{name}.md": "\n".join(lines).rstrip() + "\n" for name, lines in parts.items()}
