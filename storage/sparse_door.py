"""Validation of sparse matrices from outside; compiled code and in-place operations receive only validated matrices.

SciPy and compiled loops read and write where the index arrays point, and SciPy's own check stops at ``indptr[-1]``: if the last pointer is
0, SciPy accepts any earlier pointers. Every index is therefore checked here with NumPy, which cannot access memory outside an array. This
check is one pass over the pointers and one over the indices, and takes 1 % of the time of a conversion from rows to columns. Duplicates,
and indices that do not ascend, are allowed.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .errors import DataError, Foreign, Matrix, SparseMatrix, UserData

Array = npt.NDArray[Any]

_PLACES = (np.dtype(np.int32), np.dtype(np.int64))
_SHOWN = 40


def admit(X: UserData, name: str = "X") -> UserData:
    """Return the given data if all indices are valid; anything but a sparse matrix or a frame is returned unchecked.

    ``X`` itself is returned if nothing has to change. Otherwise the result is a plain matrix of the same format (COO for LIL and DOK) on
    the same arrays, without cached properties. It has native byte order, int32 or int64 indices, and float32 in place of half precision.
    Raises DataError with ``name``, position and rule of the first invalid index.
    """
    if sp.issparse(X):
        return _ADMIT.get(X.format, _refuse_format)(X, check_shape(X.shape, "shape", name), name)
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        # pandas hands the places of a sparse column to compiled code.
        for k, dtype in enumerate(X.dtypes):
            if type(dtype).__name__ == "SparseDtype":
                _check_column(X.iloc[:, k].array, f"column {X.columns[k]!r}", name)
    return X


def check_compressed(
    parts: tuple[Any, Any, Any], shape: tuple[int, int], by: str, name: str, parts_named: str = "", first: int = 0
) -> tuple[Array, Array, Array]:
    """Return checked ``(data, indices, indptr)`` of a CSR or CSC matrix before it is constructed. Entries beyond the last pointer are
    removed.

    ``by`` is "csr" or "csc". The other arguments are for messages:

    * ``name``: the name of the argument or file.
    * ``parts_named``: the prefix of the array names in the file.
    * ``first``: for a part of a matrix, the number of its first entry.
    """
    major, minor = shape if by == "csr" else shape[::-1]
    data = _check_numbers(parts[0], parts_named + "data", name)
    indices, indptr = (_check_integers(part, parts_named + what, name) for part, what in zip(parts[1:], ("indices", "indptr"), strict=True))
    pointers = parts_named + "indptr"
    if len(indptr) != major + 1:
        _refuse_matrix(name, f"{pointers} has {len(indptr)} entries; a {by} matrix of shape {shape} has {major + 1}")
    _check_pointers(indptr, pointers, name)
    end = int(indptr[-1])
    if end > len(indices) or len(indices) != len(data):
        lengths = f"{pointers} ends with {end}, {parts_named}indices has {len(indices)} entries and {parts_named}data has {len(data)}"
        _refuse_matrix(name, f"{lengths}; the three must agree")
    if end < len(indices):
        data, indices = data[:end], indices[:end]
    lines = "row" if by == "csr" else "column"
    _check_range(indices, minor, parts_named + "indices", name, first, lambda k: f", in {lines} {indptr.searchsorted(k, side='right') - 1}")
    if indices.dtype != indptr.dtype:
        indices, indptr = indices.astype(np.int64, copy=False), indptr.astype(np.int64, copy=False)
    return data, indices, indptr


def admit_chunks(X: Foreign, name: str = "X") -> Foreign:
    """Return a Dask array whose chunks are checked as they are computed, before Dask or SciPy copies or joins them."""
    return X.map_blocks(_admit_chunk, name, dtype=X.dtype, meta=X._meta)


def gather(X: Foreign, name: str = "X") -> Foreign:
    """Return the content of a Dask collection, with its sparse chunks checked one by one."""
    return (admit_chunks(X, name) if hasattr(X, "map_blocks") else X).compute()


def _admit_chunk(part: Matrix, name: str, block_id: tuple[int, ...] = ()) -> Matrix:
    return admit(part, f"{name}, chunk {block_id}")


def _refuse_matrix(name: str, reason: str) -> NoReturn:
    raise DataError(reason, name)


def check_shape(given: UserData, what: str = "shape", name: str = "X") -> tuple[int, int]:
    """Return the numbers of rows and columns. Raises DataError unless they are two integers >= 0."""
    lengths = np.asarray(given)
    if lengths.shape != (2,) or lengths.dtype.kind not in "iu" or not all(0 <= length < 2**63 for length in lengths.tolist()):
        _refuse_matrix(name, f"{what} is {str(lengths.tolist())[:_SHOWN]}; it must be two whole numbers, 0 or more")
    rows, columns = lengths.tolist()
    return rows, columns


def _check_vector(given: UserData, what: str, name: str, ndim: int = 1) -> Array:
    """Return an array in the form compiled code reads: plain, in native byte order, aligned and contiguous."""
    if not isinstance(given, np.ndarray):
        _refuse_matrix(name, f"{what} is a {type(given).__name__}; it must be an array")
    if given.ndim != ndim:
        _refuse_matrix(name, f"{what} has {given.ndim} dimensions; it must have {ndim}")
    plain = np.asarray(given)
    if plain.flags.c_contiguous and plain.flags.aligned and plain.dtype.isnative:
        return plain
    return np.require(plain, plain.dtype.newbyteorder("="), ["C", "A"])


def _check_numbers(given: UserData, what: str, name: str, ndim: int = 1) -> Array:
    kind = getattr(given, "dtype", None)
    if kind is not None and (kind.kind not in "biuf" or kind.fields):
        _refuse_matrix(name, f"{what} has the type {kind}; real numbers are expected")
    values = _check_vector(given, what, name, ndim)
    # SciPy knows no half precision; each of its numbers is a float32.
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _check_integers(given: UserData, what: str, name: str) -> Array:
    """Return indices as int32 or int64."""
    kind = getattr(given, "dtype", None)
    if kind is not None and kind.kind not in "iu":
        _refuse_matrix(name, f"{what} has the type {kind}; whole numbers are expected")
    places = _check_vector(given, what, name)
    if places.dtype in _PLACES:
        return places
    if places.dtype == np.uint64:
        _check_range(places, 2**63, what, name)
    return places.astype(np.int64)


def check_part_pointers(indptr: Array, before: int, end: int, first: int, what: str, name: str) -> None:
    """Check a part of a longer pointer array of a matrix with ``end`` entries.

    ``first`` is the index of the first pointer of the part; ``before`` is the last pointer of the part before it.
    """
    if indptr.dtype.kind not in "iu":
        _refuse_matrix(name, f"{what} has the type {indptr.dtype}; whole numbers are expected")
    _check_pointers(indptr, what, name, before, first)
    if len(indptr) and int(indptr[-1]) > end:
        _refuse_matrix(name, f"{what}[{first + len(indptr) - 1}] is {indptr[-1]}; there are {end} entries")


def _check_pointers(indptr: Array, what: str, name: str, before: int = 0, first: int = 0) -> None:
    if indptr[0] != before:
        _refuse_matrix(name, f"{what}[{first}] is {indptr[0]}; it must be {before}")
    falls = indptr[1:] < indptr[:-1]
    if falls.any():
        k = int(falls.argmax())
        _refuse_matrix(name, f"{what}[{first + k + 1}] is {indptr[k + 1]} after {indptr[k]}; pointers never fall")


def _check_range(places: Array, end: int, what: str, name: str, first: int = 0, where: Callable[[int], str] = lambda k: "") -> None:
    """Raise DataError for indices outside 0 … end - 1."""
    # As unsigned numbers negative ones are large ones: one pass finds both.
    unsigned = places.view(f"u{places.itemsize}")
    if places.size and int(unsigned.max()) >= end:
        k = int((unsigned >= end).argmax())
        _refuse_matrix(name, f"{what}[{first + k}] is {places[k]}{where(k)}; it must be in 0 … {end - 1}")


def _plain_class(X: SparseMatrix) -> type:
    """Return the plain class of a matrix, because a user's subclass may override anything."""
    return getattr(sp, f"{X.format}_{'array' if isinstance(X, sp.sparray) else 'matrix'}")


