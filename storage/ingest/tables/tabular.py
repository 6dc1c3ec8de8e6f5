"""Tables as input: CSV through pyarrow's streaming reader, and data frames (Parquet: `parquet`). All go to the dense layout."""

import csv
import io
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import DataError, SchemaError
from ...value_types import Foreign
from ..labels import Target, as_number
from ..options import Options
from ..reading import RowSource, check_row_fits, check_width, fill_masked, is_inexact
from ..text.spool import Block
from ..text.streams import FileDigest, detect_compression, open_source
from ..text.wide_text import WideRows
from .row_tables import array_digest, at_row, row_tables

_MAX_HEADER = 64 << 20
_DELIMITERS = (",", ";", "\t")
COLUMN_BYTES = 9600  # bytes that pyarrow keeps of a column of CSV
NAME_BYTES = 360  # bytes that the name of a column takes in lists, tables and the store, and its number in a row that is read


def import_pyarrow(part: str) -> Foreign:
    """Import a part of pyarrow. Raises SchemaError if it is not installed, naming the extra to install."""
    from importlib import import_module

    try:
        return import_module(part)
    except ImportError as error:
        raise SchemaError("CSV and Parquet are read with pyarrow, which is not installed: pip install 'gramplane[io]'") from error


class Roles(NamedTuple):
    """Positions of the feature columns, and of the row tables among the columns; tables given as arrays."""

    features: list[int]
    columns: dict[str, int]
    arrays: dict[str, npt.NDArray[Any]]


def assign_roles(names: Sequence[str], given: Mapping[str, Any], source: str) -> Roles:
    """Divide the columns of a table into features and row tables. Raises SchemaError if a named column does not exist, names repeat, or no
    feature is left."""
    positions = {name: k for k, name in enumerate(names)}
    if len(positions) != len(names):
        twice = next(name for k, name in enumerate(names) if positions[name] != k)
        raise SchemaError(f"{source}: the column name {twice!r} occurs twice")
    missing = [column for column in given.values() if isinstance(column, str) and column not in positions]
    if missing:
        raise SchemaError(f"{source} has no column {missing[0]!r}; it has {', '.join(names[:20])}{', …' if len(names) > 20 else ''}")
    columns = {table: positions[column] for table, column in given.items() if isinstance(column, str)}
    features = [k for k in range(len(names)) if k not in set(columns.values())]
    if not features:
        raise SchemaError(f"{source} has no column left for features")
    arrays = {table: np.asarray(values) for table, values in given.items() if not isinstance(values, str)}
    return Roles(features, columns, arrays)


class Table(RowSource):
    """What the readers of tables share: columns to rows, and the checks."""

    def __init__(self, name: str, columns: Sequence[str], given: Mapping[str, Any], options: Options) -> None:
        self.name, self.columns = name, list(columns)
        self._roles = assign_roles(self.columns, given, name)
        self.names = [self.columns[k] for k in self._roles.features]
        self.n_cols, self.tables = len(self._roles.features), [*self._roles.columns, *self._roles.arrays]
        check_width(self.n_cols, options, name)
        check_row_fits(self.n_cols, options, name)

    @abstractmethod
    def batches(self, step: int, options: Options) -> Iterator[list[npt.NDArray[Any]]]:
        """Yield about ``step`` rows as one array per column; masked (over zeros) where its numbers have no form for missing ones."""

    @staticmethod
    def step(options: Options, columns: int) -> int:
        """Rows of so many columns that are read at once."""
        return max(1, options.budget // 16 // (8 * columns))

    def pieces(self, options: Options) -> Iterator[tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]]:
        """Yield some rows as the matrix of their features and the row tables that are columns."""
        row = 0
        for columns in self.batches(self.step(options, len(self.columns)), options):
            tables = {table: fill_masked(columns[k]) for table, k in self._roles.columns.items()}
            yield self._stack([columns[k] for k in self._roles.features], row), tables
            row += len(columns[0])

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield blocks of rows."""
        row = 0
        for x, tables in self.pieces(options):
            first, count = row, len(x)

            def fault(reason: str, k: int, table: str | None = None, first: int = first) -> DataError:
                return self._fault(reason, first + k, None if table is None else self._roles.columns.get(table))

            parts = tables | {table: values[row : row + count] for table, values in self._roles.arrays.items()}
            block: Block = {}
            for table, values in parts.items():
                self._check_length(table, values, count)
                block |= row_tables({table: values}, target, lambda reason, k, table=table, fault=fault: fault(reason, k, table))
            yield x, block
            row += count
        for table, values in self._roles.arrays.items():
            self._check_length(table, values, row)

    def _check_length(self, table: str, values: npt.NDArray[Any], count: int) -> None:
        if len(values) != count:
            raise SchemaError(f"{self.name}: the array given for {table} does not have one entry per row")

    def _stack(self, columns: list[npt.NDArray[Any]], first: int, feature: int = 0) -> npt.NDArray[Any]:
        """Feature columns from ``feature`` on as one matrix; 64-bit integers are checked here, before their type is lost."""
        for k, values in enumerate(columns, feature):
            if values.dtype.kind not in "biuf":
                raise self.fault(f"the values have the type {values.dtype}; numbers are expected{self._role_hint()}", first, k)
            beyond = np.flatnonzero(is_inexact(np.ma.getdata(values)))
            if beyond.size:
                raise self.fault(f"value {values[beyond[0]]} is beyond 2^53 and cannot be stored exactly", first + int(beyond[0]), k)
        return np.column_stack([fill_masked(values).astype(np.float64, copy=False) for values in columns])

    def _role_hint(self, column: int | None = None) -> str:
        """What to say of texts among the features while the table has no target."""
        if "y" in {*self._roles.columns, *self._roles.arrays} or column in self._roles.columns.values():
            return ""
        return "; if the column is the target, or names tasks, say so (--target, --task-column)"

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Build the error for a row and feature, counted from zero."""
        return self._fault(reason, row, None if column is None else self._roles.features[column])

    def _fault(self, reason: str, row: int, column: int | None) -> DataError:
        return at_row(self.name, reason, row, None if column is None else self.columns[column])


