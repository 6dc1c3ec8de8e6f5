"""Parquet as input: a file, or a folder of files of one form."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...encoding.arrow import chunk_of_arrow
from ...encoding.chunks import Chunk
from ...errors import DataError, SchemaError
from ...text.open_text import open_file
from ...value_types import Foreign
from ..options import Options
from ..text.streams import FileDigest
from .groups import GroupedTable

FOOTER_BYTES = 24  # bytes that pyarrow makes of a byte of the footer, which describes every column of every row group
_BUFFER = 1 << 20


class ParquetSource(GroupedTable):
    """A Parquet file."""

    format = "parquet"

    def __init__(self, source: str | Path, options: Options) -> None:
        self._path = Path(source)
        open_file(self._path).close()
        self.digest = FileDigest(self._path)
        self.footer_bytes = _check_footer(self._path, options)
        super().__init__(self._path, _open_parquet(self._path, [], 0).schema_arrow, options)
        self._file = _open_parquet(self._path, self.texts, 0)
        self.n_rows = int(self._file.metadata.num_rows)

    @property
    def n_groups(self) -> int:
        """Number of row groups."""
        return int(self._file.metadata.num_row_groups)

    def group_rows(self, group: int) -> int:
        """Rows of a row group."""
        return int(self._file.metadata.row_group(group).num_rows)

    def group_bytes(self, group: int) -> int:
        """Bytes of a row group, packed and unpacked."""
        return max(0, int(self._file.metadata.row_group(group).total_byte_size)) + self.digest.size

    def read_group(self, group: int, names: Sequence[str], step: int, alone: bool) -> Iterator[list[Chunk]]:
        """Yield some rows; a column that is too large by itself is read through a buffer, which would be too many for many."""
        file = _open_parquet(self._path, [], _BUFFER) if alone else self._file
        for batch in file.iter_batches(batch_size=step, row_groups=[group], columns=list(names), use_threads=False):
            yield [chunk_of_arrow(batch.column(name)) for name in names]


def parquet_outline(path: Path, options: Options) -> tuple[list[str], int]:
    """Return the names of the columns of a file, and its number of rows. Raises DataError or SchemaError: it cannot be read."""
    _check_footer(path, options)
    file = _open_parquet(path, [], 0)
    return list(file.schema_arrow.names), int(file.metadata.num_rows)


def _open_parquet(path: Path, texts: list[str], buffer: int) -> Foreign:
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(os.fspath(path), read_dictionary=texts, buffer_size=buffer, pre_buffer=False)
    except Exception as error:  # damaged files make pyarrow raise almost anything
        raise DataError(f"cannot be read as Parquet: {error}", str(path)) from error


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
