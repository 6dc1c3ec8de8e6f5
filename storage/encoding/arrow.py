"""Arrow arrays as parts of columns; pyarrow, which takes long to import, is imported when there is something of it to read."""

import numpy as np

from ..value_types import Foreign
from .chunks import Chunk, Unreadable, Words, name_of_number


def is_number_type(kind: Foreign) -> bool:
    """Whether all values of a type are numbers, missing ones aside."""
    from pyarrow import types as kinds

    return kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind)


def is_word_type(kind: Foreign) -> bool:
    """Whether values of a type are texts."""
    from pyarrow import types as kinds

    return kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind)


def has_fixed_width(kind: Foreign) -> bool:
    """Whether every value of a type takes the same few bytes."""
    from pyarrow import types as kinds

    return is_number_type(kind) or kinds.is_boolean(kind) or kinds.is_temporal(kind) or kinds.is_null(kind)


def chunk_of_arrow(column: Foreign) -> Chunk:
    """Part of a column; masked where whole numbers or truth values are missing, which pyarrow would round or turn into objects."""
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
