"""Selection and reordering of a block's columns, and computation of the column tables that ingest writes with the stripes."""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import Matrix, SchemaError, SparseMatrix
from .arrays import concatenate_ranges

COLUMN_TABLES = ("counts", "norm1", "sumsq", "minimum", "maximum")
_FILLED = 4  # rows are filled up to a multiple of so many for the compiled loop
SparsePart = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[Any]]
"""Entries of sparse columns, column by column: offsets (0, then the end of each column), the rows, and the values."""
_PIECE = 1 << 16  # rows whose places and weights are laid out at once


def column_tables(
    block: npt.NDArray[Any] | sp.csc_array, weight: npt.NDArray[np.float64] | None = None, *, sizes: bool = True, moments: bool = False
) -> dict[str, npt.NDArray[Any]]:
    """Summarise each column of a block (n_rows, k), which must contain all rows of its columns; missing values (NaN, dense blocks only) are
    ignored.

    * ``counts`` uint32: stored entries (sparse) or non-zeros (dense).
    * ``norm1`` float32: ``sum_i |x_ij|``, rounded up so that it is an upper bound.
    * ``sumsq`` float64: sum_i x_ij^2.
    * ``minimum``, ``maximum``: in the type of the values, zeros included; 0 if all values are missing.
    * ``mean``, ``variance``: float64.

    A dense block is read once. Each sum of a column runs over its rows in order, so the tables depend neither on where stripes are cut nor
    on the memory order of a dense block.

    ``weight`` (n_rows,) is the multiplicity of each row in means and variances; rows of weight 0 are ignored. ``sizes`` adds
    counts and sums; ``moments`` adds means and variances.
    """
    if isinstance(block, np.ndarray):
        sums = DenseSums(block.shape[1], sizes=sizes)
        sums.add(block, weight)
        total = len(block) if weight is None else float(np.asarray(weight[weight != 0], np.float64).sum())
        return sums.tables(block.dtype, total, moments=moments)
    part = block.indptr.astype(np.int32, copy=False), block.indices.astype(np.int32, copy=False), block.data
    return sparse_tables(lambda: [part], int(block.shape[0]), weight, sizes=sizes, moments=moments)  # pyright: ignore[reportOptionalSubscript]


