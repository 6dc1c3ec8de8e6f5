"""Temporary folders of one process: mode 0700, random name, removed at exit. Folders of a killed process are removed at the next start.

Ownership of a folder is determined by its lock, never by its age: a file in it is locked (flock) as long as its owner lives, and the kernel
releases the lock with the process. All of gramplane, including the cluster layer, takes temporary folders from here, so this module imports
only the standard library.
"""

import fcntl
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX, _SUFFIX = "gramplane-", ".tmp"
_NAME = re.compile(r"gramplane-[a-z0-9_]{8}\.tmp")
_OWNER = "owner.lock"

locked_files: set[int] = set()
"""Descriptors of the files that this process keeps locked."""


def _close_in_child() -> None:
    # flock belongs to the open file, which a forked child shares: without this a child would keep what a killed owner held
    for fd in locked_files:
        os.close(fd)
    locked_files.clear()


os.register_at_fork(after_in_child=_close_in_child)


@contextmanager
def temporary_folder(parent: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Yield a new private folder (default: below ``TMPDIR``), after removing the folders of killed processes there."""
    sweep_folders(parent)
    folder, fd = _make_folder(parent)
    locked_files.add(fd)
    try:
        yield folder
    finally:
        if fd in locked_files:
            _remove_folder(folder)
            locked_files.remove(fd)
            os.close(fd)


def sweep_folders(parent: str | os.PathLike[str] | None = None) -> list[Path]:
    """Remove the folders below ``parent`` whose owners are gone; return them.

    Folders of living owners, of other users and of other programs are kept: our folders have a fixed form of name and hold our lock.
    """
    parent_folder = Path(tempfile.gettempdir() if parent is None else parent)
    try:
        owned = [Path(entry) for entry in os.scandir(parent_folder) if _NAME.fullmatch(entry.name) and _is_own(entry)]
    except OSError:
        return []
    return [folder for folder in sorted(owned) if _sweep_folder(folder)]


def _is_own(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:  # gone meanwhile
        return False


def _make_folder(parent: str | os.PathLike[str] | None) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, suffix=_SUFFIX, dir=parent))
        # Another process that sweeps may take the folder for abandoned before it is locked: then a new one is made.
        with suppress(FileNotFoundError):
            fd = lock_file(folder / _OWNER, os.O_RDWR | os.O_CREAT)
            if fd is not None:
                return folder, fd


def lock_file(path: Path, flags: int = os.O_RDWR, kind: int = fcntl.LOCK_EX) -> int | None:
    """Open and lock a file; return None if another process has locked it, or removed it meanwhile."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    is_ours = False
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
        is_ours = stat.S_ISREG(os.fstat(fd).st_mode) and os.path.samestat(os.fstat(fd), os.lstat(path))
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        if not is_ours:
            os.close(fd)
    return fd if is_ours else None


def _sweep_folder(folder: Path) -> bool:
    try:
        fd = lock_file(folder / _OWNER)
    except FileNotFoundError:
        # Its owner was killed (or is) between making the folder and locking it: then it is empty, and only then this removes it.
        with suppress(OSError):
            folder.rmdir()
            return True
        return False
    except OSError:
        return False
    if fd is None:
        return False
    try:
        return _remove_folder(folder)
    finally:
        os.close(fd)


def _remove_folder(folder: Path) -> bool:
    """Remove a folder, its lock last. If it cannot be removed completely now, the next start finds the lock and removes the rest."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name == _OWNER:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        if [path.name for path in folder.iterdir()] == [_OWNER]:
            (folder / _OWNER).unlink()
            folder.rmdir()
            return True
    return False
