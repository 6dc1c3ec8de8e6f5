"""What one reading of arrays in memory shows: whether all numbers are finite, and what tells them from others."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..errors import Matrix
from .tables import flat_vector

_LANES = 32
_WORDS = {4: np.uint32, 8: np.uint64}
_CHUNK_ROWS = 4096  # rows of an array that is in no order of memory, which are copied together
# Exponent, its last bit, and the bit behind it, of floats by their size. A number is not finite where the exponent has ones alone: then one
# added to its last bit is carried. Where a word holds two numbers neither reaches the other.
_EXPONENTS = {
    ("f", 8): (0x7FF << 52, 1 << 52, 1 << 63),
    ("f", 4): (0xFF << 55 | 0xFF << 23, 1 << 55 | 1 << 23, 1 << 63 | 1 << 31),
}


class Look(NamedTuple):
    """``mark`` tells the numbers of arrays from others: another value in any one place is always seen, other changes all but surely. It
    holds within a process, and is no checksum of stored bytes.
    """

    is_finite: bool
    mark: bytes


def look(X: Matrix) -> Look:
    """Return whether all numbers are finite, and a mark of them and of their places, at the speed of memory."""
    if sp.issparse(X):
        parts = [np.ascontiguousarray(getattr(X, name)) for name in ("data", "indices", "indptr") if hasattr(X, name)]
    elif X.ndim == 2 and min(X.strides) == X.itemsize and max(X.strides) % X.itemsize == 0:
        parts = [X if X.strides[1] == X.itemsize else X.T]  # lines of a wider array are read where they lie
    else:
        parts = [np.ascontiguousarray(X[low : low + _CHUNK_ROWS]) for low in range(0, len(X), _CHUNK_ROWS)]
    looks = [_look(part) for part in parts]
    return Look(all(one.is_finite for one in looks), b"".join(one.mark for one in looks))


def _look(data: np.ndarray) -> Look:
    from ..ingest.tables.columns import mix_words  # compiled code, which those who only open a store do without

    item, is_whole = data.itemsize, data.flags.c_contiguous
    lines, width, step = (1, data.size, data.size) if is_whole or not data.size else (*data.shape, data.strides[0] // item)
    # Two numbers of four bytes are one word where memory allows it.
    wide = 8 // item if item in (4, 8) and not (data.ctypes.data | width * item | (lines > 1) * step * item) % 8 else 1
    words = flat_vector(data, (lines - 1) * step + width).view(_WORDS.get(wide * item, np.uint8))
    exponent, one, carried = _EXPONENTS.get((data.dtype.kind, item), (0, 0, 0))
    lanes, sizes = np.zeros(_LANES, np.uint64), (lines, width // wide, step // wide)
    carries = int(mix_words(words, *sizes, np.uint64(exponent), np.uint64(one), lanes))
    return Look(not carries & carried, lanes.tobytes())
