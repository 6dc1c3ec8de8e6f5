"""Covariates: unpenalised columns of a model, passed with the data or kept in a store."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.mixed_norm.elimination import DependentColumns, FreeBasis, constant_columns, dependent_columns, free_basis
from ...storage import DataError
from ...storage.data import in_memory
from ...storage.encoding.frames import frame_columns, is_frame
from ...storage.encoding.record import COVARIATE_RULE
from ...storage.errors import UserData

MAX_COVARIATES = 100
TABLE = "covariates"  # row table of a store


@dataclass(frozen=True, eq=False)
class Covariates:
    """Unpenalised columns, ``(n, q)``, and their names."""

    values: np.ndarray
    names: tuple[str, ...]
    _bases: dict[bool, FreeBasis] = field(default_factory=dict, repr=False)

    @property
    def q(self) -> int:
        return len(self.names)

    def basis(self, has_bias: bool) -> FreeBasis:
        """Return the basis for solvers, with or without an intercept. It is computed once.

        Raises DataError, naming the column, if a column is constant (with an intercept) or a linear combination of others.
        """
        if has_bias not in self._bases:
            self._refuse(constant_columns(self.values) if has_bias else [], "has a single value, like the intercept")
            try:
                self._bases[has_bias] = free_basis(self.values, has_bias)
            except DependentColumns as error:
                self._refuse(error.columns, f"is a combination of the others{' and the intercept' * has_bias}")
                raise
        return self._bases[has_bias]

    def refuse_dependent_in(self, rows: np.ndarray, has_bias: bool) -> None:
        """Check that columns are linearly independent on the rows of a mask, including the intercept. Raises DataError with the names of
        dependent columns.
        """
        values, where = self.values[rows], " in the rows that are learned from"
        self._refuse(constant_columns(values) if has_bias else [], f"has a single value{where}, like the intercept")
        self._refuse(dependent_columns(values, has_bias), f"is a combination of the others{' and the intercept' * has_bias}{where}")

    def _refuse(self, columns: Sequence[int], why: str) -> None:
        if columns:
            raise DataError(f"covariates: {', '.join(repr(self.names[k]) for k in columns)} {why}; leave it out")


def checked_covariates(values: UserData, n: int) -> Covariates:
    """Return covariates from a user's array, ``(n, q)`` or ``(n,)``, with names if it is a data frame.

    Raises ValueError if values are not numbers or not finite (the message names row and column), for a wrong number of rows, and for too
    many columns.
    """
    values = in_memory(values, "covariates")
    if is_frame(values):
        columns = frame_columns(values)
        for name, column in columns.items():
            if column.dtype.kind == "O":
                raise ValueError(f"covariates: column {name!r} holds no numbers; {COVARIATE_RULE}")
        return _check_columns(np.column_stack([*columns.values()]) if columns else np.zeros((n, 0)), n, list(columns))
    if sp.issparse(values):
        raise ValueError("covariates is a sparse matrix; it must be a dense array (n_samples, n_covariates)")
    try:
        array = np.array(values, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise ValueError("covariates: must be numbers, (n_samples, n_covariates)") from None
    return _check_columns(array[:, None] if array.ndim == 1 else array, n, None)


def _check_columns(array: np.ndarray, n: int, names: Sequence[str] | None) -> Covariates:
    if array.ndim != 2 or len(array) != n:
        raise ValueError(f"covariates has shape {array.shape}: must have a row for each of the {n} rows")
    if not 1 <= array.shape[1] <= MAX_COVARIATES:
        raise ValueError(f"covariates has {array.shape[1]} columns: must be 1 to {MAX_COVARIATES}")
    return _finite(array, tuple(names or (f"z{k}" for k in range(array.shape[1]))))


def _finite(array: np.ndarray, names: tuple[str, ...]) -> Covariates:
    odd = np.argwhere(~np.isfinite(array))
    if len(odd):
        row, column = odd[0].tolist()
        raise ValueError(f"covariates: row {row} of {names[column]!r} is {array[row, column]}, must be finite (no NaN)")
    return Covariates(array, names)


def given_covariates(value: object, n: int) -> Covariates | None:
    """Return the covariates of n rows from an array, from a file, or from a file's record (:func:`gramplane.storage.columns_file`)."""
    if value is None or isinstance(value, Covariates):
        return value
    if not isinstance(value, Mapping | str | os.PathLike):
        return checked_covariates(value, n)
    from ...storage import columns_file, load_columns

    values, names = load_columns(value if isinstance(value, Mapping) else columns_file(os.fspath(value), n))
    checked = checked_covariates(values, n)
    return Covariates(checked.values, tuple(names) if names else checked.names)


def stored_covariates(data: Any) -> Covariates | None:
    """Return the covariates kept in a store, or ``None``."""
    if not data.has_table(TABLE):
        return None
    checked = checked_covariates(data.row_table(TABLE), data.n_rows)
    return Covariates(checked.values, tuple(getattr(data.meta, TABLE, None) or checked.names))


def covariates_to_fit(value: Any, data: Any) -> Covariates | None:
    """Return the covariates of a fit, from the argument ``value`` or from the store. Raises DataError if both provide covariates."""
    given, stored = given_covariates(value, data.n_rows), stored_covariates(data)
    if given is not None and stored is not None:
        raise DataError(f"covariates are given, but the store already has {_names_text(stored.names)}; leave out the given ones", data.url)
    return stored if given is None else given


def covariates_to_decide(names: Sequence[str], value: Any, n: int, data: Any = None) -> np.ndarray | None:
    """Return the covariates ``(n, q)`` of n rows to predict, from the argument or from the store.

    ``names``: covariates of the fitted model. Raises ValueError if covariates are missing or unexpected, or if their number or names
    differ.
    """
    known = given_covariates(value, n)
    known = stored_covariates(data) if known is None and data is not None else known
    if not names:
        if known is not None:
            raise ValueError(f"covariates: the model was fitted without covariates, but the rows have {_names_text(known.names)}")
        return None
    if known is None:
        raise ValueError(f"covariates: the model was fitted with {_names_text(names)}; give their values for these rows")
    if known.q != len(names):
        raise ValueError(f"covariates has {known.q} columns, the model was fitted with {_names_text(names)}")
    if known.names != tuple(names) and not (_are_numbered(known.names) or _are_numbered(names)):
        raise ValueError(f"covariates are [{', '.join(known.names)}]; the model needs [{', '.join(names)}], in this order")
    return known.values


def _are_numbered(names: Sequence[str]) -> bool:
    return all(name == f"z{k}" for k, name in enumerate(names))


def _names_text(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    return f"{len(names)} covariate{'s' if len(names) > 1 else ''} ({shown})"
