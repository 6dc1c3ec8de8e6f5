"""Data frames of any library in memory, read through narwhals in parts of columns."""

from collections.abc import Sequence
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import Foreign, SchemaError, UserData
from .chunks import Chunk, Unreadable, Words, chunk_of_arrow, chunk_of_objects, is_inexact, is_word_type, name_of_number, objects_of_words

_NUMBERS = ("int", "uint", "float")
_LONG = ("int64", "int128")


class Frame:
    """A table in memory: its rows, column names, and the columns of a numeric type.

    ``frame`` is a narwhals frame; ``name`` is used in messages.
    """

    def __init__(self, frame: Foreign, name: str) -> None:
        self._frame, self.n_rows, self.name, self._names = frame, len(frame), name, list(frame.columns)
        self.columns = [str(column) for column in self._names]
        self.has_texts_as_names = all(isinstance(column, str) for column in self._names)
        self._types = _type_names(frame)
        self.numbers = [k for k, kind in enumerate(self._types) if kind.startswith((*_NUMBERS, "decimal"))]
        self._places = {k: place for part in self._blocks for place, k in enumerate(part)}
        self._last: dict[bool, tuple[tuple[int, int], npt.NDArray[Any]]] = {}

    @cached_property
    def _blocks(self) -> tuple[list[int], list[int]]:
        """Two lists of numeric columns, each read together: columns that float64 can represent, and integer columns that it may not
        represent.
        """
        numbers = [k for k in self.numbers if self._types[k].startswith(_NUMBERS)]
        return [k for k in numbers if not self._types[k].endswith(_LONG)], [k for k in numbers if self._types[k].endswith(_LONG)]

    def _block(self, is_long: bool, lo: int, hi: int) -> npt.NDArray[Any]:
        if is_long not in self._last or self._last[is_long][0] != (lo, hi):
            columns = self._blocks[is_long]
            part = self._frame[:, columns] if hi - lo == self.n_rows else self._frame[lo:hi, columns]
            self._last[is_long] = (lo, hi), part.to_numpy()
        return self._last[is_long][1]

    @property
    def is_plain(self) -> bool:
        """Whether all columns have number or boolean types."""
        return all(kind.startswith((*_NUMBERS, "bool")) for kind in self._types)

    @cached_property
    def integers(self) -> Sequence[int]:
        """Columns with an integer that float64 may not represent."""
        if not self._blocks[True] or not self.n_rows:
            return []
        values = self._block(True, 0, self.n_rows)
        if values.dtype.kind in "iu":
            return [self._blocks[True][k] for k in np.flatnonzero(is_inexact(values).any(axis=0)).tolist()]
        columns: dict[int, Any] = {k: self.chunk(k, 0, self.n_rows) for k in self._blocks[True]}  # of numbers, some of them missing
        return [k for k, column in columns.items() if is_inexact(np.ma.getdata(column)).any()]

    def content(self, k: int) -> npt.NDArray[Any]:
        """Return column ``k`` as an array that identifies its content. For a category type, the array includes all names of the type, also
        those that do not occur.
        """
        if k in self._places and self.n_rows < len(self.columns):  # (of tall frames columns side by side are a large copy)
            chunk = self.chunk(k, 0, self.n_rows)
            if isinstance(chunk, np.ndarray) and chunk.dtype.name == self._types[k] and not np.ma.isMA(chunk):
                return chunk
        series = self._frame.get_column(self._names[k])
        if hasattr(series.dtype, "categories") or str(series.dtype) == "Categorical":
            chunk = self.chunk(k, 0, self.n_rows)
            return np.array([*series.to_list(), *([*chunk.words, chunk.is_ordered] if isinstance(chunk, Words) else [])], dtype=object)
        is_rounded = series.dtype.is_integer() and series.null_count()
        values = np.array(series.to_list(), dtype=object) if is_rounded else series.to_numpy()
        return values if values.dtype.kind in "biufcmM" else values.astype(object)

    def chunk(self, k: int, lo: int, hi: int) -> Chunk:
        """Return rows ``lo:hi`` of column ``k``, as a masked array if the type of the column marks missing numbers separately from the
        values.

        Raises TypeError or ValueError for a value that a table cannot hold.
        """
        import pyarrow as pa

        if k in self._places:
            values = self._block(is_long := k in self._blocks[True], lo, hi)
            if not is_long or values.dtype.kind in "iu":
                return values[:, self._places[k]]
        series = self._frame.get_column(self._names[k])
        series = series[lo:hi] if (lo, hi) != (0, self.n_rows) else series
        try:
            column = None if self._types[k] == "object" else pa.chunked_array(series)
        except (pa.ArrowException, UnicodeError):  # of several types in one column, or of one that Arrow does not have
            column = None
        if column is None:
            values = series.to_numpy()
            if values.dtype.kind == "c":
                return Unreadable(str(values.dtype), False, hi - lo)
            return values if values.dtype.kind in "biuf" else chunk_of_objects(values)
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column.type, pa.BaseExtensionType):
            return Unreadable(str(column.type), "period" in str(column.type), hi - lo)
        if pa.types.is_dictionary(column.type) and not is_word_type(column.type.value_type) and hasattr(series.to_native(), "cat"):
            # The levels of a category of pandas are names, whatever its values are: numbers of any size, intervals, dates.
            names = series.to_native().cat.categories.tolist()
            words = [name_of_number(value) if isinstance(value, Real) else str(value) for value in names]
            column = pa.DictionaryArray.from_arrays(column.indices, pa.array(words, pa.string()), ordered=column.type.ordered)
        return chunk_of_arrow(column)


