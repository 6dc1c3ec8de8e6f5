"""Tables as input: the part shared by all readers.

Each column is a feature, a row table or the ids, or it is left out. Features become numbers. The encoding of the table turns these into
dense columns, or into sparse ones if there are many levels.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import Chunk, Coded, Unreadable, Words, chunk_length, fill_masked, is_inexact
from ...encoding.record import BEYOND
from ...encoding.table import Other, TableReader
from ...errors import DataError, SchemaError
from ..labels import Target
from ..options import Options
from ..reading import RowSource, check_row_fits, check_width
from ..text.spool import Block
from .row_tables import at_row, row_tables

# What the columns of a table are for: features, row tables, ids, or nothing.

_SHOWN = 20


class Roles(NamedTuple):
    """Roles of the columns of a table.

    * ``features``: positions of the feature columns.
    * ``columns``: positions of the row tables.
    * ``arrays``: row tables given as arrays.
    * ``others``: the remaining columns.
    * ``messages``: messages about columns that are left out although no option says so.
    """

    features: list[int]
    columns: dict[str, int]
    arrays: dict[str, npt.NDArray[Any]]
    others: list[Other]
    messages: list[str]


def assign_roles(names: Sequence[str], options: Options, source: str, index: str | None = None) -> Roles:
    """Assign the columns of a table, by name, to roles. ``index`` is the index of a frame, which is left out unless the options name it.

    Raises SchemaError if a named column does not exist, names repeat, or no feature is left.
    """
    positions = {name: k for k, name in enumerate(names)}
    if len(positions) != len(names):
        twice = next(name for k, name in enumerate(names) if positions[name] != k)
        raise SchemaError(f"{source}: the column name {twice!r} occurs twice")
    given = options.row_columns(names)
    columns = {table: _find(column, positions, source) for table, column in given.items() if isinstance(column, str)}
    if options.guided is not None:
        features, others = _as_before(positions, options, source), []
        messages = _left_out(names, {*features, *columns.values()}, options)
    else:
        chosen = {*options.drop, *options.categorical, *(options.columns or ())}
        is_left_out = index is not None and index not in chosen and positions[index] not in columns.values()
        others = _chosen_others(names, positions, columns, options, source, {index} if is_left_out else set())
        taken = {*columns.values(), *(positions[other.name] for other in others)}
        features, messages = [k for k in range(len(names)) if k not in taken], list[str]()
        if is_left_out and options.columns is None:
            what = "the first column has no name and numbers the rows" if index == "" else f"column {index!r} is the index of a frame"
            messages.append(f"{what}: it is left out; give it a name if it is a feature")
    if not features:
        raise SchemaError(f"{source} has no column left for features")
    arrays = {table: np.asarray(values) for table, values in given.items() if not isinstance(values, str)}
    return Roles(features, columns, arrays, others, messages)


def _find(column: str, positions: dict[str, int], source: str) -> int:
    if column not in positions:
        names = list(positions)
        shown = f"{', '.join(names[:_SHOWN])}{', …' if len(names) > _SHOWN else ''}"
        raise SchemaError(f"{source} has no column {column!r}; it has {shown}")
    return positions[column]


def _as_before(positions: dict[str, int], options: Options, source: str) -> list[int]:
    """Return the positions of the columns from which another store made its features, in that store's order."""
    assert options.guided is not None
    missing = [name for name in options.guided if name not in positions]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SchemaError(f"{source} has no column {missing[0]!r}{more}, which the training store has")
    return [positions[name] for name in options.guided]


def _left_out(names: Sequence[str], used: set[int], options: Options) -> list[str]:
    known = set() if options.table_encoding is None else {column.name for column in options.table_encoding.columns}
    new = [name for k, name in enumerate(names) if k not in used and name not in known]
    if not new:
        return []
    shown = f"{', '.join(map(repr, new[:3]))}{f' and {len(new) - 3} more' if len(new) > 3 else ''}"
    return [f"columns that are not in the training store are left out: {shown}"]


def _chosen_others(
    names: Sequence[str], positions: dict[str, int], tables: dict[str, int], options: Options, source: str, index: set[str | None]
) -> list[Other]:
    """Return the columns that, according to the options, are not features."""
    for name in (*options.categorical, *options.drop, *(options.columns or ())):
        _find(name, positions, source)
    busy = [name for name in (*options.drop, *options.categorical) if positions[name] in tables.values()]
    if busy:
        raise SchemaError(
            f"column {busy[0]!r} is no feature: it has the target, tasks, weights, ids or covariates; leave it out of drop and categorical"
        )
    twice = set(options.drop) & {*options.categorical, *(options.columns or ())}
    if twice:
        raise SchemaError(
            f"drop names {min(twice)!r}, which is also in {'categorical' if min(twice) in options.categorical else 'columns'}"
        )
    keep = None if options.columns is None else {*options.columns, *options.categorical}
    return list(_others(names, tables, {*options.drop, *index}, keep))


def _others(names: Sequence[str], tables: dict[str, int], drop: set[str | None], keep: set[str] | None) -> Iterable[Other]:
    before = 0
    for k, name in enumerate(names):
        if k == tables.get("id"):
            yield Other(name, "id", before)
        elif k in tables.values():
            continue
        elif name in drop or (keep is not None and name not in keep):
            yield Other(name, "dropped", before)
        else:
            before += 1


_LEVEL_SHARE = 16  # the levels of a column take at most this part of the budget


