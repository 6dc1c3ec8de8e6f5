"""The scratch folder of one ingest: its lock, its journal of finished steps, and its removal.

If a process is killed, nothing that it wrote is lost, because the written pages are still in the system's memory. If the computer reboots,
written data may be lost. The journal therefore contains the id of the boot in which it was written, and a scratch folder of an earlier boot
is discarded. For this reason data need not be flushed to disk during the ingest.
"""

import fcntl
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from ..errors import OutOfSpace, RunLocked, SchemaError, space_for
from ..locks import file_lock
from ..objects import read_json_lines

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FORMAT = "gramplane.scratch/1"
_LOCK, _JOURNAL = "lock", "journal.jsonl"
_PRIVATE = re.compile(r"gramplane-[0-9a-f]{16}-\w+\.ingest")
_KEPT_SECONDS = 86_400.0
"""How long, in seconds, the scratch of a failed ingest into an object store is kept for the next attempt."""


def boot_id() -> str:
    """Return an identifier of the computer and its current boot."""
    boot = _BOOT.read_text().strip() if _BOOT.exists() else str(int(psutil.boot_time()))
    return f"{socket.gethostname()} {boot}"


class Scratch:
    """A locked folder with a journal; use it as a context manager.

    The folder is created if absent; it must be empty or a scratch folder of gramplane. A journal of another ``identity`` (source and
    options), or of another boot, is discarded together with all other files. ``resume`` keeps the files that a killed ingest left;
    ``resumed`` says whether there were any. Raises RunLocked if another process is writing here; SchemaError if the folder holds other
    files.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any], *, resume: bool) -> None:
        self.folder = folder
        self._held = ExitStack()
        _lock_folder(folder, self._held)
        self._head = {"format": _FORMAT, "identity": dict(identity), "boot": boot_id()}
        try:
            self._notes = self._read() if resume else None
            self.resumed = self._notes is not None
            if self._notes is None:
                self.restart()
        except BaseException:
            # Who keeps the error keeps this object, and with it the lock.
            self._held.close()
            raise

    def restart(self) -> None:
        """Discard everything that was done."""
        self.resumed = False
        self._empty()
        self._notes = []
        self._append(self._head)

    def _read(self) -> list[dict[str, Any]] | None:
        """Return the journal's entries, or None if it belongs to other data or options, or was begun before the last reboot."""
        notes = read_json_lines(self.folder / _JOURNAL)
        return notes[1:] if notes and notes[0] == json.loads(json.dumps(self._head)) else None

    def _append(self, note: Mapping[str, Any]) -> None:
        # the leading line end closes a line torn by a kill
        line = b"\n" + json.dumps(note).encode()
        path = self.folder / _JOURNAL
        with space_for(path, len(line)), path.open("ab") as file:
            file.write(line)

    def note(self, step: str, **values: Any) -> None:
        """Add a finished step to the journal."""
        assert self._notes is not None
        entry = {"step": step, **values}
        self._append(entry)
        self._notes.append(entry)

    def notes(self, step: str) -> list[dict[str, Any]]:
        """Return all entries of a step, oldest first."""
        return [note for note in self._notes or [] if note.get("step") == step]

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.folder / name

    def remove(self) -> None:
        """Delete the folder, with its lock last, so that a later ingest recognises the remains of a killed process."""
        with suppress(OSError):
            self._empty()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _empty(self) -> None:
        for path in self.folder.iterdir():
            if path.name != _LOCK:
                path.unlink()

    def __enter__(self) -> "Scratch":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # Invalid input stays invalid, so nothing is worth keeping; a full disk, an interrupt or a bug leaves work to continue.
        if kind is None or (issubclass(kind, ValueError) and not issubclass(kind, OutOfSpace)):
            self.remove()
        self._held.close()


def _lock_folder(folder: Path, held: ExitStack) -> None:
    while True:
        with space_for(folder, 0):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = {path.name for path in folder.iterdir()}
        if names and _LOCK not in names:
            raise SchemaError(f"scratch {folder} holds foreign files ({min(names)}, …); name another place")
        held.enter_context(file_lock(folder / _LOCK))
        # The last holder may have removed the folder, and our lock file with it, between our open and our lock.
        if (folder / _LOCK).exists():
            return
        held.close()


def private_folder(parent: Path, prefix: str, *, make: bool) -> Path:
    """Return this user's folder from an earlier attempt, or else a new folder with a random name, which only this user may access. The new
    folder is created only if ``make`` is true.

    A predictable name would let another user of the computer put a folder or a link there first. ``prefix`` is the start of the name and
    indicates the content of the folder.
    """
    if not make:
        return _own_folder(parent, prefix) or parent / f"{prefix}.ingest"
    with space_for(parent, 0):
        parent.mkdir(parents=True, exist_ok=True)
        # Of two that begin together the second must find what the first made, whose lock tells them apart.
        with _take_turns(parent):
            _sweep_abandoned(parent, prefix)
            return _own_folder(parent, prefix) or Path(tempfile.mkdtemp(prefix=prefix, suffix=".ingest", dir=parent))


def _own_folder(parent: Path, prefix: str) -> Path | None:
    """Return a folder of this user that no other user may enter, or None."""
    return next((path for path in sorted(parent.glob(f"{prefix}*.ingest")) if _is_private(path)), None)


def _is_private(path: Path) -> bool:
    with suppress(FileNotFoundError):
        about = path.lstat()
        return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o077
    return False


def _sweep_abandoned(parent: Path, prefix: str) -> None:
    """Remove what this user's failed ingests into other stores left, if nothing was written for a day, or if it is from before the last
    boot.
    """
    oldest = max(time.time() - _KEPT_SECONDS, psutil.boot_time())
    for path in parent.iterdir():
        if _PRIVATE.fullmatch(path.name) and not path.name.startswith(prefix) and _is_private(path):
            with suppress(OSError):
                if max(part.stat().st_mtime for part in (path, *path.iterdir())) < oldest:
                    sweep_scratch(path)


@contextmanager
def _take_turns(parent: Path) -> Iterator[None]:
    """Hold a lock on the folder for a short time. If another user holds the lock for more than a second, continue without the lock."""
    fd = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(100):
            with suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.01)
        yield
    finally:
        os.close(fd)


def sweep_scratch(folder: Path) -> None:
    """Remove the scratch folder of an ingest that was killed after its last step. Other folders, and folders in use, are not removed."""
    if folder.is_dir():
        with suppress(RunLocked, SchemaError), Scratch(folder, {}, resume=False):
            pass
