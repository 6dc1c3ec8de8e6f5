"""Versions of a store: one folder each, and a pointer that names the current one.

A finished store never changes. New content becomes a new version next to the old one, and replacing the pointer, one small file, makes it
current. A reader follows the pointer once and stays on that version. On local files, the reader holds a shared lock on the version's
``zarr.json``, so that a writer that replaces the store knows whether the old version is still read. Object stores have no such locks: old
versions stay there until ``gramplane clean`` is run. The folder of one version can also be opened directly; the version then has the name
``""``.
"""

import errno
import fcntl
import hashlib
import os
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from .errors import (
    DigestMismatch,
    MissingBlock,
    RunLocked,
    SchemaError,
    StorageError,
    canonical_json,
    check_format,
    format_name,
    parse_json,
)
from .manifest import MANIFEST, read_seal
from .objects import LocalObjects, Objects
from .remote import RemoteObjects
from .source import SOURCE
from .temporary import lock_file

POINTER = "current.json"
ROOT = "zarr.json"
JOURNAL = "journal.jsonl"
GRAMS = "grams"
IN_PLACE = ""
"""Name of a version that was opened by the path of its own folder."""

_NAME = re.compile(r"v[1-9][0-9]{0,8}")
_ARRAY = re.compile(r"(.*/)?(zarr\.json|c/[0-9/]+)")
_TRIES = 20


@dataclass(frozen=True)
class Versions:
    """Content of a pointer: the current version, and the digest of each version that may still exist."""

    current: str
    digests: Mapping[str, str]

    def encode(self) -> bytes:
        """Return the pointer as bytes."""
        said = {"format": format_name("store"), "current": self.current, "versions": dict(self.digests)}
        return canonical_json({**said, "digest": hashlib.sha256(canonical_json(said)).hexdigest()})

    @classmethod
    def decode(cls, data: bytes, where: str) -> "Versions":
        """Read a pointer. Raises SchemaError if it has another format; DigestMismatch if it is damaged."""
        try:
            fields = parse_json(data, where)
        except SchemaError as error:
            raise DigestMismatch(str(error)) from error
        stated = fields.pop("digest", None)
        if stated != hashlib.sha256(canonical_json(fields)).hexdigest():
            raise DigestMismatch(f"{where} does not have the digest {stated!r} it states: it is damaged")
        check_format(fields.get("format"), "store", where, "make it again, or install the version that wrote it")
        current, digests = fields.get("current"), fields.get("versions")
        digests = digests if isinstance(digests, dict) else {}
        if not (isinstance(current, str) and current in digests and all(isinstance(digest, str) for digest in digests.values())):
            raise DigestMismatch(f"{where} does not name a current version from its own list: it is damaged")
        return cls(current, digests)

    def holding(self, digest: str) -> str | None:
        """Return the name of the version with this digest; None if there is none."""
        return next((name for name, stored in self.digests.items() if stored == digest), None)


def read_versions(base: Objects) -> Versions | None:
    """Return the versions of a store, or None if none was ever finished. Raises DigestMismatch if pointer or manifest is damaged."""
    with suppress(MissingBlock):
        return Versions.decode(base.read(POINTER).tobytes(), f"{base.url}/{POINTER}")
    return None if base.size(MANIFEST) is None else Versions(IN_PLACE, {IN_PLACE: read_seal(base)[1]})


def is_finished(base: Objects) -> bool:
    """Return whether there is a finished store, intact or not."""
    return base.size(POINTER) is not None or base.size(MANIFEST) is not None


def version_objects(base: Objects, name: str) -> Objects:
    if name == IN_PLACE:
        return base
    if not _NAME.fullmatch(name):
        raise DigestMismatch(f"{base.url}/{POINTER} names the version {name!r}; it must be v1, v2, …")
    return base.below(name)


@dataclass(frozen=True, eq=False)
class Opened:
    """A version opened for reading, with the digest it must have. On local files, the version is not removed while this object exists."""

    base: Objects
    objects: Objects
    name: str
    digest: str

    def check(self, digest: str) -> None:
        """Compare the digest of the manifest with the expected one. Raises DigestMismatch if they differ."""
        if digest != self.digest:
            pointed = f"{self.base.url}/{POINTER} says {self.digest}"
            raise DigestMismatch(f"{self.objects.url}/{MANIFEST} has the digest {digest}; {pointed}: one of the two files was changed")

    def confirm(self) -> None:
        """Check that the store was not removed, or removed and recreated, since it was opened. Raises DigestMismatch if it was."""
        try:
            versions = read_versions(self.base)
        except StorageError as error:
            raise DigestMismatch(f"{self.base.url}: the store was replaced while it was read: {error}") from error
        if versions is None or versions.digests.get(self.name) != self.digest:
            digests = {} if versions is None else versions.digests
            now = f"now has the digest {digests.get(self.name) or digests[versions.current]}" if versions else "is gone"
            change = f"what was opened had the digest {self.digest}, the store {now}"
            raise DigestMismatch(
                f"{self.base.url} was replaced while it was read: {change}; results from a mixture of both stores are discarded"
            )


