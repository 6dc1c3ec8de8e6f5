"""Data frames in memory, of any library: their columns, part by part."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Real

import numpy as np

from ..errors import SchemaError
from ..value_types import Foreign, UserData
from .arrow import chunk_of_arrow, is_number_type
from .chunks import Chunk, Unreadable, Words, chunk_of_objects, is_inexact, name_of_number, objects_of_words
from .numbers import EXACT_INTEGERS


class Frame(ABC):
    """A table in memory: its rows, the names of its columns, and those whose type is one of numbers."""

    name: str
    n_rows: int
    columns: Sequence[str]
    numbers: Sequence[int]

    @property
    def is_plain(self) -> bool:
        """Whether the types of all columns are of numbers or booleans."""
        parts = (self.chunk(k, 0, 0) for k in sorted(set(range(len(self.columns))) - set(self.numbers)))
        return all(isinstance(part, np.ndarray) and part.dtype.kind == "b" for part in parts)

    @property
    @abstractmethod
    def integers(self) -> Sequence[int]:
        """Columns with an integer that float64 may not hold."""

    @abstractmethod
    def content(self, k: int) -> np.ndarray:
        """Column ``k`` as an array that tells columns apart."""

    @abstractmethod
    def chunk(self, k: int, lo: int, hi: int) -> Chunk:
        """Rows ``lo:hi`` of column ``k``. Raises TypeError or ValueError: a value cannot be one of a table."""


def is_pandas(X: object) -> bool:
    """Whether something is a frame of pandas, or behaves like one."""
    return hasattr(X, "iloc") and hasattr(X, "columns") and hasattr(X, "dtypes")


def is_arrow(X: object) -> bool:
    """Whether something hands on its columns as Arrow arrays: frames of polars, tables and streams of Arrow."""
    return hasattr(X, "__arrow_c_stream__") and not is_pandas(X) and not is_labelled(X)


def is_labelled(X: object) -> bool:
    """Whether something is an array or a data set of xarray."""
    return hasattr(X, "dims") and hasattr(X, "coords")


def is_frame(X: object) -> bool:
    """Whether something is a data frame in memory."""
    return is_pandas(X) or is_arrow(X)


def open_frame(X: UserData) -> Frame:
    """Return the frame behind a data frame of any library."""
    return PandasFrame(X) if is_pandas(X) else ArrowFrame(X)


def frame_columns(X: UserData) -> dict[str, np.ndarray]:
    """Return the columns of a frame by name: numbers, NaN where they are missing, or objects where they are none. Raises SchemaError: two
    have one name."""
    frame, columns = open_frame(X), dict[str, np.ndarray]()
    for k, name in enumerate(frame.columns):
        chunk = frame.chunk(k, 0, frame.n_rows)
        if isinstance(chunk, np.ndarray):
            columns[name] = np.ma.filled(chunk.astype(np.float64), np.nan)
        else:
            columns[name] = objects_of_words(chunk) if isinstance(chunk, Words) else np.full(frame.n_rows, chunk.type, object)
    if len(columns) < len(frame.columns):
        raise SchemaError(f"{frame.name}: the column name {next(c for c in columns if list(frame.columns).count(c) > 1)!r} occurs twice")
    return columns


class PandasFrame(Frame):
    """A frame of pandas."""

    def __init__(self, frame: Foreign) -> None:
        self._frame, self.n_rows, self.name = frame, len(frame), f"<{type(frame).__name__}>"
        self.columns = [str(column) for column in frame.columns]
        self.numbers = [k for k, dtype in enumerate(frame.dtypes) if _number_kind(dtype) in tuple("iuf")]

    @property
    def integers(self) -> Sequence[int]:
        """Columns with an integer that float64 may not hold."""
        wide = [k for k, dtype in enumerate(self._frame.dtypes) if getattr(dtype, "kind", "") in "iu" and dtype.itemsize == 8]
        if not wide or not self.n_rows:
            return []
        part = self._frame if len(wide) == len(self.columns) else self._frame.iloc[:, wide]  # one look at all of them
        low, high = part.min().tolist(), part.max().tolist()
        return [k for k, least, most in zip(wide, low, high, strict=True) if max(-least, most) > EXACT_INTEGERS]

    def content(self, k: int) -> np.ndarray:
        """A column as an array; the names of a category, too, of which some may not occur."""
        series = self._frame.iloc[:, k]
        names = getattr(series.dtype, "categories", None)
        return series.to_numpy() if names is None else np.array([*series, *names, bool(series.cat.ordered)], dtype=object)

    def chunk(self, k: int, lo: int, hi: int) -> Chunk:
        """Rows of a column; masked where its type (such as Int64) marks missing numbers beside the values."""
        series = self._frame.iloc[lo:hi, k]
        dtype = series.dtype
        if type(dtype).__name__ == "CategoricalDtype":
            return _of_categories(series)
        kind = _number_kind(dtype)
        if kind in tuple("mM") or type(dtype).__name__ in ("PeriodDtype", "IntervalDtype"):
            return Unreadable(str(dtype), kind in tuple("mM") or "Period" in type(dtype).__name__, hi - lo)
        if kind == "c":
            return Unreadable(str(dtype), False, hi - lo)
        if kind not in tuple("biuf"):
            return chunk_of_objects(series.to_numpy(dtype=object))
        plain = getattr(dtype, "numpy_dtype", None)
        if plain is None:
            return series.to_numpy()
        gone = series.isna().to_numpy(dtype=bool)
        filled = series.to_numpy(dtype=plain, na_value=plain.type(0))
        return np.ma.MaskedArray(filled, gone) if gone.any() else filled


def _number_kind(dtype: Foreign) -> str:
    """NumPy's letter for the values of a type of pandas; "O" for those that NumPy has no type for."""
    if type(dtype).__name__ == "SparseDtype":
        dtype = dtype.subtype
    plain = getattr(dtype, "numpy_dtype", dtype)
    return str(getattr(plain, "kind", "O"))


