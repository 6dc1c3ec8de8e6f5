"""Arrow arrays as parts of columns; pyarrow, which takes long to import, is imported when there is something of it to read."""

from collections.abc import Sequence

import numpy as np

from ..value_types import Foreign
from .chunks import Chunk, Unreadable, Words, name_of_number
from .numbers import EXACT_INTEGERS, MISSING_WORDS


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


def plain_cells(column: Foreign, missing_words: Sequence[str], is_comma: bool) -> Foreign:
    """Part of a column of texts, empty where they are a word for a missing value; numerals with a decimal comma with a point."""
    import pyarrow as pa
    from pyarrow import compute

    if missing_words:
        column = compute.if_else(compute.is_in(column, value_set=pa.array(missing_words)), "", column)
    if is_comma:
        is_number = compute.match_substring_regex(column, r"^\s*[+-]?([0-9]+,[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?\s*$")
        column = compute.if_else(is_number, compute.replace_substring(column, ",", "."), column)
    return column


def chunk_of_cells(column: Foreign) -> Chunk:
    """Part of a column of texts, most of which are numerals: numbers, NaN where they are missing; or words with codes where one is none, is
    an integer beyond 2^53 or has leading zeros, so that it is looked at by itself."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        values = compute.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        bare = compute.utf8_trim_whitespace(column)
        gone = compute.is_in(compute.utf8_lower(bare), value_set=pa.array(sorted(MISSING_WORDS)))
        try:
            values = compute.cast(compute.if_else(gone, None, bare), pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return chunk_of_arrow(column)
    large = np.abs(values) >= EXACT_INTEGERS  # the next integer reads as 2^53 too
    odd = large.any() and compute.any(compute.match_substring_regex(column.filter(pa.array(large)), r"^\s*[+-]?[0-9]+\s*$")).as_py()
    return chunk_of_arrow(column) if odd or _has_leading_zero(column) else values


def _has_leading_zero(column: Foreign) -> bool:
    """Whether a text begins with 0 and another digit."""
    if not len(column) or column.buffers()[2] is None:
        return False
    starts = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    letters = np.frombuffer(column.buffers()[2], np.uint8)
    first, ends = starts[:-1], starts[1:]
    first, ends = first[ends > first + 1], ends[ends > first + 1]
    signs = (letters[first] == ord("-")) | (letters[first] == ord("+"))
    if signs.any():
        first = first + signs
        first, ends = first[ends > first + 1], ends[ends > first + 1]
    first = first[letters[first] == ord("0")]
    return bool(((letters[first + 1] >= ord("0")) & (letters[first + 1] <= ord("9"))).any())
