"""Disks that are full or may not be written: mounted where only chosen processes see it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any


class NotPermitted(Exception):
    """This user may not mount anything, not even in a name space of its own."""


class SmallDisk:
    """A tmpfs over a folder, in a mount name space that a keeper process holds open.

    Parameters
    ----------
    folder
        Where it is mounted; must exist and be empty.
    nbytes
        Its size.
    """

    def __init__(self, folder: Path, nbytes: int) -> None:
        script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && echo mounted && exec cat'
        words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(nbytes), str(folder)]
        try:
            self._keeper = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except FileNotFoundError as error:
            raise NotPermitted(str(error)) from error
        assert self._keeper.stdout is not None
        if not self._keeper.stdout.readline():
            self.close()
            raise NotPermitted("unshare or mount")
        self.folder = folder

    def __enter__(self) -> SmallDisk:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmount it, with everything on it."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            assert pipe is not None
            pipe.close()
        self._keeper.wait(10)

    @property
    def prefix(self) -> list[Any]:
        """Words before a command that make it see the disk."""
        return ["nsenter", "-t", self._keeper.pid, "-U", "-m", "--preserve-credentials", "--"]

    @property
    def seen(self) -> Path:
        """The disk as this process sees it."""
        return Path(f"/proc/{self._keeper.pid}/root{self.folder}")

    @property
    def free(self) -> int:
        """Bytes free."""
        stat = os.statvfs(self.seen)
        return stat.f_bavail * stat.f_frsize

    def fill(self, leave: int) -> None:
        """Write a file that leaves ``leave`` bytes free."""
        (self.seen / "ballast").write_bytes(bytes(self.free - leave))

    def relieve(self) -> None:
        """Remove that file."""
        (self.seen / "ballast").unlink()


_READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'


def read_only(folder: Path) -> list[Any]:
    """Return the words before a command that let it see a folder on a disk that may not be written.

    Raises
    ------
    NotPermitted
        If this user may not mount anything.
    """
    prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _READ_ONLY, "sh", str(folder)]
    try:
        tried = subprocess.run([*prefix, "touch", str(folder / ".touched")], capture_output=True, check=False)
    except FileNotFoundError as error:
        raise NotPermitted(str(error)) from error
    if tried.returncode == 0 or b"Read-only" not in tried.stderr:
        raise NotPermitted("unshare or mount")
    return prefix
