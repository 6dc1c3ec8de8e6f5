"""Where stores live: checked names, local folders and object-store URLs behind one small interface."""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from .errors import SchemaError
from .objects import LocalObjects, Objects, ZarrObjects

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_REMOTE_SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "http", "https")
_remotes: dict[str, Objects] = {}


def check_name(name: str, what: str = "name") -> str:
    """Return ``name`` if it is an allowed identifier, [A-Za-z0-9._-]{1,128} and neither "." nor "..".

    Raises
    ------
    SchemaError
        Otherwise, naming ``what``, the value and the rule.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or set(name) == {"."}:
        raise SchemaError(f"{what} is {name!r}; it must match [A-Za-z0-9._-]{{1,128}} and not consist of dots")
    return name


def local_path(url: str | os.PathLike[str]) -> Path | None:
    """Absolute path of a local URL (a path or ``file://``); None for an object store.

    Raises
    ------
    SchemaError
        If the scheme is unknown.
    """
    text = os.fspath(url)
    scheme = urlsplit(text).scheme if "://" in text else ""
    if scheme == "":
        return Path(os.path.abspath(text))
    if scheme == "file":
        return Path(os.path.abspath(unquote(urlsplit(text).path)))
    if scheme not in _REMOTE_SCHEMES:
        raise SchemaError(
            f"url {text!r} has the scheme {scheme!r}; known are a path, file://, {', '.join(s + '://' for s in _REMOTE_SCHEMES)}"
        )
    return None


def refuse_foreign(url: str | os.PathLike[str]) -> None:
    """Refuse a local path that never was a store, so that nobody looks for damage.

    Raises
    ------
    SchemaError
        If it is a file, or a folder that holds nothing of a store.
    """
    path = local_path(url)
    if path is not None and path.is_file():
        raise SchemaError(f"{url} is a file, not a block store; `gramplane ingest {url} STORE` makes one of it")
    parts = (path / name for name in ("manifest.json", "zarr.json", "columns")) if path is not None and path.is_dir() else ()
    if path is not None and path.is_dir() and not any(part.exists() for part in parts):
        raise SchemaError(f"{url} is a folder, but not a block store; `gramplane ingest FILE STORE` makes one")


def open_objects(url: str | os.PathLike[str]) -> Objects:
    """Return the objects below a path or URL; clients of object stores are kept for the life of the process.

    Parameters
    ----------
    url : path or str
        A local path, ``file://…``, or an object-store URL understood by obstore (credentials from the environment).

    Raises
    ------
    SchemaError
        If the scheme is unknown or obstore is not installed.
    """
    path = local_path(url)
    if path is not None:
        return LocalObjects(path)
    text = os.fspath(url).rstrip("/")
    if text not in _remotes:
        _remotes[text] = _connect(text)
    return _remotes[text]


def _connect(url: str) -> Objects:
    try:
        from obstore.store import from_url
        from zarr.storage import ObjectStore
    except ImportError as error:
        raise SchemaError(f"url {url!r} needs obstore: install gramplane[s3]") from error
    return ZarrObjects(url, ObjectStore(from_url(url)))
