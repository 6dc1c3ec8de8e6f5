"""Files in place of a store: what a run is used on is made into a store as its training data were, which is removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...storage import BlockStore, DataError, DigestMismatch, RunStore, StorageError
from ...storage.places import is_local
from ...storage.temporary import temporary_folder
from ..records.context import Emit


@contextmanager
def as_store(run: str, source: str, emit: Emit) -> Iterator[str]:
    """Yield a store: ``source`` itself, or of a file (a table, arrays, text) a store like that of the run, which goes with the block.

    Raises DataError: the training store is gone, so that nothing says what the columns are.
    """
    if not is_file(source):
        yield source
        return
    from ...storage.ingest import ingest

    with temporary_folder() as folder:
        place = str(folder / "store")
        ingest(source, place, like=_training_store(run, source), warn=lambda message: emit({"event": "warning", "message": message}))
        yield place


def is_file(source: str) -> bool:
    """Whether a place is a file, which no store is."""
    return is_local(source) and Path(source).is_file()


def _training_store(run: str, source: str) -> str:
    folder = RunStore.open(run)
    folder = RunStore.open(str(folder.path / "best")) if "tune" in folder.config else folder
    url, digest = (folder.read_json("where") or {}).get("data"), folder.config.get("data_digest")
    try:
        return BlockStore.open(str(url), str(digest)).url
    except (StorageError, DigestMismatch, OSError) as error:
        advice = "make a store of it, with --like a store of the same form"
        raise DataError(
            f"is no store, and the store {url} that {run} was fitted on is gone or replaced ({error}): {advice}", source
        ) from error
