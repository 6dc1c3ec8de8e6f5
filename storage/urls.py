"""Locations of stores: checked names, and one interface for local folders and object-store URLs."""

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .errors import NothingThere, SchemaError, UrlError, space_for
from .objects import LocalObjects, Objects
from .places import parse_place
from .remote import RemoteObjects, connect_store
from .temporary import temporary_folder
from .versions import is_finished

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_remotes: dict[str, RemoteObjects] = {}


def check_name(name: str, what: str = "name") -> str:
    """Return ``name`` if it is a valid identifier, [A-Za-z0-9._-]{1,128} and neither "." nor "..". Raises SchemaError otherwise."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or set(name) == {"."}:
        raise SchemaError(f"{what} is {name!r}; it must match [A-Za-z0-9._-]{{1,128}} and not consist of dots")
    return name


def local_path(url: str | os.PathLike[str]) -> Path | None:
    """Return the absolute path of a local URL (a path or ``file://``); None for an object store or web server."""
    parsed = parse_place(url)
    return Path(os.path.abspath(parsed.text)) if parsed.kind in ("path", "file") else None


def has_cells(folder: Path) -> bool:
    """Return whether a folder is AnnData in the form of Zarr, by what is written at its root."""
    root = next((path for name in (".zattrs", "zarr.json") if (path := folder / name).is_file()), None)
    try:
        found = {} if root is None else json.loads(root.read_bytes())
        return found.get("attributes", found).get("encoding-type") == "anndata"
    except (ValueError, AttributeError):  # whatever it is
        return False


def refuse_foreign(url: str | os.PathLike[str]) -> None:
    """Raise SchemaError for a local path that was never a store, so that it is not reported as a damaged store."""
    path = local_path(url)
    if path is not None and path.is_file():
        raise SchemaError(f"{url} is a file, not a block store; `gramplane ingest {url} STORE` makes one of it")
    parts = ("current.json", "manifest.json", "zarr.json", "columns", "v1")
    if path is not None and path.is_dir() and (has_cells(path) or not any((path / part).exists() for part in parts)):
        raise SchemaError(f"{url} is a folder, but not a block store; `gramplane ingest FILE STORE` makes one")


def open_objects(url: str | os.PathLike[str]) -> Objects:
    """Return the objects below a path or URL (see `parse_place`); clients of object stores are kept until the process ends."""
    path = local_path(url)
    return LocalObjects(path) if path is not None else _remote_objects(parse_place(url).text)


def _remote_objects(text: str) -> RemoteObjects:
    if text not in _remotes:
        _remotes[text] = RemoteObjects(text, connect_store(text))
    return _remotes[text]


def open_object(url: str) -> tuple[RemoteObjects, str]:
    """Return the parent collection of an object in an object store or web server, and its key. Raises UrlError if the URL names only a
    bucket.
    """
    text = parse_place(url).text
    parent, _, key = text.rpartition("/")
    if not key or "://" not in parent or parent.endswith("/"):
        raise UrlError(f"url {text!r} names no object in its bucket")
    return _remote_objects(parent), unquote(key)


def holds_store(url: str | os.PathLike[str]) -> bool:
    """Return whether there is a finished store at a path or URL."""
    return is_finished(open_objects(url))


def require_something(url: str, what: str) -> None:
    """Raise NothingThere if there is nothing at a URL of an object store. A web server cannot list objects and is not checked."""
    objects = open_objects(url)
    if not isinstance(objects, RemoteObjects) or parse_place(url).kind == "web" or objects.any():
        return
    parent, _, key = parse_place(url).text.rpartition("/")
    if parent.endswith("/") or open_object(url)[0].about(unquote(key)) is None:
        raise NothingThere(f"{what} {url} does not exist")


def describe_source(url: str) -> Mapping[str, Any]:
    """Return the metadata of an object to be read (see `RemoteObjects.about`). Raises NothingThere if it does not exist."""
    objects, key = open_object(url)
    about = objects.about(key)
    if about is None:
        raise NothingThere(f"source {url} does not exist")
    return about


def object_mark(url: str) -> str:
    """Return a text that changes whenever an object is rewritten. It consists of the object's size and tag, or size and time if there is no
    tag. Raises NothingThere if the object does not exist.
    """
    about = describe_source(url)
    return f"{about['size']}-{about.get('e_tag') or about['last_modified']}"


@contextmanager
def whole_file(url: str | os.PathLike[str], nbytes: int) -> Iterator[Path]:
    """Yield a path for writing about ``nbytes``; at the end of the block the file replaces the target. If the block raises, nothing is
    left.
    """
    path = local_path(url)
    if path is None:
        objects, key = open_object(os.fspath(url))
        with temporary_folder() as folder, space_for(folder, nbytes):
            made = folder / "file"
            yield made
            objects.put(key, made, made.stat().st_size)
        return
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with space_for(path, nbytes):
            yield target  # a pipe takes what is written, a folder says so
        return
    made = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        with space_for(path, nbytes):
            yield made
            made.replace(target)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def require_place(url: str | os.PathLike[str]) -> None:
    """Check, before work starts, that a file can be written: the folder exists, or the bucket exists and can be accessed."""
    path = local_path(url)
    if path is None:
        objects, key = open_object(os.fspath(url))
        objects.about(key)
    elif not path.parent.is_dir():
        os.scandir(path.parent).close()  # says what is wrong with it