class _Vector:
    """The memory of an array, presented as a flat vector."""

    def __init__(self, array: npt.NDArray[Any], size: int) -> None:
        self.owner = array
        self.__array_interface__ = {"shape": (size,), "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3}


def flat_vector(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return ``size`` numbers from the memory of an array as a flat vector. To compiled code, read-only arrays and strips of wider arrays
    would be other types.
    """
    return np.asarray(_Vector(array, size))


class DenseSums:
    """Sums over ``k`` dense columns, of which some rows at a time are added, in order. The sums are bit-identical to sums over all rows at
    once.

    ``sizes`` adds counts, sums of ``|x|`` and sums of ``x^2``.
    """

    def __init__(self, k: int, *, sizes: bool = True) -> None:
        self._out, self._sizes, self._rows, self._is_begun = np.zeros((8, k)), sizes, 0, False
        self._out[1], self._out[2] = np.inf, -np.inf

    def add(self, block: npt.NDArray[Any], weight: npt.NDArray[np.float64] | None = None) -> None:
        """Add the next rows, ``(m, k)``. ``weight`` (m,) is the multiplicity of each row."""
        from ..ingest.tables.columns import dense_tables  # compiled code, which those who only open a store do without

        self._rows += len(block)
        whole = block.dtype.isnative and block.flags.aligned and all(step > 0 and step % block.itemsize == 0 for step in block.strides)
        data = block if whole else np.ascontiguousarray(block, block.dtype.newbyteorder("="))
        down, across = (step // data.itemsize for step in data.strides)
        for lo in range(0, len(data) if data.size else 0, _PIECE):
            part, share = data[lo : lo + _PIECE], None if weight is None else weight[lo : lo + _PIECE]
            rows = np.arange(len(part)) if share is None else np.flatnonzero(share)
            if not len(rows):
                continue
            if not self._is_begun:
                self._out[0], self._is_begun = part[rows[0]], True
            used, spare = np.ones(len(rows)) if share is None else np.asarray(share[rows], np.float64), -len(rows) % _FILLED
            starts = np.concatenate([rows, np.full(spare, rows[0])]) * down
            counted = np.concatenate([used, np.zeros(spare)])
            vector = flat_vector(part, (len(part) - 1) * down + (part.shape[1] - 1) * across + 1)
            dense_tables(vector, starts, len(rows), across, counted, self._sizes, self._out)

    def tables(self, dtype: np.dtype[Any], total: float, *, moments: bool = False) -> dict[str, npt.NDArray[Any]]:
        """Return the tables of `column_tables`; ``dtype`` is the type of the values, ``total`` the sum of the weights."""
        first, low, high, linear, square, counts, sums, squares = self._out
        known, native = low <= high, dtype.newbyteorder("=")
        tables = {"minimum": np.where(known, low, 0.0).astype(native), "maximum": np.where(known, high, 0.0).astype(native)}
        if self._sizes:
            terms = np.int64(self._rows)
            tables |= {"counts": counts.astype(np.uint32), "norm1": _round_up(sums, terms), "sumsq": squares}
        if moments:
            with np.errstate(over="ignore", invalid="ignore"):
                tables |= {"mean": first + linear / total, "variance": np.maximum(square - linear * (linear / total), 0.0) / total}
        return tables


def sparse_tables(
    parts: Callable[[], Iterable[SparsePart]],
    n: int,
    weight: npt.NDArray[np.float64] | None = None,
    *,
    sizes: bool = True,
    moments: bool = False,
) -> dict[str, npt.NDArray[Any]]:
    """Return the tables of `column_tables` for sparse columns of ``n`` rows.

    Each call of ``parts`` yields the entries in order. The entries of a column may be divided into several parts, but then these parts must
    not contain other columns.
    """
    from ..ingest.tables.columns import column_sums, sparse_linear, sparse_squares

    has_idle = weight is not None and not weight.all()
    used = (lambda: (_without_idle(part, weight) for part in parts())) if weight is not None and has_idle else parts
    n = int(np.count_nonzero(weight)) if weight is not None and has_idle else n
    counts: npt.NDArray[Any] = sum((np.diff(ends) for ends, _, _ in used()), np.zeros(1, np.int64))
    k, share = len(counts), np.zeros(0) if weight is None else weight
    sums, squares, linear, present = np.zeros(k), np.zeros(k), np.zeros(k), np.zeros(k)
    low, high, is_new = np.zeros(0), np.zeros(0), np.ones(k, bool)
    for ends, rows, values in used():
        if not len(low):
            low, high = np.zeros(k, values.dtype), np.zeros(k, values.dtype)
        there = is_new & (np.diff(ends) > 0)
        # An entry that is not stored is a zero, and takes part in the extremes.
        first, is_new = values[ends[:-1][there]], is_new & ~there
        low[there] = high[there] = np.where(counts[there] == n, first, first * 0)
        column_sums(values, ends, sums, squares, low, high)
        if moments:
            sparse_linear(values, rows, ends, share, linear, present)
    tables: dict[str, npt.NDArray[Any]] = {"minimum": low, "maximum": high}
    if sizes:
        tables |= {"counts": counts.astype(np.uint32), "norm1": _round_up(sums, counts), "sumsq": squares}
    if moments:
        total, square = float(n) if weight is None else float(np.add.accumulate(weight)[-1]), np.zeros(k)
        with np.errstate(over="ignore", invalid="ignore"):
            mean = linear / total
            for ends, rows, values in used():
                sparse_squares(values, rows, ends, share, mean, square)
            tables |= {"mean": mean, "variance": (square + (total - present) * (mean * mean)) / total}
    return tables


def _without_idle(part: SparsePart, weight: npt.NDArray[np.float64]) -> SparsePart:
    """Return the entries whose row has a non-zero weight."""
    ends, rows, values = part
    keep = weight[rows] != 0
    return np.concatenate([[0], np.cumsum(keep)])[ends].astype(np.int32), rows[keep], values[keep]


def _round_up(sums: npt.NDArray[np.float64], terms: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Return the smallest float32 numbers that are at least the exact sums; a float64 sum of m terms has a relative error below m 2^-53."""
    bound = np.nextafter(sums * (1.0 + 2.0**-52 * np.asarray(terms)), np.inf, where=sums > 0, out=np.zeros_like(sums))
    with np.errstate(over="ignore"):
        single = bound.astype(np.float32)
    return np.where(single < bound, np.nextafter(single, np.float32(np.inf)), single)


def check_ids(ids: npt.ArrayLike, n_cols: int) -> npt.NDArray[np.int64]:
    """Return feature ids as int64 (k,). Raises SchemaError unless they are integers in 0 … n_cols - 1."""
    array = np.atleast_1d(np.asarray(ids))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise SchemaError(f"ids has the type {array.dtype} and shape {array.shape}; it must be a vector of integers")
    array = array.astype(np.int64)
    bad = np.flatnonzero((array < 0) | (array >= n_cols))
    if bad.size:
        raise SchemaError(f"ids[{bad[0]}] is {array[bad[0]]}; column ids run from 0 to {n_cols - 1}")
    return array


def check_rows(rows: tuple[int, int] | None, n_rows: int) -> tuple[int, int]:
    """Return a half-open range of rows (default: all). Raises SchemaError if it is not within 0 … n_rows."""
    first, last = (0, n_rows) if rows is None else rows
    if not 0 <= first <= last <= n_rows:
        raise SchemaError(f"rows is {rows}; it must be a range inside 0 … {n_rows}")
    return int(first), int(last)


def mark_canonical(block: SparseMatrix) -> SparseMatrix:
    """Mark a sparse block, which is sorted and free of duplicates by construction, as canonical; this saves SciPy a pass over
    the indices.
    """
    block.has_canonical_format = True
    return block


def pick_columns(block: sp.csc_array, chosen: npt.NDArray[np.int64]) -> sp.csc_array:
    """Return some columns of a canonical block in the given order. SciPy's indexing gives the same result but is slow for small results,
    because of its checks.
    """
    starts = block.indptr[chosen]
    lengths = block.indptr[chosen + 1] - starts
    take = concatenate_ranges(starts.astype(np.int64), lengths.astype(np.int64))
    indptr = np.zeros(len(chosen) + 1, np.int32)
    np.cumsum(lengths, out=indptr[1:])
    shape = cast(tuple[int, int], block.shape)[0], len(chosen)
    return mark_canonical(sp.csc_array((block.data[take], block.indices[take], indptr), shape=shape))


def reorder_columns(
    parts: tuple[npt.NDArray[Any], npt.NDArray[Any]], lengths: npt.NDArray[np.int64], order: npt.NDArray[np.intp], shape: tuple[int, int]
) -> sp.csc_array:
    """Return the columns in the given order, with repetition; ``parts`` are the concatenated columns, of ``lengths`` entries each, in total
    fewer than 2^31.
    """
    indices, values = parts
    if not np.array_equal(order, np.arange(lengths.size)):
        starts = np.cumsum(lengths) - lengths
        take = concatenate_ranges(starts[order], lengths[order])
        indices, values, lengths = indices[take], values[take], lengths[order]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    if indptr[-1] >= 2**31:
        raise SchemaError(f"the requested columns hold {indptr[-1]} entries in total; request fewer than 2^31 entries at once")
    return mark_canonical(sp.csc_array((values, indices, indptr.astype(np.int32)), shape=shape))


# What one reading of arrays in memory shows: whether all numbers are finite, and what tells them from others.

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
    """A fingerprint of arrays in memory.

    If a single value differs, ``mark`` always differs; if more values differ, ``mark`` differs almost surely. It is valid within a process
    and is not a checksum of stored bytes.
    """

    is_finite: bool
    mark: bytes


def look(X: Matrix) -> Look:
    """Return whether all numbers are finite, and a mark of the numbers and their positions, at memory speed."""
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


# Texts end to end: as bytes and lengths, or ends.

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def split_texts(letters: npt.NDArray[np.uint8], lengths: npt.NDArray[np.integer]) -> list[str]:
    """Split concatenated UTF-8 bytes into texts of ``lengths`` bytes."""
    data, ends = letters.tobytes(), np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).tolist()
    return [data[a:b].decode("utf-8", errors="replace") for a, b in pairwise(ends)]


def join_texts(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return the concatenated UTF-8 bytes of texts, and the length of each text in bytes."""
    coded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(coded), np.uint8), np.array([len(code) for code in coded], np.int64)


def whole_numbers(texts: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """Return texts as integers if every text is written as an integer, else None; "007" is not, because it may be a name."""
    if not all(map(_WHOLE.fullmatch, texts)):
        return None
    return np.array([int(text) for text in texts], np.int64)
