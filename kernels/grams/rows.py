"""Rows of data as the kernels read them: checked, restricted to a subset of the features, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from .distances import squared_norms

Array = np.ndarray
Rows = np.ndarray | sp.csr_array
"""(n, d) numbers, or an object array of n strings."""

DENSE_COLUMNS = 1024
"""Sparse rows over at most so many features are made dense: BLAS then wins, and the bits are those of dense rows."""

LARGEST = 1e140
"""Numbers whose squares and their sums stay finite."""


def as_rows(X: Any, name: str = "X") -> Rows:
    """Return data as an array of numbers, a CSR array in canonical form, or an object array of strings.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    if sp.issparse(X):
        rows = sp.csr_array(X)
        if not rows.has_canonical_format:
            # A copy: the caller's arrays may be shared.
            rows = rows.copy()
            rows.sum_duplicates()
        return rows
    if isinstance(X, (list, tuple)) and any(isinstance(row, str) for row in X):
        X = np.array(X, dtype=object)
    rows = np.asarray(X)
    if rows.dtype.kind in "OU" and rows.ndim == 1 and all(isinstance(row, str) for row in rows):
        return rows
    if rows.ndim != 2 or rows.dtype.kind not in "fiub":
        raise ValueError(f"{name} has shape {rows.shape} and type {rows.dtype}; rows are a matrix of numbers or a list of strings")
    return rows


def n_columns(rows: Rows) -> int | None:
    """Return the number of features, None for strings."""
    return shape(rows)[1] if rows.ndim == 2 else None


def shape(rows: Rows) -> tuple[int, ...]:
    """Return (n, d), or (n,) for strings."""
    return tuple(rows.shape or ())


def subset(rows: Rows, columns: tuple[int, ...] | None) -> Rows:
    """Return some of the features, all of them for None."""
    return rows if columns is None else rows[:, list(columns)]


@dataclass(frozen=True)
class Side:
    """The rows of one side of a block over a subset of the features, finite numbers in float64.

    Attributes
    ----------
    values : ndarray or csr_array of shape (n, c)
    label : str
        ``"X"`` or ``"Z"``, for messages.
    columns : tuple of int or None
        The features in the data, for messages.
    """

    values: Rows
    label: str
    columns: tuple[int, ...] | None

    @classmethod
    def take(cls, rows: Rows, label: str, columns: tuple[int, ...] | None, who: object) -> Side:
        """Return the subset, checked.

        Raises
        ------
        ValueError
            If an entry is not finite or its square would not be; names the kernel ``who``, the row and the column.
        """
        side = cls(_numbers(subset(rows, columns)), label, columns)
        if not side.peak <= LARGEST:
            side.refuse(~(np.abs(side.entries) <= LARGEST), who, f"numbers must be finite and at most {LARGEST:g}")
        return side

    @property
    def sparse(self) -> bool:
        """Whether the rows are sparse."""
        return sp.issparse(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, c)."""
        n, c = shape(self.values)
        return n, c

    @property
    def entries(self) -> Array:
        """The stored numbers, as they lie."""
        return self.values.data if isinstance(self.values, sp.csr_array) else self.values

    @cached_property
    def peak(self) -> float:
        """The greatest absolute value, NaN if there is one."""
        return float(max(self.entries.max(initial=0.0), -self.lowest)) if self.lowest == self.lowest else float("nan")

    @cached_property
    def lowest(self) -> float:
        """The least stored value or 0, NaN if there is one."""
        return float(self.entries.min(initial=0.0))

    @cached_property
    def norms(self) -> Array:
        """Squared norms of the rows."""
        if isinstance(self.values, sp.csr_array):
            squares = sp.csr_array((self.values.data**2, self.values.indices, self.values.indptr), shape=self.values.shape)
            return squares @ np.ones(self.shape[1])
        out = np.empty(self.shape[0])
        squared_norms(self.values, out)
        return out

    @property
    def csr(self) -> tuple[Array, Array, Array]:
        """Values, columns and starts of sparse rows, in one type each."""
        assert isinstance(self.values, sp.csr_array)
        return self.values.data, self.values.indices.astype(np.int64, copy=False), self.values.indptr.astype(np.int64, copy=False)

    def refuse(self, bad: Array, who: object, rule: str) -> None:
        """Raise ValueError about the first of the bad entries, if there is any."""
        found = np.flatnonzero(bad)
        if not found.size:
            return
        at = int(found[0])
        if isinstance(self.values, sp.csr_array):
            row, column = int(np.searchsorted(self.values.indptr, at, side="right")) - 1, int(self.values.indices[at])
        else:
            row, column = divmod(at, self.shape[1])
        shown = column if self.columns is None else self.columns[column]
        value = float(self.entries.reshape(-1)[at])
        raise ValueError(f"kernel {who}: {self.label} has {value:g} in row {row}, column {shown}; {rule}")


def _numbers(part: Rows) -> Rows:
    if isinstance(part, np.ndarray):
        return np.ascontiguousarray(part, dtype=np.float64)
    return part.toarray().astype(np.float64) if shape(part)[1] <= DENSE_COLUMNS else sp.csr_array(part, dtype=np.float64)


def text_rows(rows: Rows, who: object, label: str) -> Array:
    """Return rows of strings, or raise ValueError naming the kernel that wants them."""
    if rows.ndim != 1:
        raise ValueError(f"kernel {who} reads strings; {label} is a matrix of numbers")
    return np.asarray(rows, dtype=object)
