"""Checks and conversion of user data: arrays (also masked), sparse matrices, data frames, Dask collections, xarray data and stores."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .blocks.store import BlockStore
from .encoding.chunks import fill_masked, is_inexact
from .encoding.frames import is_frame, is_labelled
from .encoding.record import BEYOND
from .errors import DataError, Foreign, Matrix, SchemaError, UserData
from .grams.store import GramStore
from .sparse_door import admit, gather

NUMBERS = [np.float64, np.float32]
"""Supported number types of rows; numbers of any other type are converted to float64."""


def is_store(X: object) -> bool:
    """Return whether ``X`` is a block store or a path to one."""
    return isinstance(X, (BlockStore, str, os.PathLike))


def opened(X: UserData, reader: str = "", digest: str | None = None) -> BlockStore:
    """Return the block store at a path or behind an object; with ``digest``, the version with this digest. Only the store's description is
    read.

    Raises DataError if ``reader`` is given (the name of a method that accepts no missing values) and the store has missing values;
    DigestMismatch if the version with the digest no longer exists.
    """
    store = X if isinstance(X, BlockStore) else BlockStore.open(X, digest)
    if reader and store.meta.n_missing:
        counts, names = store.column_table("missing"), store.feature_names()
        worst = int(np.argmax(counts))
        column = f"column {worst}" if names is None else f"column {worst} ({names[worst]!r})"
        raise DataError(
            f"{column} has {counts[worst]} missing values ({store.meta.n_missing} in all columns); {reader} does not accept missing "
            "values, only rule-ensemble does",
            store.url,
        )
    if reader and store.meta.n_coded:
        assert store.encoding is not None
        name = store.encoding.feature_names[next(iter(store.encoding.coded_levels))]
        advice = "to make a feature of every level, ingest the source with another --missing"
        raise DataError(
            f"column {name!r} holds category numbers (missing='keep'); only rule-ensemble accepts them, not {reader}; {advice}",
            store.url,
        )
    return store


def as_data(
    X: UserData,
    y: UserData = None,
    *,
    estimator: Any,
    encode: Callable[[Any, UserData, bool], Matrix | None] | None = None,
    reset: bool = True,
    name: str = "",
    **checks: Any,
) -> tuple[Any, Any]:
    """Return user data as a block store or rows in memory, together with the target.

    Rows are validated by scikit-learn's ``validate_data``. Data frames with named columns are first converted to features by ``encode``.
    The first number that is not finite is reported by row and column, and by ``name`` if it is not in ``X``. ``checks`` are passed to
    scikit-learn. Raises DataError if a store has missing values and the estimator does not accept NaN; ValueError if scikit-learn rejects
    rows or target.
    """
    if is_store(X):
        from sklearn.utils import get_tags

        return opened(X, "" if get_tags(estimator).input_tags.allow_nan else type(estimator).__name__), in_memory(y, "y")
    rows: Any = in_memory(X, name or "X")
    y = in_memory(y, "y")
    if hasattr(rows, "__arrow_c_stream__") and not hasattr(rows, "columns") and not hasattr(rows, "schema"):
        rows = np.asarray(rows)  # a single column, which is no table
    features = None if encode is None else encode(estimator, rows, reset)
    if features is None and _is_sound(estimator, rows, y, checks, reset):
        return rows, y
    from sklearn.utils.validation import check_array, check_X_y, validate_data

    of_rows = {key: value for key, value in checks.items() if key not in ("multi_output", "y_numeric")}
    if features is not None:
        if y is not None:
            return check_X_y(features, y, estimator=estimator, **checks)
        return check_array(features, estimator=estimator, input_name="X", **of_rows), None
    try:
        found: Any = validate_data(estimator, rows, *(() if y is None else (y,)), reset=reset, **(of_rows if y is None else checks))
        return (found, None) if y is None else found
    except ValueError as error:
        at = ""
        if "NaN" in str(error) or "infinity" in str(error):
            at = first_fault(rows, checks.get("ensure_all_finite") == "allow-nan") or (y is not None and first_fault(y))
        if not at:
            raise
        raise ValueError(f"{name and name + ': '}{at}: {error}") from None


def _is_sound(estimator: Any, rows: UserData, y: UserData, checks: Mapping[str, Any], reset: bool) -> bool:
    """Return whether validation can be skipped, because ``validate_data`` would return the rows and the target unchanged.

    This holds for a plain array or compressed matrix of finite numbers and a target of plain numbers. Without ``reset``, the array must
    have as many columns as the fitted estimator has features, and the estimator must have no feature names. The shortcut matters because
    ``validate_data`` takes several times as long as the decision value of a linear model on one row. With ``reset``, this function sets the
    attributes that validation would set.
    """
    is_sparse = sp.issparse(rows) and rows.format in (checks.get("accept_sparse") or ()) and rows.indices.dtype == np.int32
    if not is_sparse and type(rows) is not np.ndarray:
        return False
    if rows.ndim != 2 or not all(rows.shape) or rows.dtype not in (checks["dtype"] or ()):
        return False
    if not reset and (rows.shape[1] != getattr(estimator, "n_features_in_", None) or hasattr(estimator, "feature_names_in_")):
        return False
    if y is not None and not (type(y) is np.ndarray and y.shape == rows.shape[:1] and y.dtype.kind in "iubf" and np.isfinite(y).all()):
        return False
    if checks.get("ensure_all_finite", True):
        with np.errstate(over="ignore", invalid="ignore"):
            if not np.isfinite(np.sum(rows.data if is_sparse else rows)):
                return False
    if reset:
        estimator.n_features_in_ = rows.shape[1]
        vars(estimator).pop("feature_names_in_", None)
    return True


def as_grams(X: UserData, name: str = "X", estimator: Any = None, *, reset: bool = True) -> UserData:
    """Return kernel matrices: a Gram store, arrays (k, rows, columns) or a list of them, or one matrix, validated by scikit-learn for an
    estimator.

    Raises ValueError if scikit-learn rejects the matrices; at a fit (``reset``), also if row and column names are in different orders.
    """
    if isinstance(X, GramStore | str | os.PathLike):
        return X if isinstance(X, GramStore) else GramStore.open(X)
    found = square_in_memory(X, name) if reset else in_memory(X, name)
    is_stack = bool(found) and getattr(found[0], "ndim", 0) == 2 if isinstance(found, list | tuple) else getattr(found, "ndim", 0) == 3
    return found if is_stack or estimator is None else as_data(found, estimator=estimator, reset=reset, dtype=NUMBERS)[0]


def in_memory(X: UserData, name: str = "X") -> UserData:
    """Return user data as arrays, sparse matrices or frames in memory; lists of arrays are converted element by element.

    Dask collections, xarray data and lazy polars frames are computed. Masked numbers become NaN and masked names None. Sparse matrices are
    checked by ``sparse_door``. Raises DataError, with ``name`` and position, for a sparse matrix with an index out of range, a masked
    integer that float64 cannot represent, or an xarray data set that is not a table.
    """
    if type(X) is np.ndarray or X is None:
        return X
    if isinstance(X, list | tuple):
        return type(X)(in_memory(part, f"{name}[{k}]") for k, part in enumerate(X)) if X and getattr(X[0], "ndim", 0) else X
    is_plan = hasattr(X, "collect_schema") and hasattr(X, "collect")  # of polars
    value = _of_xarray(X, name) if is_labelled(X) else X.collect() if is_plan else X
    if hasattr(value, "__dask_graph__"):
        value = admit(gather(value, name), name)
        if hasattr(value, "tocsr"):
            return value.tocsr()
        value = value if is_frame(value) else np.asanyarray(value)
    return unmasked(value, name) if isinstance(value, np.ma.MaskedArray) else admit(value, name)


def _of_xarray(X: Foreign, name: str) -> Foreign:
    """Return an xarray data set, or a matrix with named columns, as a frame. Other arrays are returned without a copy."""
    if hasattr(X, "data_vars"):
        row_dimension(X, name)
        return X.reset_coords(drop=True).to_dataframe()
    return X.to_pandas() if X.ndim == 2 and X.dims[1] in X.coords else X.data


def row_dimension(data: Foreign, name: str) -> str:
    """Return the dimension shared by all variables of a data set. Raises SchemaError if there is none."""
    if not len(data.data_vars):
        raise SchemaError(f"{name} has no variables")
    odd = [str(column) for column in data.data_vars if len(data[column].dims) != 1]
    dims = {data[column].dims[0] for column in data.data_vars if len(data[column].dims) == 1}
    if odd or len(dims) != 1:
        what = (
            f"variable {odd[0]!r} has {len(data[odd[0]].dims)} dimensions" if odd else f"its variables lie along {sorted(map(str, dims))}"
        )
        raise SchemaError(f"{name}: {what}; all columns of a table must share one dimension, its rows; choose columns with data[[...]]")
    return dims.pop()


def unmasked(X: np.ma.MaskedArray, name: str = "X") -> npt.NDArray[Any]:
    """Return a masked array as a plain array; masked numbers become NaN and masked names None.

    Raises DataError if some integers are masked and another integer cannot be represented in float64.
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
    """Return, as text, the position of the first number that is not finite, searching row by row. The text is empty if all numbers are
    finite or ``X`` holds no numbers.
    """
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
    """Return similarities or kernel matrices of rows with themselves as :func:`in_memory` does.

    Raises ValueError if a frame has the same names for rows and columns, but in different orders.
    """
    found = in_memory(X, name)
    for part in found if isinstance(found, list | tuple) else [found]:
        if not hasattr(part, "iloc") or part.columns.equals(part.index) or {*part.columns} != {*part.index}:
            continue
        k = next(k for k, pair in enumerate(zip(part.index, part.columns, strict=True)) if pair[0] != pair[1])
        order = f"row {k} is {part.index[k]!r} and column {k} is {part.columns[k]!r}"
        raise ValueError(f"{name}: rows and columns have the same names in another order ({order}); give {name}.loc[:, {name}.index]")
    return found


