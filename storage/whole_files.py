"""A file that takes its place whole, in a folder or in an object store."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import space_for
from .temporary import temporary_folder
from .urls import local_path, open_object


@contextmanager
def whole_file(url: str | os.PathLike[str], nbytes: int) -> Iterator[Path]:
    """Yield a path to write about ``nbytes`` to; at the end of the block the file takes its place. Nothing is there if the block raises."""
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
    """Check before work that a file can be written: the folder is there, the bucket is there and can be asked."""
    path = local_path(url)
    if path is None:
        objects, key = open_object(os.fspath(url))
        objects.about(key)
    elif not path.parent.is_dir():
        os.scandir(path.parent).close()  # says what is wrong with it
