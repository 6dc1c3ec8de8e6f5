"""Files of tables in groups of rows (Parquet, Arrow).

A group that fits in an eighth of the budget is read by rows. A larger group is read some columns at a time, because pyarrow's memory for a
group grows with the number of columns read together. The columns are written to scratch, and rows are assembled from there.
"""

import struct
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import Chunk, Coded, Words, chunk_length, chunk_of_arrow, has_fixed_width, is_number_type, is_word_type
from ...errors import DataError, Foreign, OutOfSpace, SchemaError
from ...text.open_text import open_file
from ..files import Panels, release_pages
from ..options import Options
from ..text.spool import FileDigest
from .tabular import Table

COLUMN_BYTES = 6 << 10  # bytes that pyarrow takes for a column while it is read
CELL_BYTES = 9  # bytes of a number in a page, with its part of the page's head
GROUP_SHARE = 8
_INDEX = "__index_level_0__"  # what pandas calls an index without a name


class GroupedTable(Table):
    """A file of row groups whose columns can be read separately; ``schema`` is its Arrow schema."""

    digest: FileDigest
    n_rows: int

    def __init__(self, path: Path, schema: Foreign, options: Options) -> None:
        self.numbers = [k for k, field in enumerate(schema) if is_number_type(field.type)]
        index = _INDEX if _INDEX in schema.names else None
        super().__init__(str(path), schema.names, self.numbers, options, index)
        # Texts that repeat are read as a table of texts and numbers of them, and are texts all the same; ids do not repeat.
        repeat = [k for k in self.columns_read if k != self._roles.columns.get("id")]
        self.texts = [self.columns[k] for k in repeat if is_word_type(schema.field(k).type)]
        self.long = [self.columns[k] for k in self.columns_read if not has_fixed_width(schema.field(k).type)]

    @property
    @abstractmethod
    def n_groups(self) -> int:
        """Number of groups."""

    @abstractmethod
    def group_rows(self, group: int) -> int:
        """Return the number of rows of a group."""

    @abstractmethod
    def group_bytes(self, group: int) -> int:
        """Return an upper bound of the bytes of a group, compressed and decompressed."""

    def stays_in_file(self, group: int) -> bool:
        """Return whether only the current rows of a group are in memory."""
        return False

    @abstractmethod
    def read_group(self, group: int, names: Sequence[str], step: int, alone: bool) -> Iterator[list[Chunk]]:
        """Yield some columns of a group, about ``step`` rows at a time; ``alone`` marks a single column that exceeds the group's share of
        memory.
        """

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        try:
            row = 0
            for group in range(self.n_groups):
                yield from self._group(group, row, step, options)
                row += self.group_rows(group)
        except (DataError, SchemaError, OutOfSpace):
            raise
        except Exception as error:  # damaged files make pyarrow raise almost anything
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> DataError:
        """Return the error for a file that cannot be read."""
        return DataError(f"cannot be read as {self.format.capitalize()}: {error}", self.name)

    def _group(self, group: int, row: int, step: int, options: Options) -> Iterator[list[Chunk]]:
        sizes, share = self._sizes(group), options.budget // GROUP_SHARE
        if self.stays_in_file(group) or sum(sizes[self.columns[k]] for k in self._roles.features) <= share:
            names = [self.columns[k] for k in self.columns_read]
            yield from map(self.in_places, self._read(group, names, self._rows(group, sizes, step)))
        else:
            yield from self._by_columns(group, sizes, row, step, options)

    def _sizes(self, group: int) -> dict[str, int]:
        """Return upper bounds of the bytes needed to read each column of a group: compressed, decompressed, and pyarrow's own memory.

        Only the numbers of rows and bytes are used, because reading details of single columns from a damaged footer can crash the process.
        """
        whole, long = self.group_bytes(group), set(self.long)
        number = min(whole, 2 * CELL_BYTES * max(0, self.group_rows(group)))
        return {name: COLUMN_BYTES + (whole if name in long else number) for name in self.columns}

    def _rows(self, group: int, sizes: dict[str, int], step: int) -> int:
        """Return the number of rows in a batch: ``step``, or fewer if the group has long texts."""
        width = 8 * len(self.columns) + sum(sizes[name] for name in self.long) // max(1, self.group_rows(group))
        return max(1, step * 8 * len(self.columns) // width)

    def _read(self, group: int, names: Sequence[str], step: int, alone: bool = False) -> Iterator[list[Chunk]]:
        texts = {k for k, name in enumerate(names) if name in self.texts}
        for chunks in self.read_group(group, names, step, alone):
            for k in texts:
                chunk = chunks[k]
                chunks[k] = chunk._replace(is_type=False) if isinstance(chunk, Words) else chunk
            yield chunks

    def _by_columns(self, group: int, sizes: dict[str, int], row: int, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield batches of a large group, through panels of columns on scratch."""
        assert self.scratch is not None
        count = self.group_rows(group)
        panels = Panels(self.scratch.path("panels.bin"), count)
        names, share = [self.columns[k] for k in self._roles.features], options.budget // GROUP_SHARE
        at = 0
        while at < len(names):
            end, taken = at + 1, sizes[names[at]]
            while end < len(names) and taken + sizes[names[end]] <= share:
                taken, end = taken + sizes[names[end]], end + 1
            panels.add(self._stacked(group, names[at:end], row, at, taken > share, options), end - at, np.dtype(np.float64))
            at = end
        others = [self.columns[k] for k in self._roles.columns.values()]
        lo, step = 0, self._rows(group, sizes, step)
        for tables in self._read(group, others, step) if others else ([] for _ in range(0, count, step)):
            hi = lo + (chunk_length(tables[0]) if tables else min(step, count - lo))
            chunks: dict[str, Any] = dict(zip(others, tables, strict=False))
            chunks |= {name: Coded(values) for name, values in zip(names, panels[lo:hi].T, strict=True)}
            yield self.in_places([chunks[self.columns[k]] for k in self.columns_read])
            lo = hi

    def _stacked(self, group: int, names: list[str], row: int, feature: int, alone: bool, options: Options) -> Iterator[npt.NDArray[Any]]:
        for columns in self._read(group, names, self.step(options, len(names)), alone):
            yield np.column_stack([self._numbers(chunk, row, k) for k, chunk in enumerate(columns, feature)])
            row += chunk_length(columns[0])


# Arrow files (Feather) as input: record batches, whose columns are read apart from one another.

_MAGIC = b"ARROW1\0\0"  # what a file for random access begins with, before a stream; a stream alone has nothing of the kind


class _Declared(NamedTuple):
    """Content of a record batch header.

    * ``rows``: its number of rows.
    * ``nbytes``: its bytes in the file.
    * ``unpacked``: the decompressed size in bytes of each buffer; empty if the batch is not compressed.
    """

    rows: int
    nbytes: int
    unpacked: list[int]


class _BatchStream:
    """A record batch stream with the interface of a record batch file; to reach a requested batch, the batches before it are skipped."""

    def __init__(self, begin: Callable[[], Foreign]) -> None:
        self._begin, self._reader, self._next = begin, begin(), 0
        self.schema = self._reader.schema

    def get_batch(self, group: int) -> Foreign:
        if group < self._next:
            self._reader, self._next = self._begin(), 0
        while self._next < group:
            self._reader.read_next_batch()
            self._next += 1
        self._next += 1
        return self._reader.read_next_batch()


class FeatherSource(GroupedTable):
    """A file of record batches in Arrow's own format, for random access or as a stream, compressed or not."""

    format = "feather"

    def __init__(self, source: str | Path, options: Options) -> None:
        self._path = Path(source)
        with open_file(self._path) as file:
            self._is_stream = file.read(len(_MAGIC)) != _MAGIC
        self._streams = dict[tuple[int, ...] | None, _BatchStream]()
        self.digest = FileDigest(self._path)
        self.name = str(source)
        super().__init__(self._path, self._open(None).schema, options)
        self._batches = self._declared(options)
        self.n_rows = sum(batch.rows for batch in self._batches)

    def _open(self, columns: Sequence[int] | None) -> Foreign:
        from pyarrow import ipc

        options, key = ipc.IpcReadOptions(included_fields=columns, use_threads=False), None if columns is None else tuple(columns)
        try:
            if not self._is_stream:
                return ipc.open_file(self._map(), options=options)
            if key not in self._streams:  # the same columns of the batch after it are read next
                self._streams = {key: _BatchStream(lambda: ipc.open_stream(self._map(), options=options))}
            return self._streams[key]
        except Exception as error:  # damaged files make pyarrow raise almost anything
            raise self.unreadable(error) from error

    def _map(self, offset: int = 0) -> Foreign:
        import pyarrow as pa

        return pa.BufferReader(pa.py_buffer(self._bytes[offset:]))

    @cached_property
    def _bytes(self) -> npt.NDArray[np.uint8]:
        return np.memmap(self._path, np.uint8, "r")

    def _declared(self, options: Options) -> list[_Declared]:
        """Read the headers of the record batches. Raises SchemaError if the columns that are decompressed at the same time exceed the
        budget.
        """
        from pyarrow import ipc

        batches, at_once = list[_Declared](), max(1, len(self._roles.columns))
        try:
            for message in ipc.MessageReader.open_stream(self._map(0 if self._is_stream else len(_MAGIC))):
                if message.type == "record batch":
                    batches.append(_read_header(message))
        except Exception as error:  # damaged files make pyarrow raise almost anything
            raise self.unreadable(error) from error
        release_pages(self._bytes)
        for k, batch in enumerate(batches):
            nbytes = sum(sorted(batch.unpacked)[-at_once:])
            if nbytes > options.budget:
                what = f"the columns of record batch {k + 1} ({batch.rows} rows) take {nbytes} bytes when unpacked"
                advice = "write the file with smaller batches or without compression, or raise the budget (--budget)"
                raise SchemaError(f"{self.name}: {what}, more than the budget of {options.budget}; {advice}")
        return batches

    def unreadable(self, error: Exception) -> DataError:
        """Return the error for a file that cannot be read."""
        return DataError(f"cannot be read as an Arrow (Feather) file: {error}", self.name)

    @property
    def n_groups(self) -> int:
        return len(self._batches)

    def group_rows(self, group: int) -> int:
        return self._batches[group].rows

    def group_bytes(self, group: int) -> int:
        """Return the bytes of a record batch, compressed and decompressed."""
        return self._batches[group].nbytes + sum(self._batches[group].unpacked)

    def stays_in_file(self, group: int) -> bool:
        """Return whether a record batch is not compressed, so that its rows are views of the file."""
        return not self._batches[group].unpacked

    def read_group(self, group: int, names: Sequence[str], step: int, alone: bool) -> Iterator[list[Chunk]]:
        """Yield slices of some columns of a record batch."""
        # (To read some columns alone, pyarrow copies them.)
        columns = None if self.stays_in_file(group) else [self.columns.index(name) for name in names]
        batch = self._open(columns).get_batch(group)
        for lo in range(0, batch.num_rows, step):
            part = batch.slice(lo, step)
            part.validate(full=True)  # compiled code goes where a damaged file sends it
            yield [chunk_of_arrow(part.column(name)) for name in names]
            release_pages(self._bytes)


def _read_header(message: Foreign) -> _Declared:
    """Read the header of a record batch message, a FlatBuffers table (source: Message.fbs and Schema.fbs of Apache Arrow)."""
    metadata, body = message.metadata, message.body

    def number(kind: str, at: int) -> int:
        return int(struct.unpack_from(f"<{kind}", metadata, at)[0])

    def field(table: int, place: int) -> int:
        """Return the position of a field of a table; 0 if it is absent."""
        listed = table - number("i", table)
        offset = number("H", listed + 4 + 2 * place) if 4 + 2 * place < number("H", listed) else 0
        return table + offset if offset else 0

    def follow(at: int) -> int:
        return at + number("I", at)

    batch = follow(field(follow(0), 2))
    rows, buffers, packed = (field(batch, place) for place in (0, 2, 3))
    unpacked = list[int]()
    if packed:
        first = follow(buffers)
        places = [(number("q", at), number("q", at + 8)) for at in range(first + 4, first + 4 + 16 * number("I", first), 16)]
        # A buffer begins with its length unpacked; -1: it is not packed.
        lengths = [(struct.unpack_from("<q", body, at)[0], size) for at, size in places if size]
        unpacked = [size if length < 0 else length for length, size in lengths]
    return _Declared(number("q", rows) if rows else 0, body.size, unpacked)
