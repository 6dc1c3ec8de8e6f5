"""The second phase of an ingest, for tables with columns that are not numeric: it makes features from the columns read.

The first phase stores rows as numbers: codes in order of appearance in place of names, and NaN for missing values. Levels, means and
medians are known only after the last row. Features are therefore made from the stored rows, so that the source is read only once.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..encoding.encoder import encode
from ..encoding.record import FILLS, TableColumns
from ..encoding.table import Summary, TableReader, summarise
from ..errors import DataError, SchemaError
from ..records import from_arrays, to_arrays
from .build import dense_cell
from .labels import Target
from .options import COVARIATE, Options, Progress
from .reading import Reading, RowSource, Source, check_row_fits
from .scratch import Scratch
from .text.spool import Block, Spool

_COLUMN_SHARE = 64


def encode_rows(
    reading: Reading, source: Source, options: Options, scratch: Scratch, progress: Progress
) -> tuple[Reading, TableColumns | None]:
    """Return the rows of features and the encoding of the columns; for purely numeric tables, return the unchanged rows and None.

    Raises DataError for values that no column can have; SchemaError if the number of features differs from the declared number, or if a row
    of features exceeds the budget.
    """
    coder = reading.coder or _coder_of_numbers(reading, source, options)
    if coder is None:
        return reading, None
    notes = scratch.notes("encoding")
    if coder.is_plain:
        return reading, coder.finish({})
    encoding = from_arrays(TableColumns, {}, notes[-1]["record"]) if notes else None
    if encoding is None:
        encoding = coder.finish(_summaries(reading.spool, coder, options))
        assert encoding is not None
        scratch.note("encoding", record=to_arrays(encoding)[1])
    _check_features(encoding, options, source.name)
    rows = _EncodedRows(source, reading, coder, encoding)
    encoded = rows.read(scratch, options, reading.target, 1, progress)
    for path in {handle.path for handle in reading.handles if handle.path is not None}:
        path.unlink(missing_ok=True)
    return encoded, encoding


def _coder_of_numbers(reading: Reading, source: Source, options: Options) -> TableReader | None:
    """Return the reader for the columns of an array whose missing values are filled in."""
    if options.missing not in FILLS or reading.counts is not None or not reading.spool.has("dense"):
        return None
    width = int(reading.n_cols or 0)
    names = source.names or [f"x{j}" for j in range(width)]
    return TableReader(names, range(width), missing=options.missing, known=options.table_encoding)


def _check_features(encoding: TableColumns, options: Options, name: str) -> None:
    if not encoding.n_features:
        raise DataError("no column has a value, so there are no features", name)
    if options.table_encoding is None and options.n_features not in (None, encoding.n_features):
        columns = f"{len(encoding.sources)} columns as {encoding.n_features} features"
        raise SchemaError(f"{name} has {columns}; n_features or the 'like' store (--like) requires {options.n_features}")
    if not encoding.is_sparse:
        check_row_fits(encoding.n_features, options, name)


def _summaries(spool: Spool, coder: TableReader, options: Options) -> dict[int, Summary]:
    """Return the replacement for missing values of each column. Some whole columns are read at a time."""
    if coder.known is not None or coder.missing not in FILLS:
        return {}
    n, count = spool.n_rows, len(coder.names)
    is_single = options.dtype == "float32" or (options.dtype == "auto" and spool.single("dense"))
    made, step = {}, max(1, options.budget // (_COLUMN_SHARE * max(1, n)))
    for lo in range(0, count, step):
        cells = coder.final_columns(dense_cell(spool, slice(0, n), slice(lo, min(count, lo + step)), "float64"), lo)
        for k, values in enumerate(cells, lo):
            summary = summarise(values, coder.missing)
            # Values that all are float32 stay so with what stands for missing ones.
            made[k] = Summary(float(np.float32(summary.fill)), summary.is_missing) if is_single else summary
    return made


class _EncodedRows(RowSource):
    """Rows of features, made from the rows that were read."""

    format = "encoded"
    phase = "encode"

    def __init__(self, source: Source, reading: Reading, reader: TableReader, encoding: TableColumns) -> None:
        self.name, self.sparse, self.n_cols = source.name, encoding.is_sparse, encoding.n_features
        self._spool, self._reader, self._encoding = reading.spool, reader, encoding
        width = 12 * len(encoding.sources) if self.sparse else 8 * encoding.n_features
        is_stored = any(handle.path is not None for handle in reading.handles)
        self.nbytes = None if is_stored else width * self._spool.n_rows
        # scikit-learn makes features, puts them side by side, and in order; texts are objects, with codes and masks beside them.
        self._row_bytes = 3 * width + 48 * len(encoding.sources)

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield rows of features, some at a time, together with their row tables."""
        step = max(1, options.budget // 16 // self._row_bytes)
        names = ("y", "task", "weight", "id_lengths", "id_bytes", *self._spool.names(COVARIATE))
        for handle, start in self._spool.blocks():
            block = handle.get("dense")
            tables = {name: handle.get(name) for name in names if name in handle}
            for lo in range(0, block.shape[1], step):
                hi = min(block.shape[1], lo + step)
                coded = self._reader.final(block[:, lo:hi], start + lo)
                yield encode(self._encoding, coded), cut_tables(tables, lo, hi)


def cut_tables(tables: Block, lo: int, hi: int) -> Block:
    """Return the entries of row tables for rows ``lo:hi``. The ids in a row table may be texts of different lengths."""
    part = {name: values[lo:hi] for name, values in tables.items() if name != "id_bytes"}
    if "id_bytes" in tables:
        ends = np.concatenate([[0], np.cumsum(tables["id_lengths"], dtype=np.int64)])
        part["id_bytes"] = tables["id_bytes"][int(ends[lo]) : int(ends[hi])]
    return part
