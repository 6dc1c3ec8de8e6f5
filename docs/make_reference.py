"""The pages of ``reference`` that follow from the code."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from gramplane.workflows.report.glossary import glossary as meanings
from gramplane.workflows.schema import SCHEMA, STEPS, WorkflowSpec

FOLDER = Path(__file__).with_name("reference")
WRITTEN = "This page is made"
SIGNS: dict[type, tuple[str, str]] = {Gt: ("gt", ">"), Ge: ("ge", ">="), Lt: ("lt", "<"), Le: ("le", "<=")}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    heads = tuple(heads)
    return [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads), *(f"| {' | '.join(map(_cell, row))} |" for row in rows), ""]


def _bounds(metadata: Sequence[Any]) -> list[str]:
    """Return the range that pydantic checks, such as ``["> 0", "<= 1"]``."""
    parts = [part for item in metadata for part in getattr(item, "metadata", [item])]
    return [f"{sign} {getattr(part, key):g}" for part in parts for kind, (key, sign) in SIGNS.items() if isinstance(part, kind)]


def _words(hint: object) -> str:
    """Return a type in words: ``{"a", "b"}``, ``int >= 1 or None``, ``list of float``."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "{" + ", ".join(repr(value).replace("'", '"') for value in args) + "}"
    if origin in (Union, types.UnionType):
        return " or ".join(_words(arg) for arg in args)
    if origin is list:
        return f"list of {_words(args[0])}"
    if origin in (dict, tuple):
        return origin.__name__
    if origin is Annotated:
        return _ranged(_words(args[0]), args[1:])
    return "None" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _ranged(words: str, metadata: Sequence[Any]) -> str:
    bounds = _bounds(metadata)
    return " and ".join([f"{words} {bounds[0]}", *bounds[1:]]) if bounds else words


def _kind(field: FieldInfo) -> str:
    text = _words(field.annotation)
    return text if len(text) < 90 else "see the text"


def _keys(model: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else "empty" if field.default is PydanticUndefined else f"`{field.default}`"
        yield f"`{field.alias or name}`", _kind(field), default, field.description or ""


def workflow() -> str:
    """Return the page of workflow files."""
    lines = [
        "# Workflow files",
        "",
        f"{WRITTEN} from the models that check a file. A workflow is YAML with `schema: {SCHEMA}`; unknown keys are rejected, with "
        "the nearest known one. `gramplane run FILE --check` checks it, `gramplane config schema workflow` is the same as a JSON schema "
        "for editors. How to write one: [workflows](../guides/nightly.md).",
        "",
        "## The file",
        "",
        *_table(
            ("key", "type", "default", "meaning"),
            ((key, "list of steps" if key == "`steps`" else kind, default, text) for key, kind, default, text in _keys(WorkflowSpec)),
        ),
        "## Every step",
        "",
        "A step is `{id: NAME, do: WHAT, needs: [NAMES], with: {…}}`. The keys of `with` follow from `do`:",
        "",
    ]
    for name, step in STEPS.items():
        arguments = cast("type[BaseModel]", step.model_fields["args"].annotation)
        lines += [f"## `do: {name}`", "", (step.__doc__ or "").strip(), ""]
        lines += _table(("key", "type", "default", "meaning"), _keys(arguments))
        if name in ("fit", "tune"):
            lines += ["Every other key is a parameter of the method: `gramplane fit METHOD --help`.", ""]
    return "\n".join(lines)


def glossary() -> str:
    """Return the page of the figures of reports."""
    stops = {word.removeprefix("stop "): text for word, text in meanings().items() if word.startswith("stop ")}
    figures = {word: text for word, text in meanings().items() if not word.startswith("stop ")}
    lines = ["# What the figures mean", "", f"{WRITTEN} from the sentences that reports show.", ""]
    for title, head, rows in (("Headings and figures", "word", figures), ("Why a fit ended", "`stop`", stops)):
        lines += [f"## {title}", "", *_table((head, "meaning"), ((f"`{word}`", text) for word, text in rows.items())), ""]
    return "\n".join(lines)


PAGES: dict[str, Callable[[], str]] = {"workflow": workflow, "glossary": glossary}


def pages() -> dict[Path, str]:
    """Return every page by its path."""
    return {FOLDER / f"{name}.md": text().rstrip() + "\n" for name, text in PAGES.items()}
