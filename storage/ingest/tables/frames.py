"""Tables in memory or delivered in parts: data frames, Arrow streams, Dask frames, xarray data sets."""

from collections.abc import Iterator
from itertools import chain

from ...data import row_dimension
from ...encoding.chunks import Chunk
from ...encoding.frames import Frame, is_frame, is_labelled, open_frame
from ...errors import DataError, Foreign, UserData
from ...sparse_door import admit
from ..options import Options
from .row_tables import array_digest
from .tabular import Table


def table_source(source: UserData, options: Options) -> Table | None:
    """Open a data frame of any library, a stream of record batches, a Dask frame or an xarray data set; None for anything else.

    Raises SchemaError if it cannot be a table.
    """
    if is_labelled(source):
        return DataSet(source, options) if hasattr(source, "data_vars") else None
    if hasattr(source, "dask") and hasattr(source, "npartitions") and hasattr(source, "columns"):
        return DaskFrame(source, options)
    if hasattr(source, "collect_schema") and hasattr(source, "collect"):  # a plan of polars
        source = source.collect()
    if not is_frame(source):
        return None
    if not hasattr(source, "__len__"):
        return Stream(source, options)
    return WholeFrame(open_frame(admit(source, f"<{type(source).__name__}>")), options)


class FrameSource(Table):
    """A data frame of any library in memory, or the ``outline`` of a frame that comes in parts, each of which must fit in memory."""

    format = "array"

    def __init__(self, outline: Frame, options: Options) -> None:
        self._frame = outline
        super().__init__(outline.name, outline.columns, outline.numbers, options)

    def parts(self, step: int) -> Iterator[Frame]:
        """Yield the frame, or its parts; ``step`` is the preferred number of rows of a part."""
        yield self._frame

    def batches(self, step: int, options: Options) -> Iterator[list[Chunk]]:
        """Yield slices of the rows of each part."""
        for part in self.parts(step):
            for lo in range(0, part.n_rows, step):
                hi = min(part.n_rows, lo + step)
                yield self.in_places([self._chunk(part, k, lo, hi) for k in self.columns_read])

    def _chunk(self, part: Frame, k: int, lo: int, hi: int) -> Chunk:
        try:
            return part.chunk(k, lo, hi)
        except (TypeError, ValueError) as error:
            raise DataError(f"column {self.columns[k]!r}: {error}", self.name) from error


class WholeFrame(FrameSource):
    """A data frame in memory."""

    def __init__(self, frame: Frame, options: Options) -> None:
        self.n_rows, self.nbytes = frame.n_rows, 8 * frame.n_rows * len(frame.columns)
        super().__init__(frame, options)

    def identity(self) -> str | None:
        # One column after the other: of some libraries each is a copy.
        columns = ((name, self._frame.content(k)) for k, name in enumerate(self.columns))
        return array_digest(chain(columns, self._roles.arrays.items()))


class DaskFrame(FrameSource):
    """A Dask frame, one partition at a time; partitions may differ in length."""

    def __init__(self, frame: Foreign, options: Options) -> None:
        self._dask = frame
        super().__init__(open_frame(frame._meta), options)

    def identity(self) -> str | None:
        return f"dask {self._dask._name} {array_digest(self._roles.arrays.items())}"

    def parts(self, step: int) -> Iterator[Frame]:
        """Yield the partitions."""
        for i in range(int(self._dask.npartitions)):
            yield open_frame(admit(self._dask.get_partition(i).compute(), f"{self.name}, partition {i}"))


class Stream(FrameSource):
    """A stream of Arrow record batches, which is read once."""

    def __init__(self, stream: Foreign, options: Options) -> None:
        import pyarrow as pa

        self._stream = pa.RecordBatchReader.from_stream(stream)
        outline = open_frame(self._stream.schema.empty_table())
        outline.name = f"<{type(stream).__name__}>"
        super().__init__(outline, options)

    def identity(self) -> str | None:
        """None, because a stream cannot be read twice."""
        return None

    def close(self) -> None:
        """Close the stream without reading it."""
        self._stream.close()

    def parts(self, step: int) -> Iterator[Frame]:
        """Yield the batches."""
        for batch in self._stream:
            yield open_frame(batch)


class DataSet(FrameSource):
    """An xarray data set whose variables share one dimension, the rows; values are loaded some rows at a time."""

    def __init__(self, data: Foreign, options: Options) -> None:
        name = f"<{type(data).__name__}>"
        self._dim, self._data = row_dimension(data, name), data.reset_coords(drop=True)
        self.n_rows = int(data.sizes[self._dim])
        self.nbytes = 8 * self.n_rows * len(data.data_vars)
        outline = self._rows(0, 0)
        outline.name = name
        super().__init__(outline, options)

    def _rows(self, lo: int, hi: int) -> Frame:
        return open_frame(self._data.isel({self._dim: slice(lo, hi)}).to_dataframe())

    def identity(self) -> str | None:
        return array_digest(chain(((name, self._data[name].values) for name in self._data.data_vars), self._roles.arrays.items()))

    def parts(self, step: int) -> Iterator[Frame]:
        """Yield slices of rows."""
        for lo in range(0, self.n_rows, step):
            yield self._rows(lo, lo + step)
