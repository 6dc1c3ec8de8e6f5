"""The page ``api/index.md``, from the public names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gramplane
from gramplane import METHODS

PAGE = Path(__file__).with_name("api") / "index.md"
HEAD = """# Python

Parameters, their ranges and defaults are those of the parameter model that
the command line reads, too. Every example runs as a test.

All estimators take NumPy arrays, SciPy sparse matrices, data frames (pandas, polars, Arrow), Dask arrays, or the path of a store; they
follow scikit-learn's rules (`get_params`, `clone`, `GridSearchCV`, `Pipeline`). Attributes with an underscore at the end exist after `fit`.
"""
RUNS = {
    "Stores": ("ingest", "ingest_grams"),
    "Runs": ("run_method", "resume_run", "tune", "cross_validate", "load_model", "predict_store", "score_store", "selection_stability"),
    "Around runs": ("RunOutcome", "ConfigMismatch", "use_client", "METHODS", "MethodInfo"),
}


def _table(module: str, names: Iterator[str] | tuple[str, ...] | list[str]) -> list[str]:
    rows = "\n".join(f"   {name}" for name in names)
    return ["```{eval-rst}", f".. currentmodule:: {module}", "", ".. autosummary::", "   :toctree: generated", "", rows, "```", ""]


def sections() -> Iterator[tuple[str, str, list[str]]]:
    """Yield title, module and names of every part, in the order of the page."""
    systems: dict[str, list[str]] = {}
    for info in METHODS.values():
        systems.setdefault(info.system, []).append(info.name)
    for system, methods in systems.items():
        names = [name for method in methods for name in METHODS[method].public_names]
        title = METHODS[methods[0]].title if len(methods) == 1 else "Maps" if system == "embeddings" else METHODS[methods[0]].title
        yield f"{title} ({', '.join(f'`{method}`' for method in methods)}; [theory](../theory/{system}.md))", "gramplane", names
    for title, names in RUNS.items():
        yield title, "gramplane", list(names)
    for door in gramplane.DOORS:
        yield f"`gramplane.{door}`", f"gramplane.{door}", list(getattr(gramplane, door).__all__)


def page() -> str:
    """Return the page."""
    lines = [HEAD]
    for title, module, names in sections():
        lines += [f"## {title}", "", *_table(module, names)]
    return "\n".join(lines).rstrip() + "\n"
