"""Parts of a column, in a form that does not depend on the library that read them: numbers, words with codes, or unreadable values."""

import datetime
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import Foreign
from .record import BEYOND, EXACT_INTEGERS


class Words(NamedTuple):
    """Texts: row i has ``words[codes[i]]``, or is missing if the code is negative.

    ``is_type``: the values of the column's type are names (a category). ``is_ordered``: the order of these names is meaningful.
    """

    codes: npt.NDArray[np.integer[Any]]
    words: Sequence[str]
    is_type: bool = False
    is_ordered: bool = False


class Unreadable(NamedTuple):
    """Values that are neither numbers nor names: the name of their type, and whether it is a time type."""

    type: str
    is_time: bool
    length: int


class Coded(NamedTuple):
    """Numbers that the reader of the column has already encoded."""

    values: npt.NDArray[Any]


Chunk: TypeAlias = npt.NDArray[Any] | Words | Unreadable
"""The values of a column for some rows. Arrays hold numbers or booleans; an array is masked if values are missing and its type has no
NaN.
"""


def chunk_length(chunk: Chunk) -> int:
    if isinstance(chunk, Unreadable):
        return chunk.length
    return len(chunk.codes if isinstance(chunk, Words) else chunk)


_TRUTH = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
_DATE = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2}([ T]\d{1,2}(:\d{2}){0,2}.*)?)|(\d{1,2}[./]\d{1,2}[./]\d{2,4}( .*)?)|(\d{4}/\d{1,2}/\d{1,2}( .*)?)"
)
_TIMES = (datetime.date, datetime.time, datetime.timedelta)


def truth_value(word: str) -> float | None:
    """Return 1 or 0 for a text such as ``true`` or ``FALSE``; None for any other."""
    return _TRUTH.get(word.strip())


def looks_like_date(word: str) -> bool:
    """Return whether a text looks like a date."""
    return _DATE.fullmatch(word.strip()) is not None


def name_of_number(value: Foreign) -> str:
    """Return a number or truth value as the name of a level; 2.0 becomes "2", because missing values turn integers into floats."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer):
        return str(int(value))
    number = float(str(value))
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)


def words_of_numbers(values: npt.NDArray[Any], is_type: bool) -> Words:
    """Return numbers or truth values as words (names)."""
    gone, data = missing_in(values), np.ma.getdata(values)
    distinct, places = np.unique(data[~gone], return_inverse=True)
    codes = np.full(len(values), -1, np.int64)
    codes[~gone] = places
    return Words(codes, [name_of_number(value) for value in distinct], is_type)


def missing_in(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where numbers are missing."""
    gone = np.isnan(np.ma.getdata(values)) if values.dtype.kind == "f" else np.zeros(values.shape, dtype=bool)
    return gone | np.ma.getmaskarray(values)


def chunk_of_objects(values: npt.NDArray[Any]) -> Chunk:
    """Return Python objects as numbers, truth values or words, according to their types.

    Raises TypeError if an object is neither text nor a number; ValueError if float64 cannot represent a number.
    """
    items = [None if is_missing(value) else value for value in values.tolist()]
    kinds = {type(item) for item in items} - {type(None)}
    if any(issubclass(kind, _TIMES) or hasattr(kind, "to_period") or kind.__name__ == "Period" for kind in kinds):
        return Unreadable(next(iter(kinds)).__name__, True, len(items))
    odd = [kind for kind in kinds if not issubclass(kind, str | bytes | Real | Decimal | np.generic)]
    if odd:
        raise TypeError(f"argument must be a string or a real number, not {odd[0].__name__}")
    if any(issubclass(kind, str | bytes) for kind in kinds):
        texts = (item.decode("utf-8", "backslashreplace") if isinstance(item, bytes) else item for item in items)
        return words_of_texts(text if text is None or isinstance(text, str) else name_of_number(text) for text in texts)
    large = [item for item in items if isinstance(item, int | np.integer) and abs(int(item)) > EXACT_INTEGERS]
    if large:
        raise ValueError(f"value {large[0]} {BEYOND}")
    gone = np.array([item is None for item in items], dtype=bool)
    if kinds and all(issubclass(kind, bool | np.bool_) for kind in kinds):
        return np.ma.MaskedArray(np.array([bool(item) for item in items]), gone)
    return np.array([np.nan if item is None else float(item) for item in items])