def _admit_compressed(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    arrays = X.data, X.indices, X.indptr
    parts = check_compressed(arrays, shape, X.format, name)
    make, claims = _plain_class(X), vars(X)
    unclaimed = "_has_canonical_format" not in claims and "_has_sorted_indices" not in claims
    if unclaimed and type(X) is make and all(a is b for a, b in zip(arrays, parts, strict=True)):
        return X
    return make(parts, shape=shape)


def _admit_coordinates(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    coords, data = X.coords, _check_numbers(X.data, "data", name)
    if len(coords) != 2:
        _refuse_matrix(name, f"coords has {len(coords)} arrays; a matrix has 2")
    checked = tuple(_check_integers(part, f"coords[{k}]", name) for k, part in enumerate(coords))
    for k, part in enumerate(checked):
        if len(part) != len(data):
            _refuse_matrix(name, f"coords[{k}] has {len(part)} entries and data has {len(data)}; they must agree")
        _check_range(part, shape[k], f"coords[{k}]", name)
    return _plain_class(X)((data, checked), shape=shape)


def _admit_blocks(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    data = _check_numbers(X.data, "data", name, 3)
    tall, wide = data.shape[1:]
    if not tall or not wide or shape[0] % tall or shape[1] % wide:
        _refuse_matrix(name, f"data has blocks of the shape {(tall, wide)}; they must divide the shape {shape}")
    grid = shape[0] // tall, shape[1] // wide
    values, indices, indptr = check_compressed((np.arange(len(data)), X.indices, X.indptr), grid, "csr", name)
    return _plain_class(X)((data[: len(values)], indices, indptr), shape=shape, blocksize=(tall, wide))


def _admit_diagonals(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    data, offsets = _check_numbers(X.data, "data", name, 2), _check_integers(X.offsets, "offsets", name)
    if len(offsets) != len(data):
        _refuse_matrix(name, f"offsets has {len(offsets)} entries and data has {len(data)} rows; they must agree")
    if len(np.unique(offsets)) != len(offsets):
        _refuse_matrix(name, "offsets names a diagonal twice; they must differ")
    # A diagonal outside the matrix is legal and has no entry.
    inside = (offsets > -shape[0]) & (offsets < shape[1])
    return _plain_class(X)((np.ascontiguousarray(data[inside]), offsets[inside]), shape=shape)


def _admit_lists(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    for what in ("rows", "data"):
        lists = getattr(X, what)
        if not isinstance(lists, np.ndarray) or lists.shape != (shape[0],) or not all(isinstance(row, list) for row in lists):
            _refuse_matrix(name, f"{what} must hold {shape[0]} lists, one for each row")
    lengths = np.fromiter(map(len, X.rows), np.int64, shape[0])
    differ = lengths != np.fromiter(map(len, X.data), np.int64, shape[0])
    if differ.any():
        k = int(differ.argmax())
        _refuse_matrix(name, f"row {k} has {lengths[k]} indices and {len(X.data[k])} values; they must agree")
    rows = np.repeat(np.arange(shape[0]), lengths)
    cols = _array_from(chain.from_iterable(X.rows), np.int64, int(lengths.sum()), "rows", name)
    values = _array_from(chain.from_iterable(X.data), X.dtype, int(lengths.sum()), "data", name)
    return _admit_triples(X, (rows, cols), values, shape, name)


def _admit_keys(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    items: dict[Any, Any] = dict(X.items())
    if not all(isinstance(key, tuple) and len(key) == 2 for key in items):
        _refuse_matrix(name, "a key is no pair of a row and a column")
    rows, cols = (_array_from((key[k] for key in items), np.int64, len(items), "keys", name) for k in (0, 1))
    return _admit_triples(X, (rows, cols), _array_from(items.values(), X.dtype, len(items), "values", name), shape, name)


def _array_from(values: Iterable[Any], dtype: npt.DTypeLike, count: int, what: str, name: str) -> Array:
    if np.dtype(dtype).kind not in "biuf":
        _refuse_matrix(name, f"data has the type {dtype}; real numbers are expected")
    try:
        return np.fromiter(values, dtype, count)
    except (TypeError, ValueError, OverflowError) as error:
        _refuse_matrix(name, f"{what} holds something else than numbers: {str(error)[:_SHOWN]}")


def _admit_triples(X: SparseMatrix, coords: tuple[Array, Array], values: Array, shape: tuple[int, int], name: str) -> SparseMatrix:
    make = sp.coo_array if isinstance(X, sp.sparray) else sp.coo_matrix
    for part, end, what in zip(coords, shape, ("row", "column"), strict=True):
        _check_range(part, end, f"{what} of entry ", name)
    return make((_check_numbers(values, "data", name), coords), shape=shape)


def _refuse_format(X: SparseMatrix, shape: tuple[int, int], name: str) -> SparseMatrix:
    _refuse_matrix(name, f"sparse format {X.format!r} is not one of {', '.join(_ADMIT)}")


_ADMIT: dict[str, Callable[[Any, tuple[int, int], str], Any]] = {
    "csr": _admit_compressed,
    "csc": _admit_compressed,
    "coo": _admit_coordinates,
    "bsr": _admit_blocks,
    "dia": _admit_diagonals,
    "lil": _admit_lists,
    "dok": _admit_keys,
}


def _check_column(column: Foreign, what: str, name: str) -> None:
    index, length = column.sp_index, len(column)
    values = int(column.sp_values.size)
    if hasattr(index, "blocs"):
        starts, sizes = (np.asarray(part, np.int64) for part in (index.blocs, index.blengths))
        if len(starts) != len(sizes) or (sizes < 0).any() or int(sizes.sum()) != values or index.npoints != values:
            _refuse_matrix(name, f"{what}: its blocks do not hold its {values} values")
        ends = starts + sizes
        sound = not len(starts) or (starts[0] >= 0 and (starts[1:] >= ends[:-1]).all() and ends[-1] <= length)
    else:
        places = np.asarray(index.indices, np.int64)
        if len(places) != values or index.npoints != values:
            _refuse_matrix(name, f"{what}: it has {len(places)} places and {values} values; they must agree")
        sound = not len(places) or (places[0] >= 0 and (places[1:] > places[:-1]).all() and places[-1] < length)
    if not sound or index.length != length:
        _refuse_matrix(name, f"{what}: its places must ascend inside 0 … {length - 1}")
