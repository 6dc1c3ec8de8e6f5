"""Locks of runs and stores: flock on local files (released by the kernel when the owner dies), a lease on object stores."""

import errno
import fcntl
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .errors import Foreign, RunLocked, SchemaError, StorageError, canonical_json, load_json, space_for
from .temporary import locked_files

LOCK = "lock"
"""Name of the lock file in a folder, or of the lock object below a URL, that a writer holds."""


def _describe_holder() -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}


def _locked_error(where: str, found: dict[str, Any]) -> RunLocked:
    pid, host, since = (found.get(name, "unknown") for name in ("pid", "host", "since"))
    return RunLocked(f"{where} is held by process {pid} on {host} since {since}; wait for it to end, or end it")


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file. The file is never removed: its content names the holder, and the lock ends with the process.

    Raises RunLocked immediately if another process (or another block of this one) holds it, naming pid, host and start time. Raises
    StorageError if the file is a symbolic link, because locking would overwrite its target.
    """
    fd = _open_lock(path)
    locked_files.add(fd)
    try:
        with space_for(path, 128):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _locked_error(str(path.parent), _read_holder(os.pread(fd, 4096, 0))) from error
            os.ftruncate(fd, 0)
            os.pwrite(fd, canonical_json(_describe_holder()), 0)
        yield
    finally:
        if fd in locked_files:
            locked_files.remove(fd)
            fcntl.flock(fd, fcntl.LOCK_UN)  # closing would not do: a process that starts just now has the file open until its exec
            os.close(fd)


_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def lock_unless_done(path: Path, done: Callable[[], bool]) -> Iterator[bool]:
    """Hold `file_lock`. If writing is impossible (a read-only disk, for example) and all work is done, continue without the lock. Yields
    whether the lock is held.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path))
            is_locked = True
        except OSError as error:
            if error.errno not in _UNWRITABLE or not done():
                raise
            is_locked = False
        yield is_locked


def _open_lock(path: Path) -> int:
    try:
        with space_for(path, 128):
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP and path.is_symlink():
            raise StorageError(f"{path} is a symbolic link; a lock is a plain file: remove the link") from error
        raise


def is_lock(path: Path) -> bool:
    """Return whether a file is one of gramplane's locks: empty, as when it is created, or naming its holder."""
    try:
        with path.open("rb") as file:
            text = file.read(4096)
    except OSError:
        return False
    return not text or "pid" in _read_holder(text)


def _read_holder(text: bytes) -> dict[str, Any]:
    try:
        fields = load_json(text, "the lock")
    except SchemaError:
        return {}
    return fields if isinstance(fields, dict) else {}


def object_version(meta: Foreign) -> dict[str, str]:
    """Return the version fields for a conditional put, taken from the metadata that an object store returns for an object."""
    return {name: meta[name] for name in ("e_tag", "version") if meta.get(name) is not None}


class Lease:
    """A lock on an object store: an object created by conditional put and renewed every ``beat`` seconds by a thread.

    A process that waits for a lease takes it over if the lease is not renewed for three heartbeats, as measured by the waiting process's
    own monotonic clock. The put is conditional on the object's version, so exactly one of several waiting processes succeeds.
    """

    def __init__(self, store: Foreign, key: str, beat: float = 10.0) -> None:
        self.store, self.key, self.beat = store, key, beat
        self._version: Foreign = None
        self._holder: dict[str, Any] = {}
        self._renewed = 0.0
        self._lost, self._stop = threading.Event(), threading.Event()

    @contextmanager
    def held(self, wait: bool = False) -> Iterator["Lease"]:
        """Hold the lease. Raises RunLocked, naming pid, host and start time, if another process holds it.

        With ``wait``, an existing lease is watched for three heartbeats and taken over if it is not renewed; otherwise the call fails
        immediately.
        """
        self._acquire(wait)
        self._stop.clear()
        keeper = threading.Thread(target=self._renew, name="gramplane-lease", daemon=True)
        keeper.start()
        try:
            yield self
        finally:
            self._stop.set()
            keeper.join()
            if not self._lost.is_set():
                self.store.delete(self.key)

    def check(self) -> None:
        """Raise RunLocked if another process took over the lease; call this before a write that must happen only once."""
        if self._lost.is_set():
            raise _locked_error(self.key, _read_holder(self._read()[0]))

    def _read(self) -> tuple[bytes, Any]:
        stored = self.store.get(self.key)
        return bytes(stored.bytes()), object_version(stored.meta)

    def _put(self, mode: Foreign) -> bool:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        content = canonical_json({**self._holder, "token": secrets.token_hex(8)})
        try:
            result = self.store.put(self.key, content, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return False
        self._version = object_version(result)
        self._renewed = time.monotonic()
        return True

    def _acquire(self, wait: bool) -> None:
        self._holder = _describe_holder()
        if self._put("create"):
            return
        try:
            content, first = self._read()
            silent = wait and self._is_silent(first)
        except FileNotFoundError:  # released while we looked
            content, first, silent = b"", "create", True
        if not (silent and self._put(first)):
            raise _locked_error(self.key, _read_holder(content))

    def _is_silent(self, first: Foreign) -> bool:
        deadline = time.monotonic() + 3 * self.beat
        while time.monotonic() < deadline:
            time.sleep(self.beat / 4)
            if self._read()[1] != first:
                return False
        return True

    def _renew(self) -> None:
        from obstore.exceptions import BaseError

        while not self._stop.wait(self.beat):
            try:
                is_renewed = self._put(self._version)
            except BaseError:  # the store did not answer: the lease is still ours until others may count us as silent
                is_renewed = time.monotonic() - self._renewed < 2 * self.beat
            if not is_renewed:
                self._lost.set()
                return