def first_rows(codes: npt.NDArray[Any], n_words: int) -> npt.NDArray[np.int64]:
    """Return the first row of each word, or the number of rows for a word that does not occur."""
    first = np.full(n_words + 1, len(codes), np.int64)
    # Assigned from the last row on: the first one stays.
    first[np.where(codes < 0, n_words, codes)[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first[:-1]


def in_order(first: npt.NDArray[np.int64], n_rows: int) -> list[int]:
    """Return the indices of the words that occur, in the order of their first rows. ``first`` is the result of `first_rows`."""
    return [k for k in np.argsort(first, kind="stable").tolist() if first[k] < n_rows]


def is_inexact(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where integers exceed 2^53, so that float64 may not represent them."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return np.zeros(values.shape, dtype=bool)
    return (values > EXACT_INTEGERS) | (values < -EXACT_INTEGERS)


def fill_masked(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers in which masked ones are replaced by NaN."""
    return np.ma.filled(values.astype(np.float64), np.nan) if isinstance(values, np.ma.MaskedArray) else values


def words_of_texts(texts: Iterable[str | None]) -> Words:
    """Return texts as words with codes; None is missing."""
    known: dict[str, int] = {}
    codes = np.array([-1 if text is None else known.setdefault(text, len(known)) for text in texts], np.int64)
    return Words(codes, list(known))


def is_missing(value: object) -> bool:
    """Return whether an object is a missing value: None, NaN, or pandas' NA and NaT."""
    # pandas.NA is equal to nothing and has no truth value either.
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float | np.floating) and value != value)


def objects_of_words(chunk: Words) -> npt.NDArray[Any]:
    """Return the words of the rows as an array of texts; None where the word is missing or empty."""
    words = np.array([*(word or None for word in chunk.words), None], dtype=object)
    return words[np.where(chunk.codes < 0, len(chunk.words), chunk.codes)]


# Arrow arrays as parts of columns; pyarrow, which takes long to import, is imported when there is something of it to read.


def is_number_type(kind: Foreign) -> bool:
    """Return whether all non-missing values of a type are numbers."""
    from pyarrow import types as kinds

    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)


def is_word_type(kind: Foreign) -> bool:
    """Return whether values of a type are texts."""
    from pyarrow import types as kinds

    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def has_fixed_width(kind: Foreign) -> bool:
    """Return whether every value of a type takes the same small number of bytes."""
    from pyarrow import types as kinds

    return is_number_type(kind) or kinds.is_boolean(kind) or kinds.is_temporal(kind) or kinds.is_null(kind)


def chunk_of_arrow(column: Foreign) -> Chunk:
    """Return a part of an Arrow column. Integers and truth values with missing ones are returned masked, because pyarrow would round them
    or turn them into objects.
    """
    import pyarrow as pa
    from pyarrow import types as kinds

    kind = column.type
    if kinds.is_dictionary(kind):
        return _of_dictionary(column)
    if is_word_type(kind):
        return _of_dictionary(column.dictionary_encode(), is_type=False)
    if kinds.is_null(kind):
        return np.full(len(column), np.nan)
    if kinds.is_decimal(kind):
        return column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
        return Unreadable(str(kind), kinds.is_temporal(kind), len(column))
    if not column.null_count or kinds.is_floating(kind):
        return column.to_numpy(zero_copy_only=False)
    filled = column.fill_null(False if kinds.is_boolean(kind) else 0)
    return np.ma.MaskedArray(filled.to_numpy(zero_copy_only=False), column.is_null().to_numpy(zero_copy_only=False))


def _of_dictionary(column: Foreign, is_type: bool = True) -> Chunk:
    values = column.dictionary.to_pylist()
    if not is_word_type(column.dictionary.type) and not all(isinstance(value, int | float | bool | None) for value in values):
        return chunk_of_arrow(column.dictionary_decode())
    codes = column.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    nothing = np.array([*(value is None for value in values), True])
    codes = np.where(column.indices.is_null().to_numpy(zero_copy_only=False) | nothing[codes], -1, codes)
    words = ["" if value is None else value if isinstance(value, str) else name_of_number(value) for value in values]
    return Words(codes, words, is_type, bool(is_type and column.type.ordered))