class CsvSource(Table):
    """Comma, semicolon or tab separated text with a header line; plain, compressed or from standard input."""

    format = "csv"

    def __init__(self, source: str | Path, options: Options) -> None:
        self._pa, self._csv = import_pyarrow("pyarrow"), import_pyarrow("pyarrow.csv")
        self._source = source
        self.digest = FileDigest(Path(source)) if source != "-" and Path(source).is_file() else None
        name = "<stdin>" if source == "-" else str(source)
        self._opened = open_source(source, name)
        self._text = io.BufferedReader(self._opened.stream, 1 << 20)
        line = self._text.readline(min(_MAX_HEADER, options.budget // 4))
        self._wide = _is_wide(line, options, name)
        self._delimiter, columns = _read_header(line, name)
        self._missing = options.missing == "keep"
        super().__init__(name, columns, options.row_columns(columns), options)

    @property
    def text_bytes(self) -> int | None:
        """Bytes of the text; None of what is packed or comes from standard input, where only its end would tell."""
        return None if self.digest is None or detect_compression(Path(self.name)) is not None else self.digest.size

    def close(self) -> None:
        """Leave it unread."""
        self._text.close()

    def pieces(self, options: Options) -> Iterator[tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any]]]]:
        """Yield blocks of rows; of very many columns row by row, each in parts."""
        if not self._wide:
            yield from super().pieces(options)
            return
        texts = {k: table for table, k in self._roles.columns.items()}
        features, step = np.array(self._roles.features), self.step(options, len(self.columns))
        with self._text:
            rows = iter(WideRows(self._text, self._delimiter, len(self.columns), set(texts), options.budget, self.name))
            while batch := list(islice(rows, step)):
                x = np.array([row.values for row in batch])
                tables = {table: self._cells([row.texts[k] for row in batch], table, options) for k, table in texts.items()}
                yield (x[:, features] if texts else x), tables

    def _cells(self, cells: list[str], table: str, options: Options) -> npt.NDArray[Any]:
        """Cells of a row table, as the other reader gives them: texts where they may be names, else numbers."""
        if table == "task" or (table == "y" and options.task == "classification"):
            return np.array([cell or None for cell in cells], dtype=object)
        numbers = [as_number(cell.strip()) for cell in cells]
        return np.array([np.nan if number is None else number for number in numbers])

    @property
    def _blank_rows(self) -> bool:
        """Whether an empty line is a row: one whose only cell is empty."""
        return self._missing and len(self.columns) == 1

    def batches(self, step: int, options: Options) -> Iterator[list[npt.NDArray[Any]]]:
        """Yield blocks of rows."""
        as_text = {"task", "y"} if options.task == "classification" else {"task"}
        texts = {self.columns[k] for table, k in self._roles.columns.items() if table in as_text}
        types = {name: self._pa.string() if name in texts else self._pa.float64() for name in self.columns}
        read = self._csv.ReadOptions(column_names=self.columns, block_size=max(1 << 20, options.budget // 64), use_threads=False)
        convert = self._csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=True)
        parse = self._csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, ignore_empty_lines=not self._blank_rows)
        try:
            with self._text, self._csv.open_csv(self._text, read, parse, convert) as reader:
                for batch in reader:
                    yield [column.to_numpy(zero_copy_only=False) for column in batch.columns]
        except self._pa.ArrowInvalid as error:
            if "Empty CSV file" not in str(error):
                raise self._locate(str(error)) from error

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Rows with the number of their last line, read again by the standard library: slow, but it knows where it is."""
        with open_source(self._source, self.name).stream as stream:
            text = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8", errors="backslashreplace", newline="")
            reader = csv.reader(text, delimiter=self._delimiter)
            try:
                next(reader)
                yield from ((reader.line_num, row or [""]) for row in reader if row or self._blank_rows)
            except csv.Error as error:
                raise DataError(str(error), self.name, reader.line_num) from error

    def _locate(self, why: str) -> DataError:
        """Build the error for the first row that does not fit, after pyarrow refused the text."""
        if self.digest is None:
            return DataError(why, self.name)
        texts = {self._roles.columns.get("y"), self._roles.columns.get("task")}
        numeric = [k for k in range(len(self.columns)) if k not in texts]
        for line, row in self._lines():
            if len(row) != len(self.columns):
                return DataError(f"the row has {len(row)} fields; the header has {len(self.columns)}", self.name, line)
            for k in numeric:
                may_miss = self._missing and k in self._roles.features
                gone = may_miss and (not row[k] or row[k].strip().lstrip("+-").lower() == "nan")
                if not gone and as_number(row[k].strip()) is None:
                    reason = f"column {self.columns[k]!r}: value {row[k][:40]!r} is not a finite number{self._role_hint(k)}"
                    return DataError(reason, self.name, line, k + 1)
        return DataError(why, self.name)

    def _fault(self, reason: str, row: int, column: int | None) -> DataError:
        located = next(islice(self._lines(), row, None), None) if self.digest is not None and not self._wide else None
        if located is None:
            return super()._fault(reason, row, column)
        name = "" if column is None else f"column {self.columns[column]!r}: "
        return DataError(name + reason, self.name, located[0], None if column is None else column + 1)


def is_too_wide(columns: int, options: Options) -> bool:
    """Whether what pyarrow keeps of so many columns of CSV does not fit half of the budget."""
    return 2 * COLUMN_BYTES * columns > options.budget


def _is_wide(line: bytes, options: Options, name: str) -> bool:
    """Whether a header names so many columns that what pyarrow keeps of them does not fit half of the budget. Raises SchemaError: not even
    their names do."""
    columns = 1 + max(map(line.count, (mark.encode() for mark in _DELIMITERS)))
    need = NAME_BYTES * columns + 4 * len(line)
    if need > options.budget or (not line.endswith(b"\n") and len(line) >= options.budget // 4):
        keeping = f"to keep them takes {need} bytes, more than the budget of {options.budget}"
        advice = "raise the budget (--budget), or give sparse input"
        raise SchemaError(f"{name} has a header of {columns} columns or more, and {keeping}; {advice}")
    return is_too_wide(columns, options)


def _read_header(line: bytes, name: str) -> tuple[str, list[str]]:
    """Delimiter and column names. Raises DataError if the line is no header."""
    try:
        text = line.decode("utf-8-sig").rstrip("\r\n")
        delimiter = max(_DELIMITERS, key=text.count)
        columns = next(csv.reader([text], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"the header cannot be read: {error}", name, 1) from error
    if not text.strip() or all(as_number(column) is not None for column in columns):
        raise DataError("the first line must name the columns", name, 1)
    return delimiter, columns


class FrameSource(Table):
    """A data frame with ``columns`` and ``iloc``; ``given``: "y", "task", "weight" -> column name or array."""

    format = "array"

    def __init__(self, frame: Foreign, given: Mapping[str, Any], options: Options) -> None:
        self._frame, self.n_rows = frame, len(frame)
        self.nbytes = 8 * len(frame) * len(frame.columns)
        super().__init__(f"<{type(frame).__name__}>", [str(column) for column in frame.columns], given, options)

    def identity(self) -> str | None:
        """Identity by content."""
        columns = {name: self._frame.iloc[:, k].to_numpy() for k, name in enumerate(self.columns)}
        return array_digest({**columns, **self._roles.arrays})

    def batches(self, step: int, options: Options) -> Iterator[list[npt.NDArray[Any]]]:
        """Yield slices of rows."""
        for lo in range(0, self.n_rows, step):
            part = self._frame.iloc[lo : lo + step]
            yield [_frame_column(part.iloc[:, k]) for k in range(len(self.columns))]


def _frame_column(series: Foreign) -> npt.NDArray[Any]:
    """A column as an array; masked where its type (such as Int64) marks missing numbers beside the values."""
    plain = getattr(series.dtype, "numpy_dtype", None)
    if plain is None or plain.kind not in "biuf" or not hasattr(series, "isna"):
        return series.to_numpy()
    gone = series.isna().to_numpy(dtype=bool)
    filled = series.to_numpy(dtype=plain, na_value=plain.type(0))
    return np.ma.MaskedArray(filled, gone) if gone.any() else filled