def _type_names(frame: Foreign) -> list[str]:
    """Return the names of column types: NumPy's name for numbers that pandas stores in NumPy arrays, else narwhals' name in lower case."""
    types = list(getattr(frame.to_native(), "dtypes", frame.columns))
    numbers = {dtype: dtype.name for dtype in set(types) if isinstance(dtype, np.dtype) and dtype.kind in "biuf"}
    others = [k for k, dtype in enumerate(types) if dtype not in numbers]
    schema = (frame if len(others) == len(types) else frame[:, others]).schema if others else {}
    found = (_type_of_unknown(frame, name) if str(dtype) == "Unknown" else str(dtype).lower() for name, dtype in schema.items())
    return [numbers[dtype] if dtype in numbers else next(found) for dtype in types]


def _type_of_unknown(frame: Foreign, name: Foreign) -> str:
    """Return NumPy's name for the values of a sparse pandas column, or of another column without a narwhals type."""
    dtype = getattr(frame.get_column(name).to_native(), "dtype", None)
    dtype = getattr(dtype, "subtype", dtype) if type(dtype).__name__ == "SparseDtype" else dtype
    return dtype.name if isinstance(dtype, np.dtype) else "unknown"


def is_labelled(X: object) -> bool:
    """Return whether an object is an xarray array or data set."""
    return hasattr(X, "dims") and hasattr(X, "coords")


def is_frame(X: object) -> bool:
    """Return whether an object is a data frame in memory or a stream of rows, that is, whether it exports Arrow arrays."""
    return hasattr(X, "__arrow_c_stream__") and not is_labelled(X)


def open_frame(X: UserData) -> Frame:
    """Return the frame behind a data frame of any library; an Arrow stream is read to its end. Raises SchemaError if two columns have the
    same name.
    """
    import narwhals as nw
    import pyarrow as pa

    name = f"<{type(X).__name__}>"
    try:
        frame: Foreign = nw.from_native(X, pass_through=True)
        if isinstance(frame, nw.LazyFrame):
            frame = frame.collect()
        if not isinstance(frame, nw.DataFrame):
            frame = nw.from_native(pa.table(X), eager_only=True)
        return Frame(frame, name)
    except nw.exceptions.DuplicateError as error:
        names = list(map(str, X.columns if hasattr(X, "columns") and not hasattr(X, "column_names") else pa.table(X).column_names))
        raise SchemaError(f"the column name {next(c for c in names if names.count(c) > 1)!r} occurs twice") from error


def frame_columns(X: UserData) -> dict[str, np.ndarray]:
    """Return the columns of a frame by name: numbers with NaN where missing, or objects. Raises SchemaError if two have the same name."""
    frame, columns = open_frame(X), dict[str, np.ndarray]()
    for k, name in enumerate(frame.columns):
        chunk = frame.chunk(k, 0, frame.n_rows)
        if isinstance(chunk, np.ndarray):
            columns[name] = np.ma.filled(chunk.astype(np.float64), np.nan)
        else:
            columns[name] = objects_of_words(chunk) if isinstance(chunk, Words) else np.full(frame.n_rows, chunk.type, object)
    return columns
