"""Head of a page (version, data, seed and paths) and text for a paper (methods paragraph and sources)."""

from __future__ import annotations

import math
import re
from importlib import resources

from ...pipeline.records.run_view import RunView, number
from ...pipeline.registry import METHODS
from .words import best_known, certificate_text, data_name, figure, majority_share, percent, relative_path, selection_text


def head_facts(run: RunView) -> list[tuple[str, str]]:
    """Return ``(name, value)`` pairs that identify a run; values that were not recorded are left out."""
    from ..console import version_text

    settings, rows = run.settings, run.training.get("rows")
    columns = run.training.get("columns", run.summary.get("n_features"))
    size = f": {rows:,} rows × {columns:,} columns" if rows and columns else f": {columns:,} columns" if columns else ""
    digest = f" (digest {str(settings['data_digest'])[:8]})" if settings.get("data_digest") else ""
    facts = [("Method", run.method), ("Data", f"{data_name(run)}{size}{digest}" if "data" in settings else "")]
    facts += [("Seed", f"{settings['seed']}" if number(settings.get("seed")) >= 0 else ""), ("Version", f"gramplane {version_text()}")]
    return [(name, value) for name, value in facts if value]


def places(run: RunView) -> list[tuple[str, str]]:
    """Return the paths of data and run, relative to the working directory."""
    paths = (("Data", run.settings.get("data")), ("run", run.path))
    return [(name, relative_path(path)) for name, path in paths if path]


def methods_text(run: RunView) -> str:
    """Return the methods paragraph for a paper: method, source, data, parameters, selection, score and certificate."""
    from ..console import version_text

    sources = method_sources(run.method)
    cited = f"{_citation(sources[0])}; " if sources else ""
    rows, columns = run.training.get("rows"), run.training.get("columns", run.summary.get("n_features"))
    size = f" to data of {rows:,} rows × {columns:,} columns" if rows and columns else ""
    text = f"We fitted the method “{run.title}” ({cited}gramplane {version_text()}){size}"
    parts = [f"{text}{_parameters(run)}.", selection_text(run).replace(" selected", " were selected", 1)]
    for measure, name in (("accuracy", "Accuracy"), ("r2", "R2")):
        known = best_known(run, measure)
        if math.isfinite(known.value):
            show = percent if measure == "accuracy" else figure
            ends = f" (95 % CI {show(known.low)} to {show(known.high)})" if math.isfinite(known.low) else ""
            _, share = majority_share(run)
            beside = f"; always predicting the most frequent class gives {percent(share)}" if measure == "accuracy" and share > 0 else ""
            parts.append(f"{name} on {known.where} was {show(known.value)}{ends}{beside}.")
    return " ".join(part for part in (*parts, certificate_text(run).partition(". This")[0]) if part).rstrip(".") + "."


def _parameters(run: RunView) -> str:
    """Return the parameter that controls how much is selected, and where its value comes from."""
    key = next((key for key in ("C", "lam") if key in run.params), None)
    value = number(run.summary.get(key, run.params[key])) if key else math.nan
    if not math.isfinite(value):
        return ""
    searched = any(key in row for row in run.trials)
    fields = METHODS[run.method].config.model_fields if run.method in METHODS else {}
    source = "the default" if key in fields and run.params[str(key)] == fields[str(key)].default else "given"
    source = "chosen by cross-validation" if searched else "derived from the data" if run.params[str(key)] == "auto" else source
    return f", with {key} = {figure(value)} ({source})"


def method_sources(method: str) -> list[str]:
    """Return the BibTeX entries of the sources of a method, the main one first."""
    system = METHODS[method].system if method in METHODS else ""
    text = resources.files(__package__ or "").joinpath("references.bib").read_text("utf-8")
    entries = [f"@{entry.strip()}" for entry in re.split(r"^@", text, flags=re.MULTILINE)[1:]]
    ours = [entry for entry in entries if system in _field(entry, "keywords").split(", ")]
    return [re.sub(r",\n +keywords = .*", "", entry) for entry in ours]


def _field(entry: str, name: str) -> str:
    found = re.search(rf"\b{name} = \{{(.*)\}}", entry)
    return found[1] if found else ""


def _citation(entry: str) -> str:
    names = [author.split(",")[0] for author in _field(entry, "author").split(" and ")]
    return f"{names[0]}{' et al.' if len(names) > 2 else ' and ' + names[1] if len(names) == 2 else ''}, {_field(entry, 'year')}"
