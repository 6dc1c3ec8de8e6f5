"""The training data of a run: their sizes and classes, a check whether their store was replaced, and conversion of files to a similar
store.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...storage import BlockStore, DataError, DigestMismatch, RunStore, SchemaError, StorageError
from ...storage.places import is_local
from ...storage.source import Source
from ...storage.temporary import temporary_folder
from ...storage.urls import has_cells, local_path, open_objects
from ...storage.versions import read_versions
from ..core.resources import Emit
from ..inputs.fit_warnings import column_widths
from ..registry import MethodInfo
from .run import open_data


def training_store(run: RunStore, info: MethodInfo) -> Any:
    """Return the training data of a run. Raises StorageError if their location is not recorded, or if they are missing or replaced."""
    url = (run.read_json("where") or {}).get("data")
    if url is None:
        raise StorageError(f"{run.path}: where.json, which names the data of the run, is missing; copy the whole folder of the run")
    return open_data(str(url), info, run.config["extra"], run.config["data_digest"])


def training_facts(run: RunStore) -> dict[str, Any]:
    """Return ``rows``, ``columns``, ``classes`` (rows per label) and ``widths`` (the columns whose values have the smallest and the largest
    range).

    Empty if the store is missing or remote.
    """
    url, digest = (run.read_json("where") or {}).get("data"), run.config.get("data_digest")
    if url is None or "stream" in run.config.get("extra", {}) or local_path(str(url)) is None:
        return {}
    try:
        store = BlockStore.open(str(url), digest)
        ends = column_widths(store) if store.meta.kind == "dense" else []
        labels, facts = store.meta.labels, {"rows": store.n_rows, "columns": store.n_cols, **({"widths": ends} if ends else {})}
        if labels is None or not store.has_table("y"):
            return facts
        counts = np.bincount(store.target().astype(np.int64), minlength=len(labels)).tolist()
        return {**facts, "classes": dict(zip(map(str, labels), counts, strict=True))}
    except (StorageError, OSError):
        return {}


def replaced_data(run: RunStore) -> str | None:
    """Return a warning if the store of a run was replaced. Return ``None`` if it was not replaced, is missing, or is on an object store."""
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


@contextmanager
def as_store(run: str, source: str, emit: Emit) -> Iterator[str]:
    """Yield a store: ``source`` itself, or for a file (table, arrays, text) a temporary store encoded like the training data.

    Raises DataError if the file does not match the training data, or if the encoding requires the training store and it is missing.
    """
    if not is_file(source):
        yield source
        return
    from ...storage.ingest import ingest

    with temporary_folder() as folder:
        place = str(folder / "store")
        try:
            ingest(source, place, like=_training_source(run, source), warn=lambda message: emit({"event": "warning", "message": message}))
        except SchemaError as error:
            if "--" not in str(error):
                raise
            raise SchemaError(f"{error}; to set these options, make a store of the file with `gramplane ingest`") from error
        yield place


def is_file(source: str) -> bool:
    """Return whether ``source`` is a file, or AnnData in a folder; stores are folders, too."""
    return is_local(source) and (Path(source).is_file() or has_cells(Path(source)))


def _training_source(run: str, source: str) -> Source:
    folder = RunStore.open(run)
    folder = RunStore.open(str(folder.path / "best")) if "tune" in folder.config else folder
    known = folder.read_source()
    if not known.is_whole:
        try:
            known = BlockStore.open(known.place, known.digest).whole_source()
        except (StorageError, DigestMismatch, OSError) as error:
            why = f"column names and scale factors are in the store {known.place}, which is gone or replaced ({error})"
            raise DataError(f"cannot be encoded like the training data of {run}: {why}; ingest the file into a store", source) from error
    return replace(known, place=f"the data that {run} learnt from")
