"""What a store or run no longer needs, listed before anything is removed."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

QUIET_SECONDS = 3600.0
"""A file younger than this may belong to a writer at work and is left alone."""


@dataclass(frozen=True)
class LeftOver:
    """A file nobody needs: where it is, its bytes, and why it is not needed."""

    path: Path
    nbytes: int
    why: str


def left_overs(root: Path, now: float | None = None) -> list[LeftOver]:
    """Return what can be removed below ``root``.

    Parameters
    ----------
    root
        A store, a run directory, or a folder of them.
    now
        Present time in seconds; files written in the hour before it are left out.

    Notes
    -----
    Temporary files of killed writers; files inside a finished store or model that its manifest does not list; broadcast arrays of a
    finished run. Checkpoints, histories and stores without a manifest (an ingest that can be continued) stay.
    """
    limit = (time.time() if now is None else now) - QUIET_SECONDS
    found: dict[Path, LeftOver] = {}
    for folder in [root, *(path for path in sorted(root.rglob("*")) if path.is_dir() and not path.is_symlink())]:
        for file, why in _in_folder(folder):
            stat = file.lstat()
            if stat.st_mtime < limit:
                found.setdefault(file, LeftOver(file, stat.st_size, why))
    return list(found.values())


def _in_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") and file.name.endswith(".tmp") and file.is_file():
            yield file, "left by a writer that was killed"
    if (folder / "manifest.json").exists() and (folder / "zarr.json").exists():
        yield from ((file, "not listed in the store's manifest") for file in _unlisted(folder))
    if (folder / "config.json").exists() and (folder / "summary.json").exists():
        yield from ((file, "array of a finished run") for file in sorted((folder / "arrays").glob("*.npy")))


def _unlisted(store: Path) -> list[Path]:
    from ..storage.seal import read_seal
    from ..storage.urls import open_objects

    listed, _ = read_seal(open_objects(store))
    kept = {store / key for key in listed} | {store / "manifest.json"}
    return [file for file in sorted(store.rglob("*")) if file.is_file() and file not in kept]


def remove(found: Iterable[LeftOver]) -> None:
    """Remove the files of a list made by `left_overs`."""
    for item in found:
        item.path.unlink(missing_ok=True)