def open_version(base: Objects, digest: str | None = None) -> Opened:
    """Follow the pointer once, to the current version or, if ``digest`` is given, to the version with this digest. Raises DigestMismatch if
    that version was replaced and removed.
    """
    versions = None
    for _ in range(_TRIES):
        before, versions = versions, read_versions(base)
        name, expected = _choose_version(base, versions, digest)
        objects = version_objects(base, name)
        fd = _shared_lock(objects)
        if fd is not None or versions == before or not isinstance(objects, LocalObjects):
            opened = Opened(base, objects, name, expected)
            if fd is not None:
                weakref.finalize(opened, os.close, fd).atexit = False
            return opened
    raise MissingBlock(f"{base.url} is being replaced over and over; open it again later")


def _choose_version(base: Objects, found: Versions | None, digest: str | None) -> tuple[str, str]:
    if found is None:
        raise MissingBlock(f"{base.url} has no {MANIFEST}: it is not a store, or writing it was never finished (ingest it again)")
    name = found.current if digest is None else found.holding(digest)
    if name is None:
        stored = found.digests[found.current]
        raise DigestMismatch(f"{base.url} has the digest {stored}, but the reference was made from {digest}: the store was replaced")
    return name, found.digests[name]


def _shared_lock(objects: Objects) -> int | None:
    """Lock a version for reading. Return None if the version was removed or is being removed, or if its file system has no locks."""
    if isinstance(objects, LocalObjects):
        with suppress(OSError):
            return lock_file(objects.root / ROOT, os.O_RDONLY, fcntl.LOCK_SH)
    return None


def is_version(name: str) -> bool:
    """Return whether a folder name is that of a version."""
    return _NAME.fullmatch(name) is not None


def next_version(found: Versions | None, begun: Iterable[str] = ()) -> str:
    """Return the name of the next version, after the existing versions and those that were ``begun``."""
    numbers = [int(name[1:]) for name in (*(found.digests if found else ()), *begun) if _NAME.fullmatch(name)]
    return f"v{1 + max(numbers, default=0)}"


def pointer_tag(base: Objects) -> Mapping[str, Any] | None:
    """Return the metadata that identify the present pointer of an object store; None if there is none, or files are local."""
    return base.about(POINTER) if isinstance(base, RemoteObjects) else None


def publish_version(base: Objects, name: str, digest: str, seen: Mapping[str, Any] | None) -> None:
    """Make a finished version the current one, durably, and remove versions without readers.

    ``seen`` is the `pointer_tag` at the time the version was begun. Raises RunLocked if the pointer of an object store was replaced since.
    """
    versions = read_versions_or_none(base)
    digests = {} if versions is None else dict(versions.digests)
    objects = version_objects(base, name)
    if digests and isinstance(objects, LocalObjects):
        # The old version may go now: a loss of power must not take the new one.
        objects.force()
    content = Versions(name, {**digests, name: digest}).encode()
    if isinstance(base, RemoteObjects):
        if not base.replace(POINTER, content, seen):
            raise RunLocked(f"{base.url} was replaced by another process while this process wrote it; what this process wrote is discarded")
        _clear_begun(base, {*digests, name})
        return
    base.write(POINTER, content, fsync=True)
    if isinstance(base, LocalObjects):
        with suppress(OSError):  # what cannot be removed now is left to the next writer, or to `clean`
            remove_versions(base, replaced_versions(base))


def _clear_begun(base: RemoteObjects, known: set[str]) -> None:
    """Remove the unfinished versions of killed writers. The caller holds the lease of the store and is therefore the only writer."""
    for name in base.folders():
        if is_version(name) and name not in known:
            version_objects(base, name).clear()


def read_versions_or_none(base: Objects) -> Versions | None:
    """Return the result of `read_versions`, but treat a damaged store as a version without a digest, so that it can be replaced."""
    try:
        return read_versions(base)
    except StorageError:
        names = [*([IN_PLACE] if base.size(MANIFEST) is not None else []), *_version_folders(base)]
        return Versions(names[-1], dict.fromkeys(names, "")) if names else None


def _version_folders(base: Objects) -> list[str]:
    """Return the names of all versions that have a manifest, the newest last. The pointer is not consulted."""
    finished = [name for name in base.folders() if _NAME.fullmatch(name) and version_objects(base, name).size(MANIFEST) is not None]
    return sorted(finished, key=lambda name: int(name[1:]))


def replaced_versions(base: Objects) -> list[str]:
    """Return the names of the versions that are no longer current."""
    versions = read_versions(base)
    return [] if versions is None else [name for name in versions.digests if name != versions.current]


