"""The manifest of a store: every object with its length and crc32c, sealed by a sha256 digest, written last."""

import hashlib
from collections.abc import Mapping

from .blocks.arrays import Record, canonical_json, parse_json
from .errors import DigestMismatch, MissingBlock, SchemaError
from .objects import Objects, check_key

MANIFEST = "manifest.json"
FORMAT = "gramplane.manifest/1"


def seal_digest(listed: Mapping[str, tuple[int, int]]) -> str:
    """sha256 (hex) of the canonical content of a manifest."""
    return hashlib.sha256(canonical_json({"format": FORMAT, "objects": listed})).hexdigest()


def write_seal(objects: Objects, listed: Record) -> str:
    """Write ``manifest.json`` atomically and durably; return the digest of the store."""
    digest = seal_digest(listed)
    objects.write(MANIFEST, canonical_json({"format": FORMAT, "objects": listed, "digest": digest}), fsync=True)
    return digest


def read_seal(objects: Objects) -> tuple[Record, str]:
    """Read and check ``manifest.json``; return the listed objects and the digest. MissingBlock if there is none: never finished."""
    try:
        data = objects.read(MANIFEST).tobytes()
    except MissingBlock as error:
        raise MissingBlock(
            f"{objects.url} has no {MANIFEST}: it is not a store, or writing it was never finished (ingest it again)"
        ) from error
    location = f"{objects.url}/{MANIFEST}"
    try:
        fields = parse_json(data, location)
    except SchemaError as error:
        raise DigestMismatch(str(error)) from error
    if fields.get("format") != FORMAT:
        raise SchemaError(f"{location} has the format {fields.get('format')!r}; this version reads {FORMAT!r}")
    listed = _check_entries(fields.get("objects"), location)
    if seal_digest(listed) != fields.get("digest"):
        raise DigestMismatch(
            f"{location}: its content does not have the digest {fields.get('digest')!r} it states: the manifest is damaged"
        )
    return listed, str(fields["digest"])


def _check_entries(found: object, where: str) -> Record:
    if not isinstance(found, dict):
        raise DigestMismatch(f"{where}: 'objects' is not a mapping; the manifest is damaged")
    listed: Record = {}
    for key, entry in found.items():
        if not (isinstance(entry, list) and len(entry) == 2 and all(type(v) is int and v >= 0 for v in entry)):
            raise DigestMismatch(f"{where}: the entry of {key!r} is {entry!r}; it must be [bytes, crc32c]")
        try:
            listed[check_key(key)] = (entry[0], entry[1])
        except SchemaError as error:
            raise DigestMismatch(f"{where}: {error}; the manifest is damaged") from error
    return listed
