"""Files that a store or run no longer needs, listed before anything is removed."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

POINTER = "current.json"
QUIET_SECONDS = 3600.0  # a file younger than this may belong to a writer at work and is left alone


@dataclass(frozen=True)
class LeftOver:
    """A file that is no longer needed: path, bytes and reason."""

    path: Path
    nbytes: int
    why: str


def left_overs(root: Path) -> list[LeftOver]:
    """Return the files that can be removed in a store, in a run directory, or in a folder that contains stores and runs.

    These are temporary files of killed processes, files in a finished store or model that are not listed in the manifest, and broadcast
    arrays of a finished run. Files changed within the last hour, checkpoints, histories, and stores without a manifest (ingests that can
    resume) are kept.
    """
    limit = time.time() - QUIET_SECONDS
    items: dict[Path, LeftOver] = {}
    for folder in [root, *(path for path in sorted(root.rglob("*")) if path.is_dir() and not path.is_symlink())]:
        for file, why in _in_folder(folder):
            stat = file.lstat()
            if stat.st_mtime < limit:
                items.setdefault(file, LeftOver(file, stat.st_size, why))
    return list(items.values())


def _in_folder(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.iterdir()):
        if file.name.startswith(".") and file.name.endswith(".tmp") and file.is_file():
            yield file, "left by a writer that was killed"
    if (folder / "manifest.json").exists() and (folder / "zarr.json").exists():
        yield from ((file, "not listed in the store's manifest") for file in _unlisted_files(folder))
    if (folder / "config.json").exists() and (folder / "summary.json").exists():
        yield from ((file, "array of a finished run") for file in sorted((folder / "arrays").glob("*.npy")))


def _unlisted_files(store: Path) -> list[Path]:
    from ..storage.manifest import read_seal
    from ..storage.urls import open_objects

    listed, _ = read_seal(open_objects(store))
    known = {*listed, "manifest.json"}
    names = ((file, file.relative_to(store)) for file in sorted(store.rglob("*")) if file.is_file())
    return [file for file, name in names if name.as_posix() not in known]


@dataclass(frozen=True)
class OldVersion:
    """A replaced version of a store: store, name, bytes, and whether a process still reads it."""

    store: str
    name: str
    nbytes: int
    is_read: bool


def old_versions(root: str) -> list[OldVersion]:
    """Return the replaced versions of the store at a path or URL, or of the stores in a folder."""
    from ..storage import versions
    from ..storage.places import is_local
    from ..storage.urls import open_objects

    old: list[OldVersion] = []
    for place in [root] if not is_local(root) else [str(file.parent) for file in sorted(Path(root).rglob(POINTER))]:
        base = open_objects(place)
        names = versions.replaced_versions(base)
        old += [OldVersion(place, name, versions.version_bytes(base, name), versions.is_read(base, name)) for name in names]
    return old


def remove_old_versions(found: Iterable[OldVersion]) -> None:
    """Remove replaced versions, except those that a process still reads."""
    from ..storage.urls import open_objects
    from ..storage.versions import remove_versions

    for item in found:
        remove_versions(open_objects(item.store), [item.name])