def remove_versions(base: Objects, names: list[str]) -> list[str]:
    """Remove versions that are neither current nor being read; return those removed."""
    gone = []
    for name in names:
        with _hold_unread(version_objects(base, name)) as free:
            if free:
                _remove_version(base, name)
                gone.append(name)
    versions = read_versions(base)
    if gone and versions is not None:
        left = {name: digest for name, digest in versions.digests.items() if name not in gone}
        base.write(POINTER, replace(versions, digests=left).encode(), fsync=True)
    return gone


@contextmanager
def _hold_unread(objects: Objects) -> Iterator[bool]:
    """Yield whether a version has no readers, and keep new readers out during the block."""
    fd, is_free = None, True
    if isinstance(objects, LocalObjects):
        try:
            fd = lock_file(objects.root / ROOT)
            is_free = fd is not None
        except OSError as error:
            # Its removal began with this file, when nobody read it.
            is_free = error.errno in (errno.ENOENT, errno.ENOTDIR)
    try:
        yield is_free
    finally:
        if fd is not None:
            os.close(fd)


def version_bytes(base: Objects, name: str) -> int:
    """Return the number of bytes that a version takes in storage."""
    objects = version_objects(base, name)
    return sum(objects.size(key) or 0 for key in _own_keys(objects))


def is_read(base: Objects, name: str) -> bool:
    """Return whether a version is being read, as far as locks show."""
    with _hold_unread(version_objects(base, name)) as free:
        return not free


def _remove_version(base: Objects, name: str) -> None:
    """Remove a version's files: first the file that readers lock, last the manifest that lists the others."""
    objects = version_objects(base, name)
    keys = [key for key in _own_keys(objects) if key not in (ROOT, MANIFEST)]
    for key in (ROOT, *keys, MANIFEST):
        objects.delete(key)
    if isinstance(objects, LocalObjects):
        around = {"", *("/".join(parts[:k]) for key in keys for parts in [key.split("/")] for k in range(1, len(parts)))}
        for folder in sorted(around, key=len, reverse=True):
            with suppress(OSError):
                os.rmdir(objects.root / folder)


def _own_keys(objects: Objects) -> list[str]:
    """Return the keys that a version wrote: the keys in its manifest, and chunks left by a killed writer. If the manifest is damaged,
    return the keys that look like parts of an array.
    """
    there = list(objects.listing())
    try:
        written = set(read_seal(objects)[0])
    except StorageError:
        written = {key for key in there if _ARRAY.fullmatch(key) and not _NAME.fullmatch(key.partition("/")[0])}
    arrays = {key.removesuffix(ROOT) for key in written if key.endswith(f"/{ROOT}")}
    written |= {ROOT, MANIFEST, JOURNAL, SOURCE, "lock"} | {
        key for key in there if "/c/" in key and f"{key.rpartition('/c/')[0]}/" in arrays
    }
    return [key for key in there if key in written or key.startswith(f"{GRAMS}/")]


def _foreign_keys(base: LocalObjects, versions: Versions | None) -> list[str]:
    """Return the files in a store's folder that no version of the store wrote. The versions are those that the pointer lists and those that
    are being written; the latter have a journal.
    """
    begun = [path.name for path in base.root.iterdir() if _NAME.fullmatch(path.name) and (path / JOURNAL).exists()]
    known = {POINTER, "lock"}
    for name in {*(versions.digests if versions else ()), *_version_folders(base), *begun}:
        objects = version_objects(base, name)
        is_unfinished = objects.size(MANIFEST) is None
        known |= {key if name == IN_PLACE else f"{name}/{key}" for key in (objects.listing() if is_unfinished else _own_keys(objects))}
    return sorted(key for key in base.listing() if key not in known)


_SIGNS = {"columns": "a block store", GRAMS: "a Gram store"}


def refuse_other_stores(base: LocalObjects, found: Versions | None, wanted: str = "a block store") -> None:
    """Raise SchemaError before replacing a store of another kind; the message says what is there."""
    current = None if found is None else version_objects(base, found.current)
    if not isinstance(current, LocalObjects):
        return
    kind = next((kind for sign, kind in _SIGNS.items() if (current.root / sign).is_dir()), "a model, or something else")
    if kind != wanted:
        raise SchemaError(f"{base.url} is {kind}, not {wanted}, and is not overwritten; choose another place")


def refuse_foreign_files(base: LocalObjects, found: Versions | None) -> None:
    """Raise SchemaError before replacing a store whose folder holds other files; the message names the first."""
    foreign = _foreign_keys(base, found)
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        files = f"files that are not a store ({foreign[0]}{more}), which are not overwritten"
        raise SchemaError(f"{base.url} is a folder with {files}; move them elsewhere, or choose another place")
