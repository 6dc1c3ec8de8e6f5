"""Parquet as input. A row group that fits an eighth of the budget is read by rows; of a larger one, some columns at a time go to scratch,
from where rows are put together again: what pyarrow holds of a row group grows with the columns that are read side by side.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError, OutOfSpace, SchemaError
from ...value_types import Foreign
from ..files import Panels
from ..options import Options
from ..text.streams import FileDigest, open_file
from .tabular import Table, import_pyarrow

FOOTER_BYTES = 24  # bytes that pyarrow makes of a byte of the footer, which describes every column of every row group
_COLUMN_BYTES = 6 << 10  # bytes that pyarrow takes for a column while it is read
_CELL_BYTES = 9  # bytes of a number in a page, with its part of the page's head
GROUP_SHARE = 8
_BUFFER = 1 << 20


class ParquetSource(Table):
    """A Parquet file."""

    format = "parquet"
    digest: FileDigest

    def __init__(self, source: str | Path, options: Options) -> None:
        self._parquet, self._path = import_pyarrow("pyarrow.parquet"), Path(source)
        open_file(self._path).close()
        self.digest = FileDigest(self._path)
        self.footer_bytes = _check_footer(self._path, options)
        columns = self._open([]).schema_arrow.names
        super().__init__(str(source), columns, options.row_columns(columns), options)
        # Texts that repeat stay a table of texts and numbers of them.
        self._texts = [self.columns[k] for name, k in self._roles.columns.items() if name in ("y", "task")]
        self._file = self._open(self._texts)
        self.n_rows = int(self._file.metadata.num_rows)

    def _open(self, texts: list[str], buffer: int = 0) -> Foreign:
        try:
            return self._parquet.ParquetFile(os.fspath(self._path), read_dictionary=texts, buffer_size=buffer, pre_buffer=False)
        except Exception as error:  # damaged files make pyarrow raise almost anything
            raise DataError(f"cannot be read as Parquet: {error}", str(self._path)) from error

    def batches(self, step: int, options: Options) -> Iterator[list[npt.NDArray[Any]]]:
        """Yield batches of rows."""
        self._check_types()
        try:
            yield from self._batches(step, options)
        except (DataError, SchemaError, OutOfSpace):
            raise
        except Exception as error:  # damaged files make pyarrow raise almost anything
            raise DataError(f"cannot be read as Parquet: {error}", self.name) from error

    def _batches(self, step: int, options: Options) -> Iterator[list[npt.NDArray[Any]]]:
        row = 0
        for group in range(self._file.metadata.num_row_groups):
            sizes = self._sizes(group)
            if sum(sizes[self.columns[k]] for k in self._roles.features) <= options.budget // GROUP_SHARE:
                yield from self._read(self._file, group, self.columns, self._rows(group, sizes, step))
            else:
                yield from self._by_columns(group, sizes, row, step, options)
            row += self._file.metadata.row_group(group).num_rows

    def _check_types(self) -> None:
        """Refuse texts among the features by the schema, before any is read."""
        kinds, schema = import_pyarrow("pyarrow.types"), self._file.schema_arrow
        for feature, k in enumerate(self._roles.features):
            kind = schema.field(k).type
            kind = kind.value_type if kinds.is_dictionary(kind) else kind
            if kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_binary(kind) or kinds.is_nested(kind):
                raise self.fault(f"the values have the type {kind}; numbers are expected{self._role_hint()}", 0, feature)

    def _sizes(self, group: int) -> dict[str, int]:
        """Bytes that reading every column of a row group takes at most: packed, unpacked, and what pyarrow keeps. From the numbers of rows
        and bytes alone: what the footer says of single columns ends the process where it is damaged."""
        about = self._file.metadata.row_group(group)
        whole = max(0, about.total_byte_size) + self.digest.size
        number = min(whole, 2 * _CELL_BYTES * max(0, about.num_rows))
        return {name: _COLUMN_BYTES + (whole if name in self._texts else number) for name in self.columns}

    def _rows(self, group: int, sizes: dict[str, int], step: int) -> int:
        """Rows of a batch: fewer where texts are long."""
        count = max(1, self._file.metadata.row_group(group).num_rows)
        width = 8 * len(self.columns) + sum(sizes[name] for name in self._texts) // count
        return max(1, step * 8 * len(self.columns) // width)

    def _read(self, file: Foreign, group: int, names: list[str], step: int) -> Iterator[list[npt.NDArray[Any]]]:
        kinds = import_pyarrow("pyarrow.types")
        for batch in file.iter_batches(batch_size=step, row_groups=[group], columns=names, use_threads=False):
            yield [_arrow_column(batch.column(name), kinds) for name in names]

    def _by_columns(self, group: int, sizes: dict[str, int], row: int, step: int, options: Options) -> Iterator[list[npt.NDArray[Any]]]:
        """Yield batches of a large row group by way of panels of columns on scratch."""
        assert self.scratch is not None
        count = self._file.metadata.row_group(group).num_rows
        panels = Panels(self.scratch.path("panels.bin"), count)
        names, share = [self.columns[k] for k in self._roles.features], options.budget // GROUP_SHARE
        at = 0
        while at < len(names):
            end, taken = at + 1, sizes[names[at]]
            while end < len(names) and taken + sizes[names[end]] <= share:
                taken, end = taken + sizes[names[end]], end + 1
            # A column that is too large by itself is read through a buffer, which would be too many for many.
            file = self._file if taken <= share else self._open([], _BUFFER)
            panels.add(self._stacked(file, group, names[at:end], row, at, options), end - at, np.dtype(np.float64))
            at = end
        others = [self.columns[k] for k in self._roles.columns.values()]
        lo = 0
        step = self._rows(group, sizes, step)
        for tables in self._read(self._file, group, others, step) if others else ([] for _ in range(0, count, step)):
            hi = lo + (len(tables[0]) if tables else min(step, count - lo))
            features = iter(panels[lo:hi].T)
            table_columns = dict(zip(others, tables, strict=False))
            yield [table_columns[name] if name in table_columns else next(features) for name in self.columns]
            lo = hi

    def _stacked(self, file: Foreign, group: int, names: list[str], row: int, feature: int, options: Options) -> Iterator[npt.NDArray[Any]]:
        for columns in self._read(file, group, names, self.step(options, len(names))):
            yield self._stack(columns, row, feature)
            row += len(columns[0])


def _check_footer(path: Path, options: Options) -> int:
    """Return the bytes of the footer, which is read whole when the file is opened. Raises DataError: it is longer than the file;
    SchemaError: the budget does not hold it."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 8))
        tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] not in (b"PAR1", b"PARE") or length > size - 8:
        raise DataError("cannot be read as Parquet: it does not end with a footer and its length", str(path))
    if FOOTER_BYTES * length > options.budget:
        reading = f"to read it takes about {FOOTER_BYTES * length}, more than the budget of {options.budget}"
        advice = "raise the budget (--budget), or write fewer columns or row groups"
        raise SchemaError(f"{path} has a footer of {length} bytes, and {reading}; {advice}")
    return length


def _arrow_column(column: Foreign, kinds: Foreign) -> npt.NDArray[Any]:
    """A column as an array; masked where whole numbers or truth values are NULL, which pyarrow would round or turn into objects."""
    if kinds.is_dictionary(column.type):
        if not kinds.is_string(column.type.value_type) and not kinds.is_large_string(column.type.value_type):
            return _arrow_column(column.dictionary_decode(), kinds)
        # One text for all rows that have it.
        words = np.array([*column.dictionary.to_pylist(), None], dtype=object)
        return words[column.indices.fill_null(len(words) - 1).to_numpy(zero_copy_only=False)]
    if not column.null_count or not (kinds.is_integer(column.type) or kinds.is_boolean(column.type) or kinds.is_null(column.type)):
        return column.to_numpy(zero_copy_only=False)
    if kinds.is_null(column.type):
        return np.full(len(column), np.nan)
    filled = column.fill_null(False if kinds.is_boolean(column.type) else 0)
    return np.ma.MaskedArray(filled.to_numpy(zero_copy_only=False), column.is_null().to_numpy(zero_copy_only=False))