def _of_categories(series: Foreign) -> Words:
    """Levels of a category are names, whatever its values are: numbers of any size, intervals, dates."""
    words = [name_of_number(value) if isinstance(value, Real) else str(value) for value in series.cat.categories]
    return Words(series.cat.codes.to_numpy().astype(np.int64), words, True, bool(series.cat.ordered))


class ArrowFrame(Frame):
    """A frame that hands on its columns as Arrow arrays; a stream is read to its end."""

    def __init__(self, frame: Foreign) -> None:
        import pyarrow as pa

        self.table = pa.table(frame)
        self.n_rows, self.name = self.table.num_rows, f"<{type(frame).__name__}>"
        self.columns = list(self.table.column_names)
        self.numbers = [k for k, field in enumerate(self.table.schema) if is_number_type(field.type)]

    @property
    def integers(self) -> Sequence[int]:
        """Columns with an integer that float64 may not hold."""
        wide = [k for k in self.numbers if str(self.table.schema.field(k).type) in ("int64", "uint64")]
        columns: dict[int, Foreign] = {k: self.chunk(k, 0, self.n_rows) for k in wide}  # of numbers
        return [k for k, column in columns.items() if is_inexact(np.ma.getdata(column)).any()]

    def content(self, k: int) -> np.ndarray:
        """A column as an array; the names of a category, too, of which some may not occur."""
        chunk = self.chunk(k, 0, self.n_rows)
        if isinstance(chunk, Words):
            more = [*chunk.words, chunk.is_ordered] if chunk.is_type else []
            return np.concatenate([objects_of_words(chunk), np.array(more, dtype=object)])
        return np.asarray(chunk) if isinstance(chunk, np.ndarray) and not np.ma.isMA(chunk) else np.array(self.table.column(k).to_pylist())

    def chunk(self, k: int, lo: int, hi: int) -> Chunk:
        """Rows of a column, as one array."""
        part = self.table.column(k).slice(lo, hi - lo)
        return chunk_of_arrow(part.chunk(0) if part.num_chunks == 1 else part.combine_chunks())
