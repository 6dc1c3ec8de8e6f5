"""Parquet as input: a file, or a folder of files with the same columns."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ...encoding.chunks import Chunk, chunk_of_arrow
from ...errors import DataError, Foreign, SchemaError
from ...text.open_text import open_file
from ..options import Options
from ..text.spool import FileDigest
from .groups import GroupedTable
from .tabular import Table

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
        return int(self._file.metadata.num_row_groups)

    def group_rows(self, group: int) -> int:
        return int(self._file.metadata.row_group(group).num_rows)

    def group_bytes(self, group: int) -> int:
        """Return the decompressed size of a row group plus the size of the file, in bytes."""
        return max(0, int(self._file.metadata.row_group(group).total_byte_size)) + self.digest.size

    def read_group(self, group: int, names: Sequence[str], step: int, alone: bool) -> Iterator[list[Chunk]]:
        """Yield the named columns of a row group, ``step`` rows at a time. With ``alone``, a single column that is too large is read
        through a buffer; for many columns, the buffers would take too much memory.
        """
        file = _open_parquet(self._path, [], _BUFFER) if alone else self._file
        for batch in file.iter_batches(batch_size=step, row_groups=[group], columns=list(names), use_threads=False):
            yield [chunk_of_arrow(batch.column(name)) for name in names]


def parquet_outline(path: Path, options: Options) -> tuple[list[str], int]:
    """Return the column names and the number of rows of a file. Raises DataError or SchemaError if it cannot be read."""
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
    """Return the size of the footer in bytes. The footer is read as a whole when the file is opened.

    Raises DataError if the footer is longer than the file; SchemaError if it exceeds the budget.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 8))
        tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] not in (b"PAR1", b"PARE") or length > size - 8:
        raise DataError("cannot be read as Parquet: the footer at its end is missing or damaged", str(path))
    if FOOTER_BYTES * length > options.budget:
        reading = f"reading it takes about {FOOTER_BYTES * length} bytes, more than the budget of {options.budget}"
        advice = "raise the budget (--budget), or write fewer columns or row groups"
        raise SchemaError(f"{path} has a footer of {length} bytes, and {reading}; {advice}")
    return length


# A folder of Parquet files of one form, as Dask, Spark and polars write them: its files in the order of their names.

ENDINGS = (".parquet", ".pq")


def has_parquet(folder: Path) -> bool:
    """Return whether a folder or its subfolders contain Parquet files."""
    return any(path.suffix.lower() in ENDINGS for path in folder.rglob("*"))


def parquet_files(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, sorted by name, without hidden files and job markers.

    Raises DataError if there are none; SchemaError if subfolders contain some, because the names of subfolders may be values of a column.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.name[0] not in "._")
    inside = [path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._"]
    nested = next((path for path in inside if any(path.rglob("*.parquet"))), None)
    if nested is not None:
        raise SchemaError(f"{folder} has Parquet files in subfolders ({nested.name}); all files must be in the folder itself")
    if not files:
        raise DataError("cannot be read: it is a folder without Parquet files; give a file, or a folder of Parquet files", str(folder))
    return files


class ParquetFolder(Table):
    """Parquet files with the same columns, read one after the other."""

    format = "parquet"

    def __init__(self, folder: str | Path, options: Options) -> None:
        self.paths, self._options = parquet_files(Path(folder)), options
        first = ParquetSource(self.paths[0], options)
        self._starts = np.cumsum([0, *(self._rows_of(path, first) for path in self.paths)])
        self.n_rows, self.footer_bytes = int(self._starts[-1]), first.footer_bytes
        super().__init__(str(folder), first.columns, first.numbers, options)

    def _rows_of(self, path: Path, first: ParquetSource) -> int:
        names, rows = parquet_outline(path, self._options)
        if names != first.columns:
            odd = sorted({*names} ^ {*first.columns})
            what = (
                f"either this file or {first.name} lacks column {odd[0]!r}" if odd else f"the order of columns is not that of {first.name}"
            )
            raise DataError(f"{what}; all files of a folder must have the same columns", str(path))
        return rows

    def identity(self) -> str | None:
        """Return an identity computed from the names and contents of the files."""
        texts = [f"{path.name} {ParquetSource(path, self._options).identity()}" for path in self.paths]
        return f"folder:{hashlib.sha256(chr(10).join(texts).encode()).hexdigest()[:32]}"

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        for path in self.paths:
            file = ParquetSource(path, options)
            # What the columns are is learnt over all files.
            file.coder, file.scratch = self.coder, self.scratch
            yield from file.batches(step, options)

    def _fault(self, reason: str, row: int, column: int | None) -> DataError:
        file = int(np.searchsorted(self._starts, row, side="right")) - 1
        place = super()._fault(reason, row - int(self._starts[min(file, len(self.paths) - 1)]), column)
        return DataError(place.reason, str(self.paths[min(file, len(self.paths) - 1)]))
