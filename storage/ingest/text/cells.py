"""Cells of text as numbers, by the one rule for numbers, many at a time: pyarrow converts, compiled code looks at how they are written."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.arrow import chunk_of_arrow
from ...encoding.chunks import Chunk
from ...encoding.numbers import EXACT_INTEGERS, MISSING_WORDS
from ...value_types import Foreign
from .._jit import compile_kernel

_BLANK, _0, _9 = ord(" "), ord("0"), ord("9")
_PLUS, _MINUS = ord("+"), ord("-")
_1 = np.uint64(1)

SHORT_ROWS = 1024  # Rows up to which the calls for a column take longer than copying its cells.


def plain_cells(column: Foreign, missing_words: Sequence[str], is_comma: bool) -> Foreign:
    """Part of a column of texts, empty where they are a word for a missing value; numerals with a decimal comma with a point."""
    import pyarrow as pa

    compute = _compute()
    if missing_words:
        column = compute.if_else(compute.is_in(column, value_set=pa.array(missing_words)), "", column)
    if is_comma:
        is_number = compute.match_substring_regex(column, r"^\s*[+-]?([0-9]+,[0-9]*|,[0-9]+)([eE][+-]?[0-9]+)?\s*$")
        column = compute.if_else(is_number, compute.replace_substring(column, ",", "."), column)
    return column


def chunks_of_cells(columns: Sequence[Foreign]) -> list[Chunk]:
    """Parts of columns of texts as `chunk_of_cells` has them; short ones that are all numerals are converted at once."""
    import pyarrow as pa

    if len(columns) > 1 and len(columns[0]) <= SHORT_ROWS:
        values = _numbers(pa.concat_arrays(columns))
        if values is not None:
            return list(values.reshape(len(columns), -1))
    return [chunk_of_cells(column) for column in columns]


def chunk_of_cells(column: Foreign) -> Chunk:
    """Part of a column of texts, most of which are numerals: numbers, NaN where they are missing; or words with codes where one is none, is
    an integer beyond 2^53 or has leading zeros, so that it is looked at by itself."""
    values = _numbers(column)
    return chunk_of_arrow(column) if values is None else values


def _numbers(column: Foreign) -> npt.NDArray[np.float64] | None:
    """Numerals as numbers, NaN where they are missing; None where a cell is a word or may be a name."""
    import pyarrow as pa

    compute = _compute()
    try:
        values = compute.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        bare = compute.utf8_trim_whitespace(column)
        gone = compute.is_in(compute.utf8_lower(bare), value_set=pa.array(sorted(MISSING_WORDS)))
        try:
            values = compute.cast(compute.if_else(gone, None, bare), pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            return None
    _, ends, letters = column.buffers()
    if not len(column) or letters is None:
        return values
    ends = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    return None if _is_odd(np.frombuffer(letters, np.uint8), ends, values) else values


@cache  # (an import takes as long as a short column)
def _compute() -> Foreign:
    from pyarrow import compute

    return compute


@compile_kernel
def _is_odd(letters: npt.NDArray[np.uint8], ends: npt.NDArray[np.int32], values: npt.NDArray[Any]) -> bool:
    """Whether a numeral has a zero in front that says nothing of a number (007), or is an integer that float64 may not hold; cell i is
    ``letters[ends[i] : ends[i + 1]]``, its value ``values[i]``."""
    last = np.uint64(letters.size - 1)
    for i in range(values.size):
        p, end = np.uint64(ends[i]), np.uint64(ends[i + 1])
        while p < end and letters[p] <= _BLANK:
            p += _1
        # Without branches: signs, and zeros in front of the point, come and go.
        letter = letters[min(p, last)]
        p += np.uint64((letter == _MINUS) | (letter == _PLUS))
        follows = letters[min(p + _1, last)]
        if (letters[min(p, last)] == _0) & (follows >= _0) & (follows <= _9) & (p + _1 < end):
            return True
        if abs(values[i]) >= EXACT_INTEGERS:  # the next integer reads as 2^53 too
            while p < end and _0 <= letters[p] <= _9:
                p += _1
            while p < end and letters[p] <= _BLANK:
                p += _1
            if p == end:
                return True
    return False
