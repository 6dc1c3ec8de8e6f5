"""Whole objects addressed by key, as local files; `remote.py` has the version for object stores.

Both modules write exactly the bytes of Zarr's ``bytes`` codec, so any Zarr library can read them.
"""

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from .errors import DigestMismatch, Json, MissingBlock, OutOfSpace, SchemaError, space_for
from .locks import LOCK, file_lock

Bytes = npt.NDArray[np.uint8]
_KEY = re.compile(r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,128}(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]{1,128})*")
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


def as_bytes(data: npt.NDArray | bytes) -> Bytes:
    """View a C-contiguous array or a bytes object as uint8 without copying. Other arrays are rejected, because reading into a copy would
    have no effect.
    """
    return np.frombuffer(data, dtype=np.uint8)


def total_bytes(*parts: npt.NDArray | bytes) -> int:
    return sum(len(part) if isinstance(part, bytes) else part.nbytes for part in parts)


def check_key(key: str) -> str:
    """Return ``key`` if each of its parts is a name in [A-Za-z0-9._-]{1,128} other than "." and "..". Raises SchemaError otherwise."""
    if not _KEY.fullmatch(key):
        raise SchemaError(f"object key {key!r}: every part between slashes must match [A-Za-z0-9._-]{{1,128}} and not be '.' or '..'")
    return key


class Objects(Protocol):
    """A flat collection of byte objects, addressed by key."""

    url: str

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if it is absent."""

    def read(self, key: str) -> Bytes:
        """Return the content of an object."""
        ...

    def read_into(self, key: str, out: Bytes, offset: int, nbytes: int) -> None:
        """Fill ``out`` with the bytes from ``offset`` on, after checking that the object has ``nbytes`` bytes."""

    def write(self, key: str, *parts: npt.NDArray | bytes, fsync: bool = False) -> None:
        """Replace an object, atomically, by the concatenated parts."""

    def delete(self, key: str) -> None:
        """Remove an object if it exists."""

    def listing(self) -> Iterator[str]:
        """Yield all keys, in no particular order."""
        ...

    def clear(self) -> None:
        """Remove every object."""

    def below(self, folder: str) -> "Objects":
        """Return the objects below a folder: those whose keys begin with it."""
        ...

    def folders(self) -> list[str]:
        """Return the names of the folders directly below the URL."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Hold the lock of this location. Raises RunLocked if another process holds it or took it over meanwhile."""
        ...


class LocalObjects:
    """Objects as files below a folder that is created by the first write. Files are written under a temporary name and renamed, and read by
    positional reads.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self._inside: set[str] = set()

    def _path(self, key: str) -> str:
        path = f"{self.url}/{check_key(key)}"
        folder = path[: path.rindex("/")]
        if folder not in self._inside:
            self._check_inside(folder)
        return path

    def _check_inside(self, folder: str) -> None:
        root, real = os.path.realpath(self.url), os.path.realpath(folder)
        if real != root and not real.startswith(root + os.sep):
            raise SchemaError(f"{folder} is a symbolic link to {real}, outside the store {root}, which is not allowed")
        if os.path.isdir(folder):
            self._inside.add(folder)

    def _open(self, key: str) -> int:
        path = self._path(key)
        try:
            # Without waiting: nobody would ever write to a pipe that stands where a file was.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingBlock(f"{path} is absent: the store is incomplete or damaged") from error
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise SchemaError(f"{path} is a symbolic link: a store holds plain files only") from error
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise MissingBlock(f"{path} is not a plain file: the object that was written there is gone, the store is damaged")
        return fd

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if it is absent."""
        try:
            return os.lstat(self._path(key)).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, key: str) -> Bytes:
        """Return the content of an object."""
        fd = self._open(key)
        try:
            out = np.empty(os.fstat(fd).st_size, dtype=np.uint8)
            _read_fully(fd, out, 0, key)
        finally:
            os.close(fd)
        return out

    def read_into(self, key: str, out: Bytes, offset: int, nbytes: int) -> None:
        """Fill ``out`` with the bytes from ``offset`` on, after checking that the object has ``nbytes`` bytes."""
        fd = self._open(key)
        try:
            size = os.fstat(fd).st_size
            if size != nbytes:
                raise wrong_length(self.url, key, size, nbytes)
            _read_fully(fd, out, offset, key)
        finally:
            os.close(fd)

    def write(self, key: str, *parts: npt.NDArray | bytes, fsync: bool = False) -> None:
        """Replace an object atomically: temporary name, optional fsync of file and folder, rename."""
        path = self._path(key)
        try:
            write_atomic(path, parts, fsync=fsync)
        except IsADirectoryError as error:
            raise MissingBlock(f"{path} is a folder where an object belongs: the store is damaged; remove the folder") from error

    def delete(self, key: str) -> None:
        Path(self._path(key)).unlink(missing_ok=True)

    def listing(self) -> Iterator[str]:
        """Yield all keys, in no particular order, without temporary files."""
        for folder, _, files in os.walk(self.url):
            prefix = os.path.relpath(folder, self.url).replace(os.sep, "/")
            for name in files:
                if not _TEMPORARY.fullmatch(name):
                    yield name if prefix == "." else f"{prefix}/{name}"

    def force(self) -> None:
        """Flush every file and folder to the disk, including those written without fsync."""
        for folder, _, files in os.walk(self.url):
            for name in files:
                _sync(os.path.join(folder, name), os.O_NOFOLLOW)
            sync_folder(folder)

    def clear(self) -> None:
        """Remove the folder with everything in it, if it exists."""
        if self.root.exists():
            shutil.rmtree(self.url)
        self._inside.clear()

    def below(self, folder: str) -> "LocalObjects":
        return LocalObjects(self.root / folder)

    def folders(self) -> list[str]:
        """Return the names of the folders directly below."""
        return [path.name for path in self.root.iterdir() if path.is_dir()] if self.root.is_dir() else []

    def held(self) -> AbstractContextManager[None]:
        """Hold the lock of the folder (see `file_lock`)."""
        return file_lock(self.root / LOCK)


