"""Rows of data in the form that kernels read: checked, restricted to the kernel's features, in float64."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from .distances import squared_norms

Rows = np.ndarray | sp.csr_array  # (n, d) numbers, or an object array of n strings.

DENSE_COLUMNS = 1024
"""Sparse rows over at most this number of features are made dense. BLAS is then faster, with the same bits as for dense rows."""

MAX_NUMBER = 1e140  # Greatest number: its square and sums of squares stay finite.


def as_rows(X: object, name: str = "X") -> Rows:
    """Return data as an array of numbers, a CSR array in canonical form, or an object array of strings."""
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
        raise ValueError(f"{name} has shape {rows.shape} and type {rows.dtype}; it must be a matrix of numbers or a list of strings")
    return rows


def n_columns(rows: Rows) -> int | None:
    """Return the number of features, or None for strings."""
    return row_shape(rows)[1] if rows.ndim == 2 else None


def row_shape(rows: Rows) -> tuple[int, ...]:
    """Return (n, d), or (n,) for strings."""
    return tuple(rows.shape or ())


@dataclass(frozen=True)
class DenseColumns:
    """Some columns of sparse rows, made dense once for many kernels that each read a few of these columns."""

    values: Array  # (n, c), a column after the other
    places: dict[int, int]  # of the columns by their number among all

    @classmethod
    def of(cls, rows: Rows, columns: Iterable[tuple[int, ...] | None]) -> Rows | DenseColumns:
        """Return the columns that kernels read, or the rows unchanged if they are dense or kernels read all or many columns."""
        read = list(columns)
        if not sp.issparse(rows) or len(read) < 2 or None in read:
            return rows
        union = sorted({column for some in read for column in some or ()})
        if len(union) > DENSE_COLUMNS:
            return rows
        return cls(sp.csr_array(rows)[:, union].toarray(order="F"), {column: place for place, column in enumerate(union)})


def select_columns(rows: Rows | DenseColumns, columns: tuple[int, ...] | None) -> Rows:
    """Return some of the features; None means all."""
    if isinstance(rows, DenseColumns):
        return rows.values[:, [rows.places[column] for column in columns or ()]]
    return rows if columns is None else rows[:, list(columns)]


@dataclass(frozen=True)
class Side:
    """The rows of one side of a block over some features, as finite float64 numbers. Messages contain ``label`` and ``columns``."""

    values: Rows
    label: str
    columns: tuple[int, ...] | None

    @classmethod
    def take(cls, rows: Rows | DenseColumns, label: str, columns: tuple[int, ...] | None, who: object) -> Side:
        """Return the rows with some of their columns. Raises ValueError, with ``who``, row and column, if an entry or its square is not
        finite.
        """
        part = select_columns(rows, columns)
        if isinstance(part, np.ndarray):
            values: Rows = np.ascontiguousarray(part, dtype=np.float64)
        else:
            is_narrow = row_shape(part)[1] <= DENSE_COLUMNS
            values = part.toarray().astype(np.float64) if is_narrow else sp.csr_array(part, dtype=np.float64)
        side = cls(values, label, columns)
        if not side.peak <= MAX_NUMBER:
            side.refuse(~(np.abs(side.entries) <= MAX_NUMBER), who, f"numbers must be finite and at most {MAX_NUMBER:g}")
        return side

    @property
    def sparse(self) -> bool:
        return sp.issparse(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        n, c = row_shape(self.values)
        return n, c

    @property
    def entries(self) -> Array:
        """The stored numbers in storage order."""
        return self.values.data if isinstance(self.values, sp.csr_array) else self.values

    @cached_property
    def peak(self) -> float:
        """The largest absolute value; NaN if there is a NaN."""
        return float(max(self.entries.max(initial=0.0), -self.lowest)) if self.lowest == self.lowest else float("nan")

    @cached_property
    def lowest(self) -> float:
        """The smallest stored value or 0, whichever is smaller; NaN if there is a NaN."""
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
        """Values, columns and starts of sparse rows, each in a fixed type."""
        assert isinstance(self.values, sp.csr_array)
        return self.values.data, self.values.indices.astype(np.int64, copy=False), self.values.indptr.astype(np.int64, copy=False)

    def refuse(self, bad: Array, who: object, rule: str) -> None:
        """Raise ValueError for the first of the bad entries, if there is one."""
        indices = np.flatnonzero(bad)
        if not indices.size:
            return
        at = int(indices[0])
        if isinstance(self.values, sp.csr_array):
            row, column = int(np.searchsorted(self.values.indptr, at, side="right")) - 1, int(self.values.indices[at])
        else:
            row, column = divmod(at, self.shape[1])
        shown = column if self.columns is None else self.columns[column]
        value = float(self.entries.reshape(-1)[at])
        raise ValueError(f"kernel {who}: {self.label} has {value:g} in row {row}, column {shown}; {rule}")


def text_rows(rows: Rows, who: object, label: str) -> Array:
    """Return rows of strings. Raises ValueError, which names the kernel, for other rows."""
    if rows.ndim != 1:
        raise ValueError(f"kernel {who} reads strings; {label} is a matrix of numbers")
    return np.asarray(rows, dtype=object)
