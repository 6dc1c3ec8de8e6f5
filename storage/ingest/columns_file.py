"""Tables of numbers beside a store: a few columns with a row for each of its rows, in any form that ingest reads."""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from ..encoding.record import COVARIATE_RULE
from ..errors import DataError, DigestMismatch
from ..objects import file_digest
from ..temporary import temporary_folder
from .api import ingest

FORMS = (".csv", ".tsv", ".parquet", ".pq", ".npz", ".npy", ".mat")


def columns_file(path: str, n_rows: int) -> dict[str, str]:
    """Return path and sha256 of a file with a table of numbers, whose rows are those of a store; `load_columns` reads it.

    DataError: it has another form or number of rows, or a value that is no finite number, by line or row and column.
    """
    record = {"file": os.path.abspath(path), "sha256": file_digest(path)}
    values, _ = load_columns(record)
    if len(values) != n_rows:
        raise DataError(f"the file has {len(values)} rows; there must be one for each of the {n_rows} rows of the store", path)
    return record


def load_columns(record: Mapping[str, str]) -> tuple[np.ndarray, list[str] | None]:
    """Return the table of a file, float64 ``(n_rows, n_columns)``, and the names of its columns, where it has some.

    DigestMismatch: it was changed since.
    """
    path = record["file"]
    if not path.lower().endswith(FORMS):
        raise DataError(f"is no table of numbers by its ending: must be one of {', '.join(FORMS)}", path)
    if file_digest(path) != record["sha256"]:
        raise DigestMismatch(f"{path} is not the file that the run began with: its sha256 differs")
    with temporary_folder() as folder:
        try:
            table = ingest(path, folder / "table.zarr", task="regression")
        except DataError as error:  # what it advises is for features
            raise DataError(f"{error.reason.partition(';')[0]}; {COVARIATE_RULE}", path, error.line, error.column) from error
        nominal = [] if table.encoding is None else [column.name for column in table.encoding.sources if column.kind == "nominal"]
        if nominal:
            raise DataError(f"column {nominal[0]!r} holds texts; {COVARIATE_RULE}", path)
        values = table.columns(np.arange(table.n_cols))
        dense = values if isinstance(values, np.ndarray) else values.toarray()
        return np.ascontiguousarray(dense, np.float64), table.feature_names()
