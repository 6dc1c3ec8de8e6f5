"""A folder of Parquet files of one form, as Dask, Spark and polars write them: its files in the order of their names."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...encoding.chunks import Chunk
from ...errors import DataError, SchemaError
from ..options import Options
from .parquet import ParquetSource, parquet_outline
from .tabular import Table

ENDINGS = (".parquet", ".pq")


def has_parquet(folder: Path) -> bool:
    """Whether a folder has Parquet files, in it or in folders of it."""
    return any(path.suffix.lower() in ENDINGS for path in folder.rglob("*"))


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder by name; hidden files and those that mark the end of a job are none. Raises DataError: there are none;
    SchemaError: folders with some are inside, whose names may be values of a column."""
    files = sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and path.name[0] not in "._")
    inside = [path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._"]
    nested = next((path for path in inside if any(path.rglob("*.parquet"))), None)
    if nested is not None:
        raise SchemaError(f"{folder} has Parquet files in folders of it ({nested.name}); a folder of files side by side is expected")
    if not files:
        raise DataError("cannot be read: it is a folder without Parquet files; a file is read, or a folder of Parquet files", str(folder))
    return files


class ParquetFolder(Table):
    """Parquet files with the same columns, one after the other."""

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
                f"column {odd[0]!r} is in one of this file and {first.name} only"
                if odd
                else f"the order of columns is not that of {first.name}"
            )
            raise DataError(f"{what}; the files of a folder have the same columns", str(path))
        return rows

    def identity(self) -> str | None:
        """Identity by names and contents of the files."""
        texts = [f"{path.name} {ParquetSource(path, self._options).identity()}" for path in self.paths]
        return f"folder:{hashlib.sha256(chr(10).join(texts).encode()).hexdigest()[:32]}"

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield batches of the files."""
        for path in self.paths:
            file = ParquetSource(path, options)
            # What the columns are is learnt over all files.
            file.coder, file.scratch = self.coder, self.scratch
            yield from file.batches(step, options)

    def _fault(self, reason: str, row: int, column: int | None) -> DataError:
        file = int(np.searchsorted(self._starts, row, side="right")) - 1
        place = super()._fault(reason, row - int(self._starts[min(file, len(self.paths) - 1)]), column)
        return DataError(place.reason, str(self.paths[min(file, len(self.paths) - 1)]))
