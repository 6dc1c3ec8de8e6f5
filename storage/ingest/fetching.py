"""Sources that lie in an object store or on a web server: copied to scratch, since readers go through a source more than once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DataError, NothingThere, SchemaError, UrlError
from ..objects import check_key, require_space
from ..places import is_local, parse_place
from ..remote import RemoteObjects
from ..temporary import temporary_folder
from ..urls import open_object, open_objects


@contextmanager
def make_local(source: object, parent: str | os.PathLike[str] | None = None, folders: bool = False) -> Iterator[object]:
    """Yield a source that can be read here: itself, or for a URL the path of a copy, which goes with the block. ``parent``: folder for the
    copy, the system's for temporary files by default; ``folders``: take all objects below the URL if there is none of this very name, a
    Zarr array. Raises NothingThere if nothing is at the URL; OutOfSpace if the disk has no room for the copy."""
    if not isinstance(source, str | os.PathLike):
        yield source
    elif is_local(source):
        local = parse_place(source, "source", "source").text
        yield local if isinstance(source, str) else Path(local)
    else:
        # A name nobody can guess, mode 0700.
        with temporary_folder(parent) as folder:
            path = _copy_source(os.fspath(source), folder, folders)
            with _naming_url(path, os.fspath(source)):
                yield str(path)


def _copy_source(url: str, folder: Path, folders: bool) -> Path:
    objects, key = open_object(url)
    # The ending says what is in it; a name such as ".." or "a/b", that only a URL can have, must not lead out of the folder.
    if "/" in key or "\0" in key or key in (".", "..") or len(os.fsencode(key)) > 255:
        raise UrlError(f"source {url!r} has a last part that is no file name")
    path, about = folder / key, objects.about(key)
    if about is not None:
        require_space(folder, int(about["size"]))
        objects.fetch(key, path)
        return path
    below = open_objects(url)
    assert isinstance(below, RemoteObjects)
    keys = list(below.listing()) if folders and parse_place(url).kind == "objects" else []
    if not keys:
        raise NothingThere(f"source {url} does not exist")
    for name in keys:
        target = path / check_key(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        require_space(folder, below.size(name) or 0)
        below.fetch(name, target)
    return path


@contextmanager
def _naming_url(path: Path, url: str) -> Iterator[None]:
    """Let messages name the URL, not the copy."""
    try:
        yield
    except DataError as error:
        if error.file != str(path):
            raise
        raise DataError(error.reason, url, error.line, error.column) from error
    except SchemaError as error:
        if str(path) not in str(error):
            raise
        raise SchemaError(str(error).replace(str(path), url)) from error
