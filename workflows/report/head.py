"""Where the figures of a page come from: version, data, seed and paths."""

from __future__ import annotations

from ...pipeline.records.run_view import RunView, number
from .words import data_name, relative_path


def head_facts(run: RunView) -> list[tuple[str, str]]:
    """Return ``(name, value)`` of what a reader needs to trace a run; what its record does not hold is left out."""
    from ..console import version_text

    settings, rows = run.settings, run.training.get("rows")
    columns = run.training.get("columns", run.summary.get("n_features"))
    size = f": {rows:,} rows × {columns:,} columns" if rows and columns else f": {columns:,} columns" if columns else ""
    digest = f" (digest {str(settings['data_digest'])[:8]})" if settings.get("data_digest") else ""
    facts = [("Method", run.method), ("Data", f"{data_name(run)}{size}{digest}" if "data" in settings else "")]
    facts += [("Seed", f"{settings['seed']}" if number(settings.get("seed")) >= 0 else ""), ("Version", f"gramplane {version_text()}")]
    return [(name, value) for name, value in facts if value]


def places(run: RunView) -> list[tuple[str, str]]:
    """Return where the data and the run lie, as seen from the working directory."""
    paths = (("Data", run.settings.get("data")), ("run", run.path))
    return [(name, relative_path(path)) for name, path in paths if path]
