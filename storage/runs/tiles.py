"""A tall matrix stored in tiles. Each tile is a file that holds some rows of 64 columns and a crc32c; tasks read and write tiles
separately.
"""

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..errors import DigestMismatch, MissingBlock
from ..objects import as_bytes, write_atomic

PANEL_COLUMNS = 64  # columns of a tile
_CRC_BYTES = 4


@dataclass(frozen=True)
class TiledMatrix:
    """A matrix in a folder that all processes can access. Tiles that were never written are missing, not zero."""

    path: str
    shape: tuple[int, int]
    tile_rows: int
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return 2

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def row_spans(self) -> list[tuple[int, int]]:
        """Return the ranges of rows of the tiles."""
        return [(lo, min(lo + self.tile_rows, self.shape[0])) for lo in range(0, self.shape[0], self.tile_rows)]

    def write(self, row: int, column: int, values: npt.NDArray[Any]) -> None:
        """Write entries from ``row`` and ``column`` on; they must begin and end at tile borders."""
        for lo in range(row, row + values.shape[0], self.tile_rows):
            for first in range(column, column + values.shape[1], PANEL_COLUMNS):
                tile = values[lo - row : lo - row + self.tile_rows, first - column : first - column + PANEL_COLUMNS]
                data = as_bytes(np.ascontiguousarray(tile, dtype=self.dtype).reshape(-1))
                crc = int(google_crc32c.value(data)).to_bytes(_CRC_BYTES, "little")  # pyright: ignore[reportArgumentType] (a buffer)
                write_atomic(self._file(lo, first), (data, crc), fsync=False)

    def read(self, lo: int, hi: int, first: int = 0, last: int | None = None) -> npt.NDArray[Any]:
        """Return rows ``lo:hi`` of columns ``first:last``, C-ordered. Raises MissingBlock or DigestMismatch if a tile is absent
        or damaged.
        """
        last = self.shape[1] if last is None else last
        out = np.empty((hi - lo, last - first), self.dtype)
        for row in range(lo // self.tile_rows * self.tile_rows, hi, self.tile_rows):
            rows = slice(max(lo, row), min(hi, row + self.tile_rows))
            for column in range(first // PANEL_COLUMNS * PANEL_COLUMNS, last, PANEL_COLUMNS):
                columns = slice(max(first, column), min(last, column + PANEL_COLUMNS))
                tile = self._tile(row, column)
                part = tile[rows.start - row : rows.stop - row, columns.start - column : columns.stop - column]
                out[rows.start - lo : rows.stop - lo, columns.start - first : columns.stop - first] = part
        return out

    def take(self, columns: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return all rows of some columns, in any order."""
        ids = np.asarray(columns, dtype=np.int64)
        out = np.empty((self.shape[0], len(ids)), self.dtype)
        for column in np.unique(ids // PANEL_COLUMNS) * PANEL_COLUMNS:
            inside = np.flatnonzero(ids // PANEL_COLUMNS * PANEL_COLUMNS == column)
            for lo, hi in self.row_spans():
                out[lo:hi, inside] = self._tile(lo, int(column))[:, ids[inside] - column]
        return out

    def column_pieces(self) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield all rows of some columns at a time, with the positions of the columns."""
        for first in range(0, self.shape[1], PANEL_COLUMNS):
            last = min(self.shape[1], first + PANEL_COLUMNS)
            yield slice(first, last), self.read(0, self.shape[0], first, last)

    def leading(self, count: int) -> "TiledMatrix":
        """Return the first ``count`` columns of the matrix."""
        shape = (self.shape[0], count)
        return self if shape == self.shape else LeadingColumns(self.path, shape, self.tile_rows, self.dtype, self._stored_columns)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    @property
    def _stored_columns(self) -> int:
        return self.shape[1]

    def _file(self, row: int, column: int) -> str:
        return str(Path(self.path) / f"{row // self.tile_rows}-{column // PANEL_COLUMNS}.tile")

    def _tile(self, row: int, column: int) -> npt.NDArray[Any]:
        shape = (min(self.tile_rows, self.shape[0] - row), min(PANEL_COLUMNS, self._stored_columns - column))
        file = self._file(row, column)
        try:
            data = np.fromfile(file, np.uint8)
        except FileNotFoundError as error:
            raise MissingBlock(f"tile {file} is absent: it was removed, or the run folder is not shared with this computer") from error
        nbytes = shape[0] * shape[1] * self.dtype.itemsize
        stated = int.from_bytes(data[nbytes:].tobytes(), "little")
        if len(data) != nbytes + _CRC_BYTES or google_crc32c.value(data[:nbytes]) != stated:  # pyright: ignore[reportArgumentType]
            raise DigestMismatch(f"tile {file}, bytes 0:{len(data)}: the content does not have the crc32c that it states")
        return data[:nbytes].view(self.dtype).reshape(shape)


@dataclass(frozen=True)
class LeadingColumns(TiledMatrix):
    """The first columns of a matrix in tiles."""

    stored: int = 0  # columns of the whole

    @property
    def _stored_columns(self) -> int:
        return self.stored
