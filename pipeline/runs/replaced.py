"""Whether the store that a run was made from still has the content it had then."""

from __future__ import annotations

from ...storage import RunStore, StorageError
from ...storage.urls import local_path, open_objects
from ...storage.versions import read_versions


def replaced_data(run: RunStore) -> str | None:
    """Return a sentence if the store of a run was replaced since; ``None`` if it was not, is gone or lies on an object store."""
    # Behind a colon stands the scaling of the fit.
    url, (digest, *_) = (run.read_json("where") or {}).get("data"), str(run.config.get("data_digest")).split(":")
    now = None if url is None or digest == "text" else _current_digest(str(url))
    if now in (None, digest):
        return None
    return f"the store {url} was replaced since this run was made from it: it had the digest {digest}, now it has {now}"


def _current_digest(url: str) -> str | None:
    if local_path(url) is None:
        return None
    try:
        versions = read_versions(open_objects(url))
    except (StorageError, OSError):
        return None
    return None if versions is None else versions.digests[versions.current]
