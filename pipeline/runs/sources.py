"""Files in place of a store: what a run is used on is made into a store as its training data were, which is removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ...storage import BlockStore, DataError, DigestMismatch, RunStore, SchemaError, StorageError
from ...storage.places import is_local
from ...storage.source import Source
from ...storage.temporary import temporary_folder
from ..core.resources import Emit


@contextmanager
def as_store(run: str, source: str, emit: Emit) -> Iterator[str]:
    """Yield a store: ``source`` itself, or of a file (a table, arrays, text) a store like the one the run learnt from, which goes with the
    block.

    Raises DataError: the file does not fit, or the run keeps too little of a store of very many columns, which is gone.
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
            raise SchemaError(f"{error}; these are options of `gramplane ingest`, which makes a store of the file") from error
        yield place


def is_file(source: str) -> bool:
    """Whether a place is a file, which no store is."""
    return is_local(source) and Path(source).is_file()


def _training_source(run: str, source: str) -> Source:
    folder = RunStore.open(run)
    folder = RunStore.open(str(folder.path / "best")) if "tune" in folder.config else folder
    known = folder.read_source()
    if not known.is_whole:
        try:
            known = BlockStore.open(known.place, known.digest).whole_source()
        except (StorageError, DigestMismatch, OSError) as error:
            why = f"the names and factors of its columns stand in the store {known.place}, which is gone or replaced ({error})"
            raise DataError(f"cannot be read as {run} learnt: {why}; make a store of it", source) from error
    return replace(known, place=f"the data that {run} learnt from")
