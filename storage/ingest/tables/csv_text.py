"""CSV and TSV through pyarrow's streaming reader; rows too wide for it are read in parts."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import Chunk, Words, chunk_of_arrow, chunk_of_objects
from ...encoding.record import BEYOND, as_number, is_large_integer, is_missing_word, is_number_like
from ...errors import DataError, Foreign, SchemaError
from ...text.open_text import is_plain, open_text
from ..options import Options
from ..text.cells import chunk_of_cells, chunks_of_cells, plain_cells
from ..text.spool import FileDigest
from .tabular import Table

_MAX_HEADER = 64 << 20
_DELIMITERS = (",", ";", "\t")
_NO_NAMES = ("", "Unnamed: 0")  # what pandas calls the index of a frame in CSV, and once it has read it
_LOOKED_AT = 1 << 20  # bytes of the text in which the first value of every column is looked for
COLUMN_BYTES = 9600  # bytes that pyarrow keeps of a column of CSV
NAME_BYTES = 360  # bytes that the name of a column takes in lists, tables and the store, and its number in a row that is read


class WideRow(NamedTuple):
    """A row: its numbers, with 0 in place of texts, and its texts by column."""

    values: npt.NDArray[np.float64]
    texts: dict[int, str]


class CsvSource(Table):
    """Comma-, semicolon- or tab-separated text with a header line; plain, compressed or from standard input."""

    format = "csv"

    def __init__(self, source: str | Path, options: Options, delimiter: str | None = None) -> None:
        self._source = source
        self.digest = FileDigest(Path(source)) if source != "-" and Path(source).is_file() else None
        name = "<stdin>" if source == "-" else str(source)
        self._opened = open_text(source, name, options.encoding)
        self._text = io.BufferedReader(self._opened.stream, 1 << 20)
        most = min(_MAX_HEADER, options.budget // 4)
        line = self._text.readline(most)
        while line.count(b'"') % 2 and (more := self._text.readline(most - len(line))):
            line += more  # a line end within quotes
        _check_header_fits(line, options, name)
        self._delimiter, columns = _read_header(line, name, delimiter)
        self._options = options
        self.is_wide = is_too_wide(_columns_wanted(columns, options), options)
        self._texts = self._text_columns(columns)
        numbers = [k for k in range(len(columns)) if k not in self._texts]
        super().__init__(name, columns, numbers, options, self._row_index(columns))
        self._follow_encoding()

    def _head(self) -> Iterator[list[str]]:
        """Yield the rows at the beginning of the text."""
        head = self._text.peek(_LOOKED_AT)[:_LOOKED_AT]
        whole = io.StringIO(head[: head.rfind(b"\n") + 1].decode("utf-8", "replace"), newline="")
        with suppress(csv.Error):
            yield from (row for row in csv.reader(whole, delimiter=self._delimiter) if row)

    def _text_columns(self, columns: Sequence[str]) -> set[int]:
        """Return the columns that are read as texts because their first value is not a number. Only the beginning of the text is examined;
        the column readers later examine all of it.
        """
        texts = {k for k, column in enumerate(columns) if column in self._options.categorical}
        undecided = set(range(len(columns))) - texts
        for row in self._head():
            there = {k for k in undecided if k < len(row) and row[k] not in self._options.missing_words}
            first = {k for k in there if not is_missing_word(row[k])}
            texts |= {k for k in first if not is_number_like(row[k].replace(self._options.decimal, "."))}
            undecided -= first
            if not undecided:
                break
        return texts if self.is_wide else texts | undecided

    def _row_index(self, columns: Sequence[str]) -> str | None:
        """Return the first header field if the first column looks like a data frame index: it has no name and counts rows from 0 or 1."""
        if columns[0] not in _NO_NAMES:
            return None
        cells = [row[0] for row in self._head()]
        return columns[0] if len(cells) > 1 and cells in ([str(k + first) for k in range(len(cells))] for first in (0, 1)) else None

    def _follow_encoding(self) -> None:
        """Read each column as texts if it holds names in the ``like`` store, and as numbers otherwise."""
        if self._options.guided is None:
            return
        for k, column in enumerate(self._roles.features):
            is_number = self.coder.is_plain_number(k) or self.coder.columns[k].kind == "numeric"
            (self._texts.discard if is_number else self._texts.add)(column)

    @property
    def text_bytes(self) -> int | None:
        """Length of the text in bytes; None for compressed text and standard input, whose length is known only at the end."""
        return None if self.digest is None or not is_plain(Path(self.name), self._options.encoding) else self.digest.size

    def close(self) -> None:
        """Close the source without reading it."""
        self._text.close()

    def pieces(self, options: Options) -> Iterator[tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any] | Words]]]:
        """Yield blocks of rows. With very many columns, each row is read separately, in parts."""
        if not self.is_wide:
            yield from super().pieces(options)
            return
        features, step = np.array(self._roles.features), self.step(options, len(self.columns))
        words = [(place, k) for place, k in enumerate(self._roles.features) if k in self._texts]
        texts = {*range(len(self.columns))} - {*self._roles.features} | {k for _, k in words}
        first = 0
        with self._text:
            rows = iter(WideRows(self._text, self._delimiter, len(self.columns), texts, options.budget, self.name, self._plain))
            while batch := self._located(lambda: list(islice(rows, step))):
                x = np.array([row.values for row in batch])
                x = x if len(features) == len(self.columns) else x[:, features]
                for place, k in words:
                    x[:, place] = self._numbers(chunk_of_objects(self._cells(batch, k)), first, place)
                yield x, {table: self._cells(batch, k) for table, k in self._roles.columns.items()}
                first += len(batch)

    def _located(self, read: Callable[[], list[WideRow]]) -> list[WideRow]:
        """Return the rows from ``read``; an error in a cell is reported with the column of the cell and a remedy."""
        try:
            return read()
        except DataError as error:
            if error.column is None:
                raise
            name = self.columns[error.column - 1]
            remedy = f"if its values are names, say so (--categorical {name}), or leave it out (--drop {name})"
            raise DataError(f"column {name!r}: {error.reason}; {remedy}", self.name, error.line, error.column) from error

    def _cells(self, rows: Sequence[WideRow], k: int) -> npt.NDArray[Any]:
        """Return the texts of a column in the form that pyarrow's streaming reader gives."""
        import pyarrow as pa

        cells = self._plain(self.columns[k], pa.array([row.texts[k] for row in rows]))
        return np.array([cell or None for cell in cells.to_pylist()], dtype=object)

    @staticmethod
    def _holds_names(table: str, options: Options) -> bool:
        return table in ("task", "id") or (table == "y" and options.task != "regression")

    @property
    def _blank_rows(self) -> bool:
        """Return whether an empty line counts as a row with a single, empty cell."""
        return self._options.reads_missing and len(self.columns) == 1

    @property
    def _word_columns(self) -> set[str]:
        """Return the columns that are read as texts."""
        roles = self._roles.columns
        tables = {k for table, k in roles.items() if self._holds_names(table, self._options)}
        return {self.columns[k] for k in tables | (self._texts - {*roles.values()})}

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield blocks of rows."""
        import pyarrow as pa
        from pyarrow import csv as tables

        names, words = [self.columns[k] for k in self.columns_read], self._word_columns
        read = tables.ReadOptions(column_names=self.columns, block_size=max(1 << 20, options.budget // 64), use_threads=False)
        # What a text is, one rule tells for all readers, not this one's own.
        convert = tables.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), include_columns=names, check_utf8=False)
        parse = tables.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=not self._blank_rows)
        try:
            with self._text, tables.open_csv(self._text, read, parse, convert) as reader:
                for batch in reader:
                    cells = [(name, self._plain(name, column)) for name, column in zip(names, batch.columns, strict=True)]
                    numbers = iter(chunks_of_cells([column for name, column in cells if name not in words]))
                    yield self.in_places([chunk_of_arrow(column) if name in words else next(numbers) for name, column in cells])
        except pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise self._locate(str(error)) from error

    def _plain(self, name: str, column: Foreign) -> Foreign:
        """Replace decimal commas and words for missing values in the cells, as the options say; ids and names are unchanged."""
        is_comma = self._options.decimal == "," and name not in (self._options.id_column, *self._options.categorical)
        return plain_cells(column, self._options.missing_words, is_comma)

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Read the text again with the standard library, which is slow but knows line numbers. Yield each row together with the number of
        the last line of the row.
        """
        with open_text(self._source, self.name, self._options.encoding).stream as stream:
            text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", newline="")
            reader = csv.reader(text, delimiter=self._delimiter)
            try:
                next(reader)
                yield from ((reader.line_num, row or [""]) for row in reader if row or self._blank_rows)
            except csv.Error as error:
                raise DataError(str(error), self.name, reader.line_num) from error

    def _locate(self, why: str) -> DataError:
        """Return the error for the first invalid row of a text that pyarrow has rejected."""
        if self.digest is None:
            return DataError(why, self.name)
        for line, row in self._lines():
            if len(row) != len(self.columns):
                return DataError(f"the row has {len(row)} fields; the header has {len(self.columns)}", self.name, line)
        return DataError(why, self.name)

    def _fault(self, reason: str, row: int, column: int | None) -> DataError:
        located = next(islice(self._lines(), row, None), None) if self.digest is not None and not self.is_wide else None
        if located is None:
            return super()._fault(reason, row, column)
        name = "" if column is None else f"column {self.columns[column]!r}: "
        return DataError(name + reason, self.name, located[0], None if column is None else column + 1)


