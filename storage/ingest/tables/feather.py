"""Arrow files (Feather) as input: record batches, whose columns are read apart from one another."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ...encoding.arrow import chunk_of_arrow
from ...encoding.chunks import Chunk
from ...errors import DataError
from ...text.open_text import open_file
from ...value_types import Foreign
from ..options import Options
from ..text.streams import FileDigest
from .groups import GroupedTable

_PACKED = 8  # times that packed batches may grow, as far as plans go
_MAGIC = b"ARROW1"  # what a file for random access begins with; a stream has nothing of the kind


class _BatchStream:
    """A stream of record batches that is read as a file of them is: those before the one asked for are passed over."""

    def __init__(self, begin: Callable[[], Foreign]) -> None:
        self._begin, self._reader, self._next = begin, begin(), 0
        self.schema = self._reader.schema
        self.num_record_batches = sum(1 for _ in begin())

    def get_batch(self, group: int) -> Foreign:
        """Return a record batch."""
        if group < self._next:
            self._reader, self._next = self._begin(), 0
        while self._next < group:
            self._reader.read_next_batch()
            self._next += 1
        self._next += 1
        return self._reader.read_next_batch()


class FeatherSource(GroupedTable):
    """A file of record batches in Arrow's own format, for random access or a stream of them; packed or not."""

    format = "feather"

    def __init__(self, source: str | Path, options: Options) -> None:
        self._path = Path(source)
        with open_file(self._path) as file:
            self._is_stream = file.read(len(_MAGIC)) != _MAGIC
        self._streams = dict[tuple[int, ...] | None, _BatchStream]()
        self.digest = FileDigest(self._path)
        self.name = str(source)
        super().__init__(self._path, self._open(None).schema, options)
        file = self._open([0])
        self._lengths = [self._batch(file, group).num_rows for group in range(file.num_record_batches)]
        self.n_rows = sum(self._lengths)

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

    def _map(self) -> Foreign:
        import pyarrow as pa

        return pa.memory_map(os.fspath(self._path))

    def _batch(self, file: Foreign, group: int) -> Foreign:
        try:
            batch = file.get_batch(group)
            batch.validate(full=True)  # compiled code goes where a damaged file sends it
            return batch
        except Exception as error:
            raise self.unreadable(error) from error

    def unreadable(self, error: Exception) -> DataError:
        """Build the error for a file that cannot be read."""
        return DataError(f"cannot be read as an Arrow (Feather) file: {error}", self.name)

    @property
    def n_groups(self) -> int:
        """Number of record batches."""
        return len(self._lengths)

    def group_rows(self, group: int) -> int:
        """Rows of a record batch."""
        return self._lengths[group]

    def group_bytes(self, group: int) -> int:
        """Bytes of a record batch at most: those of the file, packed as it may be."""
        return _PACKED * self.digest.size

    def read_group(self, group: int, names: Sequence[str], step: int, alone: bool) -> Iterator[list[Chunk]]:
        """Yield slices of some columns of a record batch."""
        batch = self._batch(self._open([self.columns.index(name) for name in names]), group)
        for lo in range(0, batch.num_rows, step):
            part = batch.slice(lo, step)
            yield [chunk_of_arrow(part.column(name)) for name in names]
