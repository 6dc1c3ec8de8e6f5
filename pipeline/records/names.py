"""Suggestions for unknown names, and plain messages for invalid values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message: ``; did you mean 'x'?`` with the closest known name, otherwise the list of names."""
    names = [str(name) for name in known]
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    if not close:
        lowered = {name.lower(): name for name in names}
        close = [lowered[word.lower()]] if word.lower() in lowered else []
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""


# What pydantic calls a branch of a union in the place of a finding.
_BRANCH = re.compile(r"constrained-\w+|(literal|list|dict|tuple|nullable|function-\w+)\[.*\]|float|int|str|bool|none")
_RULES: Mapping[str, str] = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "true or false"),
    **dict.fromkeys(("list_type", "tuple_type"), "a list"),
    **dict.fromkeys(("dict_type", "mapping_type", "model_type"), "a mapping"),
    "string_type": "text",
    "none_required": "null",
    "finite_number": "a finite number",
    "literal_error": "{expected}",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
}
"""Rule in words for each kind of pydantic error."""


def _message(item: Mapping[str, Any]) -> str:
    rule = _RULES.get(item["type"])
    return str(item["msg"]) if rule is None else f"must be {rule.format(**item.get('ctx', {}))}"


def joined_branches(errors: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return pydantic's errors in plain words. Errors of the branches of a union are joined, as in `must be greater than 0 or 'auto'`."""
    rows: dict[object, Mapping[str, Any]] = {}
    for item in errors:
        loc = tuple(part for k, part in enumerate(item["loc"]) if not (k and isinstance(part, str) and _BRANCH.fullmatch(part)))
        known, message = rows.get(loc), _message(item)
        if known is not None:
            rule, message = message.removeprefix("must be "), known["msg"]
            message += "" if rule in message else f" or {rule}"
        rows[loc] = {**(item if known is None else known), "loc": loc, "msg": message}
    return list(rows.values())
