"""The one entrance for what users hand over: arrays, masked ones too, sparse matrices, frames, Dask collections, data of xarray, stores."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .blocks.store import BlockStore
from .encoding.chunks import fill_masked, is_inexact
from .encoding.frames import is_frame, is_labelled, is_pandas
from .encoding.numbers import BEYOND
from .errors import DataError
from .sparse_door import admit, gather
from .value_types import Foreign, UserData


def is_store(X: object) -> bool:
    """Return whether ``X`` is a block store or a path to one."""
    return isinstance(X, (BlockStore, str, os.PathLike))


def opened(X: UserData) -> BlockStore:
    """Return the block store behind a path or object."""
    return X if isinstance(X, BlockStore) else BlockStore.open(X)


def in_memory(X: UserData, name: str = "X") -> UserData:
    """Return what users hand over as it lies in memory: of Dask and xarray what they hold, NaN where an array is masked (None among names),
    sparse matrices and frames through the one door; lists of arrays part by part.

    Raises DataError: a sparse matrix with a place outside of it, a masked integer that float64 does not hold, or an xarray data set that is
    no table, by ``name`` and position.
    """
    if type(X) is np.ndarray or X is None:
        return X
    if isinstance(X, list | tuple):
        return type(X)(in_memory(part, f"{name}[{k}]") for k, part in enumerate(X)) if X and getattr(X[0], "ndim", 0) else X
    value = _of_xarray(X, name) if is_labelled(X) else X
    if hasattr(value, "__dask_graph__"):
        value = admit(gather(value, name), name)
        if hasattr(value, "tocsr"):
            return value.tocsr()
        value = value if is_frame(value) else np.asanyarray(value)
    return unmasked(value, name) if isinstance(value, np.ma.MaskedArray) else admit(value, name)


def _of_xarray(X: Foreign, name: str) -> Foreign:
    """Return a data set, or a matrix whose columns have names, as a frame; other arrays as they lie."""
    if hasattr(X, "data_vars"):
        from .ingest.tables.labelled import row_dimension

        row_dimension(X, name)
        return X.reset_coords(drop=True).to_dataframe()
    return X.to_pandas() if X.ndim == 2 and X.dims[1] in X.coords else X.data


def unmasked(X: np.ma.MaskedArray, name: str = "X") -> npt.NDArray[Any]:
    """Return a masked array as a plain one: numbers with NaN, names with None where they are masked.

    Raises DataError: an integer that float64 does not hold, where some are masked.
    """
    if not np.ma.is_masked(X):
        return X.data
    if X.dtype.kind not in "biuf":
        names = X.data.astype(object)
        names[np.ma.getmaskarray(X)] = None
        return names
    beyond = np.argwhere(is_inexact(np.ma.filled(X, 0)))
    if len(beyond):
        place = tuple(beyond[0].tolist())
        at = ", ".join(f"{what} {k + 1}" for what, k in zip(("row", "column"), place, strict=False))
        raise DataError(f"{at}: value {X[place]} {BEYOND}", name)
    return fill_masked(X)


def first_fault(X: UserData, allow_nan: bool = False) -> str:
    """Return where the first number lies that is not finite, row by row; nothing where there is none, or ``X`` holds no numbers."""
    faulty = np.isinf if allow_nan else lambda values: ~np.isfinite(values)
    if sp.issparse(X):
        entries = sp.coo_array(X)
        found = np.column_stack(entries.coords)[faulty(entries.data)]
        found = found[np.lexsort(found.T[::-1])]
    else:
        try:
            values = np.asarray(X)
            found = np.argwhere(faulty(values if values.dtype.kind == "c" else values.astype(np.float64)))
        except (TypeError, ValueError):
            return ""
    if not len(found):
        return ""
    row, *column = found[0].tolist()
    names = getattr(X, "columns", range(10**18))
    return f"row {row}" + (f", column {names[column[0]]!r}" if column else "")


def square_in_memory(X: UserData, name: str = "X") -> UserData:
    """Return similarities or kernel matrices of rows with themselves as :func:`in_memory` does. Raises ValueError: a frame names its rows
    and its columns alike, but in another order."""
    found = in_memory(X, name)
    for part in found if isinstance(found, list | tuple) else [found]:
        if not is_pandas(part) or part.columns.equals(part.index) or {*part.columns} != {*part.index}:
            continue
        k = next(k for k, pair in enumerate(zip(part.index, part.columns, strict=True)) if pair[0] != pair[1])
        order = f"row {k} is {part.index[k]!r} and column {k} is {part.columns[k]!r}"
        raise ValueError(f"{name}: rows and columns have the same names in another order ({order}); give {name}.loc[:, {name}.index]")
    return found


def column_numbers(given: UserData, n: int, name: str) -> list[Any]:
    """Return columns as they are named by number or name; of a mask the numbers of those where it is True. Raises ValueError: a mask of
    another length than the number of columns, ``n``."""
    listed = given.tolist() if hasattr(given, "tolist") else list(given)
    if not listed or not all(isinstance(value, bool | np.bool_) for value in listed):
        return listed
    if len(listed) != n:
        raise ValueError(f"{name} is a mask of {len(listed)} entries; it needs {n}")
    return np.flatnonzero(listed).tolist()


def feature_groups(given: Any, names: Sequence[Any] | None, n: int) -> UserData:
    """Return groups of ``n`` features: those of a size, one after the other, as labels; labels that a Series has by name in the order of
    the features. Raises ValueError: a size that does not divide them, or a Series that leaves some out."""
    if type(given) is int or isinstance(given, np.integer):
        if given < 1 or n % given:
            raise ValueError(f"groups={given}: groups of one size must make up all {n} features; give a label for each feature")
        return np.arange(n) // int(given)
    if not hasattr(given, "index") or not hasattr(given, "to_numpy"):
        return given
    if names is not None and {*names} & {*given.index}:
        missing = [name for name in names if name not in given.index]
        if missing or not given.index.is_unique:
            raise ValueError(f"groups has no label for feature {missing[0]!r}" if missing else "groups names a feature twice")
        given = given.loc[list(names)]
    return given.to_numpy()
