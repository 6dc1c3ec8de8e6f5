"""The manifest of a store and the journal of its writer.

The manifest lists every object with its length and crc32c, is sealed by a sha256 digest, and is written last.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from .blocks.arrays import Record
from .errors import DigestMismatch, MissingBlock, SchemaError, canonical_json, check_format, format_name, parse_json, space_for
from .objects import Objects, check_key, read_json_lines, sync_folder, write_all

MANIFEST = "manifest.json"


def _seal_digest(listed: Mapping[str, tuple[int, int]]) -> str:
    return hashlib.sha256(canonical_json({"format": format_name("manifest"), "objects": listed})).hexdigest()


def write_seal(objects: Objects, listed: Record) -> str:
    """Write ``manifest.json`` atomically and durably; return the digest of the store."""
    digest = _seal_digest(listed)
    objects.write(MANIFEST, canonical_json({"format": format_name("manifest"), "objects": listed, "digest": digest}), fsync=True)
    return digest


def read_seal(objects: Objects) -> tuple[Record, str]:
    """Read and check ``manifest.json``; return the listed objects and the digest. Raises MissingBlock if there is none: the store was never
    finished.
    """
    try:
        data = objects.read(MANIFEST).tobytes()
    except MissingBlock as error:
        advice = "it is not a store, or writing it was never finished (ingest it again)"
        raise MissingBlock(f"{objects.url} has no {MANIFEST}: {advice}") from error
    location = f"{objects.url}/{MANIFEST}"
    try:
        fields = parse_json(data, location)
    except SchemaError as error:
        raise DigestMismatch(str(error)) from error
    check_format(fields.get("format"), "manifest", location, "make it again, or install the version that wrote it")
    listed = _check_entries(fields.get("objects"), location)
    if _seal_digest(listed) != fields.get("digest"):
        stated = fields.get("digest")
        raise DigestMismatch(f"{location}: its content does not have the digest {stated!r} it states: the manifest is damaged")
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


class Journal:
    """Journal of finished objects, one per line. A journal of the same plan (digest) is continued. An incomplete last line is ignored."""

    def __init__(self, path: Path, plan: str) -> None:
        self.path = path
        self._unsynced = 0
        with space_for(path, 256):
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            # a new line first: it ends a line torn by a kill
            write_all(self._fd, b"\n" + canonical_json({"plan": plan}) + b"\n")
            os.fsync(self._fd)
            sync_folder(str(path.parent))

    def append(self, record: Record) -> None:
        """Add a line. The journal is flushed to disk after every 64 MiB of objects."""
        line = canonical_json(record) + b"\n"
        with space_for(self.path, len(line)):
            write_all(self._fd, line)
            self._unsynced += sum(size for size, _ in record.values())
            if self._unsynced > 64 << 20:
                os.fsync(self._fd)
                self._unsynced = 0

    def remove(self) -> None:
        """Close and delete the journal."""
        os.close(self._fd)
        self.path.unlink(missing_ok=True)

    @staticmethod
    def read(path: Path, plan: str) -> Record | None:
        """Return the objects recorded for this plan; None if there is no journal or it belongs to another plan."""
        notes = read_json_lines(path)
        record: Record = {}
        for entry in (note for note in notes or () if isinstance(note, dict)):
            if entry.pop("plan", plan) != plan:
                return None
            record.update({key: (int(size), int(crc)) for key, (size, crc) in entry.items()})
        return None if notes is None else record
