"""Replacing a Gram store by one of other samples: built beside it, then made current."""

import os

from .. import versions
from ..errors import StorageError
from ..manifest import MANIFEST
from ..objects import LocalObjects
from ..urls import open_objects
from .store import GramStore, forget_grams


def begin_replacement(url: str | os.PathLike[str], data_digest: str, dtype: str) -> str | None:
    """Return the place of a new version of a Gram store, or None where kernels can be added to what is there, or nothing is.

    The new version is built there like any store; `end_replacement` makes it current. A killed build is found again, and goes on, if it was
    of the same samples and type. SchemaError if the place holds something else, or files that it did not write.
    """
    base = open_objects(url)
    if not versions.is_finished(base) or _is_compatible(base.url, data_digest, dtype):
        return None
    current = versions.read_versions_or_none(base)
    if isinstance(base, LocalObjects):
        versions.refuse_other_stores(base, current, "a Gram store")
        versions.refuse_foreign_files(base, current)
    fresh = versions.version_objects(base, versions.next_version(current))
    if fresh.size(MANIFEST) is not None and not _is_compatible(fresh.url, data_digest, dtype):
        fresh.clear()
    return fresh.url


def _is_compatible(url: str, data_digest: str, dtype: str) -> bool:
    try:
        meta = GramStore.open(url).meta
    except StorageError:
        return False
    return (meta.data, meta.dtype, meta.groups) == (data_digest, dtype, ())


def end_replacement(url: str | os.PathLike[str], place: str) -> None:
    """Make a version current that `begin_replacement` named; the old one goes when nobody reads it."""
    forget_grams()
    versions.publish_version(open_objects(url), place.rpartition("/")[2], GramStore.open(place).meta.data)
