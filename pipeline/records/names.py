"""What an unknown name may have meant, and what is wrong with a value that may have several forms."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean 'x'?`` for the closest known name, else the list of names: the end of a message."""
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


def joined_branches(errors: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return pydantic's findings, those of the branches of a union as one, `should be greater than 0 or 'auto'`, at its field."""
    rows: dict[object, Mapping[str, object]] = {}
    for item in errors:
        loc = tuple(part for k, part in enumerate(item["loc"]) if not (k and isinstance(part, str) and _BRANCH.fullmatch(part)))
        known = rows.get(loc)
        message = item["msg"] if known is None else f"{known['msg']} or {item['msg'].removeprefix('Input should be ')}"
        rows[loc] = {**(item if known is None else known), "loc": loc, "msg": message}
    return list(rows.values())
