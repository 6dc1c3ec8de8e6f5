"""JSON that carries its own crc32c: the last key of every file of a run and of every line of its history.

The text stays plain JSON for any reader. The checksum covers the bytes before it, so that a changed blank is noticed, too.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from ..blocks.arrays import crc32c, load_json
from ..errors import DigestMismatch, SchemaError
from ..value_types import Json

KEY = "crc32c"
ROWS = "rows"
"""Where a list stands in a file that must be an object to have a last key."""

FILE, LINE = b',\n "crc32c": "%08x"\n}', b',"crc32c":"%08x"}'
_SEAL = re.compile(rb',?\n? ?"crc32c": ?"[0-9a-f]{8}"\n?\}\Z')


def seal_file(value: Mapping[str, Any] | list[Any]) -> bytes:
    """Return the text of a sealed JSON file; a list becomes ``{"rows": [...]}``. SchemaError if JSON cannot hold the value."""
    fields = dict(value) if isinstance(value, Mapping) else {ROWS: value}
    try:
        return seal_text(json.dumps(fields, indent=1).encode(), FILE)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"value cannot be written as JSON: {error}") from error


def seal_text(text: bytes, form: bytes) -> bytes:
    """Return the text of a JSON object with its checksum as last key, a key of no object itself, in the form of a file or of a line."""
    body = text[:-1].rstrip()
    if f'"{KEY}":'.encode() in body and KEY in json.loads(text):
        raise SchemaError(f"a record has the key {KEY!r}, which belongs to its checksum")
    return body + _make_seal(body, form)


def _make_seal(body: bytes, form: bytes) -> bytes:
    seal = form % crc32c(body)
    return seal.lstrip(b",") if body == b"{" else seal


def read_sealed(data: bytes, where: str, *, required: bool) -> Json:
    """Return what `seal_file` or `seal_text` wrote; DigestMismatch if it is not JSON or does not have its checksum.

    ``required``: a text without a checksum is damaged; those of runs of format 1 have none.
    """
    _check_seal(data, where, required)
    try:
        value = load_json(data, where)
    except SchemaError as error:
        raise DigestMismatch(str(error)) from error
    if isinstance(value, dict) and value.pop(KEY, None) is not None and set(value) == {ROWS}:
        return value[ROWS]
    return value


def _check_seal(data: bytes, where: str, required: bool) -> None:
    seal = _SEAL.search(data, max(0, len(data) - 32))
    if seal is None:
        if required:
            raise DigestMismatch(f"{where} does not end with its crc32c: it is cut short or changed")
        return
    body = data[: seal.start()]
    if data[seal.start() :] not in (_make_seal(body, FILE), _make_seal(body, LINE)):
        raise DigestMismatch(f"{where}: the content does not have the crc32c it states")