def column_numbers(given: UserData, n: int, name: str) -> list[Any]:
    """Return a list of column numbers or names unchanged; convert a boolean mask to the numbers of its True entries.

    Raises ValueError if the length of a mask differs from the number of columns, ``n``.
    """
    listed = given.tolist() if hasattr(given, "tolist") else list(given)
    if not listed or not all(isinstance(value, bool | np.bool_) for value in listed):
        return listed
    if len(listed) != n:
        raise ValueError(f"{name} is a mask of {len(listed)} entries; it needs {n}")
    return np.flatnonzero(listed).tolist()


def feature_groups(given: Any, names: Sequence[Any] | None, columns: Sequence[Any] | None, n: int) -> UserData:
    """Return the group labels of ``n`` features, in feature order.

    ``given`` is the size of consecutive groups, or a Series of labels; its index holds the names of the features, or of the ``columns``
    from which the features are made. Raises ValueError if the size does not divide the number of features, or the Series lacks a name.
    """
    if given is None:
        return None
    is_size, is_named = np.issubdtype(type(given), np.integer), hasattr(given, "keys") and not hasattr(given, "to_numpy")
    if is_named or not (is_size or hasattr(given, "__iter__")):
        raise ValueError(f"groups={given!r}: must be a label for each feature, a list of arrays of features, or the size of all groups")
    if is_size:
        if given < 1 or n % given:
            raise ValueError(f"groups={given}: the group size must divide {n}, the number of features; or give a label for each feature")
        return np.arange(n) // int(given)
    if not hasattr(given, "index") or not hasattr(given, "to_numpy"):
        return given
    if names is not None and columns is not None and {*names, *columns} & {*given.index}:
        names = [name if name in given.index else column for name, column in zip(names, columns, strict=True)]
        missing = [name for name in names if name not in given.index]
        if missing or not given.index.is_unique:
            raise ValueError(f"groups has no label for feature {missing[0]!r}" if missing else "groups names a feature twice")
        given = given.loc[names]
    return given.to_numpy()