def write_atomic(path: str, parts: tuple[npt.NDArray | bytes, ...], *, fsync: bool) -> None:
    """Write the parts to a temporary file next to ``path`` and rename it. On failure, such as OutOfSpace, nothing is left."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.tmp")
    try:
        with space_for(path, total_bytes(*parts)):
            _write_parts(temporary, folder, parts, fsync)
            os.rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):  # what cannot be removed, on a disk that became read-only say, must not hide what went wrong
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename == temporary:
            error.filename = path
        raise
    if fsync:
        sync_folder(folder)


def _existing_folder(path: str | os.PathLike[str]) -> Path:
    there = Path(os.path.abspath(path))
    while not there.exists() and there != there.parent:
        there = there.parent
    return there


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Return the free bytes on the disk of ``path``, which need not exist yet."""
    return shutil.disk_usage(_existing_folder(path)).free


def require_space(path: str | os.PathLike[str], needed: int) -> None:
    """Raise OutOfSpace, before work starts, if fewer than ``needed`` bytes are free on the disk of ``path``, which need not exist yet."""
    if free_bytes(path) < needed:
        raise OutOfSpace(os.fspath(path), needed)


def require_writable(path: str | os.PathLike[str]) -> None:
    """Raise the operating system's OSError, before work starts, if writing at a path, or below its nearest existing folder, is
    not allowed.
    """
    existing = _existing_folder(path)
    if not os.access(existing, os.W_OK):
        number = errno.EROFS if os.statvfs(existing).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number), os.fspath(path))


def _write_parts(temporary: str, folder: str, parts: tuple[npt.NDArray | bytes, ...], fsync: bool) -> None:
    fd = _create_file(temporary, folder)
    try:
        for part in parts:
            write_all(fd, part)
        if fsync:
            os.fsync(fd)
    finally:
        os.close(fd)


def _create_file(temporary: str, folder: str) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(temporary, flags, 0o666)
    except FileNotFoundError:
        os.makedirs(folder, exist_ok=True)
        return os.open(temporary, flags, 0o666)


def write_all(fd: int, data: npt.NDArray | bytes) -> None:
    """Write every byte of ``data``, in several calls if the system requires it."""
    view = as_bytes(data).data
    while view.nbytes:
        view = view[os.write(fd, view) :]


def sync_folder(folder: str) -> None:
    """Make renames inside a folder durable."""
    _sync(folder, os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_digest(path: str | os.PathLike[str]) -> str:
    """Return the sha256 of a file."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json_lines(path: Path) -> list[Json] | None:
    """Return the values of a file of JSON lines, without an incomplete last line; None if the file does not exist."""
    if not path.exists():
        return None
    values: list[Json] = []
    for line in path.read_bytes().split(b"\n"):
        with suppress(ValueError, RecursionError):
            values.append(json.loads(line))
    return values


def is_temporary_name(name: str) -> bool:
    """Return whether this is the name of a temporary file of `write_atomic`."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep_temporaries(root: Path) -> int:
    """Remove temporary files below ``root`` left by a killed writer; return their number."""
    orphans = [Path(folder, name) for folder, _, files in os.walk(root) for name in files if _TEMPORARY.fullmatch(name)]
    for orphan in orphans:
        orphan.unlink(missing_ok=True)
    return len(orphans)


def _read_fully(fd: int, out: Bytes, offset: int, key: str) -> None:
    view = out.data
    while view.nbytes:
        got = os.preadv(fd, [view], offset)
        if got == 0:
            raise DigestMismatch(f"object {key} ends at byte {offset}; {view.nbytes} more bytes were expected")
        view, offset = view[got:], offset + got


def wrong_length(url: str, key: str, found: int, expected: int) -> DigestMismatch:
    """Build the error for an object of the wrong length, naming array, chunk and byte range."""
    return DigestMismatch(f"{url}: {describe_key(key)}, bytes 0:{expected}: the object has {found} bytes instead of {expected}")


def describe_key(key: str) -> str:
    """Return the array and the chunk index of an object key, as text."""
    array, mark, index = key.partition("/c/")
    return f"array {array}, chunk {index.replace('/', ',')}" if mark else f"object {key}"