def is_too_wide(columns: int, options: Options) -> bool:
    """Return whether pyarrow's memory for this many CSV columns exceeds half of the budget."""
    return 2 * COLUMN_BYTES * columns > options.budget


def _columns_wanted(columns: Sequence[str], options: Options) -> int:
    """Return the number of columns that are read: the chosen columns, or all columns that are not left out."""
    chosen = options.guided if options.columns is None else options.columns
    return len(columns) - len(options.drop) if chosen is None else len(chosen) + len(options.row_columns(columns))


def _check_header_fits(line: bytes, options: Options, name: str) -> None:
    """Raise SchemaError for a header with so many columns that their names alone exceed the budget."""
    columns = 1 + max(map(line.count, (mark.encode() for mark in _DELIMITERS)))
    need = NAME_BYTES * columns + 4 * len(line)
    if need > options.budget or (not line.endswith(b"\n") and len(line) >= options.budget // 4):
        keeping = f"keeping their names takes {need} bytes, more than the budget of {options.budget}"
        advice = "raise the budget (--budget), or give sparse input"
        raise SchemaError(f"{name} has a header of at least {columns} columns, and {keeping}; {advice}")


def _read_header(line: bytes, name: str, delimiter: str | None) -> tuple[str, list[str]]:
    """Return the delimiter (found in the line if it is not given) and the column names. Raises DataError if the line is not a header."""
    try:
        text = line.decode().removesuffix("\n")
        delimiter = delimiter or max(_DELIMITERS, key=text.count)
        columns = next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"the header cannot be read: {error}", name, 1) from error
    if not text.strip() or all(as_number(column) is not None for column in columns):
        raise DataError("the first line must name the columns", name, 1)
    return delimiter, columns


# Rows that are too wide for a reader of columns: each is read in parts, and one row of numbers is in memory.

_PART_SHARE = 128
_LEAST = 1 << 16
_LONGEST = 1 << 16  # bytes of a cell


class WideRows:
    """Iterator of `WideRow` over a text whose header was read.

    * ``columns``: the number of cells per row.
    * ``texts``: the columns kept as texts.
    * ``plain``: a function of a column's name and cells that replaces decimal commas and words for missing values.

    Raises DataError, with the line, for a row with another number of cells, or a cell that is not a number.
    """

    def __init__(
        self,
        stream: BinaryIO,
        delimiter: str,
        columns: int,
        texts: set[int],
        budget: int,
        name: str,
        plain: Callable[[str, Foreign], Foreign],
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
        """Yield pieces of the text that consist of whole cells of one row, each with whether it completes the row."""
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
            raise DataError(
                "a cell is quoted, which is not supported in rows this wide; raise the budget (--budget)", self._name, self._line
            )
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
            advice = "; in rows this wide, columns of numbers hold no texts: raise --budget (to 1GiB, say) to read them as names"
            raise DataError(reason + advice, self._name, self._line, column)
        return number
