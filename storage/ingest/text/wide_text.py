"""Rows of CSV text that are too wide for a reader of columns: each is read in parts, and one row of numbers is in memory."""

from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from ...encoding.record import BEYOND, as_number, is_large_integer, is_missing_word
from ...errors import DataError, Foreign
from .cells import chunk_of_cells

_PART_SHARE = 128
_LEAST = 1 << 16
_LONGEST = 1 << 16  # bytes of a cell


Plain = Callable[[str, Foreign], Foreign]  # cells of a column, by its name, as the rule for numbers reads them


def _as_it_is(name: str, column: Foreign) -> Foreign:
    return column


class WideRow(NamedTuple):
    """Numbers of a row, 0 where a text stands, and the texts by column."""

    values: npt.NDArray[np.float64]
    texts: dict[int, str]


class WideRows:
    """Rows of a text whose header was read; an iterator of `WideRow`. ``columns``: cells of a row; ``texts``: columns kept as texts. Raises
    DataError at a row with another number of cells, or a cell that is no number, by line."""

    def __init__(
        self, stream: BinaryIO, delimiter: str, columns: int, texts: set[int], budget: int, name: str, plain: Plain = _as_it_is
    ) -> None:
        self._stream, self._mark, self._n, self._texts, self._name = stream, delimiter.encode(), columns, sorted(texts), name
        self._size, self._line, self._plain = max(_LEAST, budget // _PART_SHARE), 2, plain

    def __iter__(self) -> Iterator[WideRow]:
        values, texts, at = np.empty(self._n), dict[int, str](), 0
        for cells, ends in self._parts():
            if at == 0 and ends and not cells.strip():
                self._line += 1
                continue
            numbers = self._numbers(cells, at, texts)
            if at + len(numbers) > self._n or (ends and at + len(numbers) != self._n):
                raise DataError(f"the row has {at + len(numbers)} fields or more; the header has {self._n}", self._name, self._line)
            values[at : at + len(numbers)] = numbers
            at += len(numbers)
            if ends:
                yield WideRow(values, texts)
                values, texts, at = np.empty(self._n), {}, 0
                self._line += 1

    def _parts(self) -> Iterator[tuple[bytes, bool]]:
        """Yield whole cells of one row, and whether the row ends with them."""
        pending = b""
        while True:
            piece = self._stream.read(self._size)
            pending += piece
            lines = pending.split(b"\n")
            for line in lines[:-1]:
                yield line.removesuffix(b"\r"), True
            pending = lines[-1]
            if not piece:
                break
            cut = pending.rfind(self._mark)
            if cut >= 0:
                yield pending[:cut], False
                pending = pending[cut + 1 :]
            if len(pending) > _LONGEST + self._size:
                raise DataError(f"a cell has more than {_LONGEST} bytes", self._name, self._line)
        if pending:
            yield pending.removesuffix(b"\r"), True

    def _numbers(self, cells: bytes, at: int, texts: dict[int, str]) -> npt.NDArray[np.float64]:
        import pyarrow as pa
        from pyarrow import csv

        if b'"' in cells:
            raise DataError("a cell is quoted, which rows this wide are not read with; raise the budget (--budget)", self._name, self._line)
        count = cells.count(self._mark) + 1
        for k in (k for k in self._texts if at <= k < at + count):
            edges = np.flatnonzero(np.frombuffer(cells + self._mark, np.uint8) == self._mark[0])
            begin, end = (int(edges[k - at - 1]) + 1 if k > at else 0), int(edges[k - at])
            texts[k] = cells[begin:end].decode("utf-8", errors="backslashreplace")
            cells = cells[:begin] + b"0" + cells[end:]
        read = csv.ReadOptions(column_names=["v"], block_size=max(1 << 20, len(cells) + 2), use_threads=False)
        convert = csv.ConvertOptions(column_types={"v": pa.string()})
        parse = csv.ParseOptions(delimiter=self._mark.decode(), ignore_empty_lines=False)
        text = pa.BufferReader(cells.replace(self._mark, b"\n") + b"\n")
        try:
            column = csv.read_csv(text, read, parse, convert).column(0).combine_chunks()
        except pa.ArrowInvalid as error:
            raise DataError(str(error), self._name, self._line) from error
        column = self._plain("", column)
        values = chunk_of_cells(column)
        if isinstance(values, np.ndarray):
            return values
        return np.array([self._number(cell, k) for k, cell in enumerate(column.to_pylist(), at + 1)])

    def _number(self, cell: str, column: int) -> float:
        number = np.nan if is_missing_word(cell) else as_number(cell)
        if number is None:
            reason = f"value {cell[:40]!r} {BEYOND if is_large_integer(cell) else 'is not a finite number'}"
            raise DataError(reason, self._name, self._line, column)
        return number
