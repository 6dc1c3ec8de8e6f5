"""The short text of a kernel, ``name(parameter=value, ...)[columns] normalisation centre``: read into its parts, and written from them."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from .functions import kernel_family

NORMALIZATIONS = ("none", "trace", "unit_trace", "multiplicative", "cosine")
FORM = "name(parameter=value,...)[columns] normalisation centre"

_QUOTED = r"'(?:[^'\\]|\\.)*'"
_TEXT = re.compile(rf"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*(?:\[((?:{_QUOTED}|[^\]'])*)\])?([a-z_\s]*)", re.DOTALL)
_PLAIN = re.compile(r"[^\W\d][^',:\[\]]*")  # a name that needs no quotes
_COLUMN = re.compile(rf"\s*(?:(?P<first>\d+)\s*(?::\s*(?P<end>\d+)\s*)?|(?P<quoted>{_QUOTED})\s*|(?P<name>{_PLAIN.pattern}))")


class KernelParts(NamedTuple):
    """What a text says: columns are numbers, and names of features."""

    name: str
    params: tuple[tuple[str, Any], ...]
    columns: tuple[int | str, ...] | None
    normalize: str
    centre: bool


@functools.lru_cache(maxsize=1 << 14)
def parse_kernel(text: str) -> KernelParts:
    """Return the parts of a short text. Raises ValueError if it is not of the form."""
    # Cached: fits of a search read the same texts again and again.
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"kernel {text!r} is not of the form {FORM}")
    name, inside, columns, words = match.groups()
    try:
        return KernelParts(name, _parse_arguments(name, inside or ""), _parse_columns(columns), *_parse_words(words.split()))
    except ValueError as error:
        raise ValueError(f"kernel {text!r}: {error}") from None


def _parse_arguments(name: str, inside: str) -> tuple[tuple[str, Any], ...]:
    try:
        call = ast.parse(f"f({inside})", mode="eval").body
    except SyntaxError:
        raise ValueError(f"({inside}) cannot be read as parameter=value, ...") from None
    if not isinstance(call, ast.Call) or any(word.arg is None for word in call.keywords):
        raise ValueError(f"({inside}) cannot be read as parameter=value, ...")
    known = list(kernel_family(name).parameters)
    if len(call.args) > len(known):
        raise ValueError(f"{len(call.args)} values are too many for the parameters: {', '.join(known) or 'none'}")
    pairs = [*zip(known, call.args), *((str(word.arg), word.value) for word in call.keywords)]
    values = []
    for key, node in pairs:
        try:
            values.append((key, ast.literal_eval(node)))
        except ValueError:
            raise ValueError(f"{key} must be a number or a quoted string, not {ast.unparse(node)}") from None
    return tuple(values)


def _parse_columns(text: str | None) -> tuple[int | str, ...] | None:
    if text is None:
        return None
    columns: list[int | str] = []
    at = 0
    while at <= len(text):
        match = _COLUMN.match(text, at)
        is_empty = match is not None and match["end"] is not None and int(match["end"]) <= int(match["first"])
        if match is None or is_empty or text[match.end() : match.end() + 1] not in ("", ","):
            raise ValueError(f"columns [{text}] must be numbers and ranges like 3,7:9, or names; a name with one of ',:[] stands in quotes")
        at = match.end() + 1
        if match["first"] is not None:
            columns += range(int(match["first"]), int(match["end"] or int(match["first"]) + 1))
        else:
            columns.append(ast.literal_eval(match["quoted"]) if match["quoted"] else match["name"].strip())
    return tuple(columns)


def _parse_words(words: Sequence[str]) -> tuple[str, bool]:
    fields: dict[str, Any] = {}
    for word in words:
        if word != "centre" and word not in NORMALIZATIONS:
            raise ValueError(f"unknown word {word!r}; known: {', '.join(NORMALIZATIONS)}, centre")
        key, value = ("centre", True) if word == "centre" else ("normalize", word)
        if key in fields:
            raise ValueError(f"{key} is given twice")
        fields[key] = value
    return fields.get("normalize", "none"), fields.get("centre", False)


def format_kernel(parts: KernelParts) -> str:
    """Return the short text of a kernel; columns in runs, parameters at their defaults left out."""
    known = kernel_family(parts.name).parameters
    params = [(key, value) for key, value in parts.params if key not in known or value != known[key].default]
    text, shown = parts.name, ",".join(f"{key}={_quote(value) if isinstance(value, str) else repr(value)}" for key, value in params)
    text += f"({shown})" if shown else ""
    text += "" if parts.columns is None else f"[{','.join(_column_texts(parts.columns))}]"
    return text + (f" {parts.normalize}" if parts.normalize != "none" else "") + (" centre" if parts.centre else "")


def _quote(value: str) -> str:
    # Always in single quotes, which the text form requires.
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _column_texts(columns: Iterable[int | str]) -> Iterator[str]:
    """Yield columns as texts, numbers that follow one another as a range."""
    for _, group in itertools.groupby(enumerate(columns), lambda pair: pair if isinstance(pair[1], str) else pair[1] - pair[0]):
        members = [column for _, column in group]
        if isinstance(members[0], str):
            yield members[0] if _PLAIN.fullmatch(members[0]) and members[0] == members[0].strip() else _quote(members[0])
        else:
            yield str(members[0]) if len(members) == 1 else f"{members[0]}:{int(members[-1]) + 1}"
