"""Tables in memory, or handed over part by part: data frames, streams of Arrow, frames of Dask, data sets of xarray."""

from collections.abc import Iterator

from ...encoding.arrow import chunk_of_arrow, is_number_type
from ...encoding.chunks import Chunk
from ...encoding.frames import Frame, is_frame, is_labelled, open_frame
from ...errors import DataError
from ...sparse_door import admit
from ...value_types import Foreign, UserData
from ..options import Options
from .labelled import DataSetSource
from .row_tables import array_digest
from .tabular import Table


def table_source(source: UserData, options: Options) -> Table | None:
    """Open a data frame of any library, a stream of record batches, a Dask frame or an xarray data set; None for anything else. Raises
    SchemaError: it cannot be a table."""
    if is_labelled(source):
        return DataSetSource(source, options) if hasattr(source, "data_vars") else None
    if hasattr(source, "dask") and hasattr(source, "npartitions") and hasattr(source, "columns"):
        return DaskFrameSource(source, options)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):  # a plan of polars
        source = source.collect()
    if not is_frame(source):
        return None
    if not hasattr(source, "__len__"):
        return StreamSource(source, options)
    return FrameSource(open_frame(admit(source, f"<{type(source).__name__}>")), options)


class FrameSource(Table):
    """A data frame in memory, of any library."""

    format = "array"

    def __init__(self, frame: Frame, options: Options) -> None:
        self._frame, self.n_rows = frame, frame.n_rows
        self.nbytes = 8 * frame.n_rows * len(frame.columns)
        super().__init__(frame.name, frame.columns, frame.numbers, options)

    def identity(self) -> str | None:
        """Identity by content."""
        return array_digest({**{name: self._frame.content(k) for k, name in enumerate(self.columns)}, **self._roles.arrays})

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield slices of rows."""
        for lo in range(0, self.n_rows, step):
            yield self.in_places([frame_chunk(self, self._frame, k, lo, min(self.n_rows, lo + step)) for k in self.columns_read])


def frame_chunk(table: Table, frame: Frame, k: int, lo: int, hi: int) -> Chunk:
    """Rows of a column of a frame. Raises DataError, which names the column: there are objects that are neither texts nor numbers."""
    try:
        return frame.chunk(k, lo, hi)
    except (TypeError, ValueError) as error:
        raise DataError(f"column {table.columns[k]!r}: {error}", table.name) from error


class DaskFrameSource(Table):
    """A Dask frame, one partition at a time, each of which must fit memory; partitions may differ in length."""

    format = "array"

    def __init__(self, frame: Foreign, options: Options) -> None:
        self._frame = frame
        meta = open_frame(frame._meta)
        super().__init__(f"<{type(frame).__name__}>", meta.columns, meta.numbers, options)

    def identity(self) -> str | None:
        """Dask's own name of the computation, which is a hash of it, with the tables given as arrays."""
        return f"dask {self._frame._name} {array_digest(self._roles.arrays)}"

    @property
    def n_parts(self) -> int:
        """Number of partitions."""
        return int(self._frame.npartitions)

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield slices of the rows of every partition."""
        for i in range(self.n_parts):
            part = open_frame(admit(self._frame.get_partition(i).compute(), f"{self.name}, partition {i}"))
            for lo in range(0, part.n_rows, step):
                yield self.in_places([frame_chunk(self, part, k, lo, min(part.n_rows, lo + step)) for k in self.columns_read])


class ArrowBatches(Table):
    """Record batches of Arrow, one after the other; a batch must fit memory."""

    def slices(self, batch: Foreign, step: int) -> Iterator[list[Chunk]]:
        """Yield slices of the rows of a batch."""
        for lo in range(0, batch.num_rows, step):
            part = batch.slice(lo, step)
            yield self.in_places([chunk_of_arrow(part.column(k)) for k in self.columns_read])


class StreamSource(ArrowBatches):
    """A stream of record batches, which is read once."""

    format = "array"

    def __init__(self, stream: Foreign, options: Options) -> None:
        import pyarrow as pa

        self._stream = pa.RecordBatchReader.from_stream(stream)
        schema = self._stream.schema
        super().__init__(
            f"<{type(stream).__name__}>", schema.names, [k for k, field in enumerate(schema) if is_number_type(field.type)], options
        )

    def identity(self) -> str | None:
        """None: a stream cannot be read twice."""
        return None

    def close(self) -> None:
        """Leave it unread."""
        self._stream.close()

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield slices of the batches."""
        for batch in self._stream:
            yield from self.slices(batch, step)