class Table(RowSource):
    """Common part of the readers of tables: from columns to rows, with checks.

    * ``columns``: the names of all columns.
    * ``numbers``: the columns with a numeric type.
    * ``index``: the column that is the index of a frame.
    """

    def __init__(self, name: str, columns: Sequence[str], numbers: Sequence[int], options: Options, index: str | None = None) -> None:
        self.name, self.columns, self._missing_words = name, list(columns), frozenset(options.missing_words)
        self._roles = assign_roles(self.columns, options, name, index)
        self.names = self._names = [self.columns[k] for k in self._roles.features]
        self.messages, self.tables = self._roles.messages, [*self._roles.columns, *self._roles.arrays]
        if options.guided is not None and options.table_encoding is None:
            numbers = range(len(columns))  # where nothing else was written down, there were numbers
        self.coder = self._reader(numbers, options)
        # What nominal columns yield shows when they are read.
        self.n_cols = len(self._roles.features) if self.coder.is_plain and not self.coder.columns else None
        if options.table_encoding is not None:
            self.n_cols = options.table_encoding.n_features
        if self.n_cols is not None:
            check_width(self.n_cols, options, name)
        check_row_fits(max(self.n_cols or 0, len(self._roles.features)), options, name)

    def _reader(self, numbers: Sequence[int], options: Options) -> TableReader:
        features, known = self._roles.features, set() if len(numbers) == len(self.columns) else set(numbers)
        plain = range(len(features)) if len(numbers) == len(self.columns) else [k for k, column in enumerate(features) if column in known]
        form = "codes" if options.missing == "keep" else "one-hot"
        more: dict[str, Any] = {
            "missing": options.missing,
            "known": options.table_encoding,
            "form": form,
            "limit": options.budget // _LEVEL_SHARE,
        }
        return TableReader(self._names, plain, named=options.categorical, others=self._roles.others, **more)

    coder: TableReader  # pyright: ignore[reportIncompatibleVariableOverride] (of a table there always is one)

    @abstractmethod
    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield about ``step`` rows at a time, with one part per column; columns that are left out may be absent (see `in_places`)."""

    @staticmethod
    def step(options: Options, columns: int) -> int:
        """Return how many rows of this many columns are read at a time."""
        return max(1, options.budget // 16 // (8 * columns))

    def pieces(self, options: Options) -> Iterator[tuple[npt.NDArray[Any], dict[str, npt.NDArray[Any] | Words]]]:
        """Yield, for some rows at a time, the matrix of the features, and the row tables that are columns of the table."""
        row = 0
        for columns in self.batches(self.step(options, len(self.columns)), options):
            tables: dict[str, npt.NDArray[Any] | Words] = {}
            for table, k in self._roles.columns.items():
                chunk = columns[k]
                if isinstance(chunk, Unreadable):
                    raise self._fault(f"the values have the type {chunk.type}; numbers or texts are expected", row, k)
                tables[table] = chunk
            # (Columns lie together, as they will in the block.)
            x = np.array([self._numbers(columns[place], row, k) for k, place in enumerate(self._roles.features)]).T
            yield x, tables
            row += len(x)

    @cached_property
    def columns_read(self) -> list[int]:
        """Return the columns that are read: features and row tables."""
        return sorted({*self._roles.features, *self._roles.columns.values()})

    def in_places(self, chunks: Sequence[Chunk]) -> list[Chunk]:
        """Put the columns that were read at their positions among all columns."""
        places: list[Any] = [None] * len(self.columns)
        for k, chunk in zip(self.columns_read, chunks, strict=True):
            places[k] = chunk
        return places

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield blocks of rows: features as numbers, nominal features as codes."""
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
        self.coder.check_end(self.fault)

    def _check_length(self, table: str, values: npt.NDArray[Any] | Words, count: int) -> None:
        if chunk_length(values) != count:
            raise SchemaError(f"{self.name}: the array given for {table} does not have one entry per row")

    def _numbers(self, chunk: Chunk | Coded, first: int, k: int) -> npt.NDArray[Any]:
        """Return part of a feature as numbers; 64-bit integers are checked here, before their type is lost."""
        if isinstance(chunk, Coded):
            return chunk.values
        if isinstance(chunk, Words) and self._missing_words:
            chunk = chunk._replace(words=["" if word in self._missing_words else word for word in chunk.words])
        if isinstance(chunk, np.ndarray) and chunk.dtype.kind not in "biuf":
            raise self.fault(f"the values have the type {chunk.dtype}; numbers are expected", first, k)
        if isinstance(chunk, np.ndarray) and chunk.dtype.kind in "iuf" and self.coder.is_plain_number(k):
            beyond: list[int] = [] if chunk.dtype.kind == "f" else np.flatnonzero(is_inexact(np.ma.getdata(chunk))).tolist()
            if beyond:
                raise self.fault(f"value {chunk[beyond[0]]} {BEYOND}", first + int(beyond[0]), k)
            return fill_masked(chunk).astype(np.float64, copy=False)
        return self.coder.read(k, chunk, lambda reason, row: self.fault(reason, first + row, k))

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Return the error for a row and feature, counted from zero."""
        return self._fault(reason, row, None if column is None else self._roles.features[column])

    def _fault(self, reason: str, row: int, column: int | None) -> DataError:
        return at_row(self.name, reason, row, None if column is None else self.columns[column])
